"""Limits that the system keeps for a process that runs kernels of strangers.

A worker may write to no file and leave no core file.  During a launch, its addresses
and its processor time have an end.  The end is counted from what it has and has used
before, so that one worker can run many launches.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import time

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from fragmenta.base.arrays.threads import cores
from fragmenta.errors import Error, KernelFault, LimitReached
from fragmenta.launch.limits import Limits, how_to_raise, machine_memory, size_text

GRACE = 5.0
"""Seconds after the time of a launch, in which its worker must stop it and answer."""
BASE = 1 << 30
"""Bytes of addresses that threads and the compiler take beside a launch's memory."""
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38


def check_system() -> None:
    """Refuse a system without limits of processes, such as Windows."""
    if resource is None or not hasattr(os, "fork"):
        raise Error("a process of its own needs a system with fork and rlimits")


def seal() -> None:
    """Give up for good what no launch needs: files, core files, more rights."""
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(what, (0, 0))
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent(parent: int) -> None:
    """Let the system end this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(0)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def confine(limits: Limits) -> None:
    """Limit what this process may take from now on, until the next call."""
    if limits.seconds is not None:
        spent = time.process_time()
        wanted = spent + (limits.seconds + GRACE) * cores()
        _set(resource.RLIMIT_CPU, math.ceil(min(wanted, 1 << 31)))
    if sys.platform == "linux":  # others do not keep to it
        memory = limits.memory if limits.memory is not None else machine_memory()
        if memory is not None:
            _set(resource.RLIMIT_AS, _addresses() + memory + BASE)


def release() -> None:
    """End the limits of a launch."""
    for what in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
        _set(what, resource.RLIM_INFINITY)


def _set(what: int, number: int) -> None:
    """Set a limit, but not beyond what this process may have at all."""
    _, hard = resource.getrlimit(what)
    number = min(number, sys.maxsize)
    if hard != resource.RLIM_INFINITY:
        number = hard if number == resource.RLIM_INFINITY else min(number, hard)
    resource.setrlimit(what, (number, hard))


def _addresses() -> int:
    """The bytes of addresses that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def out_of_time(limits: Limits) -> LimitReached:
    """The error for a worker that did not stop in time, and was ended."""
    return LimitReached(
        f"the process that ran the kernel was ended {GRACE:g} s after the "
        f"{limits.seconds or 0:g} s that it may take{how_to_raise('seconds')}",
        "seconds",
    )


def died(status: int, limits: Limits) -> KernelFault:
    """The error for a worker that ended without an answer; signals are negative."""
    if status == -getattr(signal, "SIGXCPU", 0):
        return LimitReached(
            "the process that ran the kernel used up its processor time"
            + how_to_raise("seconds"),
            "seconds",
        )
    if status == -getattr(signal, "SIGKILL", 0):
        memory = limits.memory if limits.memory is not None else machine_memory()
        most = "" if memory is None else f", which may have {size_text(memory)}"
        return LimitReached(
            f"the system ended the process that ran the kernel{most}"
            + how_to_raise("memory"),
            "memory",
        )
    if status < 0:
        name = signal.Signals(-status).name
        return crashed(f"crashed with {name}")
    return crashed(f"ended with status {status} and no answer")


def crashed(how: str) -> KernelFault:
    """The error for a worker that failed in a way that no kernel should cause."""
    return KernelFault(
        f"the process that ran the kernel {how}; this is a mistake of fragmenta, "
        "please report it with the PTX",
        "crash",
    )
