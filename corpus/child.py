"""The process that runs the cases of one library, each in a fork of its own.

    python -m corpus.child LIBRARY PART FOLDER [--only TEXT] [--limit SECONDS]

A fork that takes too long is ended.  The result of each case is a file in FOLDER, and
LIBRARY.cases there lists the cases before the first one runs.  With
``TRITON_INTERPRET=1``, Triton's interpreter runs the same calls, and only its times are
kept.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from corpus.table import chosen, in_package, listing
from fragmenta.errors import Error

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("part")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    cases = [
        each
        for each in prepared(given.library).values()
        if each.belongs_to(given.part) and chosen(each.name, given.only)
    ]
    names = [each.name for each in cases]
    listing(given.folder, given.library).write_text(json.dumps(names))
    for each in cases:
        name = f"{given.library}.{each.name}"
        file = given.folder / f"{name}.json"
        compile_programs(each)
        in_a_fork(lambda: run(each, name, given.record), file, given.limit)  # noqa: B023


def prepared(library: str) -> dict[str, Any]:
    """The cases of a library, which now finds a GPU."""
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # a compiler would look for the GPU
    import torch
    import triton

    import fragmenta.triton
    from corpus import registry

    torch.set_num_threads(1)
    # The first configuration: to try all takes long and shows little more.
    fragmenta.triton.install("sm_90a", torch=True, autotune="first", watch="report")
    triton.set_allocator(scratch)
    importlib.import_module(f"corpus.libraries.{library}")
    return registry.CASES


def compile_programs(case: Any) -> None:
    """Compile what a case needs; the case tries again and reports what fails."""
    from corpus import host

    for program, kind in case.programs:
        with suppress(Error, subprocess.CalledProcessError):
            host.compiled(program, kind)


def scratch(size: int, alignment: int, stream: object) -> Any:
    """Memory that a Triton kernel asks for."""
    import torch

    return torch.empty(size, dtype=torch.int8)


def in_a_fork(action: Any, file: Path, limit: float) -> None:
    """What an action returns, as JSON in a file; what it printed beside it."""
    file.unlink(missing_ok=True)  # what an earlier run left is no report of this one
    child = os.fork()
    if child == 0:
        log = os.open(file.with_suffix(".log"), os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            part = file.with_suffix(".part")
            part.write_text(json.dumps(action()))
            part.rename(file)  # a report is there as a whole, or not at all
        finally:
            sys.stdout.flush()
            os._exit(0)
    start = time.monotonic()
    while time.monotonic() - start < limit:
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not file.exists():
        spent = time.monotonic() - start
        why = f"not done after {limit:g} s" if spent >= limit else "the process crashed"
        row = {"kernels": [], "state": "time" if spent >= limit else "crash"}
        file.write_text(json.dumps({**row, "reason": why, "error": 0, "compared": 0}))


# ── in the fork ─────────────────────────────────────────────────────────────


def run(case: Any, name: str, record: Path | None) -> dict[str, Any]:
    """What a case did."""
    return interpreted(case) if INTERPRETED else launched(case, name, record)


def launched(case: Any, name: str, record: Path | None) -> dict[str, Any]:
    """The kernels of a case, and whether its results are right."""
    from corpus.recording import Recorder
    from corpus.trial import Trial
    from corpus.watching import Watch, watched

    recorder = Recorder(name) if record else None
    watch = Watch(recorder)

    def second() -> None:
        watch.restart()
        if recorder:
            recorder.restart()

    trial = Trial(second)
    start = time.perf_counter()
    with watched(watch):
        state, reason = outcome(case, trial)
    spent = time.perf_counter() - start
    if recorder and record:
        recorder.save(record)
    fault = next(
        (
            told
            for seen in watch.kernels.values()
            for (rule, _, _), told in seen.problems.items()
            if rule == "fault"
        ),
        None,
    )
    if fault:
        # An address that is none here was made from one that the process has.
        state = "refused" if "where nothing is" in fault.message else "fault"
        reason = in_package(fault.message)
    places = located()
    return {
        "state": state,
        "reason": reason,
        "error": round(trial.error, 4),
        "compared": trial.compared,
        "seconds": round(spent, 2),
        "kernels": [described(each, places) for each in watch.kernels.values()],
    }


def outcome(case: Any, trial: Any) -> tuple[str, str]:
    """How a case ended, and why."""
    from corpus.trial import Wrong
    from fragmenta.errors import KernelError

    try:
        case.run(trial)
    except Wrong as why:
        return "wrong", str(why)
    except KernelError as why:
        traceback.print_exc()
        return "fault", in_package(str(why))
    except Error as why:
        traceback.print_exc()
        return "refused", in_package(str(why))
    except Exception as why:
        traceback.print_exc()
        return "library", in_package(f"{type(why).__name__}: {str(why)[:400]}")
    return ("right", "") if trial.compared else ("unjudged", "nothing was compared")


def described(seen: Any, places: dict[str, dict[str, int]]) -> dict[str, Any]:
    """A kernel as plain values."""
    from corpus.watching import place

    file, line = seen.file, 0
    known = places.get(seen.name, {})
    if seen.file in known or len(known) == 1:
        file = seen.file if seen.file in known else next(iter(known))
        line = known[file]
    tensor = sorted(
        n for n in seen.counts if n.startswith(("mma", "wgmma", "tcgen05.mma"))
    )
    return {
        "kernel": seen.name,
        "file": in_package(file),
        "line": line,
        "launches": seen.launches,
        "instructions": seen.instructions,
        "seconds": round(seen.seconds, 4),
        "tensor": tensor,
        "problems": [
            {
                "rule": each.rule,
                "severity": each.severity,
                "source": in_package(place(each)),
                "message": in_package(each.message)[:1000],
                "count": each.count,
            }
            for each in seen.problems.values()
        ],
    }


def located() -> dict[str, dict[str, int]]:
    """The files and lines where the Triton functions of each name are written."""
    if "triton" not in sys.modules:
        return {}
    from triton.runtime.jit import JITFunction

    found: dict[str, dict[str, int]] = {}
    for each in gc.get_objects():
        if isinstance(each, JITFunction):
            code = inspect.unwrap(each.fn).__code__
            place = found.setdefault(each.fn.__name__, {})
            place[code.co_filename] = code.co_firstlineno
    return found


def interpreted(case: Any) -> dict[str, Any]:
    """The seconds of Triton's interpreter for each kernel, in the second call."""
    from triton.runtime.interpreter import GridExecutor

    from corpus.trial import Trial

    spent: dict[str, float] = {}
    trial = Trial(spent.clear)
    execute = GridExecutor.__call__

    def timed(self: Any, *given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return execute(self, *given, **named)
        finally:
            name = self.fn.__name__
            spent[name] = spent.get(name, 0) + time.perf_counter() - start

    GridExecutor.__call__ = timed
    state, reason = outcome(case, trial)
    seconds = {name: round(value, 4) for name, value in spent.items()}
    return {"state": state, "reason": reason, "interpreter": seconds}


if __name__ == "__main__":
    main()
