"""Sees what a candidate does beside its work: in its own process, by audit events.

Python raises an audit event before it opens a file, makes a socket, starts a process,
or looks through the objects of the garbage collector.  A hook cannot be removed.  An
event counts if the candidate caused it: the nearest frame that is not of Python's
standard library is one of its own.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from types import FrameType, ModuleType

_EVENTS = {
    "gc.get_objects": "looks-around",
    "gc.get_referrers": "looks-around",
    "gc.get_referents": "looks-around",
    "sys._getframe": "looks-around",
    "sys._current_frames": "looks-around",
    "sys.settrace": "looks-around",
    "sys.setprofile": "looks-around",
    "open": "opens-files",
    "os.listdir": "opens-files",
    "os.scandir": "opens-files",
    "glob.glob": "opens-files",
    "subprocess.Popen": "leaves-the-process",
    "os.system": "leaves-the-process",
    "os.fork": "leaves-the-process",
    "os.exec": "leaves-the-process",
    "os.posix_spawn": "leaves-the-process",
    "os.kill": "leaves-the-process",
    "socket.__new__": "leaves-the-process",
    "socket.connect": "leaves-the-process",
    "urllib.Request": "leaves-the-process",
    "ctypes.dlopen": "raw-memory",
    "ctypes.string_at": "raw-memory",
    "ctypes.cdata": "raw-memory",
    "ctypes.cdata/buffer": "raw-memory",
    "ctypes.addressof": "raw-memory",
    "ctypes.memmove": "raw-memory",
    "ctypes.PyObj_FromPtr": "raw-memory",
    "exec": "hidden-code",
    "compile": "hidden-code",
    "import": "knows-the-judge",
}
_STANDARD = tuple(
    {os.path.realpath(sysconfig.get_paths()[each]) for each in ("stdlib", "platstdlib")}
)
_PACKAGES = os.sep + "site-packages" + os.sep


class Watcher:
    """Tells what a candidate does; each kind of event once."""

    def __init__(self, file: str, tell: Callable[[str, str], None]) -> None:
        self._file, self._tell = file, tell
        self._told: set[str] = set()
        self._inside = False

    def start(self) -> None:
        """Watch from now on, until the process ends."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[object, ...]) -> None:
        name = _EVENTS.get(event)
        if name is None or name in self._told or self._inside:
            return
        self._inside = True
        try:
            if name == "knows-the-judge" and not _about_judge(given):
                return
            if event == "compile" and given and given[0] is None:  # from a syntax tree
                return
            if self._caused(sys._getframe(1), event):
                self._told.add(name)
                self._tell(name, f"{event}{_shown(given)}")
        finally:
            self._inside = False

    def _caused(self, frame: FrameType | None, event: str) -> bool:
        while frame is not None:
            file = frame.f_code.co_filename
            if file == self._file:
                return True
            importing = file.startswith("<frozen importlib") and event != "import"
            if importing or not _is_standard(file):
                return False
            frame = frame.f_back
        return False


def _about_judge(given: tuple[object, ...]) -> bool:
    return bool(given) and str(given[0]).startswith("fragmenta.judge")


def _is_standard(file: str) -> bool:
    if file.startswith("<frozen "):
        return True
    return file.startswith(_STANDARD) and _PACKAGES not in file


def _shown(given: tuple[object, ...]) -> str:
    plain = [repr(each)[:60] for each in given if isinstance(each, str | int)]
    return f"({', '.join(plain[:2])})"


# ── patches ─────────────────────────────────────────────────────────────────

_WATCHED = (
    "builtins",
    "math",
    "numpy",
    "time",
    "torch",
    "torch.cuda",
    "torch.nn",
    "torch.nn.functional",
    "torch.testing",
    "triton",
    "triton.language",
    "triton.testing",
)
Names = dict[str, object]


class Originals:
    """The functions and classes of modules, as they were before a candidate came."""

    def __init__(self) -> None:
        self._spaces: dict[str, tuple[object, Names]] = {}
        for name, module in sorted(sys.modules.items()):
            if isinstance(module, ModuleType) and _counts(name):
                self._add(name, module)

    def _add(self, name: str, module: ModuleType) -> None:
        self._spaces[name] = (module, _callables(module))
        for key, value in list(vars(module).items()):
            if not isinstance(value, type):
                continue
            own = value.__module__ == name and name.startswith("fragmenta.")
            if own or key in ("Tensor", "Module", "Event", "Stream"):
                self._spaces[f"{name}.{key}"] = (value, _callables(value))

    def changed(self) -> list[str]:
        """What is no longer as it was."""
        found = []
        for where, (space, before) in self._spaces.items():
            now = _callables(space)
            found += [
                f"{where}.{name}"
                for name, value in before.items()
                if now.get(name, value) is not value
            ]
        return found


def _counts(name: str) -> bool:
    return name in _WATCHED or name.startswith("fragmenta.")


def _callables(space: object) -> Names:
    """The functions of a module; those of a class, also if they are inherited."""
    parts = space.__mro__[-2::-1] if isinstance(space, type) else (space,)
    return {
        name: each
        for part in parts
        for name, each in vars(part).items()
        if callable(each)
    }
