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
from fragmenta.engine.simt.layout import POISON
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.expressions import evaluate
from fragmenta.inspect.debugging.fragments import last_product
from fragmenta.inspect.debugging.fragments import words as words_of
from fragmenta.inspect.debugging.matrices import matrix
from fragmenta.inspect.debugging.moments import Moments
from fragmenta.inspect.debugging.scope import WarpScope
from fragmenta.inspect.replay.recorded import Replay
from tests.debugging import kernels
from tests.debugging.test_matrices import twice
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
            op.fragments[name].unpack(words_of(at, found, name)) for name in "ABCD"
        )
    else:
        a, b = (matrix(at, found.step, op, found.given, n).values for n in "AB")
        number = own_steps(replay, found, at.warp).index(found.step)
        c, d = (accumulators(replay, found, number, each) for each in (False, True))
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


def accumulators(replay, found, number, after):
    """D of all four warps: before their product was done, or after it."""
    (unit,) = [
        each
        for each in replay.units
        if each["site"] == replay.steps.site[found.step] and each["done"] >= 0
    ][number : number + 1]
    parts = []
    for warp in range(4):
        own = own_steps(replay, found, warp)[number]
        at = unit["done"] if after else min(own, unit["issued"]) - 1
        function = replay.function_at(own, warp)
        while True:  # registers hold nothing while a product is in flight
            held = replay.registers_at(at, warp, function)
            names = [each.name for each in found.operands["D"]]
            words = np.stack([held[name].view(np.uint32) for name in names], -1)
            if not (words == POISON).all():
                break
            at -= 1
        parts.append(words)
    return found.op.d.unpack(np.concatenate(parts))


def own_steps(replay, found, warp):
    """The steps at which a warp runs an instruction."""
    site = replay.steps.site[found.step]
    mine = replay.steps_of_warp(warp)
    return [int(each) for each in mine if replay.steps.site[each] == site]


def in_tensor_memory(replay: Replay, a: np.ndarray, b: np.ndarray) -> dict:
    """Elements of D of two ``tcgen05.mma``: the second adds to what the first made."""
    at = Debugger(replay)
    at.goto(len(at))
    found = last_product(at)
    op = fm.instruction(str(found.op))
    made = (a @ b).astype(np.float32)  # small whole numbers: exact
    first, second = steps_after(replay, "tcgen05.mma", 0)
    assert second == found.step
    d = matrix(at, second, found.op, found.given, "D")
    elements = []
    for step, c, row, col in ((first, 0 * made, 5, 3), (len(replay) - 1, made, 63, 6)):
        place = op.d.where(row, col, address=8)
        told = op.explain(a, b, c, row=row, col=col, target=replay.target)
        elements.append(
            {
                "step": step,
                "row": row,
                "col": col,
                "name": str(op),
                "told": str(told),
                "d": float((c + made)[row, col]),
                "lane": place.lane,
                "column": place.column,
            }
        )
    return {
        "elements": elements,
        "a": a.tolist(),
        "b": b.tolist(),
        "first": first,
        "second": second,
        "d": np.asarray(d.values, float).tolist(),
    }


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
            "texts": evaluate(text, WarpScope(replay, step + 1, warp)).texts,
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
    tensor, left, right = twice()
    told["tensor"] = in_tensor_memory(tensor, left, right)
    pages = {
        "tensor": tensor,
        "gemm": tiles,
        "ring": ring,
        "sparse": sparse,
        "calls": calls,
    }
    for name, replay in pages.items():
        replay.to_html(folder / f"{name}.html")
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
