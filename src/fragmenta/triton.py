"""Runs Triton kernels without a GPU.

    with on_cpu("sm_90a"):       in this block, every kernel[grid](...) runs here
    install("sm_90a")            the same from now on
    uninstall()                  undo the last install
    with inductor("sm_90a"):     in this block, also what torch.compile makes
    classes(kernel, configs, args, grid=...)   which configurations leave the same bits

Triton compiles as for a GPU.  Its PTX is launched by :mod:`fragmenta.ptx`, with the
bits that a GPU returns.  Arrays are NumPy's (``ml_dtypes`` for bfloat16 and the 8-bit
types) or PyTorch's CPU tensors, and are changed in place.  Each is memory of its own: a
kernel that leaves it is stopped, with the line of the Triton source.  The kernel
applies strides itself, as on a GPU.  Of an array that is not contiguous, it can access
the memory from the lowest to the highest element; of a tensor with an expanded axis,
the rest of its storage.

``sm_90a`` has wgmma, tensor descriptors for the copy engine (TMA) and clusters
(``num_ctas``), ``sm_100a`` has tcgen05 and tensor memory.
``on_cpu("sm_90a", schedule=("eager", "lazy", 1))`` runs each launch with several
orders of its asynchronous work, which must all give the same bits.

``@triton.autotune`` takes the configuration that executes the fewest instructions: a
thousand warp instructions count as a millisecond, also in ``triton.testing.do_bench``.
With ``autotune="first"``, it takes the first one that the GPU can run.
"""

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener
from fragmenta.frontends.triton.configurations import classes
from fragmenta.frontends.triton.driver import CPU, install, on_cpu, uninstall

__all__ = ["CPU", "classes", "inductor", "install", "on_cpu", "uninstall"]

if TYPE_CHECKING:
    from fragmenta.frontends.triton.compiled import inductor as inductor
else:  # needs PyTorch, and is loaded when it is used
    __getattr__ = opener(__name__, homes({"frontends.triton.compiled": "inductor"}))
