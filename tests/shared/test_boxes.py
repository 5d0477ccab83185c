"""The plan of a copy moves what an H200 moves."""

from zlib import crc32

import numpy as np
import pytest

from fragmenta.errors import AddressError, BadOperands, Error, OutOfBounds, ShapeError
from fragmenta.reference.shared.boxes import check_copy, load_box, plan, store_box
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap
from tests.shared.recorded_boxes import IMAGE, ORIGIN, Case, recording


def _cases(operation: str) -> list[tuple[Case, int]]:
    recorded = recording("boxes")
    every = zip(recorded["rows"], recorded["crc"], strict=True)
    found = [(Case(row), int(crc)) for row, crc in every]
    kinds = {"load": ("load",), "store": ("store",)}
    return [
        (case, crc)
        for case, crc in found
        if (case.operation in kinds.get(operation, ()))
        or (operation == "reduce" and case.operation not in ("load", "store"))
    ]


@pytest.mark.parametrize("operation", ["load", "store", "reduce"])
def test_an_h200_moves_the_same_bytes(operation: str) -> None:
    cases = _cases(operation)
    assert len(cases) > 200
    wrong = []
    for case, crc in cases:
        map = case.map()
        if operation == "load":
            after = load_box(
                map,
                case.memory(),
                case.image(),
                case.coordinates,
                case.offsets,
                at=case.at,
                origin=ORIGIN,
            )
        else:
            reduction = case.operation if operation == "reduce" else None
            after = store_box(
                map,
                case.memory(),
                case.image(),
                case.coordinates,
                at=case.at,
                origin=ORIGIN,
                operation=reduction,
            )
        if crc32(after) != crc:
            wrong.append(case.row)
    assert not wrong, f"{len(wrong)} of {len(cases)}, such as {wrong[0]}"


def test_what_an_h200_refuses_is_refused() -> None:
    faults = [Case(row) for row in recording("boxes")["faults"]]
    asked = [c for c in faults if c.used_rank == c.rank and c.uses_im2col == c.row[0]]
    assert len(asked) > 30
    for case in asked:
        store = case.operation != "load"
        with pytest.raises(AddressError):
            check_copy(
                case.map(), case.coordinates, case.offsets, at=case.at, store=store
            )


def test_the_bytes_that_complete_tx_counts_are_those_of_the_plan() -> None:
    for case, _ in _cases("load"):
        map = case.map()
        found = plan(map, case.coordinates, case.offsets, at=case.at)
        assert found.shared.size * map.element.bytes == map.box_bytes == case.row[46]
        assert len(np.unique(found.shared)) == found.shared.size


MAP = TensorMap("u8", (20, 4), (32,), (32, 4))


def test_a_load_stops_at_the_end_of_a_row_and_a_store_at_the_next_16_bytes() -> None:
    memory = np.arange(128, dtype=np.uint8)
    loaded = load_box(MAP, memory, np.full(128, 255, np.uint8), (0, 0)).reshape(4, 32)
    assert (loaded[:, :20] == memory.reshape(4, 32)[:, :20]).all()
    assert not loaded[:, 20:].any()
    full = TensorMap("u8", (20, 4), (48,), (32, 4))
    stored = store_box(full, np.zeros(192, np.uint8), np.full(128, 7, np.uint8), (0, 0))
    assert (stored.reshape(4, 48)[:, :32] == 7).all()
    assert not stored.reshape(4, 48)[:, 32:].any()


def test_nothing_outside_memory_is_touched() -> None:
    image = np.zeros(IMAGE, np.uint8)
    with pytest.raises(OutOfBounds, match="of global memory, of which 100 are given"):
        load_box(MAP, np.zeros(100, np.uint8), image, (0, 0))
    with pytest.raises(OutOfBounds, match="of shared memory, of which 64 are given"):
        load_box(MAP, np.zeros(128, np.uint8), image[:64], (0, 0))
    with pytest.raises(OutOfBounds, match="global"):
        store_box(MAP, np.zeros(116, np.uint8), image, (0, 0))
    with pytest.raises(ShapeError, match="array of uint8"):
        load_box(MAP, np.zeros(128, np.int8), image, (0, 0))


COLUMN = TensorMap("u8", (16, 8, 2), (16, 128), im2col=Im2col((0,), (1,), 16, 4))


@pytest.mark.parametrize(
    ("map", "coordinates", "more", "words"),
    [
        (MAP, (0, 0, 0), {}, "2 dimensions needs as many coordinates; given 3"),
        (MAP, (0, 0.5), {}, "whole number"),
        (MAP, (0, 0), {"offsets": (1,)}, "no offsets; given 1"),
        (MAP, (0, 0), {"at": 100}, "multiple of 128 bytes; given 100, nearest 128"),
        (MAP, (8, 0), {}, "given coordinate 8 in dimension 0, nearest 0"),
        (MAP, (0, -1), {"store": True}, "must not begin before the tensor"),
        (COLUMN, (0, 0, 0), {}, "1 offsets; given 0"),
        (COLUMN, (0, 9, 0), {"offsets": (0,)}, "coordinate 9 of dimension 1"),
        (COLUMN, (0, 0, 0), {"offsets": (1 << 16,)}, "0 to 65535; given 65536"),
        (COLUMN, (0, 0, 0), {"store": True}, "must not have pixels outside"),
    ],
)
def test_copies_that_are_refused_are_explained(
    map: TensorMap, coordinates: tuple[int, ...], more: dict[str, object], words: str
) -> None:
    with pytest.raises(Error, match=words):
        check_copy(map, coordinates, **more)  # type: ignore[arg-type]


def test_a_reduction_that_does_not_exist_is_refused() -> None:
    memory, image = np.zeros(128, np.uint8), np.zeros(128, np.uint8)
    with pytest.raises(BadOperands, match=r"add takes a tensor of u32.*; given u8"):
        store_box(MAP, memory, image, (0, 0), operation="add")
    with pytest.raises(BadOperands, match="did you mean add"):
        store_box(MAP, memory, image, (0, 0), operation="addd")
