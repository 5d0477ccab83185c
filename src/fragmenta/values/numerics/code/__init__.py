"""Compiled code that computes nearly exact values, and counts what is lost."""
