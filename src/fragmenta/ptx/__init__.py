"""PTX: reading it, checking it, running whole kernels.

parse(text)               read PTX
load(path)                read a file: PTX, CUDA C++, a binary with PTX in it
module.kernels            its kernels
kernel.launch(...)        run one on the CPU, with the bits that a GPU returns; watch it
pointer(array, offset)    an argument that points into an array
empty(shape, dtype)       an array that counts as unwritten
struct(...)               a struct by value, with pointers in it
tensor_map(array, box)    the tensor map of an array
Call(kernel, grid, ...)   a launch as a value
same(call, call)          whether two launches leave the same bits, for all inputs
invariant(make, over)     whether all sizes or configurations do; classes, targets
RawKernel(code, name)     a kernel in CUDA C++, called as CuPy's
RawModule(code=, path=)   several of them, or those of a file
Pool(workers)             processes that stay warm and launch many kernels
Watch, Limits             how a launch is watched, and what it may take
Replay, Window            a recorded run, step by step; which part of it is recorded
KernelFault               the error of a kernel that does what it must not do
KernelHazard              the error of one with a race or the like; both are KernelError

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

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener

_HOME = homes(
    {
        "frontends.api.kernels": "Kernel Result load parse",
        "frontends.pool.job": "Job",
        "frontends.pool.pool": "Pool",
        "inspect.evidence.recorded": "recorded",
        "launch.instruments": "AllOrders Counting ExactValues Watch",
        "launch.limits": "Limits",
        "launch.request": "LaunchOptions LaunchRequest",
        "launch.structs": "struct tensor_map",
        "inspect.sameness.calls": "Call",
        "inspect.sameness.deciding": "Sameness same",
        "inspect.sameness.invariance": "Classes classes invariant targets",
        "inspect.sameness.tree": "Tree",
        "engine.simt.arguments": "pointer",
        "engine.simt.empties": "empty",
        "engine.tracing.trace": "Window",
        "frontends.api.raw": "RawKernel RawModule",
        "frontends.api.replays": "Replay",
        "errors": "KernelError KernelFault KernelHazard LimitReached",
    }
)
__all__ = sorted(_HOME)  # noqa: PLE0605 - the keys are strings

# The imports say to type checkers what the table says; a test holds the two together.
if TYPE_CHECKING:
    from fragmenta.engine.simt.arguments import pointer as pointer
    from fragmenta.engine.simt.empties import empty as empty
    from fragmenta.engine.tracing.trace import Window as Window
    from fragmenta.errors import KernelError as KernelError
    from fragmenta.errors import KernelFault as KernelFault
    from fragmenta.errors import KernelHazard as KernelHazard
    from fragmenta.errors import LimitReached as LimitReached
    from fragmenta.frontends.api.kernels import Kernel as Kernel
    from fragmenta.frontends.api.kernels import Result as Result
    from fragmenta.frontends.api.kernels import load as load
    from fragmenta.frontends.api.kernels import parse as parse
    from fragmenta.frontends.api.raw import RawKernel as RawKernel
    from fragmenta.frontends.api.raw import RawModule as RawModule
    from fragmenta.frontends.api.replays import Replay as Replay
    from fragmenta.frontends.pool.job import Job as Job
    from fragmenta.frontends.pool.pool import Pool as Pool
    from fragmenta.inspect.evidence.recorded import recorded as recorded
    from fragmenta.inspect.sameness.calls import Call as Call
    from fragmenta.inspect.sameness.deciding import Sameness as Sameness
    from fragmenta.inspect.sameness.deciding import same as same
    from fragmenta.inspect.sameness.invariance import Classes as Classes
    from fragmenta.inspect.sameness.invariance import classes as classes
    from fragmenta.inspect.sameness.invariance import invariant as invariant
    from fragmenta.inspect.sameness.invariance import targets as targets
    from fragmenta.inspect.sameness.tree import Tree as Tree
    from fragmenta.launch.instruments import AllOrders as AllOrders
    from fragmenta.launch.instruments import Counting as Counting
    from fragmenta.launch.instruments import ExactValues as ExactValues
    from fragmenta.launch.instruments import Watch as Watch
    from fragmenta.launch.limits import Limits as Limits
    from fragmenta.launch.request import LaunchOptions as LaunchOptions
    from fragmenta.launch.request import LaunchRequest as LaunchRequest
    from fragmenta.launch.structs import struct as struct
    from fragmenta.launch.structs import tensor_map as tensor_map
else:
    __getattr__ = opener(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
