"""Measures one tool on one problem, in a process of its own.

    python -m peers.child CASE TOOL FOLDER [sizes]
    python -m peers.child CASE TOOL "" SIZES

``sizes`` is JSON.  With a folder, one problem is measured, and the folder gets what the
tool returned for drawn inputs and for inputs with a known answer, and what is exact.
Without one, the problem is measured with each of several sizes.  The times are printed.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from peers.cases import BY_NAME, GROWTH, INTERPRETER, SIMULATOR, Case
from peers.measuring import measure

ENVIRONMENT = {
    INTERPRETER: {"TRITON_INTERPRET": "1"},
    SIMULATOR: {"NUMBA_ENABLE_CUDASIM": "1"},
}
"""What a tool needs to be set."""


def main() -> None:
    """Measure what the command line names."""
    name, tool, folder, *sizes = sys.argv[1:]
    given: list[dict[str, int]] = json.loads(sizes[0]) if sizes else [{}]
    cores = {each.pop("cores", 0) for each in given}.pop()
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    every = {each.case.name: each.case for each in GROWTH} | BY_NAME
    module = import_module(f"peers.{every[name].kind}")
    times = []
    for each in given:
        case = every[name].sized(**each)
        call, result = module.prepare(case, tool, whole=False)
        times.append(measure(call)._asdict())
        if folder:
            keep(module, case, tool, result, Path(folder))
    print(json.dumps(times))


def keep(module: Any, case: Case, tool: str, result: Any, folder: Path) -> None:
    """Write what was returned, and what is right, into a folder."""
    np.save(folder / "drawn.npy", np.ascontiguousarray(result()))
    call, result = module.prepare(case, tool, whole=True)
    call()
    np.save(folder / "known.npy", np.ascontiguousarray(result()))
    for name in ("drawn", "known"):
        exact = module.exact(case, whole=name == "known")
        np.save(folder / f"exact-{name}.npy", exact)


if __name__ == "__main__":
    main()
