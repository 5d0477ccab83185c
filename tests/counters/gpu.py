"""Launches kernels on a GPU under Nsight Compute, and writes what it counted.

    python gpu.py count LAUNCHES.npz.xz FOLDER     # on the machine with the GPU
    python gpu.py launch LAUNCHES.npz.xz FIRST LAST LOG   # what Nsight Compute runs

``count`` asks Nsight Compute which metrics there are, takes those that match
:data:`WANTED`, and profiles some launches at a time, so that what is done is written.
This file goes to the machine with the GPU together with ``corpus/gpu.py``, which is
called ``driver.py`` there.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

WANTED = (
    r"smsp__inst_executed",
    r"smsp__thread_inst_executed(_pred_on)?",
    r"smsp__inst_executed_op_\w*(branch|ld|st|red|atom|ldgsts|ldsm|global|shared)\w*",
    r"smsp__inst_executed_pipe_\w+",
    r"sm(sp)?__inst_executed_pipe_\w*(tensor|mma|tma|lsu)\w*",
    r"sm(sp)?__ops_path_tensor_\w+",
    r"smsp__sass_branch_targets(_threads_(divergent|uniform))?",
    r"smsp__sass_inst_executed_op_\w*(global|shared|local|ldsm|ldgsts|branch)\w*",
    r"smsp__sass_l1tex_\w*(shared|global)\w*",
    r"l1tex__t_(requests|sectors)_pipe_lsu_mem_(global|local)_op_\w+",
    r"l1tex__t_(requests|sectors)_pipe_lsu_mem_(global|local)",
    r"l1tex__data_pipe_lsu_wavefronts\w*_mem_shared\w*",
    r"l1tex__data_bank_conflicts_pipe_lsu\w*",
    r"l1tex__data_bank_(reads|writes)",
    r"\w*(tma|gmma)\w*",
    r"dram__(sectors|bytes)_(read|write)",
    r"lts__t_sectors_op_(read|write|atom|red)",
    r"lts__t_sectors_srcunit_tex\w{0,12}",
    r"(sm|smsp)__cycles_elapsed",
)
"""Which metrics are taken, whole names without their suffix."""
FIXED = (
    "launch__registers_per_thread",
    "launch__shared_mem_per_block",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_driver",
    "launch__shared_mem_config_size",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_barriers",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__occupancy_per_block_size",
    "launch__waves_per_multiprocessor",
    "sm__maximum_warps_per_active_cycle_pct",
    "gpu__time_duration.sum",
)
"""Metrics without a suffix, or with one of their own."""
EXCLUDED = re.compile(r"_l1d?_|lookup|cycles_active|_srcnode|_aperture|throttle|_dsmem")
AT_ONCE = 24
"""Launches in one run of Nsight Compute."""
MOST_SECONDS = 250
NCU = ("ncu", "/opt/nvidia/nsight-compute/2025.3.1/ncu", "/usr/local/cuda/bin/ncu")


def index_of(archive: Path) -> tuple[list[dict[str, Any]], Any]:
    """The launches of an archive, and its arrays."""
    read = np.load(io.BytesIO(lzma.decompress(archive.read_bytes())))
    return json.loads(read["index"].tobytes()), read


def launch(archive: Path, first: int, last: int, log: Path) -> None:
    """Launch some kernels once, in order; the log says which were."""
    import driver

    rows, read = index_of(archive)
    cuda = driver.Cuda()
    with log.open("a") as said:
        for row in rows[first:last]:
            number = row["number"]
            code = read[f"{number}/code"].tobytes()
            buffers = [read[f"{number}/{i}"] for i in range(row["buffers"])]
            state = "launched"
            try:
                driver.launched(cuda, row, code, buffers)
            except RuntimeError as why:
                state = str(why)
            said.write(json.dumps([number, row["case"], row["entry"], state]) + "\n")
            said.flush()
            if "cuCtxSynchronize" in state:
                return


# ── Nsight Compute ──────────────────────────────────────────────────────────


def profiler() -> str:
    """Where Nsight Compute is."""
    for each in NCU:
        try:
            subprocess.run([each, "--version"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return each
    raise SystemExit("there is no ncu")


def chosen(ncu: str, folder: Path) -> tuple[list[str], list[str]]:
    """The metrics that there are and that are wanted: counters, and patched code."""
    done = subprocess.run(
        [ncu, "--query-metrics"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (folder / "query.txt").write_text(done.stdout + done.stderr)
    names = sorted(set(re.findall(r"(?m)^([a-z0-9]+__\w+)\s+Counter", done.stdout)))
    if not names:
        names = sorted(set(re.findall(r"(?m)^([a-z0-9]+__\w+)\b", done.stdout)))
    patterns = [re.compile(each) for each in WANTED]
    taken = [
        each
        for each in names
        if not EXCLUDED.search(each) and any(p.fullmatch(each) for p in patterns)
    ]
    patched = [f"{each}.sum" for each in taken if "__sass_" in each]
    counters = [f"{each}.sum" for each in taken if "__sass_" not in each]
    return [*counters, *FIXED], patched


def profile(
    ncu: str, archive: Path, folder: Path, span: range, metrics: list[str], limit: float
) -> tuple[list[dict[str, str]], str]:
    """What Nsight Compute says about some launches: a row of names and values each."""
    log = folder / "launched.log"
    log.unlink(missing_ok=True)
    command = [
        ncu,
        "--clock-control",
        "none",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--target-processes",
        "all",
        "--metrics",
        ",".join(metrics),
        sys.executable,
        __file__,
        "launch",
        str(archive),
        str(span.start),
        str(span.stop),
        str(log),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False
        )
        said = done.stdout
        errors = done.stderr
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        errors = "out of time"
    lines = said.splitlines()
    start = next((i for i, each in enumerate(lines) if each.startswith('"ID"')), None)
    notes = [each for each in lines if each.startswith("==")]
    if start is None:
        return [], "\n".join([*notes, *lines[-5:], errors[-2000:]])
    rows = list(csv.DictReader(lines[start:]))
    rows = [each for each in rows if (each.get("ID") or "").isdecimal()]
    names = [json.loads(each) for each in log.read_text().splitlines()]
    done_names = [each for each in names if each[3] == "launched"]
    if len(rows) != len(done_names):  # others launched kernels, too
        mine = {entry for _, _, entry, _ in done_names}
        rows = [x for x in rows if x.get("Kernel Name", "").partition("(")[0] in mine]
    for each, (_, case, entry, _) in zip(rows, done_names, strict=False):
        each["case"], each["entry"] = case, entry
    failed = [f"{case}: {state}" for _, case, _, state in names if state != "launched"]
    return rows, "\n".join([*notes, *failed])


def valid(
    ncu: str, archive: Path, folder: Path, metrics: list[str], tries: int = 5
) -> tuple[list[str], str]:
    """The metrics of a list that one launch can be profiled with."""
    said = ""
    if not metrics or tries < 0:
        return [], said
    rows, said = profile(ncu, archive, folder, range(1), metrics, 40)
    if rows:
        return metrics, said
    left = [each for each in metrics if each not in said]
    if len(left) == len(metrics):
        if len(metrics) == 1:
            return [], said
        half = len(metrics) // 2
        parts = [
            valid(ncu, archive, folder, part, tries - 1)
            for part in (metrics[:half], metrics[half:])
        ]
        return [*parts[0][0], *parts[1][0]], "\n".join([said, *(x[1] for x in parts)])
    found, more = valid(ncu, archive, folder, left, tries - 1)
    return found, f"{said}\n{more}"


def count(archive: Path, folder: Path) -> None:
    """Profile all launches; results are written after each part."""
    begun = time.time()
    ncu = profiler()
    version = subprocess.run(
        [ncu, "--version"], capture_output=True, text=True, check=False
    )
    counters, patched = chosen(ncu, folder)
    rows, _ = index_of(archive)
    found: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    made = {
        "ncu": version.stdout.split("\n")[-2:],
        "date": time.strftime("%Y-%m-%d"),
        "gpu": subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip(),
    }
    for given in (counters, patched):
        metrics, said = valid(ncu, archive, folder, given)
        lost = sorted(set(given) - set(metrics))
        notes.append(f"{len(metrics)} of {len(given)}; not {lost}; {said[-2000:]}")
        print(notes[-1][:1500], flush=True)
        for first in range(0, len(rows), AT_ONCE):
            left = MOST_SECONDS - (time.time() - begun)
            if left < 10 or not metrics:
                notes.append(f"no time for {first} of {metrics[:1]}")
                continue
            span = range(first, min(first + AT_ONCE, len(rows)))
            try:
                part, said = profile(ncu, archive, folder, span, metrics, left)
            except Exception as why:  # what is there is kept
                part, said = [], f"{type(why).__name__}: {why}"
            notes.append(f"{span} {metrics[0]}: {len(part)} rows, {said[-3000:]}")
            for each in part:
                name = each.pop("case", None)
                if name is None:
                    continue
                kept = found.setdefault(name, {})
                kept.update(
                    {k: v for k, v in each.items() if k and v not in ("", None)}
                )
            text = json.dumps(
                {"made": made, "notes": notes, "launches": found}, indent=0
            )
            (folder / "nsight.json").write_text(text)
            print(f"{time.time() - begun:.0f} s: {span}, {len(part)} rows", flush=True)
    print(len(found), "launches,", len(counters), "and", len(patched), "metrics")


if __name__ == "__main__":
    if sys.argv[1] == "count":
        count(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        launch(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
