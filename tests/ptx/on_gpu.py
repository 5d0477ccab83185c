"""Verify kernels of the corpus on this machine's GPU, and record and replay one.

    python -m tests.ptx.on_gpu --output docs/verification/launches.json

Each launch runs here and on the GPU through ``kernel.verify``; then ``fragmenta record
--launch`` and ``fragmenta replay`` run as a user would run them.  A report is written
with the day and the versions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fragmenta import ptx
from fragmenta.commands.output import json_text
from fragmenta.cuda.tools import device
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.inspect.evidence.kernels import made_by
from tests.ptx import recordings

PER_SOURCE = 3
"""Launches of each source that are verified."""

CASES = {
    "sort_bitonic": [
        "--grid",
        "2",
        "--block",
        "1024",
        "--shared",
        "4096",
        "--arg",
        "random:f32:2048",
    ],
    "saxpy": [
        "--grid",
        "4",
        "--block",
        "128",
        "--arg",
        "f32:2",
        "--arg",
        "x.npy",
        "--arg",
        "ones:f32:500",
        "--arg",
        "i32:500",
    ],
    "second_half": [
        "--grid",
        "2",
        "--block",
        "128",
        "--arg",
        "f32:-0.5",
        "--arg",
        "pointer:2+1024",
        "--arg",
        "arange:f32:512",
        "--arg",
        "i32:256",
    ],
}
"""What ``fragmenta record --launch`` is given."""


def chosen() -> list[recordings.Launch]:
    """Some launches of every source, of different entries."""
    found = []
    for source in recordings.sources():
        entries: dict[str, recordings.Launch] = {}
        for launch in recordings.of_source(source):
            entries.setdefault(launch.row.entry, launch)
        every = list(entries.values())
        found += every[:: max(1, len(every) // PER_SOURCE)][:PER_SOURCE]
    return found


def verified(launch: recordings.Launch) -> dict[str, Any]:
    """How one launch does, or what went wrong."""
    row = launch.row
    base = {"launch": launch.identity, "grid": row.grid, "block": row.block}
    started = time.monotonic()
    try:
        name, text = launch.file.texts[row.text]
        kernel = ptx.parse(text, name).kernels[row.entry]
        given = for_kernel(launch.make_arguments())
        report = kernel.verify(row.grid, row.block, given, shared=row.shared)
        found = report.to_json()
        del found["made"]
    except Exception as why:
        found = {"same": False, "error": f"{type(why).__name__}: {why}"}
    taken = round(time.monotonic() - started, 2)
    print(launch.identity, found.get("same"), taken, found.get("error", ""), flush=True)
    return {**base, **found}


def recorded() -> list[dict[str, Any]]:
    """``record --launch`` and ``replay``, as processes of their own."""
    files = Path(__file__).parent / "files"
    bitonic = recordings.of_source("sort")[0]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        (where / "sort.ptx").write_text(bitonic.file.texts[bitonic.row.text][1])
        (where / "saxpy.ptx").write_text((files / "saxpy_debug.ptx").read_text())
        np.save(where / "x.npy", np.linspace(-3, 5, 500, dtype=np.float32))
        for name, options in CASES.items():
            source = "sort.ptx" if name.startswith("sort") else "saxpy.ptx"
            entry = name if name.startswith("sort") else "saxpy"
            words = ["record", "--launch", source, entry, *options, "-o", f"{name}.npz"]
            record = ask(words, where)
            replay = ask(["replay", f"{name}.npz", "--json"], where)
            again = ask(words, where)  # must not overwrite
            print(name, record, replay.returncode, again.returncode, flush=True)
            found.append(
                {
                    "command": " ".join(["fragmenta", *words]),
                    "recorded": record.returncode,
                    "bytes": (where / f"{name}.npz").stat().st_size,
                    "replayed": replay.returncode,
                    "overwritten": again.returncode == 0,
                    "launches": json.loads(replay.stdout)[0]["launches"],
                }
            )
    return found


def ask(words: list[str], where: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fragmenta", *words]
    return subprocess.run(
        command, cwd=where, capture_output=True, text=True, check=False
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    report: dict[str, Any] = made_by(device.present())
    done = [verified(launch) for launch in chosen()]
    report["verified"] = len(done)
    report["bytes"] = sum(each.get("bytes", 0) for each in done)
    report["differing"] = sum(not each["same"] for each in done)
    report["kernels"] = done
    try:
        report["recordings"] = recorded()
    except Exception as why:
        report["recordings"] = [{"error": f"{type(why).__name__}: {why}"}]
    given.output.write_text(json_text(report) + "\n")


if __name__ == "__main__":
    main()
