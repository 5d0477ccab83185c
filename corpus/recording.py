"""Launches for a GPU: what each kernel was given, and what it left here.

    python -m corpus --record FOLDER              # while the corpus runs
    python -m corpus.recording prepare FOLDER     # PTX into machine code, one archive
    python FOLDER/launch.py FOLDER/launches.npz.xz RESULTS   # where the GPU is
    python -m corpus.recording keep FOLDER RESULTS

One launch of each kernel is kept, the first one of a case's second call, if its
memory is small.  ``launch.py`` (``gpu.py`` here) needs NumPy and the driver only.  It
launches everything twice and writes a hash of each buffer.  ``keep`` compares these
with the hashes of what the same launch left here, and writes ``docs/corpus-h200.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fragmenta.engine.simt.arguments import Filled
from fragmenta.errors import Error
from fragmenta.inspect.evidence.kernels import PreparedLaunch
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.request import LaunchRequest

MOST_BYTES = 1 << 20
"""Launches with more memory than this are not kept."""
RESULTS = Path(__file__).parents[1] / "docs" / "corpus-h200.json"


def digest(data: Any) -> str:
    """A short hash of bytes."""
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:16]


# ── while the corpus runs ───────────────────────────────────────────────────


class Recorder:
    """Keeps the first launch of each kernel of a case."""

    def __init__(self, case: str) -> None:
        self.case = case
        self.kept: dict[str, dict[str, Any]] = {}

    def restart(self) -> None:
        """Forget the launches of the first call."""
        self.kept.clear()

    def __call__(self, kernel: Kernel, request: LaunchRequest) -> Callable[[], None]:
        """Copy what a launch is given; afterwards, hash what it left."""
        if kernel.name in self.kept:
            return lambda: None
        prepared = PreparedLaunch(kernel, request.arguments)
        before = [each.bytes.copy() for each in prepared.held]
        if sum(each.size for each in before) > MOST_BYTES:
            return lambda: None

        def after() -> None:
            self.kept[kernel.name] = {
                "case": self.case,
                "entry": kernel.name,
                "text": kernel.loaded.module.text,
                "target": request.target,
                "grid": _three(request.grid),
                "block": _three(request.block),
                "cluster": _three(request.cluster or 1),
                "shared": request.shared,
                "parameters": [_plain(each) for each in prepared.parameters],
                "contract": request.contract,
                "before": before,
                "after": [digest(each.bytes) for each in prepared.held],
            }

        return after

    def save(self, folder: Path) -> None:
        """Write what was kept into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, row in enumerate(self.kept.values()):
            file = folder / f"{self.case}.{number}.pickle.xz"
            file.write_bytes(lzma.compress(pickle.dumps(row), preset=1))


def _three(size: Any) -> list[int]:
    given = [size] if isinstance(size, int) else list(size)
    return [int(each) for each in (*given, 1, 1)[:3]]


def _plain(parameter: Any) -> Any:
    """A parameter: bytes, a pointer into a buffer, or bytes with pointers in them."""
    if isinstance(parameter, Filled):
        return ["struct", parameter.data, [list(each) for each in parameter.pointers]]
    if isinstance(parameter, bytes):
        return ["bytes", parameter]
    return ["pointer", *parameter]


# ── machine code ────────────────────────────────────────────────────────────


def prepare(folder: Path) -> None:
    """All launches and their machine code in one archive, ``launches.npz``."""
    files = sorted(folder.glob("*.pickle.xz"))
    rows = [pickle.loads(lzma.decompress(each.read_bytes())) for each in files]
    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(assembled, rows))
    index, arrays = [], {}
    for number, (row, code) in enumerate(zip(rows, codes, strict=True)):
        if isinstance(code, str):
            print(f"{row['case']} {row['entry']}: {code}", file=sys.stderr)
            continue
        arrays[f"{number}/code"] = np.frombuffer(code, np.uint8)
        for i, each in enumerate(row["before"]):
            arrays[f"{number}/{i}"] = each
        kept = {
            name: row[name]
            for name in ("case", "entry", "grid", "block", "cluster", "shared", "after")
        }
        kept["parameters"] = [_words(each) for each in row["parameters"]]
        index.append({"number": number, "buffers": len(row["before"]), **kept})
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    stored = io.BytesIO()
    np.savez(stored, **arrays)
    (folder / "launches.npz.xz").write_bytes(lzma.compress(stored.getvalue(), preset=6))
    shutil.copy(Path(__file__).parent / "gpu.py", folder / "launch.py")
    print(
        f"{len(index)} launches, {(folder / 'launches.npz.xz').stat().st_size:,} bytes"
    )


def _words(parameter: Any) -> Any:
    kind, first, *rest = parameter
    return [kind, first.hex() if isinstance(first, bytes) else first, *rest]


def assembled(row: dict[str, Any]) -> bytes | str:
    """The machine code of a launch; what the assembler says if there is none."""
    from fragmenta.cuda.tools import assembler

    text = re.sub(
        r"(?m)^\s*\.target\s+[^\n]*", f".target {row['target']}", row["text"], count=1
    )
    with tempfile.TemporaryDirectory() as place:
        source, code = Path(place, "a.ptx"), Path(place, "a.cubin")
        source.write_text(text)
        command = [
            assembler.tool("ptxas"),
            f"-arch={row['target']}",
            f"--fmad={str(row['contract']).lower()}",
            source,
            "-o",
            code,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return code.read_bytes() if done.returncode == 0 else done.stderr[:300]


# ── what the GPU said ───────────────────────────────────────────────────────


def keep(folder: Path, results: Path) -> None:
    """Compare the GPU's hashes with ours; write them beside the table.

    Kernels that were not launched this time keep what is known about them.
    """
    with np.load(
        io.BytesIO(lzma.decompress((folder / "launches.npz.xz").read_bytes()))
    ) as read:
        index = json.loads(read["index"].tobytes())
    said = json.loads(results.read_text())
    files = [
        pickle.loads(lzma.decompress(each.read_bytes()))
        for each in folder.glob("*.pickle.xz")
    ]
    given = {(each["case"], each["entry"]): each for each in files}
    rows = {}
    for row in index:
        its = said["launches"].get(str(row["number"]))
        if its is None or "error" in its:
            state = f"not run: {its['error']}" if its else "not run"
        elif its["first"] != its["second"]:
            state = "not the same twice"
        elif its["first"] == row["after"]:
            state = "same"
        else:  # perhaps it was recorded before a repair
            try:
                again = launched_here(given[row["case"], row["entry"]])
            except Error:  # it is stopped here, so there is nothing to compare
                continue
            state = "same" if its["first"] == again else "differs"
            print(row["case"], row["entry"], state)
        found = {
            "bits": state,
            "hashes": its["first"] if its and "first" in its else [],
        }
        rows[f"{row['case']}:{row['entry']}"] = found
    write(said["made"], rows)
    counts: dict[str, int] = {}
    for each in rows.values():
        counts[each["bits"][:40]] = counts.get(each["bits"][:40], 0) + 1
    print(counts)


def write(made: dict[str, Any], rows: dict[str, Any]) -> None:
    """Put the results of launches in place of what is known about the same kernels."""
    known = json.loads(RESULTS.read_text())["kernels"] if RESULTS.exists() else {}
    kernels = dict(sorted({**known, **rows}.items()))
    RESULTS.write_text(json.dumps({"made": made, "kernels": kernels}, indent=1) + "\n")


def launched_here(row: dict[str, Any]) -> list[str]:
    """The hashes of all buffers after the same launch without a GPU."""
    from fragmenta.engine.simt.arguments import Pointer, Struct
    from fragmenta.launch.kernel import parse

    buffers = [each.copy() for each in row["before"]]

    def argument(parameter: Any) -> Any:
        kind, first, *rest = parameter
        if kind == "bytes":
            return first
        if kind == "pointer":
            return Pointer(buffers[first], rest[0])
        places = [(at, Pointer(buffers[i], offset)) for at, (i, offset) in rest[0]]
        return Struct(first, tuple(places), 64)

    parse(row["text"]).kernels[row["entry"]].launch(
        row["grid"],
        row["block"],
        [argument(each) for each in row["parameters"]],
        cluster=row["cluster"] if max(row["cluster"]) > 1 else None,
        shared=row["shared"],
        target=row["target"],
        contract=row["contract"],
        watch=False,
    )
    return [digest(each) for each in buffers]


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["prepare", "keep"])
    parser.add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args()
    {"prepare": prepare, "keep": keep}[given.what](*given.paths)


if __name__ == "__main__":
    main()
