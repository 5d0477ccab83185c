"""Pages of recorded runs, and what Python says about them, for tests in a browser.

python -m tests.view.replay_pages FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import fragmenta as fm
from fragmenta import ptx
from fragmenta.debugging.debugger import Debugger
from fragmenta.debugging.expressions import evaluate
from fragmenta.debugging.fragments import last_product, words
from fragmenta.debugging.matrices import matrix
from fragmenta.debugging.moments import Moments
from fragmenta.debugging.scope import Names
from fragmenta.replay.recorded import Replay
from tests.debugging import kernels
from tests.ptx import recordings
from tests.view.test_replay_page import recorded
from tests.view.test_replay_products import launched

SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32"


def gemm() -> Replay:
    """A product with ``cp.async``, ``ldmatrix`` and ``mma``: four warps."""
    (found,) = [
        each
        for each in recordings.of_source("pipelines")
        if each.identity.endswith("sm_80-gemm_f16_3_stages")
    ]
    row = found.row
    name, text = found.file.texts[row.text]
    kernel = ptx.parse(text, name).kernels[row.entry]
    result = kernel.launch(
        row.grid, row.block, found.make_arguments(), shared=row.shared, replay=True
    )
    return result.replay()


def element(replay: Replay, step: int, row: int, col: int, mma: bool) -> dict:
    """An element of D of the last product at a step, explained; and a row of A."""
    at = Debugger(replay)
    at.at_problems = False
    at.moment, at.warp = step + 1, int(replay.steps.warp[step])
    found = last_product(at)
    op = found.op
    if mma:
        a, b, c, d = (
            op.fragments[name].unpack(words(at, found, name)) for name in "ABCD"
        )
    else:
        a, b = (matrix(at, found.step, op, found.given, n).values for n in "AB")
        c, d = (accumulators(replay, found, moment) for moment in (found.step, step))
    told = fm.instruction(str(op)).explain(
        a, b, c, row=row, col=col, target=replay.target
    )
    return {
        "step": step,
        "row": row,
        "col": col,
        "name": str(op),
        "told": str(told),
        "a": [float(each) for each in a[row]],
        "b": [float(each) for each in b[:, col]],
        "d": float(d[row, col]),
    }


def accumulators(replay, found, moment):
    """D of all four warps: before their product, or after they have waited."""
    parts = []
    for warp in range(4):
        steps = replay.steps_of_warp(warp)
        opcodes = [replay.sites[replay.steps.site[each]].opcode for each in steps]
        mine = [s for s, o in zip(steps, opcodes, strict=True) if o == str(found.op)]
        waits = [s for s, o in zip(steps, opcodes, strict=True) if "wait_group" in o]
        number = int(np.searchsorted(np.sort(own_steps(replay, found)), found.step))
        at = mine[number] - 1 if moment == found.step else waits[number]
        function = replay.function_at(int(at), warp)
        held = replay.registers_at(int(at), warp, function)
        parts.append(
            np.stack([held[r.name].view(np.uint32) for r in found.operands["D"]], -1)
        )
    return found.op.d.unpack(np.concatenate(parts))


def own_steps(replay, found):
    """The steps of the warp of a product at which it runs it."""
    warp = int(replay.steps.warp[found.step])
    return [
        int(each)
        for each in replay.steps_of_warp(warp)
        if replay.sites[replay.steps.site[each]].opcode == str(found.op)
    ]


def steps_after(replay: Replay, opcode: str, warp: int) -> list[int]:
    return [
        int(each)
        for each in replay.steps_of_warp(warp)
        if replay.sites[replay.steps.site[each]].opcode.startswith(opcode)
    ]


def watched(replay: Replay, asked: list[tuple[int, int, str]]) -> list[dict]:
    return [
        {
            "step": step,
            "warp": warp,
            "text": text,
            "texts": evaluate(text, Names(replay, step + 1, warp)).texts,
        }
        for step, warp, text in asked
    ]


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    told: dict[str, object] = {}
    tiles = gemm()
    mma = steps_after(tiles, "mma.sync", 1)
    told["gemm"] = {
        "elements": [
            element(tiles, mma[at], row, col, True)
            for at, row, col in ((0, 3, 5), (9, 12, 0), (31, 15, 7))
        ]
    }
    ring = recorded("idioms", "ring_wgmma", 0, "lazy")
    waits = steps_after(ring, "wgmma.wait_group", 0)
    told["ring"] = {
        "elements": [
            element(ring, step, row, col, False)
            for step, row, col in ((waits[0], 0, 0), (waits[2], 37, 6))
        ],
        "watched": watched(
            ring,
            [
                (waits[0], 0, "%f35 * 2"),
                (waits[0], 2, "%tid.x"),
                (waits[1], 0, "shared[0x400:0x420] as f16"),
                (waits[1], 0, "%rd6 == %rd7 || %p6"),
                (waits[1], 4, "full as b64"),
            ],
        ),
    }
    sparse, given, _ = launched(fm.instruction(SPARSE))
    told["sparse"] = {"codes": given["sparse"].indices.ravel().tolist()}
    calls = kernels.launched(kernels.CALLS, 32, np.zeros(32, np.float32))
    frames = Moments(calls).frames
    told["calls"] = {
        "stacks": [
            {
                "step": step,
                "frames": [[e.site.function, e.step] for e in frames(0, step)],
            }
            for step in range(0, len(calls), 5)
        ],
        "predicates": watched(calls, [(len(calls) - 1, 0, "%p2")]),
    }
    pages = {"gemm": tiles, "ring": ring, "sparse": sparse, "calls": calls}
    for name, replay in pages.items():
        replay.to_html(folder / f"{name}.html")
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
