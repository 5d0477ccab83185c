"""What does a whole kernel do?

parse(text), load(path)   read PTX
module.kernels            its kernels
kernel.launch(...)        run one on the CPU, with the bits that a GPU returns; watch it
pointer(array, offset)    an argument that points into an array
empty(shape, dtype)       an array that counts as unwritten
struct(...)               a struct by value, with pointers in it
tensor_map(array, box)    the tensor map of an array
RawKernel(code, name)     a kernel in CUDA C++, called as CuPy's
KernelFault               the error of a kernel that does what it must not do
KernelHazard              the error of one that ran to its end with a race or the like

>>> import numpy as np
>>> from fragmenta import ptx
>>> half = ptx.RawKernel(
...     '''extern "C" __global__ void half_of(float *x) { x[threadIdx.x] *= 0.5f; }''',
...     "half_of",
... )
>>> x = np.arange(4, dtype=np.float32)
>>> result = half((1,), (4,), (x,))
>>> x
array([0. , 0.5, 1. , 1.5], dtype=float32)
"""

from typing import TYPE_CHECKING

from fragmenta.errors import KernelFault, KernelHazard
from fragmenta.names import homes, loader
from fragmenta.ptx.arguments import pointer
from fragmenta.ptx.structs import struct, tensor_map
from fragmenta.ptx.watching.empties import empty

if TYPE_CHECKING:
    from fragmenta.api.kernels import Kernel, Result, load, parse
    from fragmenta.api.raw import RawKernel
else:
    __getattr__ = loader(
        globals(),
        homes({"api.kernels": "Kernel Result load parse", "api.raw": "RawKernel"}),
    )

__all__ = [
    "Kernel",
    "KernelFault",
    "KernelHazard",
    "RawKernel",
    "Result",
    "empty",
    "load",
    "parse",
    "pointer",
    "struct",
    "tensor_map",
]
