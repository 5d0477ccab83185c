"""Run the launches of the corpus on this machine's GPU, and keep what they changed.

    python -m tests.ptx.record --output FOLDER [--only SOURCE ...]

Every source is compiled to PTX for each of its targets, and each PTX is assembled for
sm_90a.  Every launch runs twice, in modules loaded anew, over memory filled with
different patterns; a launch whose results differ is reported and left out.  An entry
whose PTX is the same for a second target is not launched again.  ``--dry`` runs each
launch once and writes nothing: for a profiler, or for compute-sanitizer.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from fragmenta import ptx
from fragmenta.cuda.tools import device
from fragmenta.cuda.tools.programs import launch
from fragmenta.inspect.evidence import arguments as inputs
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.inspect.evidence.kernels import PATTERNS, PreparedLaunch
from fragmenta.inspect.evidence.launches import Writer, make_arguments
from tests.ptx import checks, launches, recordings

CORPUS = Path(__file__).parent / "corpus"
ASSEMBLED_FOR = "sm_90a"
TIMEOUT = 150


class Program(NamedTuple):
    """One PTX text, and the launches of its entries."""

    name: str
    text: str
    rows: list[launches.Row]
    options: str = ""


# ── from sources to programs ────────────────────────────────────────────────


def sources() -> list[str]:
    """All sources of the corpus; those that may hang come last."""
    files = [*CORPUS.glob("*.cu"), *CORPUS.glob("*.ptx")]
    found = sorted(path.stem for path in files)
    return [*sorted(found, key=lambda stem: stem == "spin"), "triton"]


def programs(source: str, build: Path) -> Iterator[Program]:
    """The programs of a source: one for each variant or, of Triton's, for each kernel."""
    if source == "triton":
        from tests.ptx.corpus import triton_kernels

        for name, text, rows in triton_kernels.programs():
            yield Program(name, without_folders(text), rows)
        return
    rows = [row for row in launches.ROWS if row.source == source]
    seen: set[str] = set()
    for name, target, options in variants(source):
        text = without_folders(compile_source(source, name, target, options, build))
        new = []
        for row in rows:
            body = kernel_text(text, row.entry)
            if body and row.name + body not in seen:
                seen.add(row.name + body)
                new.append(row)
        if new:
            yield Program(name, text, new, options)


def variants(source: str) -> list[tuple[str, str, str]]:
    """The name, target and options of each variant of a source."""
    if (CORPUS / f"{source}.ptx").exists():
        return [(source, "", "")]
    found = []
    for target, options in launches.compiled(source):
        suffix = options if options and options != "-lineinfo" else ""
        found.append((f"{source}.{target}{suffix}", target, options))
    return found


def compile_source(
    source: str, name: str, target: str, options: str, build: Path
) -> str:
    """The PTX of one variant, compiled unless it lies in the build folder."""
    written = CORPUS / f"{source}.ptx"
    if written.exists():
        return written.read_text()
    path = build / f"{name}.ptx"
    if not path.exists():
        architecture = target.replace("sm_", "compute_")
        code = f"-gencode=arch={architecture},code={architecture}"
        more = options.split()
        run(
            "nvcc", "-ptx", "-O3", "-std=c++17", code, *more, f"{source}.cu", "-o", path
        )
    return path.read_text()


def without_folders(text: str) -> str:
    """PTX whose line information names files without their folders."""
    return re.sub(r'(\.file\s+\d+\s+)"[^"]*/([^"/]+)"', r'\1"\2"', text)


def kernel_text(text: str, entry: str) -> str:
    """The PTX of an entry with all functions of its file, without debug lines.

    Empty where the file has no such entry.
    """
    parts = re.split(r"(?m)^(?=(?:\.visible |\.weak )*\.(?:entry|func)\b)", text)
    body = [part for part in parts if re.match(rf".*\.entry {entry}\b", part)]
    if not body:
        return ""
    functions = [part for part in parts if re.match(r".*\.func\b", part)]
    lines = "".join(body + functions).splitlines()
    skipped = re.compile(r"\s*(//|\.loc|\.file|\$L__(tmp|func|sec|info)|$)")
    return "\n".join(line for line in lines if not skipped.match(line))


def assemble(text: str, name: str, options: str, build: Path) -> bytes:
    """The machine code of a PTX text."""
    path, cubin = build / f"{name}.final.ptx", build / f"{name}.cubin"
    if not cubin.exists():
        path.write_text(text)
        debug = ["-g"] if "-G" in options else []
        run("ptxas", f"-arch={ASSEMBLED_FOR}", *debug, path, "-o", cubin)
    return cubin.read_bytes()


def run(*command: str | Path) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=CORPUS
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")
    return done.stdout


# ── launches ────────────────────────────────────────────────────────────────


def record(source: str, build: Path, output: Path, dry: bool) -> None:
    """Run every launch of a source and write its recording."""
    gpu = device.present()
    writer = Writer({} if dry else versions(gpu))
    for program in programs(source, build):
        cubin = assemble(program.text, program.name, program.options, build)
        kernels = ptx.parse(program.text, program.name).kernels
        number = writer.add_text(program.name, program.text)
        for row in program.rows:
            prepared = PreparedLaunch(kernels[row.entry], for_kernel(made(row)))
            ready = prepared.program(cubin, row.grid, row.block, row.shared)
            if dry:
                launch(gpu, ready, [each.bytes for each in prepared.held])
            else:
                record_row(gpu, prepared, ready, row, program.name, writer, number)
    if not dry:
        size = writer.save(output / f"{source}.npz")
        print(f"== {source}: {size} bytes", flush=True)


def made(row: launches.Row) -> list[inputs.Argument]:
    return make_arguments(row.arguments, seed_of(row))


def seed_of(row: launches.Row) -> int:
    return inputs.seed_of(row.source, row.name)


def record_row(
    gpu: device.GPU,
    prepared: PreparedLaunch,
    ready: Any,
    row: launches.Row,
    program: str,
    writer: Writer,
    number: int,
) -> None:
    """Run a launch twice; keep it if both runs agree."""
    buffers = [each.bytes for each in prepared.held]
    done, again = (launch(gpu, ready, buffers, pattern) for pattern in PATTERNS)
    same = done.printed == again.printed
    same &= not prepared.differences(done.buffers, again.buffers)
    before = made(row)
    after = prepared.after(before, done.buffers)
    size = 0
    if same:
        description: dict[str, Any] = {
            "text": number,
            "name": row.name,
            "entry": row.entry,
            "grid": row.grid,
            "block": row.block,
            "shared": row.shared,
            "arguments": row.arguments,
            "seed": seed_of(row),
            "printed": done.printed,
        }
        size = writer.add_launch(before, after, **description)
    verdict = checks.verdict(row, before, after)
    state = "same twice" if same else "DIFFERS: left out"
    print(
        f"{program:28} {row.name:28} {size:7} bytes  {state}  {verdict}",
        flush=True,
    )


# ── the whole ───────────────────────────────────────────────────────────────


def compile_everything(names: Sequence[str], build: Path) -> None:
    """Compile and assemble all variants, several at a time."""

    def one(source: str, variant: tuple[str, str, str]) -> None:
        try:
            text = without_folders(compile_source(source, *variant, build))
            assemble(text, variant[0], variant[2], build)
        except Exception as why:
            print(f"{variant[0]} does not compile: {why}", flush=True)

    with ThreadPoolExecutor(12) as pool:
        for source in names:
            for variant in variants(source) if source != "triton" else []:
                pool.submit(one, source, variant)


def versions(gpu: device.GPU) -> dict[str, str]:
    """What made a recording: GPU, driver and tools, and the day."""
    result = {**gpu.versions(), "target": ASSEMBLED_FOR}
    for name in ("nvcc", "ptxas"):
        result[name] = run(name, "--version").strip().splitlines()[-1]
    try:
        import triton

        result["triton"] = triton.__version__
    except ImportError:
        result["triton"] = "none"
    return {**result, "date": date.today().isoformat()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=recordings.FOLDER)
    parser.add_argument("--build", type=Path, default=Path("/tmp/corpus-build"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("--dry", action="store_true", help="run once, write nothing")
    given = parser.parse_args()
    names, build, output = (
        given.only or sources(),
        given.build.resolve(),
        given.output.resolve(),
    )
    build.mkdir(parents=True, exist_ok=True)
    output.mkdir(parents=True, exist_ok=True)
    if given.here:
        for name in names:
            record(name, build, output, given.dry)
        return
    compile_everything(names, build)
    base = [
        sys.executable,
        "-m",
        "tests.ptx.record",
        "--here",
        "--build",
        build,
        "--output",
        output,
    ]
    for name in names:  # each in a process of its own: a fault or a hang ends there
        try:
            done = subprocess.run([*base, "--only", name], timeout=TIMEOUT, check=False)
            if done.returncode:
                print(f"== {name}: FAILED with {done.returncode}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"== {name}: HUNG", flush=True)


if __name__ == "__main__":
    main()
