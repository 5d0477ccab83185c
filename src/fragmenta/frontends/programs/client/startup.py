"""What Python does first in programs that ``fragmenta run`` starts.

It is on their path as ``sitecustomize``.  ``cuda.bindings``, on which cuda.core, the
CuTe DSL and others stand, has the static CUDA runtime in it, and compiles with NVRTC.
Both are reached through tables of functions that Cython makes for other modules.  Here
the functions of the runtime are replaced by those of the client, and NVRTC is asked for
line information, so that its machine code has the PTX beside it.

This file is copied; it runs in any Python and imports nothing of fragmenta.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
LINES = b"--generate-line-info"
KEPT: list[object] = []
"""Functions that C calls must stay."""


def _capsules(module: ModuleType) -> dict[str, object]:
    found = getattr(module, "__pyx_capi__", {})
    return dict(found) if isinstance(found, dict) else {}


def _address(capsule: object) -> int:
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    name = api.PyCapsule_GetName(ctypes.py_object(capsule))
    place = api.PyCapsule_GetPointer(ctypes.py_object(capsule), ctypes.c_char_p(name))
    return int(place)


def _replace(capsule: object, address: int) -> None:
    ctypes.pythonapi.PyCapsule_SetPointer(
        ctypes.py_object(capsule), ctypes.c_void_p(address)
    )


def runtime(module: ModuleType) -> None:
    """Let the functions of CUDA's runtime be those of the client."""
    bindings = sys.modules["cuda.bindings"]
    major = str(getattr(bindings, "__version__", "13")).partition(".")[0]
    folder = os.path.dirname(os.environ["FRAGMENTA_RUN"])
    client = ctypes.CDLL(os.path.join(folder, f"libcudart.so.{major}"))
    for name, capsule in _capsules(module).items():
        function = getattr(client, name.lstrip("_"), None)
        if name.lstrip("_").startswith("cuda") and function is not None:
            place = ctypes.cast(function, ctypes.c_void_p).value
            assert place is not None, name
            _replace(capsule, place)


def nvrtc(module: ModuleType) -> None:
    """Let NVRTC make line information."""
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)
    )
    capsule = _capsules(module).get("_nvrtcCompileProgram")
    if capsule is None:
        return
    original = kind(_address(capsule))

    def compile_program(
        program: int, count: int, options: ctypes._Pointer[ctypes.c_char_p]
    ) -> int:
        given = [options[index] for index in range(count)]
        if LINES not in given and b"-lineinfo" not in given:
            given.append(LINES)
        made = (ctypes.c_char_p * len(given))(*given)
        return int(original(program, len(given), made))

    replaced = kind(compile_program)
    KEPT.append(replaced)
    place = ctypes.cast(replaced, ctypes.c_void_p).value
    assert place is not None
    _replace(capsule, place)


CHANGED: dict[str, Callable[[ModuleType], None]] = {
    "cuda.bindings._internal.runtime": runtime,
    "cuda.bindings._internal.nvrtc": nvrtc,
}


class _Changing(Loader):
    """Loads a module as another loader does, then changes it."""

    def __init__(self, loader: Loader, change: Callable[[ModuleType], None]) -> None:
        self.loader, self.change = loader, change

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module, not yet filled."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Fill it, and change it before others import it."""
        self.loader.exec_module(module)
        self.change(module)


class _Finder(MetaPathFinder):
    """Finds the modules that are changed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Where a module is; None for all others."""
        if fullname not in CHANGED:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            found.loader = _Changing(found.loader, CHANGED[fullname])
        return found


def _others() -> None:
    """Do what the user's own ``sitecustomize`` does."""
    path = [each for each in sys.path if os.path.abspath(each or ".") != HERE]
    found = PathFinder.find_spec("sitecustomize", path)
    if found is not None and found.loader is not None:
        module = module_from_spec(found)
        sys.modules["sitecustomize"] = module
        found.loader.exec_module(module)


if "FRAGMENTA_RUN" in os.environ:
    sys.meta_path.insert(0, _Finder())
    _others()
