"""What every room stands on.

progress  notices of what takes long
door      tables of public names, loaded when they are used
arrays    checks of NumPy arrays, caches, records as JSON
jit       Python that is traced and compiled with LLVM

Errors are in :mod:`fragmenta.errors`, for users to name.
"""
