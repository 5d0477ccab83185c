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

from fragmenta import methods
from fragmenta.errors import KernelFault, KernelHazard
from fragmenta.launch.kernel import Kernel, load, parse
from fragmenta.launch.result import Result
from fragmenta.launch.structs import struct, tensor_map
from fragmenta.simt.arguments import pointer
from fragmenta.simt.empties import empty

if TYPE_CHECKING:
    from fragmenta.methods import RawKernel
else:
    __getattr__ = methods.of_ptx

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
