"""Sees what a candidate does beside its work: in its own process, by audit events.

Python raises an audit event before it opens a file, makes a socket, starts a process,
or looks through the objects of the garbage collector.  A hook cannot be removed.  An
event counts if the candidate caused it: the nearest frame that is not of Python's
standard library is one of its own.  What the library does for itself does not count:
``namedtuple`` and ``dataclass`` make code, warnings and tracebacks read the source.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType

_EVENTS = {
    "gc.get_objects": "looks-around",
    "gc.get_referrers": "looks-around",
    "gc.get_referents": "looks-around",
    "sys._getframe": "looks-around",
    "sys._current_frames": "looks-around",
    "sys.settrace": "looks-around",
    "sys.setprofile": "looks-around",
    "sys.gettrace": "looks-around",
    "sys.addaudithook": "looks-around",
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
    "object.__getattr__": "looks-around",
    "object.__setattr__": "patched",
    "ctypes.dlsym": "raw-memory",
    "ctypes.dlsym/handle": "raw-memory",
    "code.__new__": "hidden-code",
    "marshal.loads": "hidden-code",
    "exec": "hidden-code",
    "compile": "hidden-code",
    "import": "knows-the-judge",
}
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame", "f_code")
"""Attributes that lead to frames of others."""
_CODE = ("__code__", "__defaults__", "__kwdefaults__")
_MAKERS = {
    "compile": ("dataclasses", "collections", "traceback", "ast", "typing", "enum"),
    "exec": ("dataclasses", "collections"),
    "sys._getframe": ("collections", "typing", "enum", "warnings", "dataclasses"),
}
"""Modules of the library that make code, or look at frames, for themselves."""
_SHOW_FRAMES = ("currentframe", "walk_tb", "walk_stack", "stack", "extract_stack")
"""Functions of the library that give frames to those who call them."""
_STANDARD = tuple(
    {os.path.realpath(sysconfig.get_paths()[each]) for each in ("stdlib", "platstdlib")}
)
_NUMPY = os.sep + os.path.join("numpy", "lib") + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep


class Watcher:
    """Tells what a candidate does; each kind of event once."""

    def __init__(
        self,
        file: str,
        tell: Callable[[str, str], None],
        others: Mapping[str, Callable[..., None]] | None = None,
    ) -> None:
        """``others`` are called for events of these names."""
        self._file, self._tell, self._others = file, tell, others or {}
        self._told: set[str] = set()
        self._inside = False
        self._main = threading.get_ident()

    def start(self) -> None:
        """Watch from now on, until the process ends."""
        sys.addaudithook(self._hook)
        for space in (sys, threading):
            space.gettrace = _no_trace  # type: ignore[attr-defined]

    def _hook(self, event: str, given: tuple[object, ...]) -> None:
        other = self._others.get(event)
        if other is not None:
            other(*given)
            return
        name = _EVENTS.get(event)
        if name is None or name in self._told or self._inside:
            return
        self._inside = True
        try:
            if self._counts(event, given, sys._getframe(1)):
                self._told.add(name)
                self._tell(name, f"{event}{_shown(given)}")
        finally:
            self._inside = False

    def _counts(
        self, event: str, given: tuple[object, ...], frame: FrameType | None
    ) -> bool:
        if event == "sys.gettrace":
            frame = frame.f_back if frame is not None else None
        if event == "sys.settrace" and _module(frame) == "threading":
            return False  # a new thread is traced because this one is
        if event == "import":
            return _about_judge(given) and self._caused(frame, event)
        if event == "compile" and given and given[0] is None:  # from a syntax tree
            return False
        if event == "open" and self._is_own(given, frame):
            return False
        if event.startswith("object."):
            return self._is_foreign_attribute(event, given, frame)
        if _module(frame) in _MAKERS.get(event, ()) and not _shows(frame):
            return False
        if event == "sys._getframe" and _module(frame) == "logging":
            # It looks for who logs; its function gives a frame to who calls that.
            return frame is not None and self._of_candidate(frame.f_back)
        return self._caused(frame, event)

    def _is_own(self, given: tuple[object, ...], frame: FrameType | None) -> bool:
        """Whether the library reads source that runs, to show a line of it."""
        if _module(frame) not in ("linecache", "tokenize") or not given:
            return False
        file = str(given[0])
        return file == self._file or (_shows_lines(frame) and _runs(file, frame))

    def _is_foreign_attribute(
        self, event: str, given: tuple[object, ...], frame: FrameType | None
    ) -> bool:
        """Whether the candidate asks for a frame, or changes others' functions."""
        of, name = (*given, "", "")[:2]
        if event == "object.__setattr__":
            home = getattr(of, "__globals__", {}).get("__file__", "")
            return name in _CODE and home != self._file and self._of_candidate(frame)
        if name not in _FRAMES:
            return False
        if self._of_candidate(frame):
            return True
        return _shows(frame) and frame is not None and self._of_candidate(frame.f_back)

    def _of_candidate(self, frame: FrameType | None) -> bool:
        return frame is not None and frame.f_code.co_filename == self._file

    def _caused(self, frame: FrameType | None, event: str) -> bool:
        while frame is not None:
            file = frame.f_code.co_filename
            if file == self._file:
                return True
            importing = file.startswith("<frozen importlib") and event != "import"
            # NumPy opens files for who asks it.
            opens = event == "open" and _NUMPY in file
            if importing or not (opens or _is_standard(file)):
                return False
            frame = frame.f_back
        # A thread that runs nothing but the library was started by the candidate.
        return threading.get_ident() != self._main


def _no_trace() -> None:
    """What ``sys.gettrace`` is for a candidate."""
    sys.audit("sys.gettrace")


def _module(frame: FrameType | None) -> str:
    """The module of the standard library that a frame is in; else nothing."""
    if frame is None or not _is_standard(frame.f_code.co_filename):
        return ""
    path, name = os.path.split(frame.f_code.co_filename)
    return os.path.basename(path) if name == "__init__.py" else name.removesuffix(".py")


def _shows_lines(frame: FrameType | None) -> bool:
    """Whether a warning or a traceback asks for lines, not the candidate itself."""
    while frame is not None and _is_standard(frame.f_code.co_filename):
        if _module(frame) in ("traceback", "warnings"):
            return True
        frame = frame.f_back
    return False


def _runs(file: str, frame: FrameType | None) -> bool:
    """Whether a file is that of a function on the stack, or of a module."""
    while frame is not None:
        if frame.f_code.co_filename == file:
            return True
        frame = frame.f_back
    modules = [*sys.modules.values()]
    return any(getattr(each, "__file__", None) == file for each in modules)


def _shows(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_name in _SHOW_FRAMES


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
