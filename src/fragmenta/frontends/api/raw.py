"""Kernels in CUDA C++ as users have them."""

from __future__ import annotations

from fragmenta.cuda.tools import raw
from fragmenta.frontends.api.kernels import Loaded


class RawKernel(raw.RawKernel):
    """A kernel in CUDA C++ that runs on the CPU, with the bits that a GPU returns.

    It is made and called as ``cupy.RawKernel``; the arrays are NumPy's, or CPU tensors
    of another library, and are changed in place.

    ``options`` are those of NVRTC, such as ``-std=c++20``.  CUDA's headers are found if
    the wheel ``nvidia-cuda-runtime`` or a toolkit is installed.  A name that C++ has
    mangled is found too, if only one kernel has it.  ``scale<float, 4>`` makes an
    instance of a template, ``lib::scale`` is in a namespace.  As in CuPy, launches are
    cooperative with ``enable_cooperative_groups=True``.  ``path`` is the file that the
    code is from: reports then name it, and headers beside it are found.

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


class RawModule(raw.RawModule):
    """Kernels in CUDA C++, or of a file, that run on the CPU.

    It is made and used as ``cupy.RawModule``.  ``path`` is a file of CUDA C++ or PTX, a
    cubin, a fat binary or a program with PTX in it; with ``code``, it is the file that
    the code is from.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> module = ptx.RawModule(code='''
    ... __constant__ float factor[1];
    ... template <typename T> __global__ void scale(T *x)
    ... {
    ...     x[threadIdx.x] *= factor[0];
    ... }''', name_expressions=("scale<float>", "scale<double>"))
    >>> np.ndarray((1,), np.float32, module.get_global("factor"))[:] = 3
    >>> x = np.arange(4.0)
    >>> result = module.get_function("scale<double>")((1,), (4,), (x,))
    >>> x
    array([0., 3., 6., 9.])
    """

    modules = Loaded
    kernel_type = RawKernel
