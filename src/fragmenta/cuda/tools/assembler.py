"""Calls ``ptxas``, NVIDIA's assembler.

``ptxas`` comes with the ``nvidia-cuda-nvcc`` wheel or a CUDA toolkit on PATH.
It names every wrong line of a module at once, so thousands of statements can
be judged in one run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from fragmenta.cuda.source import kernel
from fragmenta.errors import CompileError, Error, MissingPackage
from fragmenta.reference.isa.target import Version

_REFUSED = 255
"""The exit status of ptxas if a module is wrong."""
_MESSAGE = re.compile(r"line (\d+); (error|fatal)\s*: (.*)")


@cache
def tool(name: str) -> Path:
    """A toolkit program: from the installed wheels, else from PATH.

    The wheels come first, so that one environment always means one version.
    """
    for folder in map(Path, sys.path):
        for found in folder.glob(f"nvidia/cu*/bin/{name}"):
            return found
    on_path = shutil.which(name)
    if on_path is None:
        raise MissingPackage(
            f"no {name} found; install the wheel nvidia-cuda-nvcc (ptxas) or "
            "nvidia-cuda-nvdisasm (nvdisasm), or put a CUDA toolkit on PATH"
        )
    return Path(on_path)


def assemblers() -> list[Path]:
    """Every ptxas of this machine; the one of :func:`tool` comes first.

    There may be others on PATH, of toolkits in their usual folders, and the one that
    Triton brings.
    """
    found = [
        each
        for folder in map(Path, sys.path)
        for each in folder.glob("nvidia/cu*/bin/ptxas")
    ]
    on_path = shutil.which("ptxas")
    found += [Path(on_path)] if on_path else []
    homes = [
        Path(os.environ[name])
        for name in ("CUDA_HOME", "CUDA_PATH")
        if os.environ.get(name)
    ]
    homes += sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    found += [each / "bin" / "ptxas" for each in homes]
    for folder in map(Path, sys.path):
        found += sorted(folder.glob("triton/backends/nvidia/bin/ptxas*"))
    there = (each.resolve() for each in found if os.access(each, os.X_OK))
    return list(dict.fromkeys(there))


@cache
def newest_version(ptxas: Path | None = None) -> Version:
    """The newest PTX version that an assembler reads."""
    header = kernel.header("sm_90", "99.0").splitlines()
    said = _run(header, "compute_90", ptxas).stdout
    match = re.search(r"current version is '(\d+\.\d+)'", said)
    if match is None:
        raise Error(f"cannot read ptxas's version from: {said}")
    return Version.parse(match[1])


@cache
def release(ptxas: Path | None = None) -> str:
    """The assembler's own version, such as ``13.0.88``.

    >>> release().count(".")
    2
    """
    said = _call(ptxas or "ptxas", "--version").stdout
    match = re.search(r"V(\d+\.\d+\.\d+)", said)
    if match is None:
        raise Error("ptxas does not print its version")
    return match[1]


def judge(
    statements: Sequence[Iterable[str]], target: str, version: object
) -> list[str | None]:
    """Per statement: None if it assembles for the target, else what is wrong.

    Code generation is left out (a virtual architecture parses only), which
    leaves every rule of syntax, type, version and target in force.
    """
    verdicts: dict[int, str | None] = {}
    parsed: list[int] = []
    left = list(range(len(statements)))
    while left:
        found = _judge_on([statements[i] for i in left], target, version)
        verdicts |= {left[position]: verdict for position, verdict in found.items()}
        if len(found) == 1 and _is_unparsed(*found.values()):
            # All statements before it are well formed, so they are not read again.
            (position,) = found
            parsed += left[:position]
            left = left[position + 1 :]
        else:
            left = [i for i in left if i not in verdicts]
        if not left:
            left, parsed = parsed, []
    return [verdicts[i] for i in range(len(statements))]


def _is_unparsed(message: str | None) -> bool:
    return message is not None and message.startswith("Parsing error")


def _judge_on(
    statements: Sequence[Iterable[str]], target: str, version: object
) -> dict[int, str | None]:
    """The verdicts that one run gives, by position: of one statement or more.

    A statement that cannot be parsed hides what is wrong with the others; after
    a fatal one ptxas reads no further.
    """
    text, numbers = kernel.listing(statements, target, version)
    done = _run(text.splitlines(), _virtual(target))
    if done.returncode not in (0, _REFUSED):
        return _without_crash(statements, target, version)
    verdicts: dict[int, str] = {}
    last = numbers[-1]
    for line, weight, message in _MESSAGE.findall(done.stdout):
        number = int(line)
        verdicts.setdefault(number, message)
        if number < numbers[0]:  # a wrong version or target makes all of them wrong
            return dict.fromkeys(range(len(numbers)), message)
        if _is_unparsed(message) and number in numbers:
            return {numbers.index(number): message}
        if weight == "fatal":
            last = min(last, number)
    judged = [number for number in numbers if number <= last]
    return {position: verdicts.get(number) for position, number in enumerate(judged)}


def _without_crash(
    statements: Sequence[Iterable[str]], target: str, version: object
) -> dict[int, str | None]:
    """The verdicts where ptxas crashes: each half is judged on its own."""
    half = len(statements) // 2
    if not half:
        return {0: "ptxas crashes"}
    return dict(
        enumerate(
            verdict
            for part in (statements[:half], statements[half:])
            for verdict in judge(part, target, version)
        )
    )


def assemble(text: str, target: str, *options: str, ptxas: Path | None = None) -> bytes:
    """The cubin of a PTX module; :class:`CompileError` quotes ptxas if it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "in.ptx"), Path(folder, "out.cubin")
        source.write_text(text)
        tool = ptxas or "ptxas"
        done = _call(tool, f"-arch={target}", *options, source, "-o", cubin)
        if done.returncode:
            raise CompileError(
                f"ptxas refuses the module:\n{done.stderr or done.stdout}"
            )
        return cubin.read_bytes()


def _virtual(target: str) -> str:
    """The virtual architecture to parse for; old targets need a newer one."""
    name = target.replace("sm_", "compute_")
    return "compute_75" if name in ("compute_70", "compute_72") else name


def _run(
    lines: Sequence[str], architecture: str, ptxas: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ptxas; both of its streams are in the output."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.ptx")
        source.write_text("\n".join(lines) + "\n")
        output = Path(folder, "o")
        done = _call(ptxas or "ptxas", f"-arch={architecture}", source, "-o", output)
    done.stdout += done.stderr
    return done


def _call(name: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = name if isinstance(name, Path) else tool(name)
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
