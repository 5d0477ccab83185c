"""The command ``doctor``: what there is on this machine, and what is missing.

A bug report begins with it.  It names no user and no folder of a home: ``~`` stands for
that.  Nothing is an error: what is missing is only needed for some commands.
"""

from __future__ import annotations

import platform
import textwrap
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from fragmenta import __version__
from fragmenta.base.arrays.threads import cores
from fragmenta.base.jit.cache import Cache
from fragmenta.commands.app import command
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.cuda.tools import assembler, device
from fragmenta.errors import Error
from fragmenta.frontends.programs.building import find_compiler

NEEDED = ("numpy", "ml_dtypes", "llvmlite", "typer", "rich")
OTHERS = ("torch", "triton", "numba-cuda", "cuda-core", "dask", "pytest")
"""Packages that some commands use, and front ends."""


class Dependency(NamedTuple):
    """One thing that is there or missing."""

    name: str
    found: str
    """What there is; empty if it is missing."""
    lacking: str = ""
    """What cannot be done without it, and how to get it."""


@command("doctor", "fragmenta doctor", "fragmenta doctor --json")
def doctor(as_json: AsJson = False) -> None:
    parts = [*_here(), *_packages(), *_tools(), _card(), _cache()]
    if as_json:
        found = {part.name: part.found or None for part in parts}
        missing = {part.name: part.lacking for part in parts if part.lacking}
        emit_json({**found, "missing": missing})
        return
    wide = max(len(part.name) for part in parts) + 2
    for part in parts:
        if part.found:
            emit(f"{part.name:{wide}}{part.found}")
    lacking = [part for part in parts if part.lacking]
    if lacking:
        emit("\nmissing here, and what it is for:")
    for part in lacking:
        text = f"  {part.name:{wide}}{part.lacking}"
        emit(textwrap.fill(text, width(), subsequent_indent=" " * (wide + 2)))


def _here() -> Iterator[Dependency]:
    yield Dependency("fragmenta", __version__)
    yield Dependency(
        "Python", f"{platform.python_version()} {platform.python_compiler()}"
    )
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    yield Dependency("system", f"{system}, {cores()} cores")


def _packages() -> Iterator[Dependency]:
    for name in (*NEEDED, *OTHERS):
        try:
            yield Dependency(name, version(name))
        except PackageNotFoundError:
            if name in NEEDED:
                yield Dependency(name, "", "everything; pip install fragmenta")


def _tools() -> Iterator[Dependency]:
    """Assemblers, and the compilers that some commands call."""
    for number, each in enumerate(assembler.assemblers()):
        name = "ptxas" if number == 0 else f"ptxas, {number + 1}"
        yield Dependency(name, _asked(each))
    if not assembler.assemblers():
        yield Dependency(
            "ptxas", "", "a second judge of PTX; pip install nvidia-cuda-nvcc"
        )
    for name, lacking in (
        ("nvcc", "launch FILE.cu with nvcc; pip install nvidia-cuda-nvcc"),
        ("nvdisasm", "reading machine code; pip install nvidia-cuda-nvdisasm"),
    ):
        try:
            yield Dependency(name, _short(assembler.tool(name)))
        except Error:
            yield Dependency(name, "", lacking)
    try:
        yield Dependency("nvrtc", version("nvidia-cuda-nvrtc"))
    except PackageNotFoundError:
        yield Dependency("nvrtc", "", "CUDA C++ as text; pip install nvidia-cuda-nvrtc")
    try:
        yield Dependency("C++ compiler", _short(Path(find_compiler())))
    except Error:
        yield Dependency("C++ compiler", "", "fragmenta run; apt install g++")


def _asked(ptxas: Path) -> str:
    try:
        return f"{assembler.release(ptxas)} in {_short(ptxas.parent)}"
    except (Error, OSError) as error:
        return f"does not run: {error}"


def _card() -> Dependency:
    lacking = "verify, record, throughput; all else needs no GPU"
    try:
        card = device.present()
        return Dependency("GPU", device.describe(card.versions()))
    except Error as error:
        return Dependency("GPU", "", f"{lacking} ({str(error).splitlines()[0]})")


def _cache() -> Dependency:
    """The folder of compiled kernels, what is in it, and whether it can be used."""
    folder = Cache.present().folder
    if folder is None:
        return Dependency(
            "cache", "", "a second launch compiles again; see FRAGMENTA_CACHE"
        )
    if not folder.is_dir():
        return Dependency("cache", f"{_short(folder)}, empty")
    files = [each.stat().st_size for each in folder.iterdir() if each.is_file()]
    size = f"{len(files)} entries, {sum(files) / 2**20:.1f} MiB"
    return Dependency("cache", f"{_short(folder)}, {size}")


def _short(path: Path) -> str:
    """A path without the name of a user.

    >>> _short(Path.home() / "bin" / "nvcc")
    '~/bin/nvcc'
    """
    try:
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):
        return str(path)
