"""Run the kernels that are right on a GPU, and keep what they left in memory.

    python -m tests.ptx.hazards.record prepare FOLDER     # compiles; needs no GPU
    python -m tests.ptx.hazards.record run FOLDER FILE    # on the machine with the GPU
    python -m tests.ptx.hazards.record once FOLDER        # for compute-sanitizer

``--only SOURCE`` takes one source, ``--bug N`` launches its mistakes with this number.
Every kernel runs several times over different garbage in shared memory.  If the results
differ, it is not recorded.
"""

from __future__ import annotations

import argparse
import json
import lzma
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from fragmenta.cuda.tools import device, programs
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import BARRIER, DEADLOCK, Case, Row, cases

PATTERNS = 0xDEADBEEF, 0x3F9A5A5A, 0, 0x7FFF7FFF


def chosen(only: str | None, bug: int = 0) -> list[Case]:
    """The launches of kernels with this mistake, if they come to an end."""
    stops = {DEADLOCK, BARRIER, "bad-descriptor"}
    return [
        case
        for case in cases()
        if case.bug == bug
        and running.target(case.row.source) != "sm_100a"
        and only in (None, case.row.source)
        and not (bug and stops & {*case.row.mistakes[bug].rules})
        and not (bug and DEADLOCK in case.row.mistakes[bug].also)
    ]


def prepare(folder: Path) -> None:
    """Compile every source."""
    folder.mkdir(parents=True, exist_ok=True)
    every = [case for case in cases() if running.target(case.row.source) != "sm_100a"]
    for source, bug in sorted({(case.row.source, case.bug) for case in every}):
        code = programs.machine_code(running.text(source, bug), "sm_90a")
        (folder / f"{source}{bug}.cubin").write_bytes(code)


def parameters(row: Row, given: list[Any], addresses: list[int]) -> list[bytes]:
    """What the kernel gets, with its buffers at these addresses."""
    arrays = [i for i, each in enumerate(given) if isinstance(each, np.ndarray)]
    where = dict(zip(arrays, addresses, strict=True))
    found = []
    for number, (spec, value) in enumerate(zip(row.arguments, given, strict=True)):
        if spec["kind"] == "map":
            found.append(running.map_of(spec, given, where[spec["of"]]).encode())
        elif number in where:
            found.append(where[number].to_bytes(8, "little"))
        else:
            found.append(value.tobytes())
    return found


def launched(gpu: device.GPU, row: Row, code: bytes, pattern: int) -> list[str | None]:
    """The arrays that a launch changed, in hexadecimal."""
    programs._fill(gpu, pattern)
    given = running.made(row)
    memory = [e.reshape(-1).view(np.uint8) for e in given if isinstance(e, np.ndarray)]
    module = gpu.load_code(code)
    sizes = (row.grid, 1, 1, row.block, 1, 1)
    gpu.launch(
        module,
        row.entry,
        sizes,
        0,
        memory,
        lambda addresses: parameters(row, given, list(addresses)),
    )
    before = [each for each in running.made(row) if isinstance(each, np.ndarray)]
    pairs = zip(running.left(row, before), running.left(row, memory), strict=True)
    return [None if old == new else new.hex() for old, new in pairs]


def run(folder: Path, output: Path, only: str | None) -> None:
    """Launch everything and write the recording, as far as it is."""
    gpu = device.present()
    found: dict[str, list[str | None]] = {}
    made = {**gpu.versions(), "date": date.today().isoformat()}
    for case in chosen(only):
        code = (folder / f"{case.row.source}0.cubin").read_bytes()
        runs = [launched(gpu, case.row, code, pattern) for pattern in PATTERNS]
        same = all(each == runs[0] for each in runs)
        print(f"{case.name:36} {'same' if same else 'DIFFERS'}", flush=True)
        if same:
            found[case.name] = runs[0]
        save(output, made, found)


def save(output: Path, made: dict[str, str], found: dict[str, Any]) -> None:
    words = json.dumps({"made": made, "cases": found}, indent=0)
    output.write_bytes(lzma.compress(words.encode(), preset=9))


def once(folder: Path, only: str | None, bug: int) -> None:
    """Launch kernels once, so that a tool can watch them."""
    gpu = device.present()
    for case in chosen(only, bug):
        code = (folder / f"{case.row.source}{bug}.cubin").read_bytes()
        print("==", case.name, flush=True)
        launched(gpu, case.row, code, PATTERNS[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["prepare", "run", "once"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path, nargs="?", default=running.GOLDEN)
    parser.add_argument("--only")
    parser.add_argument("--bug", type=int, default=0)
    given = parser.parse_args()
    if given.what == "prepare":
        prepare(given.folder)
    elif given.what == "run":
        run(given.folder, given.output, given.only)
    else:
        once(given.folder, given.only, given.bug)


if __name__ == "__main__":
    main()
