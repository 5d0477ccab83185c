"""Checks the approximate instructions on all operands.  Run it where a GPU is.

``python -m tests.ptx.special_check JSON NPZ`` runs every instruction on the GPU and in
fragmenta, and compares all bits: on all 2**32 operands of f32 and of pairs of 16-bit
floats, on all upper words of f64, and on 2**27 pairs of operands of a division.  It
writes what was compared into JSON, and a recording for the tests into NPZ.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cupy
import numpy as np

import fragmenta
from tests.ptx.opcodes import special_cases as cases
from tests.ptx.opcodes.special_cases import Words

CHUNK = 1 << 27
PIECE = 1 << 21
PAIRS = 1 << 24
REGISTERS = {
    2: ("unsigned short", "h"),
    4: ("unsigned", "r"),
    8: ("unsigned long long", "l"),
}
FLOATS = {
    "f32": ("float", "f", "uint_as_float", "float_as_uint"),
    "f64": ("double", "d", "longlong_as_double", "double_as_longlong"),
}


def source(number: int, mnemonic: str) -> str:
    """CUDA C++ for one instruction: on numbers in a row, and on arrays."""
    size = np.dtype(cases._KINDS[cases.kind_of(mnemonic)]).itemsize
    word, letter = REGISTERS[size]
    shift = 32 if size == 8 else 0
    two = mnemonic in cases.DIVISIONS
    of = mnemonic.rpartition(".")[2]
    if of in FLOATS:
        kind, letter, to, back = FLOATS[of]
        a, b, d = f"__{to}(a)", f"__{to}(b)", f"__{back}(r)"
    else:
        kind, a, b, d = word, "a", "b", "r"
    operands = f'"{letter}"({a}), "{letter}"({b})' if two else f'"{letter}"({a})'
    places = "%0, %1, %2" if two else "%0, %1"
    return f"""
    __device__ {word} f{number}({word} a, {word} b) {{
      {kind} r; asm("{mnemonic} {places};" : "={letter}"(r) : {operands}); return {d}; }}
    extern "C" __global__ void range{number}(unsigned long long start, {word}* d) {{
      unsigned long long i = blockIdx.x * 256ull + threadIdx.x;
      {word} a = ({word})((start + i) << {shift}); d[i] = f{number}(a, a); }}
    extern "C" __global__ void list{number}(const {word}* a, const {word}* b, {word}* d, long long n) {{
      long long i = blockIdx.x * 256ll + threadIdx.x; if (i < n) d[i] = f{number}(a[i], b[i]); }}
    """


def compiled(folder: Path) -> Any:
    """The kernels of all instructions; they are loaded from the folder when used."""
    place, cubin = folder / "special.cu", folder / "special.cubin"
    texts = [source(n, each) for n, each in enumerate(cases.INSTRUCTIONS)]
    place.write_text("\n".join(texts))
    subprocess.run(["nvcc", "-cubin", "-arch=sm_90a", "-o", cubin, place], check=True)
    return cupy.RawModule(path=str(cubin))


class Comparison:
    """The comparison of one instruction."""

    def __init__(self, module: Any, mnemonic: str) -> None:
        number = cases.INSTRUCTIONS.index(mnemonic)
        self.mnemonic = mnemonic
        self.range = module.get_function(f"range{number}")
        self.list = module.get_function(f"list{number}")
        self.kind = cases._KINDS[cases.kind_of(mnemonic)]
        self.compared = self.differing = 0
        self.first: list[str] | None = None

    def add(self, operands: tuple[Words, ...] | int, ours: Words, theirs: Any) -> None:
        """Count the differences of results, and keep the first."""
        places = cupy.flatnonzero(cupy.asarray(ours) != theirs)
        self.compared += ours.size
        self.differing += int(places.size)
        if places.size and self.first is None:
            at = int(places[0])
            given = (
                [operands + at]
                if isinstance(operands, int)
                else [int(x[at]) for x in operands]
            )
            self.first = [hex(x) for x in (*given, int(ours[at]), int(theirs[at]))]

    def numbers(self, pool: ThreadPoolExecutor, count: int, buffer: Words) -> None:
        """All operands below a number."""
        traced = cases.over_numbers(self.mnemonic)
        traced.compile()
        ours = buffer.view(self.kind)[: min(CHUNK, count)]
        theirs = cupy.empty(ours.size, self.kind)
        for start in range(0, count, ours.size):
            self.range((ours.size // 256,), (256,), (np.uint64(start), theirs))
            work = [
                pool.submit(
                    traced,
                    ours[at : at + PIECE],
                    start + at,
                    ours[at : at + PIECE].size,
                )
                for at in range(0, ours.size, PIECE)
            ]
            for each in work:
                each.result()
            self.add(start, ours, theirs)

    def arrays(self, *operands: Words) -> Words:
        """Operands that are listed; what the GPU answers."""
        there = [cupy.asarray(each) for each in operands]
        theirs = cupy.empty_like(there[0])
        size = operands[0].size
        self.list(
            ((size + 255) // 256,),
            (256,),
            (there[0], there[-1], theirs, np.int64(size)),
        )
        self.add(operands, cases.results(self.mnemonic, *operands), theirs)
        found: Words = cupy.asnumpy(theirs)
        return found


def listed(mnemonic: str, number: int) -> tuple[Words, ...]:
    """Many operands of an instruction that has too many for all of them."""
    if mnemonic in cases.DIVISIONS:
        return cases.pairs(PAIRS, number * PAIRS + 1)
    found = cases.mixed(PAIRS, number * PAIRS + 1)
    # Mostly positive ones, for a root.
    found[: PAIRS * 3 // 4] &= np.uint64((1 << 63) - 1)
    return (found,)


def outcome(
    module: Any, pool: Any, buffer: Words, mnemonic: str, kept: dict[str, Words]
) -> dict[str, Any]:
    """One instruction: what was compared, and what differs."""
    began = time.monotonic()
    compared = Comparison(module, mnemonic)
    recording = compared.arrays(*cases.recorded_operands(mnemonic))
    for name, part in zip(("full", "sums"), cases.compacted(recording), strict=True):
        kept[f"{mnemonic} {name}"] = part
    if mnemonic in (*cases.DIVISIONS, cases.WIDE):
        inputs = "listed and random"
        runs = [pool.submit(listed, mnemonic, number) for number in range(8)]
        for run in runs:
            compared.arrays(*run.result())
    else:
        narrow = mnemonic in cases.NARROW
        inputs = "all upper words" if mnemonic in cases.WIDE_UPPER else "all"
        compared.numbers(pool, 1 << (16 if narrow else 32), buffer)
    return {
        "instruction": mnemonic,
        "operands": inputs,
        "compared": compared.compared,
        "differing": compared.differing,
        "first": compared.first,
        "seconds": round(time.monotonic() - began, 1),
    }


def made() -> dict[str, str]:
    """What the comparison was made with."""
    runtime = cupy.cuda.runtime
    version = subprocess.run(
        ["ptxas", "--version"], capture_output=True, text=True, check=True
    )
    return {
        "fragmenta": fragmenta.__version__,
        "gpu": runtime.getDeviceProperties(0)["name"].decode(),
        "driver": subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip(),
        "ptxas": version.stdout.split("release")[-1].split()[1].lstrip("V"),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main(report: str, recording: str) -> None:
    """Compare everything; the report is written after each instruction."""
    pinned = cupy.cuda.alloc_pinned_memory(CHUNK * 8)
    buffer = np.frombuffer(pinned, np.uint8, CHUNK * 8)
    outcomes: list[dict[str, Any]] = []
    kept: dict[str, Words] = {}
    whole = {"made": made(), "outcomes": outcomes}
    with TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        module = compiled(Path(folder))
        for mnemonic in cases.INSTRUCTIONS:
            outcomes.append(outcome(module, pool, buffer, mnemonic, kept))
            print(outcomes[-1], flush=True)
            Path(report).write_text(json.dumps(whole, indent=2) + "\n")
            np.savez_compressed(recording, **kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
