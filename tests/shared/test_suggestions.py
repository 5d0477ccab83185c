"""Suggested swizzles are free of conflicts, and no better one is missed."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.shared.boxes import plan
from fragmenta.reference.shared.suggestions import Suggestions
from fragmenta.reference.shared.tensor_map import TensorMap

F16 = fm.mma("m16n8k16", a="f16", d="f32")
D16 = fm.mma("m16n8k16", a="f16", d="f16")


@pytest.mark.parametrize(
    ("op", "operand", "tile", "order", "wanted"),
    [
        (F16, "A", (64, 64), "row", {"swizzle": 128, "pitch": 128}),
        (F16, "A", (64, 32), "row", {"swizzle": 64, "pitch": 64}),
        (F16, "B", (16, 64), "col", {"swizzle": 32, "pitch": 32}),
        (F16, "B", (64, 64), "row", {"swizzle": 128, "pitch": 128}),
        (F16, "B", (32, 256), "row", {"swizzle": 128, "pitch": 128, "span": 128}),
        # 16-byte lines follow each other in all banks.
        (
            fm.mma("m16n8k8", a="f16", d="f32"),
            "A",
            (64, 8),
            "row",
            {"swizzle": 0, "pitch": 16},
        ),
        # Lines of 48 bytes come to all banks by themselves.
        (F16, "B", (16, 24), "row", {"swizzle": 0, "pitch": 48}),
        (
            fm.mma("m16n8k32", a="s8"),
            "B",
            (64, 64),
            "col",
            {"swizzle": 64, "pitch": 64},
        ),
        (D16, "D", (64, 64), "row", {"swizzle": 128, "pitch": 128}),
    ],
)
def test_the_best_is_what_kernels_use(op, operand, tile, order, wanted):
    found = fm.shared.suggest_swizzle(op, operand, tile=tile, order=order)
    assert found.best.arguments == {"order": order} | wanted
    assert found.best.free
    assert found.best.tma
    assert found.best.extra == 0
    make = fm.shared.stmatrix_loop if operand == "D" else fm.shared.ldmatrix_loop
    again = make(op, operand, tile=tile, **found.best.arguments)
    assert (again.addresses == found.best.loop.addresses).all()


def test_everything_that_is_called_free_is_free():
    """Counted access by access, for loads and for the copies of threads."""
    found = fm.shared.suggest_swizzle(
        F16, "A", tile=(32, 48), order="row", copy="cp.async"
    )
    assert 0 < len(found.free) < len(found.found)
    for each in found.found:
        loop, memory = each.loop, each.loop.memory
        loads = [fm.shared.bank_conflicts(loop.addresses[s]) for s in np.ndindex(3, 2)]
        copies = []
        for first in range(0, 32 * 6, 32):
            unit = first + np.arange(32)
            place = (unit // 6) * memory.pitch + 16 * (unit % 6)
            if each.span:
                units = each.span // 16
                inside, box = unit % 6 % units, unit % 6 // units
                place = box * 32 * memory.pitch + (unit // 6) * memory.pitch
                place = place + 16 * inside
            bits, base, shift = each.swizzle
            place = place ^ (((place >> (base + shift)) & ((1 << bits) - 1)) << base)
            copies.append(fm.shared.bank_conflicts(place, 16))
        assert each.turns == sum(cost.turns for cost in loads + copies)
        assert each.free == (max(cost.degree for cost in loads + copies) == 1)


def test_the_order_is_turns_then_tma_then_memory():
    found = fm.shared.suggest_swizzle(F16, "B", tile=(64, 64), order="col").found
    turns = [each.turns for each in found]
    assert turns == sorted(turns)
    free = [each for each in found if each.free]
    keys = [(not each.tma, each.extra) for each in free]
    assert keys == sorted(keys)
    assert {each.pitch for each in free if each.extra} >= {144, 176, 208, 240}


def test_tma_has_only_its_own_swizzles():
    found = fm.shared.suggest_swizzle(F16, "A", tile=(64, 32), order="row", copy="tma")
    assert [each.words for each in found.found] == [
        "64-byte swizzle",
        "32-byte swizzle, boxes of 32 bytes",
        "128-byte swizzle, 128 bytes apart",
        "no swizzle",
    ]
    assert [each.extra for each in found.found] == [0, 0, 64 * 64, 0]
    wide = fm.shared.suggest_swizzle(F16, "A", tile=(16, 512), order="row")
    plain = wide.plain
    assert (plain.words, plain.tma) == ("no swizzle", False)  # boxes have 256 elements


@pytest.mark.parametrize(("tile", "order"), [((64, 32), "row"), ((32, 192), "row")])
def test_tensor_maps_write_what_is_called_theirs(tile, order):
    """Box by box, against the addresses of a copy."""
    found = fm.shared.suggest_swizzle(F16, "A", tile=tile, order=order, copy="tma")
    assert len(found.found) >= 3
    for each in found.found:
        memory = each.loop.memory
        wide = memory.span // 2
        name = each.arguments["swizzle"]
        map = TensorMap(
            "f16", tile[::-1], (2 * tile[1],), (wide, tile[0]), swizzle=name
        )
        boxes = [
            plan(map, (box * wide, 0), at=box * tile[0] * memory.pitch).shared
            for box in range(memory.boxes)
        ]
        assert (np.concatenate(boxes, axis=1)[:, ::8] == memory.units()).all()


def test_the_explanation_names_the_best_and_the_plain_one():
    found = fm.shared.suggest_swizzle(
        F16, "B", tile=(32, 256), order="row", copy="st.shared.v4"
    )
    lines = str(found).splitlines()
    assert lines[:2] == [
        "B: 32 x 256 f16, row-major",
        "128-byte swizzle, boxes of 128 bytes: no bank conflicts",
    ]
    assert sum(line.startswith("* ") for line in lines) == 1
    assert any(line.startswith("  no swizzle     ") for line in lines)
    assert max(map(len, lines)) <= 80
    (worst,) = [each for each in found.found if each is found.plain]
    alone = Suggestions((worst,), None)
    assert "nothing is free of bank conflicts; no swizzle is best: 1152 turns" in str(
        alone
    )
    assert not alone.free
    assert found.records()[0]["swizzle"] == [3, 4, 3]


def test_refusals():
    told = {"tile": (32, 32), "order": "row"}
    with pytest.raises(fm.Error, match="or 'tma'; given 'dma'"):
        fm.shared.suggest_swizzle(F16, "A", copy="dma", **told)
    with pytest.raises(fm.Error, match="'ldmatrix' or 'stmatrix'; given 'ld'"):
        fm.shared.suggest_swizzle(F16, "A", move="ld", **told)
    with pytest.raises(fm.Error, match="stmatrix has no such form"):
        fm.shared.suggest_swizzle(F16, "A", move="stmatrix", packed=True, **told)
    with pytest.raises(fm.Error, match="column-major memory works"):
        fm.shared.suggest_swizzle(
            fm.mma("m16n8k32", a="s8"), "B", tile=(32, 16), order="row"
        )
