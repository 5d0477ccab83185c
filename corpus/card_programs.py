"""Records launches of programs of others on a GPU, and replays them without it.

    python -m corpus.card_programs FOLDER RESULTS.json [NAME ...]

The programs are those of :mod:`corpus.cuda_programs`, which says where they come from.
Each is built with machine code and PTX, run under ``fragmenta record`` with two
launches of each kernel, and replayed: every byte that a launch could reach is compared
with the GPU's.  docs/programs-h200.json is what an H200 gave; docs/programs.md has a
table of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from corpus.cuda_programs import Row, rows

TARGETS = ("code=sm_90a", "code=compute_90a")
SECONDS = 300
LAUNCHES = 2
FRAGMENTA = (sys.executable, "-m", "fragmenta")


def build(row: Row, place: Path, made: Path) -> subprocess.CompletedProcess[str]:
    """Build a program."""
    targets = [w for each in TARGETS for w in ("-gencode", f"arch=compute_90a,{each}")]
    kind = ["-x", "cu"]  # also a .cpp file, which may use CUDA's types
    sources = [*kind, *row.sources]
    words = ["nvcc", *row.words(place), *targets, *sources, "-o", str(made)]
    return _run(words, row.at(place))


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "FRAGMENTA_PATIENCE": "never"},
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, -1, "", f"more than {SECONDS} s")


def judge(row: Row, place: Path) -> dict[str, Any]:
    """Build, record and replay a program; what came of it."""
    with tempfile.TemporaryDirectory() as given:
        program, kept = Path(given) / "program", Path(given) / "recorded"
        built = build(row, place, program)
        if built.returncode:
            return summary(row.name, "not built", [])
        words = [*FRAGMENTA, "record", "--launches", str(LAUNCHES), "-o", str(kept)]
        done = _run([*words, "--", str(program), *row.arguments], row.at(place))
        if not kept.is_dir():
            return summary(row.name, f"status {done.returncode}", [])
        back = _run([*FRAGMENTA, "replay", "--json", str(kept)], place)
        found = json.loads(back.stdout) if back.stdout else []
        launches = [each for file in found for each in file["launches"]]
        return summary(row.name, f"status {done.returncode}", launches)


def summary(
    program: str, status: str, launches: list[dict[str, Any]]
) -> dict[str, Any]:
    """A row of the results; of launches that differ, the kernel and the first words."""
    return {
        "program": program,
        "status": status,
        "launches": len(launches),
        "same": sum(each["same"] for each in launches),
        "bytes": sum(each["bytes"] for each in launches),
        "different": [_told(each) for each in launches if not each["same"]],
    }


def _told(launch: dict[str, Any]) -> str:
    """The kernel and the first line; further ones name files of the machine."""
    first = " ".join(launch["told"][:1]).partition("\n")[0]
    return f"{launch['name'].partition('(')[0]}: {first:.120}"


def versions() -> dict[str, str]:
    """What made the results."""
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = _run(smi, Path()).stdout.strip()
    nvcc = _run(["nvcc", "--version"], Path()).stdout.strip().splitlines()
    name, _, driver = gpu.partition(", ")
    tools = next((line for line in nvcc if "release" in line), "")
    today = date.today().isoformat()
    return {"gpu": name, "driver": driver, "nvcc": tools, "date": today}


def main() -> None:
    """Judge all programs, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    place = asked.folder.resolve()
    chosen = [
        row
        for row in rows()
        if (not asked.names or row.name.split("/")[-1] in asked.names)
        and row.at(place).is_dir()
    ]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda row: judge(row, place), chosen))
    made = {"made": versions(), "programs": found}
    asked.results.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
