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
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from tests.ptx import checks, driver, inputs, launches, recordings

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
    gpu = driver.Device(poison_code(build))
    writer = recordings.Writer(source)
    for program in programs(source, build):
        cubin = assemble(program.text, program.name, program.options, build)
        number = writer.add_text(program.name, program.text)
        for row in program.rows:
            if dry:
                before = made(row)
                run_row(gpu, cubin, row, before, 0)
            else:
                record_row(gpu, cubin, row, program.name, writer, number)
    if not dry:
        print(f"== {source}: {writer.save(output)} bytes", flush=True)


def made(row: launches.Row) -> list[inputs.Argument]:
    return recordings.make_arguments(row.arguments, seed_of(row))


def seed_of(row: launches.Row) -> int:
    return inputs.seed_of(row.source, row.name)


def run_row(
    gpu: driver.Device,
    cubin: bytes,
    row: launches.Row,
    before: Sequence[inputs.Argument],
    pattern: int,
) -> tuple[list[inputs.Argument], float, str]:
    """The arguments after one launch in a new module, its time, and what it printed.

    Without a pattern, memory is not filled before.
    """
    if pattern:
        gpu.poison(pattern)
    module = gpu.load(cubin)
    sizes = row.grid, row.block, row.shared
    (after, seconds), printed = driver.printed_by(
        lambda: gpu.launch(module, row.entry, *sizes, before)
    )
    gpu.unload(module)
    return after, seconds, printed


def record_row(
    gpu: driver.Device,
    cubin: bytes,
    row: launches.Row,
    program: str,
    writer: recordings.Writer,
    number: int,
) -> None:
    """Run a launch twice; keep it if both runs agree."""
    before = made(row)
    after, _, printed = run_row(gpu, cubin, row, before, 0xDEADBEEF)
    again, seconds, printed_again = run_row(gpu, cubin, row, before, 0x3F9A5A5A)
    same = printed == printed_again and all(
        one.tobytes() == two.tobytes() for one, two in zip(after, again, strict=True)
    )
    size = 0
    if same:
        description: dict[str, Any] = {
            "text": number, "name": row.name, "entry": row.entry, "grid": row.grid,
            "block": row.block, "shared": row.shared, "arguments": row.arguments,
            "seed": seed_of(row), "printed": printed,
        }  # fmt: skip
        size = writer.add_launch(before, after, **description)
    verdict = checks.verdict(row, before, after)
    state = "same twice" if same else "DIFFERS: left out"
    print(
        f"{program:28} {row.name:28} {seconds * 1e3:8.2f} ms {size:7} bytes  {state}  {verdict}",
        flush=True,
    )


def poison_code(build: Path) -> bytes:
    """The machine code of the kernel that fills memory with a pattern."""
    cubin = build / "poison.cubin"
    if not cubin.exists():
        source = build / "poison.cu"
        source.write_text(driver.POISON)
        run("nvcc", "-cubin", f"-arch={ASSEMBLED_FOR}", source, "-o", cubin)
    return cubin.read_bytes()


# ── the whole ───────────────────────────────────────────────────────────────


def compile_everything(names: Sequence[str], build: Path) -> None:
    """Compile and assemble all variants, several at a time."""
    poison_code(build)

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


def versions() -> dict[str, str]:
    """What made the recordings: GPU, driver and tools, and the day."""
    module = Path("/proc/driver/nvidia/version")
    found = (
        re.search(r"\d{3}\.\d+(\.\d+)?", module.read_text())
        if module.exists()
        else None
    )
    gpu = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    result = {"date": date.today().isoformat(), "assembled_for": ASSEMBLED_FOR}
    for name, command in [("nvcc", "nvcc"), ("ptxas", "ptxas")]:
        result[name] = run(command, "--version").strip().splitlines()[-1]
    try:
        result["gpu"], result["driver"] = run(*gpu).strip().split(", ")
    except (OSError, RuntimeError, ValueError):
        result["driver"] = found.group() if found else "unknown"
    try:
        import triton

        result["triton"] = triton.__version__
    except ImportError:
        result["triton"] = "none"
    return result


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
    text = json.dumps(versions(), indent=1)
    (output / "versions.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
