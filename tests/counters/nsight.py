"""Compares counts with those of Nsight Compute on an H200.

    python -m tests.counters.nsight prepare FOLDER            # needs no GPU
    python FOLDER/gpu.py count FOLDER/launches.npz.xz RESULTS # on the machine with the GPU
    python -m tests.counters.nsight keep RESULTS/nsight.json

``prepare`` writes machine code and memory of all launches of :mod:`cases` in the format
of :mod:`corpus.recording`.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from corpus import recording
from tests.counters.cases import FOLDER, TARGET, cases


def prepare(folder: Path) -> None:
    """All launches in one archive, and what launches them."""
    folder.mkdir(parents=True, exist_ok=True)
    assembled = cache(
        lambda text: recording.assembled(
            {"text": text, "target": TARGET, "contract": True}
        )
    )
    index, arrays = [], {}
    for number, case in enumerate(cases()):
        given = case.arguments()
        recorder = recording.Recorder(case.name)
        options = {"target": TARGET, **case.options}
        kernel = case.kernel()
        recorder(kernel, (case.grid, case.block, given), options)()
        (row,) = recorder.kept.values()
        code = assembled(row["text"])
        if isinstance(code, str):
            print(f"{case.name}: {code}")
            continue
        arrays[f"{number}/code"] = np.frombuffer(code, np.uint8)
        for i, each in enumerate(row["before"]):
            arrays[f"{number}/{i}"] = each
        kept = {
            name: row[name]
            for name in ("case", "entry", "grid", "block", "cluster", "shared")
        }
        kept["parameters"] = [recording._words(each) for each in row["parameters"]]
        index.append({"number": number, "buffers": len(row["before"]), **kept})
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    stored = io.BytesIO()
    np.savez(stored, **arrays)
    (folder / "launches.npz.xz").write_bytes(lzma.compress(stored.getvalue(), preset=6))
    shutil.copy(FOLDER / "gpu.py", folder / "gpu.py")
    shutil.copy(Path(recording.__file__).parent / "gpu.py", folder / "driver.py")
    size = (folder / "launches.npz.xz").stat().st_size
    print(f"{len(index)} launches, {size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["prepare"])
    parser.add_argument("path", type=Path)
    given: Any = parser.parse_args()
    {"prepare": prepare}[given.what](given.path)


if __name__ == "__main__":
    main()
