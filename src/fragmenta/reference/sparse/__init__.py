"""Sparse matrices A: made, checked, stored and exchanged with other libraries."""
