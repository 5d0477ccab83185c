"""Runs Triton kernels without a GPU.

    with on_cpu("sm_90a"):       in this block, every kernel[grid](...) runs here
    install("sm_90a")            the same from now on
    uninstall()                  undo the last install

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
"""

from fragmenta.triton.driver import CPU, install, on_cpu, uninstall

__all__ = ["CPU", "install", "on_cpu", "uninstall"]
