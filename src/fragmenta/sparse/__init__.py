"""Sparse matrices: pruned, compressed, and exchanged with other libraries."""
