"""Confines a process that runs a stranger's Python, as far as the system can.

On Linux, Landlock lets it read only Python's own files and write only to one folder,
and a filter of system calls (seccomp) takes away sockets, new processes, and access to
other processes.  Both are for good.  Limits of processor time, addresses and the size
of files are kept by every system that has them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from fragmenta.frontends.pool.confining import confine as limit
from fragmenta.launch.limits import Limits

FILES, NETWORK, PROCESSES = "files", "network", "processes"
LARGEST_FILE = 1 << 28
"""Bytes of a file that it may write."""


def confine(folder: Path, limits: Limits) -> list[str]:
    """Confine this process; what the system takes away from it.

    ``limits`` are those of all that it does together.
    """
    limit(limits)
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    if sys.platform != "linux":
        return []
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    taken = [FILES] if _landlock(folder) else []
    return taken + ([NETWORK, PROCESSES] if _seccomp() else [])


# ── Landlock ────────────────────────────────────────────────────────────────

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls, which have the same numbers everywhere."""
_READ = 0b1101  # execute, read a file, read a folder
_SINCE = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many kinds of access a version knows."""
_LIBRARIES = ("/usr", "/lib", "/lib64", "/etc", "/sys/devices/system/cpu", "/opt")
_PROC = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


def _landlock(folder: Path) -> bool:
    system = ctypes.CDLL(None, use_errno=True).syscall
    version = system(_CREATE, None, 0, 1)
    if version < 1:
        return False
    known = (1 << max(n for since, n in _SINCE.items() if since <= version)) - 1
    fields = [known, *([3] if version >= 4 else []), *([3] if version >= 6 else [])]
    about = struct.pack(f"<{len(fields)}Q", *fields)
    rules = system(_CREATE, about, len(about), 0)
    if rules < 0:
        return False
    try:
        for path in _readable():
            _allow(rules, path, _READ)
        for device in _DEVICES:
            _allow(rules, device, 0b110)
        _allow(rules, str(folder), known)
        return bool(system(_RESTRICT, rules, 0) == 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    """Allow some kinds of access to a file, or to all that is below a folder."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= 0b111 | 1 << 14
        rule = struct.pack("<Qi", access, opened)
        ctypes.CDLL(None).syscall(_ADD, rules, 1, rule, 0)
    finally:
        os.close(opened)


def _readable() -> Iterable[str]:
    """Python, its packages, libraries of the system, and this package."""
    yield from (*_LIBRARIES, *_PROC)
    yield from {sys.prefix, sys.base_prefix, sys.exec_prefix}
    yield from set(sysconfig.get_paths().values())
    yield str(Path(__file__).parents[2])  # this package
    yield from (each for each in sys.path if "site-packages" in Path(each).parts)


# ── seccomp ─────────────────────────────────────────────────────────────────

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS = {
    "x86_64": {
        "shmget": 29,
        "shmat": 30,
        "shmctl": 31,
        "socket": 41,
        "connect": 42,
        "bind": 49,
        "listen": 50,
        "fork": 57,
        "vfork": 58,
        "execve": 59,
        "kill": 62,
        "semget": 64,
        "semop": 65,
        "semctl": 66,
        "msgget": 68,
        "msgsnd": 69,
        "msgrcv": 70,
        "msgctl": 71,
        "ptrace": 101,
        "setpriority": 141,
        "rt_sigqueueinfo": 129,
        "mount": 165,
        "umount2": 166,
        "tkill": 200,
        "semtimedop": 220,
        "mq_open": 240,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "ioprio_set": 251,
        "migrate_pages": 256,
        "unshare": 272,
        "move_pages": 279,
        "rt_tgsigqueueinfo": 297,
        "perf_event_open": 298,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "bpf": 321,
        "execveat": 322,
        "userfaultfd": 323,
        "pidfd_send_signal": 424,
        "io_uring_setup": 425,
        "pidfd_getfd": 438,
        "process_madvise": 440,
    },
    "aarch64": {
        "ioprio_set": 30,
        "umount2": 39,
        "mount": 40,
        "unshare": 97,
        "ptrace": 117,
        "kill": 129,
        "tkill": 130,
        "rt_sigqueueinfo": 138,
        "setpriority": 140,
        "mq_open": 180,
        "msgget": 186,
        "msgctl": 187,
        "msgrcv": 188,
        "msgsnd": 189,
        "semget": 190,
        "semctl": 191,
        "semtimedop": 192,
        "semop": 193,
        "shmget": 194,
        "shmctl": 195,
        "shmat": 196,
        "socket": 198,
        "bind": 200,
        "listen": 201,
        "connect": 203,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "execve": 221,
        "migrate_pages": 238,
        "move_pages": 239,
        "rt_tgsigqueueinfo": 240,
        "perf_event_open": 241,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "bpf": 280,
        "execveat": 281,
        "userfaultfd": 282,
        "pidfd_send_signal": 424,
        "io_uring_setup": 425,
        "pidfd_getfd": 438,
        "process_madvise": 440,
    },
}
"""The system calls that are refused, and their numbers."""
_OF_ITSELF = {
    "x86_64": {
        "tgkill": 234,
        "prlimit64": 302,
        "sched_setparam": 142,
        "sched_setscheduler": 144,
        "sched_setaffinity": 203,
        "sched_setattr": 314,
    },
    "aarch64": {
        "tgkill": 131,
        "prlimit64": 261,
        "sched_setparam": 118,
        "sched_setscheduler": 119,
        "sched_setaffinity": 122,
        "sched_setattr": 274,
    },
}
"""The system calls that a process may use on itself only: ``abort`` needs the first,
``setrlimit`` the second, and some libraries place their threads.  Their first argument
is a process; 0 is the own one."""
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_THREAD = 0x00010000
"""What ``clone`` is asked for by a new thread."""
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE, _UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026
"""Allow; the error EPERM; the error ENOSYS, after which ``clone`` is tried."""


def _seccomp() -> bool:
    machine = platform.machine()
    if machine not in _CALLS:
        return False
    numbers = sorted(_CALLS[machine].values())
    rows = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, 0),
        (0x35, 0, 1, 0x40000000),  # at least: the other numbers of x86
        (_RETURN, 0, 0, _REFUSE),
    ]
    for each in numbers:
        rows += [(_EQUAL, 0, 1, each), (_RETURN, 0, 0, _REFUSE)]
    for each in _OF_ITSELF[machine].values():
        rows += [
            (_EQUAL, 0, 5, each),
            (_LOAD, 0, 0, 16),
            (_EQUAL, 2, 0, 0),
            (_EQUAL, 1, 0, os.getpid()),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    rows += [
        (_EQUAL, 0, 1, _CLONE3),
        (_RETURN, 0, 0, _UNKNOWN),
        (_EQUAL, 0, 3, _CLONE[machine]),
        (_LOAD, 0, 0, 16),
        (_AND, 1, 0, _THREAD),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("<HBBI", *row) for row in rows)
    )

    class FilterProgram(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    program = FilterProgram(len(rows), ctypes.addressof(code))
    done = ctypes.CDLL(None).prctl(22, 2, ctypes.byref(program), 0, 0)
    return bool(done == 0)
