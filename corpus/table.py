"""The results of all cases, in one file: ``docs/corpus.json``.

A case is one line.  What depends on the machine (seconds) is kept, but not compared.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parents[1] / "docs" / "corpus.json"
ARCHIVES = Path(__file__).parent / "archives.txt"


class Library(NamedTuple):
    """Where the kernels of a library come from."""

    package: str
    title: str
    source: str
    """The address of its files; {version} is that of the package."""


_GITHUB = "https://github.com/"
LIBRARIES = {
    "liger": Library(
        "liger-kernel", "Liger Kernel", "linkedin/Liger-Kernel/blob/v{version}/src/"
    ),
    "fla": Library(
        "fla-core",
        "flash-linear-attention",
        "fla-org/flash-linear-attention/blob/v{version}/",
    ),
    "flaggems": Library(
        "flag_gems", "FlagGems", "flagos-ai/FlagGems/blob/v{version}/src/"
    ),
    "conch": Library(
        "conch-triton-kernels", "Conch", "stackav-oss/conch/blob/v{version}/"
    ),
    "unsloth": Library("unsloth", "unsloth", "unslothai/unsloth/blob/main/"),
    "bnb": Library(
        "bitsandbytes",
        "bitsandbytes",
        "bitsandbytes-foundation/bitsandbytes/blob/{version}/",
    ),
    "sage": Library(
        "sageattention", "SageAttention", "thu-ml/SageAttention/blob/v{version}/"
    ),
    "lightning": Library(
        "lightning-attn",
        "Lightning Attention",
        "OpenNLPLab/lightning-attention/blob/main/",
    ),
    "helion": Library("helion", "Helion", "pytorch/helion/blob/v{version}/"),
    "numbacuda": Library(
        "numba-cuda", "numba-cuda", "NVIDIA/numba-cuda/blob/v{version}/"
    ),
    "warplang": Library("warp-lang", "Warp", "NVIDIA/warp/blob/v{version}/"),
    "tilelang": Library("tilelang", "TileLang", "tile-ai/tilelang/blob/v{version}/"),
    "cutlass": Library("nvidia-cutlass", "CUTLASS", "NVIDIA/cutlass/blob/main/"),
    "flashattn": Library(
        "flash-attn", "FlashAttention", "Dao-AILab/flash-attention/blob/v{version}/"
    ),
    "cccl": Library(
        "nvidia-cuda-cccl", "CCCL (CUB, libcu++)", "NVIDIA/cccl/blob/main/"
    ),
    "cce": Library(
        "cut-cross-entropy", "Cut Cross-Entropy", "apple/ml-cross-entropy/blob/main/"
    ),
}
"""The modules of cases, one for each library."""

Row = dict[str, Any]


def in_package(text: str) -> str:
    """A text whose paths start in the folder of all packages, or have no folder.

    >>> in_package("at (/a/lib/site-packages/triton/core.py:3), /made/here.py:7")
    'at (triton/core.py:3), here.py:7'
    """
    inside = re.sub(r"[^\s'\"(]*/site-packages/", "", text)
    return re.sub(r"(?<![\w:/.])/(?:[\w.+-]+/)+", "", inside)


def load() -> dict[str, Any]:
    """The table as it was last kept."""
    if not FILE.exists():
        return {"made": {}, "libraries": {}, "cases": []}
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return found


def chosen(name: str, only: str) -> bool:
    """Whether a case is asked for: ``only`` has parts of names, with commas.

    >>> chosen("rms_norm", "rope,norm"), chosen("rms_norm", "rope"), chosen("rope", "")
    (True, False, True)
    """
    return any(part in name for part in only.split(","))


def listing(folder: Path, library: str) -> Path:
    """The file in which a process says which cases of a library it is to run."""
    return folder / f"{library}.cases"


def missing(folder: Path, library: str, only: str, status: int) -> list[str]:
    """The cases of a library that have no report, each with the reason.

    A process that ended before it listed its cases has run none of those that the
    table has.
    """
    listed = listing(folder, library)
    if listed.exists():
        names = json.loads(listed.read_text())
    else:
        cases = (each for each in load()["cases"] if each["library"] == library)
        names = [each["case"] for each in cases if chosen(each["case"], only)]
    absent = [
        f"{library} {name}: no report; the process ended with status {status}"
        for name in names
        if not (folder / f"{library}.{name}.json").exists()
    ]
    if not absent and (status or not listed.exists()):
        absent = [f"{library}: the process ended with status {status}"]
    return absent


def read(folder: Path) -> list[Row]:
    """The cases that ran into a folder, with the interpreter's times."""
    rows = []
    for file in sorted(folder.glob("*.json")):
        library, case = file.stem.split(".", 1)
        told = json.loads(in_package(file.read_text()))
        row = {"library": library, "case": case, **told}
        other = folder / "interpreted" / file.name
        if other.exists():
            _add_interpreter(row, json.loads(other.read_text()))
        rows.append(row)
    return rows


def _add_interpreter(row: Row, told: Row) -> None:
    """Its seconds for each kernel; its state, where it gave up."""
    row["interpreter"] = told["state"]
    for each in row["kernels"]:
        seconds = told.get("interpreter", {}).get(each["kernel"])
        if seconds is not None:
            each["interpreter"] = seconds


def keep(rows: Iterable[Row], times: bool = True) -> None:
    """Write the table, with these cases in place of what it had of them.

    Without ``times``, seconds stay as they were: those of a busy machine say nothing.
    """
    table = load()
    cases = {(each["library"], each["case"]): each for each in table["cases"]}
    for row in rows:
        name = row["library"], row["case"]
        cases[name] = row if times else with_times_of(cases.get(name, row), row)
    libraries = {
        name: {
            "package": each.package,
            "version": _version(each.package),
            "title": each.title,
            "source": _address(each),
        }
        for name, each in LIBRARIES.items()
        if any(library == name for library, _ in cases)
    }
    made = {"date": date.today().isoformat(), "machine": platform.machine()}
    if not times:
        made["machine"] = table["made"].get("machine", made["machine"])
    for package in ("torch", "triton"):
        made[package] = _version(package).split("+")[0]
    lines = ",\n".join(
        json.dumps(row, sort_keys=True, ensure_ascii=False)
        for _, row in sorted(cases.items())
    )
    head = json.dumps({"made": made, "libraries": libraries}, indent=1)[:-2]
    FILE.write_text(f'{head},\n "cases": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def with_times_of(before: Row, row: Row) -> Row:
    """A case with the seconds that an earlier run took, where it has them.

    >>> before = {"seconds": 1, "kernels": [{"file": "a", "kernel": "k", "seconds": 2}]}
    >>> row = {"seconds": 8, "kernels": [{"file": "a", "kernel": "k", "seconds": 9}]}
    >>> with_times_of(before, row) == before
    True
    """
    known = {(each["file"], each["kernel"]): each for each in before["kernels"]}
    kernels = [
        {**each, **_times(known.get((each["file"], each["kernel"]), {}))}
        for each in row["kernels"]
    ]
    return {**row, **_times(before), "kernels": kernels}


def _times(row: Row) -> Row:
    return {name: row[name] for name in ("seconds", "interpreter") if name in row}


def _address(library: Library) -> str:
    return _GITHUB + library.source.format(version=_version(library.package))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        pins = ARCHIVES.read_text("utf-8")
        pinned = re.search(rf"(?m)^{re.escape(package)}==(\S+)$", pins)
        return pinned[1] if pinned else ""


def differences(rows: Iterable[Row]) -> list[str]:
    """What is not as it was kept: states, kernels and verdicts."""
    known = {(each["library"], each["case"]): each for each in load()["cases"]}
    found = []
    for row in rows:
        name = f"{row['library']} {row['case']}"
        before = known.get((row["library"], row["case"]))
        if before is None:
            found.append(f"{name} is not in {FILE.name}")
            continue
        for what, now, then in zip(
            ("state", "verdicts"), essence(row), essence(before), strict=True
        ):
            if now != then:
                found.append(f"{name}: the {what} was {then}, now it is {now}")
    return found


def essence(row: Row) -> tuple[str, list[str]]:
    """What must stay: the state, and what is said about each kernel."""
    said = {
        f"{each['kernel']}: {problem['rule']} at {problem['source']}"
        for each in row["kernels"]
        for problem in each["problems"]
    }
    return row["state"], sorted(said)
