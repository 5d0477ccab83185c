"""Functions without a body: which of them a kernel may call.

CUDA declares some functions that the driver or its device runtime has.  Python carries
out those of :data:`HOST_FUNCTIONS`.  No kernel launches
another one here (dynamic parallelism), and nothing is linked from another file.
"""

from __future__ import annotations

from fragmenta.errors import one_of

HOST_FUNCTIONS = {
    "vprintf": ((1,), (2, 2)),
    "__assertfail": ((), (2, 2, 1, 2, 2)),
    "malloc": ((2,), (2,)),
    "free": ((), (2,)),
}
"""Functions without a body that the host carries out: the words of 32 bits of each
result, and of each parameter."""

_CDP = "__cudaCDP2"
"""What the names of CUDA's device runtime begin with since CUDA 12."""


def missing(name: str) -> str:
    """Why a function without a body cannot be called; nothing if it can be.

    >>> missing("vprintf")
    ''
    >>> missing("__cudaCDP2LaunchDeviceV2")
    'cudaLaunchDeviceV2 is of dynamic parallelism, which is not supported'
    >>> missing("helper").partition(";")[0]
    'helper has no body in this file'
    """
    if name in HOST_FUNCTIONS:
        return ""
    plain = f"cuda{name.removeprefix(_CDP)}" if name.startswith(_CDP) else name
    if plain.startswith("cuda"):
        return f"{plain} is of dynamic parallelism, which is not supported"
    return (
        f"{name} has no body in this file; of functions without one, "
        f"{one_of(HOST_FUNCTIONS, 'and')} can be called"
    )
