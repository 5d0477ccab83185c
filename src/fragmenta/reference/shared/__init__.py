"""Shared memory: tiles, descriptors, swizzles, bank conflicts, and what moves them."""
