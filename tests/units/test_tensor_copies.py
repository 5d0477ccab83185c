"""Tensor copies move what an H200 moves, and read their source at the right time."""

from zlib import crc32

import numpy as np
import pytest

from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.tensor_maps import decoded
from fragmenta.engine.units.tma_copies import (
    TensorLoad,
    TensorPrefetch,
    TensorStore,
    rows,
)
from fragmenta.engine.units.work import Range, poisoned
from fragmenta.reference.shared.boxes import load_box, plan, store_box
from fragmenta.reference.shared.descriptor import swizzled
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap
from tests.shared.recorded_boxes import ORIGIN, Case, recording
from tests.thinning import some
from tests.units.standing import WHO, WINDOW, Block, Cluster

START = 1024
"""Where user memory begins: below it is the system's."""


def _recorded(case: Case) -> tuple[Block, TensorLoad | TensorStore]:
    """A copy of the recording; its image begins where user memory does."""
    cluster = Cluster(shared=START + case.image().size)
    block = cluster.blocks[0]
    block.shared[START:] = case.image()
    cluster.add(case.memory(), ORIGIN)
    data, at = case.map().encode(), START + case.at
    if case.operation == "load":
        return block, TensorLoad(
            block,
            *WHO,
            data,
            case.coordinates[: case.used_rank],
            case.offsets,
            at,
            None,
            im2col=case.uses_im2col,
        )
    return block, TensorStore(
        block,
        *WHO,
        data,
        case.coordinates[: case.used_rank],
        at,
        im2col=case.uses_im2col,
        operation=None if case.operation == "store" else case.operation,
    )


def _some(name: str, operation: str, count: int) -> list[tuple[Case, int]]:
    rows_, crcs = recording("boxes")[name], recording("boxes")["crc"]
    chosen = [
        (case, int(crc))
        for row, crc in zip(rows_, crcs, strict=False)
        if (case := Case(row)).operation == operation
    ]
    return some(chosen[:: max(1, len(chosen) // count)], 3)


@pytest.mark.long
@pytest.mark.parametrize("operation", ["load", "store", "add"])
def test_an_h200_moves_the_same(operation: str) -> None:
    chosen = _some("rows", operation, 120)
    assert len(chosen) > 15
    for case, crc in chosen:
        block, copy = _recorded(case)
        copy.read()
        copy.write()
        left = block.shared[START:] if operation == "load" else block.memory(ORIGIN)[0]
        assert crc32(np.ascontiguousarray(left)) == crc, case.row


def test_what_an_h200_refuses_is_refused_at_the_issue() -> None:
    faults = [Case(row) for row in recording("boxes")["faults"]]
    assert len(faults) > 10
    for case in faults:
        with pytest.raises(CopyFault):
            _recorded(case)


@pytest.mark.parametrize("operation", ["load", "store"])
def test_poison_is_where_the_copy_writes_and_nowhere_else(operation: str) -> None:
    for case, _ in _some("rows", operation, 60):
        block, copy = _recorded(case)
        memory = block.shared if operation == "load" else block.memory(ORIGIN)[0]
        memory[:] = 3
        copy.read()
        copy.poison()
        touched = np.zeros(memory.size, bool)
        base = 0 if operation == "load" else ORIGIN
        for each in copy.goals:
            touched[each.starts[:, None] - base + np.arange(each.size)] = True
        places = np.flatnonzero(touched)
        assert (memory[~touched] == 3).all()
        assert (memory[places] == poisoned(places + base)).all()
        before = memory.copy()
        copy.write()
        assert (memory[~touched] == before[~touched]).all()


def test_ranges_of_a_box_are_those_of_the_plan() -> None:
    for case, _ in _some("rows", "load", 40) + _some("rows", "store", 40):
        _, copy = _recorded(case)
        found = plan(
            copy.map,
            copy.coordinates,
            copy.offsets,
            at=copy.at,
            store=case.operation != "load",
        )
        size = copy.map.element.bytes
        expected = [found.shared.reshape(-1), found.memory[found.inside]]
        there = [copy._shared_ranges([0]), copy.global_ranges]
        for places, ranges in zip(expected, there, strict=True):
            all_ = np.unique(places[:, None] + np.arange(size))
            got = [(r.starts[:, None] + np.arange(r.size)).reshape(-1) for r in ranges]
            assert np.array_equal(np.unique(np.concatenate([[], *got])), all_)


def bytes_of(block: Block, of: Range) -> np.ndarray:
    """Bytes of shared or of global memory, piece after piece."""
    memory, first = (
        (block.shared, 0) if of.space == "shared" else block.memory(int(of.starts[0]))
    )
    base = int(of.starts[0]) - first if of.space == "global" else 0
    return memory[of.starts[:, None] - base + np.arange(of.size)]


def check_pairs(block: Block, copy: TensorLoad | TensorStore) -> int:
    """What a copy says of each byte is true; how many there are."""
    goals = {
        int(byte)
        for each in copy.goals
        for byte in (each.starts[:, None] + np.arange(each.size)).reshape(-1)
    }
    count = 0
    for to, of in copy.pairs:
        assert (bytes_of(block, to) == bytes_of(block, of)).all()
        there = (to.starts[:, None] + np.arange(to.size)).reshape(-1).tolist()
        assert goals.issuperset(there)
        count += len(there)
    return count


@pytest.mark.parametrize("operation", ["load", "store"])
def test_each_byte_comes_from_where_a_copy_says(operation: str) -> None:
    """Also with im2col, an interleave and swizzles; what is outside comes from none."""
    kinds = set()
    for case, _ in _some("rows", operation, 60):
        block, copy = _recorded(case)
        copy.read()
        copy.write()
        if copy.map.dtype in ("tf32", "tf32.ftz", "f32.ftz"):  # these are rounded
            continue
        moved = sum(each.size * each.starts.size for each in copy.global_ranges)
        assert (check_pairs(block, copy) > 0) == (moved > 0)
        kinds.add((case.uses_im2col, copy.map.swizzle > 0))
    assert {each for each, _ in kinds} == {False, True}


# ── by hand ─────────────────────────────────────────────────────────────────

MAP = TensorMap("u8", (64, 8), (64,), (32, 4))


def _load(
    cluster: Cluster, map_: TensorMap, *given: object, **more: object
) -> TensorLoad:
    return TensorLoad(cluster.blocks[0], *WHO, map_.encode(), *given, **more)


def test_a_load_takes_the_source_when_it_reads() -> None:
    cluster, data = Cluster(), np.arange(512, dtype=np.uint16).astype(np.uint8)
    map_ = MAP.at(cluster.add(data))
    shared = cluster.blocks[0].shared
    copy = _load(cluster, map_, (32, 6), (), 1024, 2048)
    assert (copy.bytes, copy.signals(), copy.completes) == (
        128,
        [(0, 2048)],
        "mbarrier",
    )
    assert copy.goals == [Range("shared", 0, 1024, 128)]
    (source,) = copy.sources
    assert (source.starts - map_.address).tolist() == [416, 480]
    assert source.size == 32
    expected = load_box(map_, data, shared, (32, 6), at=1024, origin=map_.address)
    copy.poison()
    copy.read()
    data[:] = 0
    assert (shared[1024:1152].view(np.uint32) == 0x7FFF7FFF).all()
    copy.write()
    assert (shared == expected).all()


def test_a_store_takes_the_source_when_it_reads() -> None:
    cluster, memory = Cluster(), np.zeros(64 * 200, np.float16)
    map_ = TensorMap("f16", (64, 200), (128,), (64, 8), swizzle=128)
    map_ = map_.at(cluster.add(memory))
    block = cluster.blocks[0]
    at = 2048 + 128  # not at a multiple of 1024: the swizzle goes by the address
    copy = TensorStore(block, *WHO, map_.encode(), (0, 196), block.at(at))
    expected = store_box(
        map_, memory.view(np.uint8), block.shared, (0, 196), at=at, origin=map_.address
    )
    assert copy.goals == [Range("global", -1, map_.address + 196 * 128, 512)]
    assert copy.sources == [Range("shared", 0, at, 1024)]
    assert copy.completes == "bulk_group"
    copy.read()
    block.shared[:] = 0
    copy.write()
    assert (memory.view(np.uint8) == expected).all()


def test_a_reduction_combines_when_it_writes() -> None:
    cluster, memory = Cluster(), np.full(32, 5, np.uint32)
    map_ = TensorMap("u32", (32,), (), (32,)).at(cluster.add(memory))
    block = cluster.blocks[0]
    block.shared[1024:1152].view(np.uint32)[:] = np.arange(32)
    copy = TensorStore(block, *WHO, map_.encode(), (0,), 1024, operation="add")
    copy.read()
    copy.poison()
    assert (memory == 5).all()
    assert copy.combines
    memory[:] = 100
    copy.write()
    assert memory.tolist() == list(range(100, 132))


def test_what_a_store_uses_is_what_reaches_the_tensor() -> None:
    """Other bytes of the rest of the box change nothing; of each other unit, they do."""

    def stored(case: Case, changed: list[Range]) -> bytes:
        block, copy = _recorded(case)
        for each in changed:
            for start in each.starts.tolist():
                block.shared[start : start + each.size] ^= 0xFF
        copy.read()
        copy.write()
        return block.memory(ORIGIN)[0].tobytes()

    clipped = 0
    for case, _ in _some("rows", "store", 400):
        _, copy = _recorded(case)
        plain, useless = stored(case, []), copy.useless
        total = sum(each.bytes for each in (*copy.useful, *useless))
        assert total == sum(each.bytes for each in copy.sources)
        assert stored(case, useless) == plain, case.row
        clipped += bool(useless and copy.useful)
        for each in copy.useful if useless else []:
            units = (each.starts[:, None] + np.arange(0, each.size, 16)).reshape(-1)
            for start in units[:: max(1, units.size // 4)].tolist():
                one = each._replace(start=start, size=16)
                assert stored(case, [one]) != plain, (case.row, start)
    assert clipped > 5


def test_a_multicast_goes_to_the_blocks_of_its_mask() -> None:
    cluster, data = Cluster(4), np.arange(256, dtype=np.uint8)
    map_ = TensorMap("u8", (16, 16), (16,), (16, 8)).at(cluster.add(data))
    before = [block.shared.copy() for block in cluster.blocks]
    issuer = cluster.blocks[2]
    copy = TensorLoad(
        issuer,
        *WHO,
        map_.encode(),
        (0, 8),
        (),
        issuer.at(4096),
        issuer.at(8192),
        0b1011,
    )
    assert copy.signals() == [(0, 8192), (1, 8192), (3, 8192)]
    assert [each.rank for each in copy.goals] == [0, 1, 3]
    assert copy.bytes == 128
    copy.read()
    copy.write()
    for rank in (0, 1, 3):
        before[rank][4096:4224] = data[128:]
    for block, expected in zip(cluster.blocks, before, strict=True):
        assert (block.shared == expected).all()
    with pytest.raises(CopyFault, match="blocks of the cluster, 0 to 3; given 0b10000"):
        _load(cluster, map_, (0, 8), (), 4096, 8192, 16)


def test_im2col_takes_offsets() -> None:
    cluster, data = Cluster(), np.arange(16 * 5 * 4, dtype=np.uint16).astype(np.uint8)
    column = Im2col((-1,), (-1,), 16, 4)
    map_ = TensorMap("u8", (16, 5, 4), (16, 80), im2col=column).at(cluster.add(data))
    shared = cluster.blocks[0].shared
    copy = _load(cluster, map_, (0, -1, 1), (2,), 1024, 2048, im2col=True)
    expected = load_box(
        map_, data, shared, (0, -1, 1), (2,), at=1024, origin=map_.address
    )
    copy.read()
    copy.write()
    assert (shared == expected).all()


FOUR = [
    TensorMap(dtype, (sizes, 20), (stride,), (box, 1), swizzle=swizzle, fill=fill)
    for dtype, sizes, stride, box, swizzle, fill in (
        ("u8", 128, 128, 128, 128, "zeros"),
        ("u8", 100, 112, 32, 0, "zeros"),
        ("f16", 72, 160, 32, 64, "nan"),
        ("f32", 40, 160, 4, 0, "nan"),
        ("f16", 64, 128, 16, 32, "zeros"),
    )
]
"""Maps for copies of four rows."""


@pytest.mark.parametrize("map_", FOUR, ids=str)
@pytest.mark.parametrize("rows_", [(3, 19, 0, 7), (-1, 20, 5, 5), (30, 31, -9, 99)])
def test_four_rows_are_gathered(map_: TensorMap, rows_: tuple[int, ...]) -> None:
    random = np.random.default_rng(5)
    cluster, data = Cluster(), random.integers(0, 256, 20 * map_.strides[0], np.uint8)
    map_ = map_.at(cluster.add(data))
    shared = cluster.blocks[0].shared
    column = map_.box[0]
    row = map_.box[0] * map_.element.bytes
    expected = shared.copy()
    for i, each in enumerate(rows_):  # one row at a time, each where row 0 would be
        alone = load_box(
            map_, data, shared, (column, each), at=1024, origin=map_.address
        )
        pitch = max(row, map_.swizzle)
        for unit in range(0, row, 16):
            source = swizzled(1024 + unit, map_.swizzle)
            goal = swizzled(1024 + i * pitch + unit, map_.swizzle)
            expected[goal : goal + 16] = alone[source : source + 16]
    copy = _load(cluster, map_, (column, *rows_), (), 1024, 4096, rows=True)
    assert copy.bytes == 4 * row
    copy.read()
    copy.write()
    assert (shared == expected).all()
    inside = sum(each.size * each.starts.size for each in copy.global_ranges)
    assert (check_pairs(cluster.blocks[0], copy) > 0) == (inside > 0)


@pytest.mark.parametrize("map_", FOUR, ids=str)
def test_four_rows_are_scattered(map_: TensorMap) -> None:
    cluster, data = Cluster(), np.zeros(20 * map_.strides[0], np.uint8)
    map_ = map_.at(cluster.add(data))
    rows_ = (3, 19, 0, 25)  # the last one is outside the tensor
    row = map_.box[0] * map_.element.bytes
    copy = _store(cluster, map_, (0, *rows_), 1024, rows=True)
    copy.read()
    copy.write()
    shared, expected = cluster.blocks[0].shared, np.zeros_like(data)
    for i, each in enumerate(rows_[:3]):
        units = 1024 + i * max(row, map_.swizzle) + np.arange(row)
        start = each * map_.strides[0]
        expected[start : start + row] = shared[swizzled(units, map_.swizzle)]
    assert (data == expected).all()
    assert sum(each.size * len(each.starts) for each in copy.goals) == 3 * row


def test_four_rows_need_a_box_of_one_row() -> None:
    cluster, data = Cluster(), np.zeros(512, np.uint8)
    map_ = MAP.at(cluster.add(data))
    with pytest.raises(CopyFault, match=r"needs a box of one row.*given 4 rows"):
        _load(cluster, map_, (0, 0, 1, 2, 3), (), 1024, 2048, rows=True)
    one = FOUR[0].at(map_.address)
    with pytest.raises(CopyFault, match="must not begin before the tensor"):
        _store(cluster, one, (0, 1, 2, -3, 4), 1024, rows=True)
    with pytest.raises(CopyFault, match="of the memory that the tensor is in"):
        _load(cluster, one, (0, 1, 2, 3, 19), (), 1024, 2048, rows=True)


def test_a_box_outside_the_tensor_needs_no_memory() -> None:
    cluster = Cluster()
    copy = _load(cluster, MAP.at(1 << 40), (0, 8), (), 1024, 2048)
    assert copy.sources == []
    copy.read()
    copy.write()
    assert not cluster.blocks[0].shared[1024:1152].any()


def test_a_map_in_memory_is_read_at_the_issue() -> None:
    cluster, data = Cluster(), np.arange(512, dtype=np.uint16).astype(np.uint8)
    address = cluster.add(data)
    maps = np.zeros(256, np.uint8)
    at = cluster.add(maps) + 128
    maps[128:] = np.frombuffer(MAP.at(address).encode(), np.uint8)
    copy = TensorLoad(cluster.blocks[0], *WHO, at, (0, 0), (), 1024, 2048)
    maps[:] = 0
    assert copy.map_range == Range("global", -1, at, 128)
    copy.read()
    copy.write()
    assert (cluster.blocks[0].shared[1056:1088] == data[64:96]).all()


def _store(
    cluster: Cluster, map_: TensorMap, *given: object, rows: bool = False
) -> TensorStore:
    return TensorStore(cluster.blocks[0], *WHO, map_.encode(), *given, rows=rows)


def test_what_is_refused_says_why() -> None:
    cluster, data = Cluster(2), np.zeros(512, np.uint8)
    map_ = MAP.at(cluster.add(data))
    block = cluster.blocks[0]
    for match, make in (
        (
            "map of 1 dimension; given one of 2",
            lambda: _load(cluster, map_, (0,), (), 1024, 0),
        ),
        (
            "must begin at a multiple of 128",
            lambda: _load(cluster, map_, (0, 0), (), 1040, 0),
        ),
        (
            "coordinate 8 in dimension 0",
            lambda: _load(cluster, map_, (8, 0), (), 1024, 0),
        ),
        (
            "is at bytes 31744 to 31871",
            lambda: _load(cluster, map_, (0, 0), (), 1 << 15, 2048),
        ),
        (
            "multiple of 8 bytes; given 0x802",
            lambda: _load(cluster, map_, (0, 0), (), 1024, 2050),
        ),
        (
            "must be in the block that the data goes to, 0",
            lambda: _load(cluster, map_, (0, 0), (), 1024, 1 << 24 | 2048),
        ),
        (
            "is in block 5 of the cluster, which has 2",
            lambda: _load(cluster, map_, (0, 0), (), 5 << 24 | 1024, 2048),
        ),
        (
            "must not begin before the tensor",
            lambda: _store(cluster, map_, (0, -1), 1024),
        ),
        ("own block, 0; given", lambda: _store(cluster, map_, (0, 0), 1 << 24 | 1024)),
        (
            "bytes 384 to 607 of the memory",
            lambda: _load(cluster, map_.at(map_.address + 384), (0, 0), (), 1024, 2048),
        ),
        (
            "takes its tensor map from global memory",
            lambda: TensorLoad(block, *WHO, 8 * WINDOW, (0, 0), (), 1024, 2048),
        ),
    ):
        with pytest.raises(CopyFault, match=match):
            make()
    with pytest.raises(CopyFault, match="add takes a map of") as caught:
        TensorStore(block, *WHO, map_.encode(), (0, 0), 1024, operation="add")
    assert caught.value.rule.name == "bad-tensor-map"
    data.flags.writeable = False
    cluster.segments = [(map_.address, data)]
    with pytest.raises(CopyFault, match="must not be written"):
        _store(cluster, map_, (0, 0), 1024)
    copy = _load(cluster, map_, (0, 0), (), 1024, 2048)
    copy.read()


def test_a_prefetch_is_checked_and_does_nothing() -> None:
    cluster, data = Cluster(), np.zeros(512, np.uint8)
    map_ = MAP.at(cluster.add(data))
    before = cluster.blocks[0].shared.copy()
    copy = TensorPrefetch(cluster.blocks[0], *WHO, map_.encode(), (0, 0))
    copy.read()
    copy.write()
    assert (copy.goals, copy.sources, copy.signals(), copy.bytes) == ([], [], [], 0)
    assert (cluster.blocks[0].shared == before).all()
    with pytest.raises(CopyFault, match="coordinate 8"):
        TensorPrefetch(cluster.blocks[0], *WHO, map_.encode(), (8, 0))


def test_rows_are_clipped() -> None:
    map_ = TensorMap("u8", (20, 8), (64,), (32, 4))
    starts, size = rows(map_, (0, -1), store=False)
    assert (starts.tolist(), size) == ([0, 64, 128], 20)
    assert rows(map_, (0, 0), store=True)[1] == 32
    assert rows(map_, (32, 0))[1] == 0


def test_bytes_that_are_no_map_are_refused() -> None:
    bad = bytearray(MAP.encode())
    bad[9] = 0xFF
    with pytest.raises(CopyFault, match="no tensor map that a copy can use") as caught:
        decoded(bytes(bad))
    assert caught.value.rule.name == "bad-tensor-map"
