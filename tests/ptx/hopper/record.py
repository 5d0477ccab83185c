"""Records what an H200 leaves in D after each launch of the project's own kernels.

    python -m tests.ptx.hopper.record prepare FOLDER   # PTX into machine code
    python -m tests.ptx.hopper.record run FOLDER FILE  # on the machine with the GPU
    python -m tests.ptx.hopper.record keep FILE        # compare with the emulation

``--list grouped`` records the grouped products instead.

``compute-sanitizer --tool racecheck python -m tests.ptx.hopper.record run FOLDER FILE
--repeat 1`` watches each launch.

A recording has a hash of each launch's inputs, of the rows of D, and of D's whole buffer
with the bytes after each row, which start as poison.  The copy engine stores whole units
of 16 bytes, so some of that poison is overwritten.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fragmenta.cuda.tools import assembler
from fragmenta.cuda.tools.compiler import find
from fragmenta.errors import Error
from fragmenta.hopper.kernels.source import TARGET
from tests.ptx.hopper.gemms import (
    GEMMS,
    OF_INTEGERS,
    OF_MORE_INTEGERS,
    POISON,
    Gemm,
    Rows,
    short_hash,
)
from tests.ptx.hopper.grouped import GROUPED
from tests.ptx.hopper.grouped import OF_INTEGERS as OF_EXPERTS

FOLDER = Path(__file__).parents[2] / "golden" / "kernels"
FILE, GROUPED_FILE = FOLDER / "gemms.json", FOLDER / "grouped.json"
INTEGERS_FILE = FOLDER / "integers.json"
MORE_FILE = FOLDER / "more_integers.json"
MORE: list[Gemm] = [*OF_MORE_INTEGERS, *OF_EXPERTS]
"""4-bit integers in other tiles, and experts of them."""
LISTS: dict[str, tuple[Path, Sequence[Gemm]]] = {
    "gemms": (FILE, GEMMS),
    "grouped": (GROUPED_FILE, GROUPED),
    "integers": (INTEGERS_FILE, OF_INTEGERS),
    "more": (MORE_FILE, MORE),
}
"""What is recorded together, and where it is kept."""
REPEAT = 20
"""How often each launch has to give the same bytes; once is enough for a sanitizer."""


class Recorded(NamedTuple):
    """What a GPU did."""

    inputs: str
    """A hash of everything that was given."""
    rows: str
    """A hash of D."""
    buffer: str
    """A hash of D and the bytes after each row."""


@cache
def recorded(file: Path = FILE) -> Mapping[str, Recorded]:
    """The recorded launches by name."""
    read = json.loads(file.read_text())
    return {name: Recorded(*row) for name, row in read["launches"].items()}


# ── without a GPU ───────────────────────────────────────────────────────────


def prepare(listed: str, folder: Path) -> None:
    """Assemble the PTX of every launch."""
    _, launches = LISTS[listed]
    folder.mkdir(parents=True, exist_ok=True)

    def one(numbered: tuple[int, Gemm]) -> None:
        number, gemm = numbered
        text, code = folder / f"{number}.ptx", folder / f"{number}.cubin"
        text.write_text(gemm.text)
        ptxas = assembler.tool("ptxas")
        subprocess.run([ptxas, f"-arch={TARGET}", text, "-o", code], check=True)
        text.unlink()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, enumerate(launches)))


def tools() -> dict[str, str]:
    """What made the machine code."""
    said = subprocess.run(
        [assembler.tool("ptxas"), "--version"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    version = re.search(r"V([\d.]+)", said)
    return {"compiler": find("nvrtc").version, "ptxas": version[1] if version else ""}


def keep(listed: str, file: Path) -> None:
    """Compare with the emulation, and write the recording."""
    kept, every = LISTS[listed]
    read = json.loads(file.read_text())
    launches = {}
    for gemm in every:
        found = read["launches"].get(gemm.name)
        if found is None:
            print(f"{gemm.name:80} DID NOT RUN")
            continue
        expected = short_hash(gemm.expected)
        state = "same" if found["rows"] == expected else "ANOTHER RESULT"
        state += "" if found["inputs"] == gemm.digest() else ", OTHER INPUTS"
        state += "" if found["same"] else ", NOT THE SAME TWICE"
        print(f"{gemm.name:80} {state}")
        if state == "same":
            row = Recorded(found["inputs"], found["rows"], found["buffer"])
            launches[gemm.name] = list(row)
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in launches.items()
    )
    # The machine with the GPU has its own assembler, which was not used.
    made = json.dumps({**read["made"], **tools()})
    kept.write_text(f'{{\n "made": {made},\n "launches": {{\n{lines}\n }}\n}}\n')


# ── with a GPU ──────────────────────────────────────────────────────────────


def run(listed: str, folder: Path, file: Path, repeat: int) -> None:
    """Run every launch, and write what it leaves."""
    import torch

    from fragmenta.cuda.tools import device

    torch.zeros(1, device="cuda")
    launches: dict[str, Any] = {}
    for number, gemm in enumerate(LISTS[listed][1]):
        code = (folder / f"{number}.cubin").read_bytes()
        try:
            launches[gemm.name] = left(gemm, code, repeat)
        except Error as why:
            print(f"{gemm.name}: {why}", flush=True)
    made = device.present().versions()
    file.write_text(json.dumps({"made": made, "launches": launches}))


def left(gemm: Gemm, code: bytes, repeat: int) -> dict[str, Any]:
    """The hashes that one launch leaves."""
    import torch

    from fragmenta.hopper.kernels.launch import launch, plan_of_code

    made = gemm.memory()
    held: list[Any] = []

    def sent(array: Any) -> int:
        held.append(torch.from_numpy(np.ascontiguousarray(array)).cuda())
        return int(held[-1].data_ptr())

    left_side = made.a
    a: Any = (
        left_side.matrix(sent(left_side.buffer))
        if isinstance(left_side, Rows)
        else sent(left_side)
    )
    b = made.b.matrix(sent(made.b.buffer))
    parts = {name: sent(part) for name, part in made.epilogue.items()}
    ends = None if made.ends is None else sent(made.ends)
    d = made.d.matrix(sent(made.d.buffer))
    result, planned = held[-1], plan_of_code(gemm.geometry, code)
    seen = []
    for _ in range(repeat):
        result.fill_(POISON)
        stream = torch.cuda.current_stream().cuda_stream
        launch(
            planned,
            a,
            b,
            d,
            stream=stream,
            epilogue=parts,
            ends=ends,
            settled=made.settled,
        )
        torch.cuda.synchronize()
        seen.append(result.cpu().numpy())
    found = Rows(seen[0], made.d.width)
    return {
        "inputs": gemm.digest(),
        "rows": short_hash(found.inside),
        "buffer": short_hash(found.buffer),
        "same": all((each == seen[0]).all() for each in seen),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["prepare", "run", "keep"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--repeat", type=int, default=REPEAT)
    parser.add_argument("--list", choices=list(LISTS), default="gemms")
    given = parser.parse_args()
    if given.what == "run":
        run(given.list, *given.paths, repeat=given.repeat)
    else:
        {"prepare": prepare, "keep": keep}[given.what](given.list, *given.paths)


if __name__ == "__main__":
    main()
