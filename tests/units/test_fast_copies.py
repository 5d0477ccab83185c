"""Copies in machine code do what Python alone does: same bytes, same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units.copy_groups import CopyGroups
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.work import done_at_once
from fragmenta.errors import Error
from tests.simt.kernels import kernel
from tests.thinning import repeats

WORDS = 2048
"""Words of shared memory that are looked at."""
SCHEDULES = ("eager", "lazy")
BEGIN = """
    .shared .align 1024 .b8 tile[16384];
    .shared .align 8 .b64 bar;
    setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    mov.u32 %r1, tile; mov.u32 %r23, tile; mov.u32 %r2, bar; mov.u32 %r3, 0;
    ld.param.u64 %rd5, [where]; ld.param.u32 %r4, [count]; ld.param.u32 %r5, [bytes];
    ld.param.u64 %rd6, [memory];
    mov.b64 %rd1, map; cvta.param.u64 %rd2, %rd1;
    ld.param.u32 %r6, [at]; add.u32 %r1, %r1, %r6;
NEXT:
    ld.global.u32 %r10, [%rd5]; ld.global.u32 %r11, [%rd5+4];
    ld.global.u32 %r12, [%rd5+8]; ld.global.u32 %r13, [%rd5+12];
    ld.global.u32 %r14, [%rd5+16];
"""
END = """
    add.u64 %rd5, %rd5, 20; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, %r4; @%p2 bra NEXT;
"""
PARAMETERS = (
    ".param .align 64 .b8 map[128], .param .u64 where, .param .u64 memory, "
    ".param .u32 count, .param .u32 bytes, .param .u32 at"
)


def look(space: str, first: str, label: str) -> str:
    """Write what memory holds to ``out``, and go on there."""
    wide = "u64" if space == "global" else "u32"
    at = "%rd8" if space == "global" else "%r20"
    index = "cvt.u64.u32 %rd9, %r21; add.u64 %rd8, {0}, %rd9;"
    offset = index if space == "global" else "add.u32 %r20, {0}, %r21;"
    return f"""
    bar.sync 0;
    shl.b32 %r21, %t, 2;
{label}:
    {offset.format(first)}
    ld.{space}.u32 %r22, [{at}];
    cvt.u64.u32 %rd10, %r21; add.{wide[:1]}64 %rd10, %out, %rd10;
    st.global.u32 [%rd10], %r22;
    add.u32 %r21, %r21, 128;
    setp.lt.u32 %p3, %r21, {4 * WORDS}; @%p3 bra {label};
    add.u64 %out, %out, {4 * WORDS};
    bar.sync 0;
"""


def coordinates(rank: int) -> str:
    return ", ".join(f"%r{10 + each}" for each in range(rank))


def waited(label: str) -> str:
    return f"""
    and.b32 %r7, %r3, 1;
{label}: mbarrier.try_wait.parity.shared.b64 %p4, [bar], %r7;
    @!%p4 bra {label};
"""


def load(rank: int) -> str:
    """Load boxes one after the other, and look at shared memory in between."""
    return (
        BEGIN
        + f"""
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], %r5;
    @%p1 cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r1], [%rd2, {{{coordinates(rank)}}}], [%r2];
    bar.sync 0;
    """
        + look("shared", "%r23", "BEFORE")
        + waited("WAIT")
        + look("shared", "%r23", "AFTER")
        + END
    )


FILL = """
    shl.b32 %r21, %t, 2;
FILL: add.u32 %r20, %r23, %r21;
    mul.lo.u32 %r22, %r21, 2654435; add.u32 %r22, %r22, %r3;
    and.b32 %r22, %r22, 0x3fff3fff;
    st.shared.u32 [%r20], %r22;
    add.u32 %r21, %r21, 128; setp.lt.u32 %p3, %r21, 16384; @%p3 bra FILL;
    fence.proxy.async.shared::cta; bar.sync 0;
"""


def store(rank: int, operation: str = "", read: bool = False) -> str:
    """Store boxes one after the other, and look at the tensor in between."""
    words = f"reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}"
    if not operation:
        words = f"async.bulk.tensor.{rank}d.global.shared::cta"
    return (
        BEGIN
        + FILL
        + f"""
    @%p1 cp.{words}.bulk_group [%rd2, {{{coordinates(rank)}}}], [%r1];
    @%p1 cp.async.bulk.commit_group;
    """
        + look("global", "%rd6", "BEFORE")
        + f"@%p1 cp.async.bulk.wait_group{'.read' if read else ''} 0;"
        + look("global", "%rd6", "AFTER")
        + END
    )


@contextmanager
def python_alone() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(Machine, "fast", False)
    yield
    patch.undo()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events that Python carries out."""
    seen: list[str] = []
    call = Machine._call

    def counted(self: Machine, block: int, warp: int, number: int, lanes: int) -> int:
        seen.append(self.events[number].mnemonic)
        return call(self, block, warp, number, lanes)

    monkeypatch.setattr(Machine, "_call", counted)
    return seen


class Both(NamedTuple):
    """A launch done twice, first by Python alone."""

    outcome: Any
    """What came out, which is the same."""
    python: int
    """How many copies Python issued then."""
    fast: int
    """How many it issued with fast paths."""


def both(run: Callable[[], Any], calls: list[str], word: str) -> Both:
    """Run it both ways; ``word`` is in the copies that count."""
    counts, found = [], []
    for alone in (True, False):
        calls.clear()
        with python_alone() if alone else nullcontext():
            found.append(_outcome(run))
        counts.append(sum(word in each for each in calls))
    assert found[0] == found[1]
    return Both(found[0], *counts)


def _outcome(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Error as error:
        return f"{type(error).__name__}: {error}"


# ── tensors ─────────────────────────────────────────────────────────────────

NUMPY = {
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "f16": np.float16,
    "f32": np.float32,
}
RNG = np.random.default_rng(33)
MAPS: list[tuple[tuple[int, ...], str, tuple[int, ...], dict[str, Any]]] = [
    ((640,), "u8", (128,), {}),
    ((500,), "f32", (64,), {"fill": "nan"}),
    ((40, 96), "f16", (8, 64), {"swizzle": 128}),
    ((40, 72), "f16", (16, 32), {"swizzle": 64, "fill": "nan"}),
    ((33, 80), "u8", (9, 16), {"swizzle": 32}),
    ((40, 96), "f16", (8, 32), {"swizzle": 128}),
    ((40, 96), "f32", (10, 16), {"element_strides": (3, 1)}),
    ((6, 9, 48), "u16", (2, 4, 16), {"swizzle": 32}),
    ((3, 5, 6, 32), "u8", (2, 2, 3, 32), {"swizzle": 32}),
    ((2, 3, 4, 5, 32), "u8", (1, 2, 2, 3, 16), {}),
    ((40, 32), "f32", (8, 32), {"swizzle": 128, "dtype": "tf32"}),
    ((40, 31), "f32", (8, 32), {"swizzle": 128, "fill": "nan"}),
    ((20, 40), "u32", (4, 16), {"swizzle": 64}),
]


def places(sizes: tuple[int, ...], box: tuple[int, ...], unit: int, low: int) -> Any:
    """Coordinates inside, on the edges, and outside of a tensor."""
    found = np.zeros((8, 5), np.int32)
    for row in range(len(found)):
        for axis, (size, wide) in enumerate(zip(sizes[::-1], box[::-1], strict=True)):
            first, last = (-wide if low else 0), size + 2
            x = int(RNG.integers(first, last)) if row else 0
            found[row, axis] = x // unit * unit if axis == 0 else x
    return found


_KERNELS: dict[str, Any] = {}


class Case(NamedTuple):
    """A tensor, its map, and the places of boxes."""

    number: int
    shape: tuple[int, ...]
    data: Any
    """Bytes; those of the tensor and what is between its rows come first."""
    where: Any
    bytes: int
    """Bytes of a box."""
    more: int = 0
    """Added to where the box is in shared memory."""

    @property
    def ordinary(self) -> bool:
        """Whether machine code copies by such a map."""
        return MAPS[self.number][3].get("dtype") != "tf32"

    @property
    def rank(self) -> int:
        return len(MAPS[self.number][0])

    def launch(self, text: str, schedule: str) -> tuple[bytes, bytes]:
        """What a kernel saw, and what it leaves in the tensor."""
        sizes, dtype, box, more = MAPS[self.number]
        if text not in _KERNELS:
            _KERNELS[text] = kernel(text, PARAMETERS)
        data = self.data.copy()
        rows = data[: int(np.prod(self.shape))].reshape(self.shape)
        map_ = ptx.tensor_map(rows.view(NUMPY[dtype])[..., : sizes[-1]], box, **more)
        out = np.zeros(len(self.where) * 2 * WORDS, np.uint32)
        rest = [len(self.where), self.bytes, 128 * self.number % 1024 + self.more]
        given = [out, map_, self.where, data, *rest]
        _KERNELS[text].launch(1, 32, given, schedule=schedule, watch=False)
        return out.tobytes(), data.tobytes()


def case_of(number: int, low: int) -> Case:
    sizes, dtype, box, more = MAPS[number]
    of = np.dtype(NUMPY[dtype])
    wide = -(-sizes[-1] * of.itemsize // 16) * 16  # rows begin at multiples of 16
    shape = (*sizes[:-1], wide)
    data = RNG.integers(0, 64, max(int(np.prod(shape)), 4 * WORDS), np.uint8)
    steps = more.get("element_strides", (1,) * len(box))
    count = int(np.prod([-(-n // s) for n, s in zip(box, steps, strict=True)]))
    where = places(sizes, box, 16 // of.itemsize, low)
    return Case(number, shape, data, where, count * of.itemsize)


# Every copy; schedules take turns.
@repeats(together=1)
@pytest.mark.parametrize("number", range(len(MAPS)))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tensor_loads(number: int, schedule: str, calls: list[str]) -> None:
    case = case_of(number, low=1)
    text = load(case.rank)
    found = both(lambda: case.launch(text, schedule), calls, "bulk.tensor")
    assert isinstance(found.outcome, tuple), found.outcome
    count = len(case.where)
    # The launch by Python alone has made the map known.
    assert (found.python, found.fast) == (count, 0 if case.ordinary else count)


STORES = [
    *((number, "", number % 2 == 0) for number in (1, 2, 3, 6, 7, 9, 11)),
    *((number, "add", number % 2 == 1) for number in (1, 2, 3, 6, 11, 12)),
    (12, "xor", False),
]


@repeats(together=1)
@pytest.mark.parametrize(("number", "operation", "read"), STORES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tensor_stores(
    number: int, operation: str, read: bool, schedule: str, calls: list[str]
) -> None:
    case = case_of(number, low=0)
    text = store(case.rank, operation, read)
    found = both(lambda: case.launch(text, schedule), calls, "bulk.tensor")
    assert isinstance(found.outcome, tuple), found.outcome
    assert (found.python, found.fast) == (len(case.where), 0)


# ── bulk copies, clusters ───────────────────────────────────────────────────

BULK = (
    BEGIN
    + """
    cvt.u64.u32 %rd11, %r10; add.u64 %rd12, %rd6, %rd11;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], %r11;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r1], [%rd12], %r11, [%r2];
    """
    + look("shared", "%r23", "BEFORE")
    + waited("WAIT")
    + """
    cvt.u64.u32 %rd11, %r12; add.u64 %rd12, %rd6, %rd11;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd12], [%r1], %r11;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group.read 0;
    st.shared.u32 [%r1], %r3;
    setp.eq.u32 %p5, %r13, 0;
    @%p5 bra LEFT;
    @%p1 cp.async.bulk.wait_group 1;
LEFT:
    """
    + look("global", "%rd6", "AFTER")
    + END
)
MOVES = np.array(
    [
        [0, 1024, 4096, 0, 0],
        [16, 16, 6000, 1, 0],
        [4096, 2048, 0, 1, 0],
        [2000, 512, 1040, 0, 0],
        [7680, 512, 7680, 1, 0],
    ],
    np.int32,
)
"""From where, how many bytes, where to, and whether they are waited for."""


def bulk(where: Any, schedule: str, at: int = 0) -> tuple[bytes, bytes]:
    if BULK not in _KERNELS:
        _KERNELS[BULK] = kernel(BULK, PARAMETERS)
    data = np.arange(4 * WORDS, dtype=np.uint32).astype(np.uint8)
    out = np.zeros(len(where) * 2 * WORDS, np.uint32)
    map_ = ptx.tensor_map(data, (16,))
    given = [out, map_, where, data, len(where), 0, at]
    _KERNELS[BULK].launch(1, 32, given, schedule=schedule, watch=False)
    return out.tobytes(), data.tobytes()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_copies_and_their_groups(schedule: str, calls: list[str]) -> None:
    found = both(lambda: bulk(MOVES, schedule), calls, "cp.async.bulk")
    assert isinstance(found.outcome, tuple), found.outcome
    assert (found.python, found.fast) == (4 * len(MOVES) + 3, 0)


WRONG = {
    "the source is out of bounds": [7696, 512, 0, 0, 0],
    "the source is nowhere": [1 << 20, 16, 0, 0, 0],
    "the source is misaligned": [8, 16, 0, 0, 0],
    "the size is odd": [0, 24, 0, 0, 0],
    "the goal is out of bounds": [0, 16400, 0, 0, 0],
    "the goal of a store is out of bounds": [0, 512, 7696, 0, 0],
    "the goal of a store is misaligned": [0, 512, 8, 0, 0],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_copy_is_said_in_the_same_words(
    name: str, calls: list[str]
) -> None:
    where = np.array([MOVES[0], WRONG[name]], np.int32)
    for schedule in SCHEDULES:
        found = both(lambda each=schedule: bulk(where, each), calls, "bulk")
        assert isinstance(found.outcome, str), name


OUTSIDE = {
    "a store before the tensor": (store(2), [0, -1, 0, 0, 0], 0),
    "a box that begins within 16 bytes": (load(2), [4, 0, 0, 0, 0], 0),
    "a box that is misaligned": (load(2), [0, 0, 0, 0, 0], 64),
    "a box behind shared memory": (load(2), [0, 0, 0, 0, 0], 16384),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_wrong_with_a_box_is_said_in_the_same_words(
    name: str, calls: list[str]
) -> None:
    text, wrong, more = OUTSIDE[name]
    case = case_of(2, low=0)
    first = [0] * 5 if not more else None  # the address is wrong for all boxes
    rows = [each for each in (first, wrong) if each is not None]
    case = case._replace(where=np.array(rows, np.int32), more=more)
    for schedule in SCHEDULES:
        found = both(lambda each=schedule: case.launch(text, each), calls, "bulk")
        assert isinstance(found.outcome, str), name


CLUSTER = """
    .shared .align 1024 .b8 tile[8192];
    .shared .align 8 .b64 bar;
    setp.eq.u32 %p1, %t, 0; mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p2, %r1, 0;
    and.pred %p2, %p1, %p2; setp.eq.u32 %p6, %r1, 1; and.pred %p6, %p1, %p6;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r2, tile; mov.u32 %r3, bar; mov.u32 %r4, 0; mov.u16 %h1, 3; mov.u32 %r25, 0;
    add.u32 %r9, %r2, 4096;
    mapa.shared::cluster.u32 %r5, %r9, 1; mapa.shared::cluster.u32 %r6, %r3, 1;
    ld.param.u64 %rd6, [memory]; mov.b64 %rd1, map; cvta.param.u64 %rd2, %rd1;
NEXT:
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1536;
    @%p6 mbarrier.expect_tx.shared.b64 [bar], 512;
    barrier.cluster.arrive; barrier.cluster.wait;
    @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%r2], [%rd2, {%r25, %r4}], [%r3], %h1;
    add.u32 %r7, %r2, 2048;
    @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%r7], [%rd6], 512, [%r3], %h1;
    @%p2 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes
        [%r5], [%r9], 512, [%r6];
    and.b32 %r8, %r4, 1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], %r8;
    @!%p4 bra WAIT;
    shl.b32 %r21, %t, 2; mul.lo.u32 %r22, %r4, 65536; add.u32 %r22, %r22, %r21;
    add.u32 %r20, %r9, %r21; st.shared.u32 [%r20], %r22;
    add.u32 %r20, %r2, %r21;
    mul.wide.u32 %rd7, %r1, 8192; cvt.u64.u32 %rd8, %r21; add.u64 %rd7, %rd7, %rd8;
    add.u64 %rd7, %out, %rd7; mov.u32 %r24, 0;
LOOK: ld.shared.u32 %r23, [%r20]; st.global.u32 [%rd7], %r23;
    add.u32 %r20, %r20, 128; add.u64 %rd7, %rd7, 128; add.u32 %r24, %r24, 1;
    setp.lt.u32 %p5, %r24, 64; @%p5 bra LOOK;
    add.u64 %out, %out, 16384;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p5, %r4, 4; @%p5 bra NEXT;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_copies_in_a_cluster_and_its_barrier(schedule: str, calls: list[str]) -> None:
    used = kernel(CLUSTER, ".param .align 64 .b8 map[128], .param .u64 memory")
    data = RNG.integers(0, 256, (40, 64), np.uint8).repeat(2, 1).view(np.uint16)

    def run() -> bytes:
        out = np.zeros(4 * 2 * 2048, np.uint32)
        map_ = ptx.tensor_map(data, (8, 64), swizzle=128)
        given = [out, map_, data]
        used.launch(2, 32, given, cluster=2, schedule=schedule, watch=False)
        return out.tobytes()

    found = both(run, calls, "cp.async.bulk")
    assert isinstance(found.outcome, bytes), found.outcome
    assert (found.python, found.fast) == (12, 0)
    assert not [each for each in calls if each.startswith("barrier.cluster")]


# ── cp.async ────────────────────────────────────────────────────────────────

LANES = (
    """
    .shared .align 1024 .b8 tile[8192];
    .shared .align 8 .b64 bar;
    setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [bar], 64;
    mov.u32 %r1, tile; ld.param.u64 %rd6, [memory]; mov.u32 %r23, tile;
    shl.b32 %r2, %t, 4; add.u32 %r1, %r1, %r2; cvt.u64.u32 %rd7, %r2;
    add.u64 %rd6, %rd6, %rd7; mov.u32 %r4, 0; bar.sync 0;
    and.b32 %r5, %t, 3; setp.eq.u32 %p6, %r5, 1; shl.b32 %r5, %r5, 2;
NEXT:
    cp.async.cg.shared.global [%r1], [%rd6], 16;
    cp.async.ca.shared.global [%r1+1024], [%rd6+8], 8, %r5;
    cp.async.commit_group;
    cp.async.ca.shared.global.L2::128B [%r1+2048], [%rd6+512], 4, %p6;
    @%p6 cp.async.ca.shared.global [%r1+3072], [%rd6+4], 4;
    cp.async.commit_group;
"""
    + look("shared", "%r23", "BEFORE")
    + """
    cp.async.wait_group 1;
"""
    + look("shared", "%r23", "ONE")
    + """
    {0}
"""
    + look("shared", "%r23", "ALL")
    + """
    add.u64 %rd6, %rd6, 1024; add.u32 %r4, %r4, 1;
    setp.lt.u32 %p5, %r4, 3; @%p5 bra NEXT;
"""
)
WAITS = {
    "groups": "cp.async.wait_group 0;",
    "all": "cp.async.ca.shared.global [%r1+4096], [%rd6], 4; cp.async.wait_all;",
    "an mbarrier": """cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
    and.b32 %r6, %r4, 1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], %r6; @!%p4 bra WAIT;""",
    "an mbarrier with a count": """mov.u32 %r8, bar; cvt.u64.u32 %rd11, %r8;
    cvta.shared.u64 %rd12, %rd11; cp.async.mbarrier.arrive.b64 [%rd12];
    mbarrier.arrive.shared.b64 _, [bar];
    and.b32 %r6, %r4, 1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], %r6; @!%p4 bra WAIT;""",
    "some lanes": "@%p6 cp.async.wait_group 0; cp.async.wait_group 0;",
    "a group of some lanes": """@%p6 cp.async.ca.shared.global [%r1+5120], [%rd6], 4;
    @%p6 cp.async.commit_group; cp.async.wait_group 0;""",
}


@pytest.mark.parametrize("name", WAITS)
def test_copies_of_lanes_in_flight(name: str, calls: list[str]) -> None:
    used = kernel(LANES.format(WAITS[name]), ".param .u64 memory")
    data = RNG.integers(0, 256, 8192, np.uint8)

    def run(schedule: str) -> bytes:
        out = np.zeros(9 * WORDS, np.uint32)
        used.launch(1, 64, [out, data], schedule=schedule, watch=False)
        return out.tobytes()

    found = both(lambda: run("lazy"), calls, "cp.async")
    assert isinstance(found.outcome, bytes), found.outcome
    assert (found.fast == 0) == (not name.startswith(("some", "a group"))), calls
    both(lambda: run("eager"), calls, "cp.async")
    both(lambda: run(7), calls, "cp.async")


LANES_WRONG = {
    "the goal is out of bounds": "cp.async.ca.shared.global [%r1+8192], [%rd6], 4;",
    "the goal is misaligned": "cp.async.ca.shared.global [%r1+2], [%rd6], 4;",
    "the source is out of bounds": "cp.async.ca.shared.global [%r1], [%rd6+8192], 4;",
    "the source is misaligned": "cp.async.ca.shared.global [%r1], [%rd6+1], 4;",
    "no mbarrier is there": "cp.async.mbarrier.arrive.shared.b64 [%r1];",
}


@pytest.mark.parametrize("name", LANES_WRONG)
def test_what_is_wrong_with_cp_async_is_said_in_the_same_words(
    name: str, calls: list[str]
) -> None:
    used = kernel(LANES.format(LANES_WRONG[name]), ".param .u64 memory")

    def run() -> None:
        given = [np.zeros(9 * WORDS, np.uint32), np.zeros(8192, np.uint8)]
        used.launch(1, 64, given, schedule="lazy", watch=False)

    assert isinstance(both(run, calls, "cp.async").outcome, str)


@pytest.mark.parametrize("count", range(5))
def test_a_wait_leaves_out_the_newest_groups(count: int) -> None:
    for left in range(count + 4):
        queue = CopyGroups()
        for site in range(count):
            queue.add(1, done_at_once(site))
            queue.commit(1)
        found, bound = queue.waited(1, left)
        kept = max(count - left, 0)
        assert ([each.site for each in found], bound) == (list(range(kept)), kept)


# ── hints ───────────────────────────────────────────────────────────────────

HINTS = """
    mov.b64 %rd1, map; cvta.param.u64 %rd2, %rd1; mov.u32 %r4, 0; mov.u32 %r5, 0;
    ld.param.u64 %rd6, [memory]; ld.param.u32 %r6, [first];
NEXT:
    cp.async.bulk.prefetch.L2.global [%rd6], 512;
    cp.async.bulk.prefetch.tensor.2d.L2.global [%rd2, {%r5, %r4}];
    add.u32 %r5, %r5, %r6;
    add.u32 %r4, %r4, 1; setp.lt.u32 %p5, %r4, 3; @%p5 bra NEXT;
"""


def test_hints_are_checked_and_do_nothing(calls: list[str]) -> None:
    more = ".param .align 64 .b8 map[128], .param .u64 memory, .param .u32 first"
    used = kernel(HINTS, more)
    data = np.zeros((40, 64), np.uint16)

    def run(first: int) -> None:
        given = [np.zeros(1, np.uint32), ptx.tensor_map(data, (8, 64)), data, first]
        used.launch(1, 1, given, watch=False)

    found = both(lambda: run(8), calls, "prefetch")
    assert (found.outcome, found.python, found.fast) == (None, 6, 0)
    assert isinstance(both(lambda: run(4), calls, "prefetch").outcome, str)
