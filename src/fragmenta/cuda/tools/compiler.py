"""Compiles CUDA C++ with NVRTC or ``nvcc``.

CUDA C++ becomes machine code or PTX through NVRTC, a library that needs no GPU, no
driver and no host compiler (the wheel ``nvidia-cuda-nvrtc``), or else through
an ``nvcc`` and the host compiler that goes with it.  NVRTC brings no headers: those of
the wheel ``nvidia-cuda-runtime`` or of a CUDA toolkit are found where they are.

What was compiled once is kept in :mod:`fragmenta.jit.cache` under the source, the
target, the options and the compiler's version.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol

from fragmenta.arrays.once import once
from fragmenta.cuda.tools import assembler
from fragmenta.errors import BadCall, CompileError, Error, MissingPackage, one_of
from fragmenta.isa.target import check_target
from fragmenta.jit.cache import Cache

_LIBRARIES = (
    "nvidia/cu*/lib/libnvrtc.so*",
    "nvidia/cuda_nvrtc/lib/libnvrtc.so*",
    "nvidia/cu*/bin/**/nvrtc64_*.dll",
)


_INCLUDES = ("nvidia/cu*/include", "nvidia/cuda_runtime/include")
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH")
_STANDARD = re.compile(
    r'open source file "([a-z_]+|(assert|float|limits|math|std\w+|string)\.h)"'
)
_NO_STANDARD = (
    "\nnvrtc has no C++ standard library. printf, assert and the functions of <cmath> "
    "need no header; others are in <cuda/std/...>, of the wheel nvidia-cuda-cccl"
)
_NO_HEADER = (
    "\nCUDA's headers are in the wheels nvidia-cuda-runtime, nvidia-cuda-crt and, for "
    "<cuda/std/...> and <nv/target>, nvidia-cuda-cccl"
)


class Compiler(Protocol):
    """Something that makes machine code or PTX of CUDA C++."""

    @property
    def version(self) -> str:
        """Its name and version, such as ``nvrtc 13.4``."""

    def compile(self, source: str, target: str, options: tuple[str, ...]) -> bytes:
        """The cubin, or :class:`CompileError`."""

    def compile_ptx(
        self, source: str, target: str, options: tuple[str, ...], name: str = ""
    ) -> bytes:
        """PTX, or :class:`CompileError`; with a name, line 1 is its mangled form."""


def to_cubin(
    source: str, target: str, *options: str, compiler: str | None = None
) -> bytes:
    r"""The machine code of CUDA C++ for one target, from the cache if it is there.

    >>> to_cubin("__global__ void f(int* x) { *x = 1; }", "sm_90a")[:4]
    b'\x7fELF'
    >>> try:
    ...     to_cubin("__global__ void f() { g(); }", "sm_90a")
    ... except CompileError as why:
    ...     print(str(why).splitlines()[1])
    source.cu(1): error: identifier "g" is undefined
    """
    target = check_target(target)
    chosen = find(compiler)
    key = [chosen.version, target, *options, source]
    return _kept(key, lambda: chosen.compile(source, target, options))


def to_ptx(source: str, target: str, *options: str, compiler: str | None = None) -> str:
    """The PTX of CUDA C++ for one target, from the cache if it is there.

    >>> text = to_ptx("__global__ void f(int* x) { *x = 1; }", "sm_90a")
    >>> ".target sm_90a" in text
    True
    """
    return _to_ptx(source, target, options, find(compiler), "")


def to_ptx_of(
    source: str, target: str, *options: str, name: str, compiler: str | None = None
) -> tuple[str, str]:
    """The PTX, and the name in it of a kernel that C++ has mangled.

    ``name`` is an expression of C++, such as ``scale<float>``.  It names the instance
    of a template that is compiled.

    >>> source = "template<typename T> __global__ void f(T* x) { *x = 1; }"
    >>> text, name = to_ptx_of(source, "sm_90a", name="f<double>")
    >>> name
    '_Z1fIdEvPT_'
    """
    chosen = find(compiler)
    if not isinstance(chosen, Nvrtc):
        raise BadCall(
            f"{name} is an expression, which nvrtc understands and nvcc does not; "
            "give the mangled name"
        )
    mangled, _, text = _to_ptx(source, target, options, chosen, name).partition("\n")
    return text, mangled


def _to_ptx(
    source: str, target: str, options: tuple[str, ...], chosen: Compiler, name: str
) -> str:
    target = check_target(target)
    folders = map(str, includes())  # the result depends on the headers
    kind = f"{chosen.version} to PTX{name and ' of '}{name}"
    key = [kind, target, *options, *folders, source]
    found = _kept(key, lambda: chosen.compile_ptx(source, target, options, name))
    # NVRTC invents a file in the current folder for its line information.
    pattern = r'(\.file\s+\d+\s+)"[^"]*[/\\]source\.cu"'
    return re.sub(pattern, r'\1"source.cu"', found.decode())


def _kept(key: list[str], make: Callable[[], bytes]) -> bytes:
    """The cache's entry for a key; it is made now if there is none."""
    kept = Cache.present()
    found = kept.get("\0".join(key))
    if found is None:
        found = make()
        kept.put("\0".join(key), found)
    return found


def includes() -> list[Path]:
    """The folders with CUDA's headers: of the wheels, else of a toolkit.

    >>> all(folder.is_dir() for folder in includes())
    True
    """
    wheels = [
        f for place in map(Path, sys.path) for i in _INCLUDES for f in place.glob(i)
    ]
    named = [Path(os.environ[n], "include") for n in _TOOLKITS if os.environ.get(n)]
    on_path = shutil.which("nvcc")
    if on_path is not None:
        named.append(Path(on_path).resolve().parents[1] / "include")
    for folder in (*wheels, *named):
        if (folder / "cuda_fp16.h").is_file():
            inner = folder / "cccl"  # <cuda/std/...>
            return [folder, inner] if inner.is_dir() else [folder]
    return []


@once
def find(name: str | None = None) -> Compiler:
    """A compiler by name, ``nvrtc`` or ``nvcc``; the first that is here if none.

    >>> find().version.split()[0] in ("nvrtc", "nvcc")
    True
    """
    kinds: dict[str, type[Compiler]] = {"nvrtc": Nvrtc, "nvcc": Nvcc}
    if name is not None and name not in kinds:
        raise BadCall(f"no compiler {name}; there are {one_of(kinds, 'and')}")
    for each in kinds if name is None else (name,):
        try:
            return kinds[each]()
        except (OSError, Error):
            continue
    raise MissingPackage(
        f"no {name or 'CUDA compiler'} found; install the wheel nvidia-cuda-nvrtc, "
        "or put a CUDA toolkit on PATH"
    )


# ── NVRTC ───────────────────────────────────────────────────────────────────


def _library() -> str:
    """The library of the installed wheels, else of the system."""
    for folder in map(Path, sys.path):
        for pattern in _LIBRARIES:
            found = sorted(folder.glob(pattern), key=lambda path: len(path.name))
            if found:
                return str(found[0])
    on_system = ctypes.util.find_library("nvrtc")
    if on_system is None:
        raise MissingPackage("no nvrtc found")
    return on_system


def _about_headers(said: str) -> str:
    """Where a header is that the compiler did not find."""
    if "open source file" not in said:
        return ""
    return _NO_STANDARD if _STANDARD.search(said) else _NO_HEADER


class Nvrtc:
    """NVIDIA's compiler as a library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_library())
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    @cached_property
    def version(self) -> str:
        """``nvrtc`` and its version."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"nvrtc {major.value}.{minor.value}"

    def compile(self, source: str, target: str, options: tuple[str, ...]) -> bytes:
        """The cubin, or what the compiler says is wrong."""
        return self._made("CUBIN", source, target, (f"-arch={target}", *options))

    def compile_ptx(
        self, source: str, target: str, options: tuple[str, ...], name: str = ""
    ) -> bytes:
        """The PTX, or what the compiler says is wrong.

        If a name is given, the mangled name is a line before it.
        """
        virtual = f"-arch={target.replace('sm_', 'compute_')}"
        headers = [f"--include-path={folder}" for folder in includes()]
        words = (virtual, *options, *headers)
        return self._made("PTX", source, target, words, name).rstrip(b"\0")

    def _made(
        self,
        kind: str,
        source: str,
        target: str,
        options: tuple[str, ...],
        name: str = "",
    ) -> bytes:
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram",
            *(ctypes.byref(program), source.encode(), b"source.cu", 0, None, None),
        )
        try:
            if name:
                self._call("nvrtcAddNameExpression", program, name.encode())
            words = [word.encode() for word in options]
            array = (ctypes.c_char_p * len(words))(*words)
            if self._library.nvrtcCompileProgram(program, len(words), array):
                said = self._read("ProgramLog", program).rstrip(b"\0").decode()
                raise CompileError(
                    f"nvrtc refuses the source for {target}:\n{said.rstrip()}"
                    + _about_headers(said)
                )
            return self._mangled(program, name) + self._read(kind, program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _mangled(self, program: ctypes.c_void_p, name: str) -> bytes:
        """A line with the mangled name of a kernel, if one is wanted."""
        if not name:
            return b""
        found = ctypes.c_char_p()
        words = (program, name.encode(), ctypes.byref(found))
        self._call("nvrtcGetLoweredName", *words)
        return (found.value or b"") + b"\n"

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            said = self._library.nvrtcGetErrorString(code).decode()
            raise CompileError(f"{name} fails: {said}")


# ── nvcc ────────────────────────────────────────────────────────────────────


class Nvcc:
    """NVIDIA's compiler as a program."""

    def __init__(self) -> None:
        self._program = str(assembler.tool("nvcc"))

    @cached_property
    def version(self) -> str:
        """``nvcc`` and its version."""
        said = self._call("--version").stdout
        match = re.search(r"V(\d+\.\d+\.\d+)", said)
        if match is None:
            raise Error(f"nvcc does not print its version: {said}")
        return f"nvcc {match[1]}"

    def compile(self, source: str, target: str, options: tuple[str, ...]) -> bytes:
        """The cubin, or what the compiler says is wrong."""
        return self._made("-cubin", source, target, options)

    def compile_ptx(
        self, source: str, target: str, options: tuple[str, ...], name: str = ""
    ) -> bytes:
        """The PTX, or what the compiler says is wrong; the name is not used."""
        return self._made("-ptx", source, target, options)

    def _made(
        self, kind: str, source: str, target: str, options: tuple[str, ...]
    ) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder, "source.cu"), Path(folder, "source.made")
            given.write_text(source)
            words = (kind, f"-arch={target}", *options, "-o", str(made), str(given))
            done = self._call(*words)
            if done.returncode:
                said = (done.stdout + done.stderr).replace(str(given), given.name)
                raise CompileError(
                    f"nvcc refuses the source for {target}:\n{said.rstrip()}"
                )
            return made.read_bytes()

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [self._program, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)
