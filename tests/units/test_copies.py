"""Copies without a tensor map move the right bytes, at the time of the schedule."""

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from fragmenta.engine.simt import layout
from fragmenta.engine.units.bulk_copies import (
    AsyncStore,
    BulkCopy,
    Prefetch,
    combined,
)
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.work import Copy, Range, poisoned
from tests.units.standing import WHO, Cluster

GOLDEN = Path(__file__).parents[1] / "golden" / "h200" / "bulk.npz"
"""Reductions of an H200: to global memory, to another block, and by ``red.async``."""


def _done(copy: Copy) -> None:
    copy.read()
    copy.write()


def test_a_load_takes_the_source_when_it_reads() -> None:
    cluster, data = Cluster(), np.arange(64, dtype=np.uint8)
    block, address = cluster.blocks[0], cluster.add(data)
    copy = BulkCopy(
        block,
        *WHO,
        2048,
        address + 16,
        32,
        to="shared::cluster",
        of="global",
        mbarrier=4096,
    )
    assert copy.goals == [Range("shared", 0, 2048, 32)]
    assert copy.sources == [Range("global", -1, address + 16, 32)]
    assert (copy.bytes, copy.signals(), copy.proxy) == (32, [(0, 4096)], "async")
    copy.poison()
    assert block.shared[2048:2080].view(np.uint32).tolist() == [0x7FFF7FFF] * 8
    copy.read()
    data[:] = 0
    copy.write()
    assert block.shared[2048:2080].tolist() == list(range(16, 48))


def test_a_store_goes_to_global_memory() -> None:
    cluster, data = Cluster(), np.zeros(64, np.uint8)
    block, address = cluster.blocks[0], cluster.add(data)
    source = block.shared[2048:2080].copy()
    copy = BulkCopy(block, *WHO, address + 32, 2048, 32, to="global", of="shared::cta")
    assert (copy.completes, copy.signals()) == ("bulk_group", [])
    copy.poison()
    assert (data[32:] == poisoned(np.arange(32))).all()
    copy.read()
    block.shared[:] = 1
    copy.write()
    assert (data[32:] == source).all()
    assert not data[:32].any()


def test_a_multicast_goes_to_four_blocks() -> None:
    cluster, data = Cluster(4), np.arange(64, dtype=np.uint8)
    issuer, address = cluster.blocks[1], cluster.add(data)
    before = [block.shared.copy() for block in cluster.blocks]
    copy = BulkCopy(
        issuer,
        *WHO,
        issuer.at(2048),
        address,
        64,
        to="shared::cluster",
        of="global",
        mbarrier=issuer.at(1032),
        mask=0b1111,
    )
    assert copy.signals() == [(rank, 1032) for rank in range(4)]
    _done(copy)
    for block, expected in zip(cluster.blocks, before, strict=True):
        expected[2048:2112] = data
        assert (block.shared == expected).all()


def test_a_multicast_to_no_block_does_nothing() -> None:
    cluster, data = Cluster(2), np.arange(64, dtype=np.uint8)
    block, address = cluster.blocks[0], cluster.add(data)
    before = block.shared.copy()
    copy = BulkCopy(
        block,
        *WHO,
        2048,
        address,
        64,
        to="shared::cluster",
        of="global",
        mbarrier=1024,
        mask=0,
    )
    copy.poison()
    _done(copy)
    assert (copy.goals, copy.signals()) == ([], [])
    assert (block.shared == before).all()


def test_a_block_copies_to_another() -> None:
    cluster = Cluster(4)
    here, there = cluster.blocks[1], cluster.blocks[3]
    expected = here.shared[4096:4352].copy()
    copy = BulkCopy(
        here,
        *WHO,
        there.at(2048),
        here.at(4096),
        256,
        to="shared::cluster",
        of="shared::cta",
        mbarrier=there.at(1024),
    )
    assert copy.goals == [Range("shared", 3, 2048, 256)]
    assert copy.sources == [Range("shared", 1, 4096, 256)]
    assert copy.signals() == [(3, 1024)]
    _done(copy)
    assert (there.shared[2048:2304] == expected).all()


def test_a_mask_keeps_some_bytes_of_each_sixteen() -> None:
    cluster, data = Cluster(), np.zeros(32, np.uint8)
    block, address = cluster.blocks[0], cluster.add(data)
    block.shared[2048:2080] = 1 + np.arange(32)
    copy = BulkCopy(
        block, *WHO, address, 2048, 32, to="global", of="shared::cta", kept=0x8007
    )
    copy.poison()
    _done(copy)
    kept = [0, 1, 2, 15, 16, 17, 18, 31]
    assert np.flatnonzero(data).tolist() == kept
    assert data[kept].tolist() == [place + 1 for place in kept]
    starts = np.concatenate([each.starts for each in copy.goals])
    assert sum(each.bytes for each in copy.goals) == 8
    assert sorted(starts - address) == [0, 15, 31]


def test_what_is_out_of_bounds_may_be_ignored() -> None:
    cluster, data = Cluster(), np.arange(40, dtype=np.uint8)
    block = cluster.blocks[0]
    address = cluster.add(data[4:36], (16 << 36) + 4)  # from byte 4 of a unit on
    copy = BulkCopy(
        block,
        *WHO,
        2048,
        address - 4,
        48,
        to="shared::cta",
        of="global",
        mbarrier=4096,
        ignored=(4, 12),
    )
    assert copy.bytes == 48
    assert copy.sources == [Range("global", -1, address, 32)]
    _done(copy)
    assert block.shared[2052:2084].tolist() == list(range(4, 36))
    with pytest.raises(CopyFault, match="0 to 15 bytes on each side"):
        BulkCopy(
            block,
            *WHO,
            2048,
            address - 4,
            48,
            to="shared::cta",
            of="global",
            mbarrier=4096,
            ignored=(16, 0),
        )


OLD = np.array([0, 5, 7, 0xFFFFFFFF, 0x80000000, 1, 2, 3], np.uint32)
NEW = np.array([9, 5, 3, 1, 1, 0xFFFFFFFF, 0x7FFFFFFF, 3], np.uint32)


@pytest.mark.parametrize(
    ("operation", "kind", "expected"),
    [
        ("add", "u32", [9, 10, 10, 0, 0x80000001, 0, 0x80000001, 6]),
        ("add", "s32", [9, 10, 10, 0, 0x80000001, 0, 0x80000001, 6]),
        ("min", "u32", [0, 5, 3, 1, 1, 1, 2, 3]),
        ("min", "s32", [0, 5, 3, 0xFFFFFFFF, 0x80000000, 0xFFFFFFFF, 2, 3]),
        ("max", "u32", [9, 5, 7, 0xFFFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFF, 3]),
        ("inc", "u32", [1, 0, 0, 0, 0, 2, 3, 0]),
        ("dec", "u32", [9, 4, 3, 1, 1, 0, 1, 2]),
        ("and", "b32", [0, 5, 3, 1, 0, 1, 2, 3]),
        ("or", "b32", [9, 5, 7, 0xFFFFFFFF, 0x80000001, 0xFFFFFFFF, 0x7FFFFFFF, 3]),
        ("xor", "b64", [9, 0, 4, 0xFFFFFFFE, 0x80000001, 0xFFFFFFFE, 0x7FFFFFFD, 0]),
        ("add", "u64", [9, 10, 10, 0, 0x80000001, 0, 0x80000001, 6]),
    ],
)
def test_reductions(operation: str, kind: str, expected: list[int]) -> None:
    cluster, memory = Cluster(2), np.zeros(8, np.uint32)
    block, other = cluster.blocks
    address = cluster.add(memory)
    memory[:] = 1 << 30  # what is there when the copy writes counts, not before
    block.shared[2048:2080] = NEW.view(np.uint8)
    other.shared[4096:4128] = OLD.view(np.uint8)
    outward = BulkCopy(
        block,
        *WHO,
        address,
        2048,
        32,
        to="global",
        of="shared::cta",
        reduction=(operation, kind),
    )
    across = BulkCopy(
        block,
        *WHO,
        other.at(4096),
        2048,
        32,
        to="shared::cluster",
        of="shared::cta",
        mbarrier=other.at(1024),
        reduction=(operation, kind),
    )
    for copy in (outward, across):
        assert copy.combines
        copy.poison()
        copy.read()
    memory[:] = OLD
    block.shared[:] = 0
    outward.write()
    across.write()
    assert memory.tolist() == expected
    assert other.shared[4096:4128].view(np.uint32).tolist() == expected


def test_an_h200_combines_the_same_bits() -> None:
    with np.load(GOLDEN) as recorded:
        names, crcs = recorded["names"].tolist(), recorded["crc"].tolist()
        assert len(names) == 52
        for name, crc in zip(names, crcs, strict=True):
            _, operation, kind = name.split(".")
            found = combined(operation, kind, *recorded[f"input.{kind}"])
            assert crc32(found) == crc, name


def test_a_sum_of_64_bits_carries() -> None:
    old, new = (np.array([x], np.uint64) for x in (0xFFFFFFFF, 1))
    found = combined("add", "s64", old.view(np.uint8), new.view(np.uint8))
    assert found.view(np.uint64).tolist() == [1 << 32]


def test_floats_are_reduced_as_in_tensors() -> None:
    tiny = np.array([1, 0x80000001], np.uint32)  # subnormal numbers are kept
    assert combined("add", "f32", tiny.view(np.uint8), tiny.view(np.uint8)).view(
        np.uint32
    ).tolist() == [2, 0x80000002]
    half = np.array([0x3C00, 0x7C01], np.uint16).view(np.uint8)
    one = np.array([0x0001, 0x3C00], np.uint16).view(np.uint8)
    assert combined("min", "f16", half, one).view(np.uint16).tolist() == [1, 0x3C00]
    assert combined("add", "f16", half, half).view(np.uint16).tolist() == [
        0x4000,
        0x7FFF,
    ]


# ── st.async and red.async ──────────────────────────────────────────────────


def test_st_async_and_red_async() -> None:
    cluster = Cluster(2)
    block, other = cluster.blocks
    goal, mbarrier = other.at(2048), other.at(1024)
    store = AsyncStore(block, *WHO, goal, [1, -1 << 63], "s64", mbarrier)
    assert (store.bytes, store.signals(), store.sources) == (16, [(1, 1024)], [])
    _done(store)
    assert other.shared[2048:2064].view(np.int64).tolist() == [1, -1 << 63]
    add = AsyncStore(block, *WHO, goal, [-2], "s64", mbarrier, operation="add")
    assert (add.bytes, add.combines, add.name) == (8, True, "red.async")
    add.poison()
    _done(add)
    assert other.shared[2048:2056].view(np.int64).tolist() == [-1]
    largest = AsyncStore(block, *WHO, goal, [5], "s32", mbarrier, operation="max")
    _done(largest)
    assert other.shared[2048:2056].view(np.int32).tolist() == [5, -1]
    window = layout.SHARED_WINDOW  # without a space, addresses are generic
    _done(
        AsyncStore(block, *WHO, window + goal, [3], "b32", window + mbarrier, space="")
    )
    assert other.shared[2048:2052].view(np.uint32).tolist() == [3]


# ── what is refused ─────────────────────────────────────────────────────────


def test_what_is_refused_says_why() -> None:
    cluster, data = Cluster(2), np.zeros(64, np.uint8)
    block, address = cluster.blocks[0], cluster.add(data)
    good = {
        "goal": 2048,
        "source": address,
        "size": 32,
        "to": "shared::cluster",
        "of": "global",
        "mbarrier": 4096,
    }
    for rule, match, change in (
        ("bad-size", "multiple of 16 bytes; given 24", {"size": 24}),
        (
            "misaligned",
            "the goal of a bulk copy must be at a multiple of 16",
            {"goal": 2056},
        ),
        ("misaligned", "the source of a bulk copy", {"source": address + 8}),
        (
            "misaligned",
            "mbarrier of a bulk copy must be at a multiple of 8",
            {"mbarrier": 4100},
        ),
        (
            "out-of-bounds",
            "bytes 32 to 79 of its memory, which has 64",
            {"source": address + 32, "size": 48},
        ),
        ("out-of-bounds", "bytes -512 to", {"goal": 512}),
        (
            "out-of-bounds",
            "generic address .*; cvta.to.shared converts it",
            {"goal": layout.SHARED_WINDOW + 2048},
        ),
        ("out-of-bounds", "in block 2 of the cluster", {"goal": 2 << 24 | 2048}),
        ("other-block", "goes to, 1", {"goal": 1 << 24 | 2048}),
        ("other-block", "own block, 0", {"goal": 1 << 24 | 2048, "to": "shared::cta"}),
        ("bad-mask", "0 to 1; given 0b100", {"mask": 4}),
        (
            "other-block",
            "a cluster of several blocks",
            {"source": 4096, "of": "shared::cta", "cluster": 1},
        ),
    ):
        count = change.pop("cluster", 0)
        here = Cluster(count).blocks[0] if count else block
        with pytest.raises(CopyFault, match=match) as caught:
            BulkCopy(here, *WHO, **{**good, **change})
        assert caught.value.rule.name == rule
    BulkCopy(block, *WHO, **good)
    data.flags.writeable = False
    cluster.segments = [(address, data)]
    with pytest.raises(CopyFault, match="must not be written"):
        BulkCopy(block, *WHO, address, 2048, 32, to="global", of="shared::cta")


def test_a_prefetch_does_nothing() -> None:
    block = Cluster().blocks[0]
    copy = Prefetch(block, *WHO, 1 << 40, 64)
    _done(copy)
    assert (copy.goals, copy.sources, copy.signals(), copy.bytes) == ([], [], [], 0)
    with pytest.raises(CopyFault, match="multiple of 16 bytes; given 8"):
        Prefetch(block, *WHO, 1 << 40, 8)
