"""Pages for a browser, and what Python says about them.

``python -m tests.replay.pages FOLDER`` writes them; ``explorer/tests/replay/runs.mjs``
compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fragmenta import ptx
from fragmenta.errors import KernelFault
from fragmenta.inspect.replay.aligning import SourceLine, to_first
from tests.replay.kernels import HEAD, LOSS, PAST, copied


def runs() -> ptx.Replay:
    """Three schedules of a kernel that is wrong, and its repair."""
    found = copied(False, ("eager", "lazy", 3)).replay()
    return found.beside(copied(True, "lazy").replay(), "repaired")


def label(name: str) -> str:
    """What the page calls a run."""
    return f"seed {name}" if name.isdigit() else name


def about_runs(replay: ptx.Replay) -> dict[str, Any]:
    """Where each run is, and what it holds."""
    rng, every = np.random.default_rng(5), replay.runs
    wrong = replay.problems[0]["steps"][1]
    order = [1, 3, 2, 0]
    problem = [
        {
            "name": each.name,
            "label": label(each.name),
            "step": each.problems[0]["steps"][1]
            if each.problems
            else replay.aligned(wrong, each),
            "problem": each.problems[0]["code"] if each.problems else None,
        }
        for each in (every[number] for number in order)
    ]
    aligned, values = [], []
    for _ in range(40):
        one, other = rng.choice(len(every), 2, replace=False).tolist()
        step = int(rng.integers(len(every[one])))
        aligned.append([one, step, other, every[one].aligned(step, every[other])])
        memory = [each.name for each in every[one].memories].index("argument 1 (out)")
        offset = 4 * int(rng.integers(64))
        data = every[one].memory_at(step, memory)[0].view(np.float32)
        values.append(
            {
                "number": one,
                "step": step,
                "memory": memory,
                "offset": offset,
                "value": str(float(data[offset // 4])),
                "steps": len(every[one]),
            }
        )
    last = every[-1]
    count = len(last.lines(last.ptx_file))
    places = [SourceLine(last.ptx_file, line) for line in range(1, count + 1)]
    apart = [each.line for each in places if not to_first(last.lines_of_first, each)]
    return {"problem": problem, "aligned": aligned, "values": values, "apart": apart}


def lost() -> ptx.Replay:
    """A launch with numerics."""
    given, out = np.linspace(-1, 2, 64).astype(np.float32), np.zeros(64, np.float32)
    run = ptx.parse(HEAD + LOSS).kernels["loss"].launch
    return run(1, 64, [given, out], numerics=True, replay=True).replay()


def about_lost(replay: ptx.Replay) -> dict[str, Any]:
    """Errors of elements and of lines."""
    name = "argument 1 (out)"
    found = replay.errors(name)
    assert found is not None
    stores = [s for s in range(len(replay)) if "st.global" in _opcode(replay, s)]
    bits: dict[int, float] = {}
    for each in replay.head["numerics"]["sites"]:
        line = replay.sites[each["site"]].ptx_line
        bits[line] = max(bits.get(line, 0), each["bits"])
    problems = [{"code": e["code"], "step": e["steps"][1]} for e in replay.problems]
    return {
        "last": len(replay) - 1,
        "early": [
            {
                "step": step,
                "offset": 4 * number,
                "exact": float(replay.errors(name, step).exact[number]),
            }
            for step in stores[:2]
            for number in (3, 63)
            if replay.errors(name, step).known[number]
        ],
        "memory": [each.name for each in replay.memories].index(name),
        "elements": [
            {
                "offset": 4 * number,
                "exact": float(found.exact[number]),
                "error": float(found.error[number]),
            }
            if np.isfinite(found.error[number])
            else {"offset": 4 * number, "exact": None, "error": None}
            for number in (0, 5, 30, 31, 50, 63)
        ],
        "problems": sorted(problems, key=lambda each: each["step"]),
        "lines": {line: f"−{round(most)} bits" for line, most in bits.items()},
    }


def _opcode(replay: ptx.Replay, step: int) -> str:
    return replay.sites[replay.steps.site[step]].opcode


def fault() -> ptx.Replay:
    """A launch that was stopped.

    Its blocks write the same bytes.  Whether that is seen before one of them is stopped
    is up to the threads they run in, so that nothing is watched.
    """
    try:
        ptx.parse(HEAD + PAST).kernels["past"].launch(
            2, 64, [np.zeros(64, np.uint32)], replay=True, watch=False
        )
    except KernelFault as why:
        return why.replay()  # type: ignore[return-value]
    raise AssertionError("it was not stopped")


def main(folder: Path) -> None:
    """Write all of them."""
    beside, errors, stopped = runs(), lost(), fault()
    for name, each in (("runs", beside), ("lost", errors), ("fault", stopped)):
        each.to_html(folder / f"{name}.html")
    expected = {
        **about_runs(beside),
        "lost": about_lost(errors),
        "fault": {"step": len(stopped) - 1},
    }
    (folder / "expected.json").write_text(json.dumps(expected), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
