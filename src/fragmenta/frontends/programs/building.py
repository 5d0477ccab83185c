"""Builds the client: the libraries that are CUDA's runtime and driver for a program.

The sources are in ``client/``; what is one line for each function of CUDA is written
from :mod:`~fragmenta.frontends.programs.functions`.  The system's C++ compiler builds
four libraries once, in some seconds; they are kept in the cache under their content.

======================== =====================================================
``libfragmenta_client``  what all of them share: the connection and the memory
``libcuda.so.1``         the driver
``libcudart.so.12, .13`` the runtimes of CUDA 12 and 13
======================== =====================================================
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fragmenta.base.jit.cache import Cache
from fragmenta.base.progress import notice
from fragmenta.errors import CompileError, Error, MissingPackage, NoDevice
from fragmenta.frontends.programs import functions, verbs
from fragmenta.frontends.programs.functions import ClientFunction

CLIENT = Path(__file__).parent / "client"
CORE = "libfragmenta_client.so"
DRIVER = "libcuda.so.1"
PYTHON = "python"
"""The folder that comes first on the path of Python."""
RUNTIMES = {"12": "libcudart.so.12", "13": "libcudart.so.13"}
NEWEST = {"12": 12090, "13": 13000}
"""The version that a runtime says it has."""
COMPILERS = ("c++", "g++", "clang++")
OPTIONS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden")


def build(folder: Path) -> list[Path]:
    """Put the libraries into a folder; they are built if the cache has them not.

    Beside them is what Python does first, in a folder of its own.
    """
    python = folder / PYTHON
    python.mkdir()
    startup = CLIENT / "startup.py"
    (python / "sitecustomize.py").write_bytes(startup.read_bytes())
    return [_put(folder, name, data) for name, data in libraries().items()]


def _put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    path.chmod(0o700)
    return path


def libraries() -> dict[str, bytes]:
    """The four libraries by name."""
    names = [CORE, DRIVER, *RUNTIMES.values()]
    return _kept("the client of fragmenta run", names, _parts())


def build_recorder(folder: Path, real: Path) -> Path:
    """Put the library that stands before the real driver into a folder.

    It needs the real driver by its path.  It is built once, with other words in the
    place of the path.
    """
    path = os.fsencode(real)
    if len(path) >= len(_PATH):
        raise Error(f"the path of the driver has more than {len(_PATH) - 1} characters")
    made = _kept("the recorder of fragmenta record", [DRIVER], _recorder_parts())
    data = made[DRIVER].replace(_PATH.encode(), path.ljust(len(_PATH), b"\0"))
    return _put(folder, DRIVER, data)


_PATH = "/the real driver".ljust(512, "/")
"""What stands for the path of the real driver."""


def real_driver() -> Path:
    """The driver that a program would find."""
    done = subprocess.run(
        [sys.executable, "-c", _FIND, DRIVER],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        raise NoDevice(
            f"there is no {DRIVER}, NVIDIA's driver: fragmenta record needs a machine "
            "with a GPU; fragmenta run --replay records launches that run here"
        )
    return Path(done.stdout.strip())


_FIND = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
lines = [line.split(maxsplit=5) for line in open("/proc/self/maps")]
names = [line[5].strip() for line in lines if len(line) > 5]
print(next(name for name in names if name.rpartition("/")[2].startswith("libcuda.so")))
"""


class _Library(NamedTuple):
    """A library: its files, and the further words of the compiler."""

    name: str
    files: list[str]
    words: list[str]


def _kept(what: str, names: list[str], parts: list[_Library]) -> dict[str, bytes]:
    """Libraries from the cache, or built and put there."""
    compiler = find_compiler()
    made = sources()
    digest = hashlib.sha256()
    for name, text in sorted(made.items()):
        digest.update(f"{name}\0{text}\0".encode())
    about = [compiler, _version(compiler), platform.machine(), *OPTIONS, what]
    kept = Cache.present()
    keys = {name: "\0".join([name, digest.hexdigest(), *about]) for name in names}
    found = {name: kept.get(key) for name, key in keys.items()}
    if any(data is None for data in found.values()):
        with notice(f"building {what}, once"):
            built = dict(_built(compiler, made, parts))
        found = {name: built[name] for name in names}
        for name, data in found.items():
            kept.put(keys[name], data or b"")
    return {name: data for name, data in found.items() if data is not None}


def find_compiler() -> str:
    """The system's C++ compiler."""
    named = os.environ.get("CXX")
    for each in (named, *COMPILERS):
        path = shutil.which(each) if each else None
        if path is not None:
            return path
    raise MissingPackage(
        "fragmenta run needs a C++ compiler to build its client once; install g++ "
        "(apt install g++, dnf install gcc-c++) or clang++, or name one in CXX"
    )


def _version(compiler: str) -> str:
    done = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=False
    )
    return done.stdout.partition("\n")[0]


def _built(
    compiler: str, made: dict[str, str], parts: list[_Library]
) -> Iterator[tuple[str, bytes]]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, text in made.items():
            (folder / name).write_text(text)
        for part in parts:
            words = [compiler, *OPTIONS, *part.files, "-o", part.name, *part.words]
            _run(words, folder)
            yield part.name, (folder / part.name).read_bytes()


def _parts() -> list[_Library]:
    """The client, which is the runtimes and the driver."""

    def part(name: str, script: str, file: str) -> _Library:
        named = f"-Wl,-soname,{name}", f"-Wl,--version-script={script}.map"
        return _Library(name, [file], [*named, CORE, "-Wl,-rpath,$ORIGIN"])

    shared = ["-fvisibility=default", "-pthread", "-ldl", f"-Wl,-soname,{CORE}"]
    return [
        _Library(CORE, [_CLIENT], shared),
        part(DRIVER, "cuda", "driver.cpp"),
        *(
            part(name, f"cudart{number}", f"runtime{number}.cpp")
            for number, name in RUNTIMES.items()
        ),
    ]


def _recorder_parts() -> list[_Library]:
    """The recorder; a library of no content stands for the real driver."""
    stands_in = "libreal.so"
    words = [f"-DREAL={_quoted(_PATH)}", f"-Wl,-soname,{DRIVER}", "-pthread"]
    words += ["-Wl,--no-as-needed", stands_in, "-ldl"]
    return [
        _Library(stands_in, ["-x", "c++", os.devnull], [f"-Wl,-soname,{_PATH}"]),
        _Library(DRIVER, [_RECORDER], words),
    ]


def _run(words: list[str], folder: Path) -> None:
    done = subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise CompileError(f"{words[0]} cannot build the client:\n{said}")


# ── sources ─────────────────────────────────────────────────────────────────

_CLIENT, _RECORDER = "client.cpp", "whole_recorder.cpp"
_UNITS = {
    _CLIENT: ("server.cpp", "memory.cpp", "kernels.cpp", "graphs.cpp", "names.cpp"),
    _RECORDER: ("recorder.cpp", "server.cpp"),
}
"""Files that are compiled as one, so that headers are read once."""
_EXPORT = '#define EXPORT extern "C" __attribute__((visibility("default")))\n'


def sources() -> dict[str, str]:
    """All sources by the names of their files."""
    made = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(CLIENT.iterdir())
        if path.suffix in (".cpp", ".h")
    }
    made["names.cpp"] = _names()
    made["verbs.h"] = verbs.header()
    for name, files in _UNITS.items():
        made[name] = "".join(f'#include "{each}"\n' for each in files)
    made["driver.cpp"] = _facade(
        functions.DRIVER, "driver", "", functions.DRIVER_VERSION
    )
    made["cuda.map"] = "{ global: cu*; _cu*; local: *; };\n"
    for number, soname in RUNTIMES.items():
        made[f"runtime{number}.cpp"] = _facade(
            functions.RUNTIME, "runtime", number, NEWEST[number]
        )
        made[f"cudart{number}.map"] = (
            f"{soname} {{ global: cuda*; _cuda*; __cuda*; local: *; }};\n"
        )
    return made


def _facade(table: str, library: str, number: str, version: int) -> str:
    """The functions of one library."""
    lines = [
        '#include "server.h"',
        "#include <cstdio>\n#include <cstring>",
        _EXPORT + f"#define CUDART_VERSION {version}",
        f"#define DRIVER_VERSION {functions.DRIVER_VERSION}",
        _told(number),
    ]
    known = set()
    for row in functions.rows(table):
        if row.only in ("", number):
            known.add(row.name)
            lines.append(_function(row, library))
    lines += [
        f"EXPORT int {name}() {{ return refuse({_quoted(name)}, {_quoted(why)}); }}"
        for name, why in functions.refused(library).items()
        if name not in known
    ]
    return "\n".join(lines) + "\n"


def _told(number: str) -> str:
    """What a library says: only the runtime of CUDA 12 knows a wrong configuration."""
    kept = "true" if number == "12" else "false"
    return (
        "static int told(int code) { return code == INVALID_CONFIGURATION && "
        f"!{kept} ? (int)INVALID_VALUE : code; }}"
    )


def _function(row: ClientFunction, library: str) -> str:
    given = ", ".join(row.parameters)
    keeps = library == "runtime" and not row.returns and "LastError" not in row.name
    does = row.does if row.returns else f"told({row.does})"
    does = f"done({does})" if keeps else does
    back = "" if row.returns == "void" else "return "
    body = f"{{ Guard guard({_quoted(row.name)}); {back}{does}; }}"
    returns = row.returns or "int"
    made = f"EXPORT {returns} {row.name}({given}) {body}"
    for other in (*(row.name + suffix for suffix in _suffixes(row)), _for_cute(row)):
        if other:
            made += (
                f"\nEXPORT {returns} {other}({given}) "
                f'__attribute__((alias("{row.name}")));'
            )
    return made


def _for_cute(row: ClientFunction) -> str:
    """The name of a function in the runtime library of the CuTe DSL, if it is there."""
    found = functions.CUTE_DSL.split()
    name = {"cudaLaunchKernelExC": "cudaLaunchKernelEx"}.get(row.name, row.name)
    return f"_{name}" if name in found else ""


def _suffixes(row: ClientFunction) -> tuple[str, ...]:
    """The forms of a function for programs with one stream for each thread."""
    if row.takes_stream or row.name.startswith(("cudaGetDriverEntryPoint",)):
        return ("_ptsz",)
    return (
        ("_ptds",) if row.name.startswith(("cudaMemcpy", "cudaMemset", "cuMem")) else ()
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _names() -> str:
    """The names of errors, and functions of the driver by name."""
    cases = {"error_name": 1, "driver_error_name": 2, "error_words": 3}
    lines = [
        '#include "server.h"\n#include <cstring>\n#include <dlfcn.h>\n#include <string>'
    ]
    for function, column in cases.items():
        lines.append(f"const char *{function}(int code) {{\n    switch (code) {{")
        lines += [
            f"        case {row[0]}: return {_quoted(str(row[column]))};"
            for row in functions.errors()
        ]
        lines.append('        default: return "unrecognized error code";\n    }\n}')
    lines.append("static std::string form(const std::string &name, int version) {")
    for name, first, suffix in functions.versions():
        lines.append(
            f"    if (name == {_quoted(name)} && version >= {first}) "
            f"return {_quoted(suffix)};"
        )
    lines.append('    return "?";\n}')
    lines.append(f"#define STATIC {_quoted(functions.STATIC)}")
    lines.append(_ENTRY_POINT)
    return "\n".join(lines) + "\n"


_ENTRY_POINT = """
int entry_point(const char *name, void **where, int version, int *status) {
    static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = nullptr;
    std::string known = form(name, version), wanted = name;
    if (known != "?") found = dlsym(driver, (wanted + known).c_str());
    for (const char *suffix : {"", "_v2", "_v3"})
        if (!found) found = dlsym(driver, (wanted + suffix).c_str());
    if (status) *status = found ? 0 : 1;
    if (where) *where = found;
    return found ? OK : status ? OK : NOT_FOUND;
}

int private_table(const void **where, void *caller) {
    put(where, nullptr);
    Dl_info about{};
    if (dladdr(caller, &about) && about.dli_fname)  // compilers ask, and go on without
        for (const char *known : {"libnvrtc", "libnvJitLink", "libnvvm"})
            if (strstr(about.dli_fname, known)) return NOT_FOUND;
    return refuse("cuGetExportTable", STATIC);
}
"""
