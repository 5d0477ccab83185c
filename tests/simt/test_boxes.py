"""The machine code of a copy moves what an H200 moves."""

from collections import Counter
from zlib import crc32

import numpy as np
import pytest

from fragmenta.engine.simt.boxes import Copy, CopyRefusal, run_box
from fragmenta.reference.shared.tensor_map import TensorMap
from tests.shared.recorded_boxes import OPERATIONS, ORIGIN, Case, recording

REDUCTIONS = ("add", "min", "dec", "xor")


def _copy(case: Case) -> Copy:
    return Copy(case.operation, case.used_rank, case.uses_im2col)


def _copies() -> list[Copy]:
    """All loads, some stores, and of some reductions the one with the most recordings.

    Each of them has to be compiled; the others have no code of their own.
    """
    found = Counter(_copy(Case(row)) for row in recording("boxes")["rows"])
    often = {copy.operation: copy for copy, _ in reversed(found.most_common())}
    loads = [copy for copy in found if copy.loads]
    stores = [Copy("store", 1), Copy("store", 5), Copy("store", 4, im2col=True)]
    return sorted([*loads, *stores, *(often[name] for name in REDUCTIONS)])


COPIES = _copies()


def _run(case: Case) -> tuple[CopyRefusal, np.ndarray]:
    copy, memory, image = _copy(case), case.memory(), case.image()
    problem, _ = run_box(
        copy,
        case.map().encode(),
        case.coordinates,
        case.offsets,
        memory,
        image,
        at=case.at,
        origin=ORIGIN,
    )
    return problem, image if copy.loads else memory


@pytest.mark.parametrize("copy", COPIES, ids=str)
def test_an_h200_moves_the_same_bytes(copy: Copy) -> None:
    recorded = recording("boxes")
    wrong, count = [], 0
    for row, crc in zip(recorded["rows"], recorded["crc"], strict=True):
        case = Case(row)
        if _copy(case) == copy:
            count += 1
            problem, after = _run(case)
            if problem or crc32(after) != crc:
                wrong.append((problem.name, case.row))
    assert not wrong, f"{len(wrong)} of {count}, such as {wrong[0]}"


def test_every_kind_of_copy_was_recorded() -> None:
    found = {_copy(Case(row)) for row in recording("boxes")["rows"]}
    assert len({copy for copy in found if copy.loads}) == 5 + 3
    assert {copy.operation for copy in found} == set(OPERATIONS)
    assert found >= set(COPIES)


def test_what_an_h200_refuses_is_refused() -> None:
    faults = [Case(row) for row in recording("boxes")["faults"]]
    ready = [case for case in faults if _copy(case) in COPIES]
    assert len(ready) > 10
    for case in ready:
        before = case.image() if case.operation == "load" else case.memory()
        problem, after = _run(case)
        assert problem != CopyRefusal.NONE
        assert (after == before).all()


MAP = TensorMap("u8", (64, 4), (64,), (32, 4))


def _problem(copy: Copy, map: TensorMap, memory: int, image: int = 1024) -> CopyRefusal:
    given = np.zeros(memory, np.uint8), np.zeros(image, np.uint8)
    return run_box(copy, map.encode(), (32, 0), (), *given)[0]


def test_nothing_outside_memory_is_touched() -> None:
    load = Copy("load", 2)
    assert _problem(load, MAP, 256) == CopyRefusal.NONE
    assert _problem(load, MAP, 255) == CopyRefusal.GLOBAL_BOUNDS
    assert _problem(load, MAP.at(16), 256) == CopyRefusal.GLOBAL_BOUNDS
    assert _problem(load, MAP, 256, image=127) == CopyRefusal.SHARED_BOUNDS
    assert _problem(Copy("add", 2), MAP, 256) == CopyRefusal.OPERATION
