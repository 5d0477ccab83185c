"""Compiles CUDA C++ with NVRTC or ``nvcc``.

CUDA C++ becomes machine code or PTX through NVRTC, a library that needs no GPU, no
driver and no host compiler (the wheel ``nvidia-cuda-nvrtc``), or else through
an ``nvcc`` and the host compiler that goes with it.  NVRTC brings no headers: those of
the wheels ``nvidia-cuda-runtime``, ``-crt`` and ``-cccl`` or of a CUDA toolkit are
found where they are, those of the standard library are in :mod:`headers`.

What was compiled once is kept in :mod:`fragmenta.base.jit.cache` under the source, the
files that it includes, the target, the options and the compiler's version.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.cache import Cache
from fragmenta.cuda.tools import assembler, headers, messages
from fragmenta.errors import BadCall, CompileError, Error, MissingPackage, one_of
from fragmenta.ptx.sources import UNNAMED
from fragmenta.reference.isa.target import check_target

_LIBRARIES = (
    "nvidia/cu*/lib/libnvrtc.so*",
    "nvidia/cuda_nvrtc/lib/libnvrtc.so*",
    "nvidia/cu*/bin/**/nvrtc64_*.dll",
)


_INCLUDES = ("nvidia/cu*/include", "nvidia/cuda_runtime/include")
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH")
_NO_HEADER = (
    "\nCUDA's headers are in the wheels nvidia-cuda-runtime, nvidia-cuda-crt and, for "
    "<cuda/std/...> and <nv/target>, nvidia-cuda-cccl: pip install fragmenta[cuda]"
)
_NO_FOLDER = (
    "\nThe option -IFOLDER names a folder of headers; for a command, --flags -IFOLDER"
)
_OF_CUDA = re.compile(
    r"(?:\bcuda|\bcub/|\bthrust/|\bnv/|\bcrt/|\bmma\.h|\bcooperative_groups|"
    r"\bvector_types|\bdevice_|\bsm_\d\d)[^\n]*",
    re.ASCII,
)
"""What a source is called that has no file."""


class TranslationUnit(NamedTuple):
    """What is compiled: a translation unit of C++."""

    code: str
    target: str
    options: tuple[str, ...] = ()
    path: str = ""
    """The file that it is from; headers beside it are found."""
    names: tuple[str, ...] = ()
    """Expressions that name kernels, such as ``scale<float>``."""

    @property
    def file(self) -> str:
        """The file's name for line information and messages."""
        return os.path.abspath(self.path) if self.path else UNNAMED

    @property
    def folders(self) -> list[Path]:
        """Where the user's own headers are."""
        words = iter(self.options)
        found = [Path(self.file).parent] if self.path else []
        for word in words:
            option = re.match("-I|--include-path=|-isystem", word)
            if option is not None:
                found.append(Path(word[option.end() :] or next(words, "")))
        return found

    @property
    def key(self) -> list[str]:
        """All that the result depends on, but for the compiler."""
        known = [*map(str, includes())]
        own = headers.digest(self.code, self.folders)
        place = [self.file, own] if self.folders else []
        return [self.target, *self.options, *place, *self.names, *known, self.code]


class Compiler(Protocol):
    """Something that makes machine code or PTX of CUDA C++."""

    @property
    def version(self) -> str:
        """Its name and version, such as ``nvrtc 13.4``."""

    def compile(self, source: str, target: str, options: tuple[str, ...]) -> bytes:
        """The cubin, or :class:`CompileError`."""

    def compile_ptx(self, unit: TranslationUnit) -> bytes:
        """PTX, or :class:`CompileError`; before it, a line for each mangled name."""


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
    source.cu:1:23: error: identifier "g" is undefined
    """
    target = check_target(target)
    chosen = find(compiler)
    key = [chosen.version, target, *options, source]
    return _kept(key, lambda: chosen.compile(source, target, options))


def to_ptx(
    source: str, target: str, *options: str, compiler: str | None = None, path: str = ""
) -> str:
    """The PTX of CUDA C++ for one target, from the cache if it is there.

    ``path`` is the file that the source is from: line information names it, and headers
    beside it are found.

    >>> text = to_ptx("__global__ void f(int* x) { *x = 1; }", "sm_90a")
    >>> ".target sm_90a" in text
    True
    """
    return compiled(TranslationUnit(source, target, options, path), find(compiler))[0]


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
    unit = TranslationUnit(source, target, options, names=(name,))
    text, mangled = compiled(unit, find(compiler))
    return text, mangled[name]


def compiled(unit: TranslationUnit, chosen: Compiler) -> tuple[str, dict[str, str]]:
    """The PTX, and the mangled name of each expression, from the cache if it is there.

    >>> code = "template<int N> __global__ void f() {}"
    >>> unit = TranslationUnit(code, "sm_90a", names=("f<1>",))
    >>> compiled(unit, find())[1]
    {'f<1>': '_Z1fILi1EEvv'}
    """
    if unit.names and not isinstance(chosen, Nvrtc):
        raise BadCall(
            f"{unit.names[0]} is an expression, which nvrtc understands and nvcc does "
            "not; give the mangled name"
        )
    unit = unit._replace(target=check_target(unit.target))
    key = [f"{chosen.version} to PTX", str(len(unit.names)), *unit.key]
    found = _kept(key, lambda: chosen.compile_ptx(unit)).decode()
    *mangled, text = found.split("\n", len(unit.names))
    return _named(unit, text), dict(zip(unit.names, mangled, strict=True))


def _named(unit: TranslationUnit, text: str) -> str:
    """PTX whose line information names files as the user does.

    NVRTC invents a file in the current folder for a source that has none.
    """
    found, wanted = rf'[^"]*[/\\]{re.escape(UNNAMED)}"', f'{UNNAMED}"'
    if unit.path:
        folder, given = os.path.dirname(unit.file), os.path.dirname(unit.path)
        found, wanted = re.escape(folder + os.sep), os.path.join(given, "")
    return re.sub(
        rf'^(\s*\.file\s+\d+\s+"){found}', rf"\g<1>{wanted}", text, flags=re.M
    )


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

    The second one is that of ``<cuda/std/...>``, if it is another one.

    >>> all(folder.is_dir() for folder in includes())
    True
    """
    runtime = next((f for f in _places() if (f / "cuda_fp16.h").is_file()), None)
    found = [] if runtime is None else [runtime]
    library = libcu()
    return found if library in (None, runtime) else [*found, library]


def libcu() -> Path | None:
    """The folder with ``cuda/std``, the standard library for the device."""
    inner = (each for f in _places() for each in (f / "cccl", f))
    return next((f for f in inner if (f / "cuda" / "std").is_dir()), None)


def _places() -> list[Path]:
    """Folders that may have headers of CUDA: of the wheels, then of toolkits."""
    found = [
        f for place in map(Path, sys.path) for i in _INCLUDES for f in place.glob(i)
    ]
    found += [Path(os.environ[n], "include") for n in _TOOLKITS if os.environ.get(n)]
    on_path = shutil.which("nvcc")
    if on_path is not None:
        found.append(Path(on_path).resolve().parents[1] / "include")
    return [*found, Path("/usr/local/cuda/include")]


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


def refusal(compiler: str, target: str, said: str) -> CompileError:
    """The error of a compiler that refuses a source."""
    text = f"{compiler} refuses the source for {target}:\n{messages.shown(said)}"
    if "open source file" in said or "No such file" in said:
        missing = re.findall(r'open source file "([^"]*)|error: (\S+): No such', said)
        named = [a or b for a, b in missing]
        text += _NO_HEADER if any(map(_OF_CUDA.match, named)) else _NO_FOLDER
    error = CompileError(text)
    error.log = said
    return error


@contextmanager
def _stack_limit_kept() -> Iterator[None]:
    """Put the limit of the stack back.

    NVRTC raises it, and does not lower it again when a header is missing.  Processes
    that are started later would have another layout of memory.
    """
    if sys.platform == "win32":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_STACK)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)


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

    @cached_property
    def _headers(self) -> Mapping[str, str]:
        return headers.standard(next(iter(includes()), None), libcu())

    def compile(self, source: str, target: str, options: tuple[str, ...]) -> bytes:
        """The cubin, or what the compiler says is wrong."""
        words = (f"-arch={target}", *options)
        return self._made("CUBIN", TranslationUnit(source, target, words))

    def compile_ptx(self, unit: TranslationUnit) -> bytes:
        """The PTX, or what the compiler says is wrong.

        Before it is a line for each name: the mangled one.
        """
        virtual = f"-arch={unit.target.replace('sm_', 'compute_')}"
        own = [f"--include-path={folder}" for folder in unit.folders[: bool(unit.path)]]
        known = [f"--include-path={folder}" for folder in includes()]
        words = (virtual, *unit.options, *own, *known)
        made = self._made("PTX", unit._replace(options=words), self._headers)
        return made.rstrip(b"\0")

    def _made(
        self,
        kind: str,
        unit: TranslationUnit,
        given: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        program = ctypes.c_void_p()
        texts = ctypes.c_char_p * len(given)
        self._call(
            "nvrtcCreateProgram",
            *(ctypes.byref(program), unit.code.encode(), unit.file.encode()),
            *(len(given), texts(*map(str.encode, given.values()))),
            texts(*map(str.encode, given)),
        )
        try:
            for name in unit.names:
                self._call("nvrtcAddNameExpression", program, name.encode())
            words = [word.encode() for word in unit.options]
            array = (ctypes.c_char_p * len(words))(*words)
            with _stack_limit_kept():
                failed = self._library.nvrtcCompileProgram(program, len(words), array)
            if failed:
                said = self._read("ProgramLog", program).rstrip(b"\0").decode()
                raise refusal("nvrtc", unit.target, said)
            mangled = [self._mangled(program, name) for name in unit.names]
            return b"".join(mangled) + self._read(kind, program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _mangled(self, program: ctypes.c_void_p, name: str) -> bytes:
        """A line with the mangled name of a kernel."""
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
        return self._made("-cubin", TranslationUnit(source, target, options))

    def compile_ptx(self, unit: TranslationUnit) -> bytes:
        """The PTX, or what the compiler says is wrong."""
        library = libcu()
        found = () if library is None else ("-idirafter", str(library))
        words = ("-Xcompiler", ",".join(found)) if found else ()
        return self._made("-ptx", unit._replace(options=(*unit.options, *words)))

    def _made(self, kind: str, unit: TranslationUnit) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(unit.file), Path(folder, "source.made")
            if not unit.path:
                given = Path(folder, UNNAMED)
                given.write_text(unit.code)
            words = (f"-arch={unit.target}", *unit.options, "-o", str(made), str(given))
            done = self._call(kind, *words)
            if done.returncode:
                said = (done.stdout + done.stderr).replace(folder + os.sep, "")
                raise refusal("nvcc", unit.target, said)
            return made.read_bytes()

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [self._program, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)
