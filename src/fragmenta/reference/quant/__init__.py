"""Quantisation: numbers become small elements and scales, and back."""
