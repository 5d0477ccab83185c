"""Kernels in CUDA C++ as users have them."""

from __future__ import annotations

from fragmenta.api.kernels import Loaded
from fragmenta.cuda.tools import raw


class RawKernel(raw.RawKernel):
    """A kernel in CUDA C++ that runs on the CPU, with the bits that a GPU returns.

    It is made and called as ``cupy.RawKernel``; the arrays are NumPy's, or CPU tensors
    of another library, and are changed in place.

    ``options`` are those of NVRTC, such as ``-std=c++20``.  CUDA's headers are found if
    the wheel ``nvidia-cuda-runtime`` or a toolkit is installed.  A name that C++ has
    mangled is found too, if only one kernel has it.  ``scale<float, 4>`` makes an
    instance of a template, ``lib::scale`` is in a namespace.  As in CuPy, launches are
    cooperative with ``enable_cooperative_groups=True``.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> add = ptx.RawKernel(r'''
    ... extern "C" __global__
    ... void add(const float *x, const float *y, float *z, int n)
    ... {
    ...     int i = blockDim.x * blockIdx.x + threadIdx.x;
    ...     if (i < n) z[i] = x[i] + y[i];
    ... }''', "add")
    >>> x, z = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    >>> result = add((1,), (32,), (x, x, z, 5))
    >>> z
    array([0., 2., 4., 6., 8.], dtype=float32)
    """

    modules = Loaded
