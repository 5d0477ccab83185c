"""Flags, counters and barriers in memory order what they should order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.ptx import reading
from fragmenta.ptx.ordering import Role, Scope, role, scope, synchronises
from fragmenta.watch.races.global_watch import MOST_PRECISE
from fragmenta.watch.races.order import Clock, covers, joined, knows
from fragmenta.watch.races.strong_accesses import Locations
from tests.races.globally import ALL, BASE, Block, Machine

LANES = np.arange(32)
FLAG = 2048
FENCE = Role(fence=True, releases=True, acquires=True)
RELAXED_STORE = Role(publishes=True, replaces=True)
RELEASE_STORE = Role(publishes=True, releases=True, replaces=True)
STRONG_LOAD = Role(reads=True, acquires=True)
RELAXED_LOAD = Role(reads=True)
ATOM = Role(publishes=True, reads=True)


class World(Machine):
    """A machine whose blocks also synchronise through memory."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.locations = Locations(self.watch)

    def do(
        self, block: Block, what: Role, warp: int = 0, lane: int = 0, at: int = FLAG
    ) -> None:
        """One lane executes an instruction that can synchronise."""
        thread = block.thread(warp, 1 << lane)
        if not what.fence:
            kind = "atomic" if what.publishes and what.reads else "strong write"
            kind = kind if what.publishes else "strong read"
            block.access(warp, kind, at, lanes=1 << lane, site=20)
        self.locations.perform(thread, what, [(lane, BASE + at)])


@pytest.mark.parametrize(
    "publish",
    [[FENCE, RELAXED_STORE], [RELEASE_STORE], [FENCE, ATOM], [RELAXED_STORE], []],
)
def test_a_flag(publish: list[Role]) -> None:
    world = World()
    first, second = world.blocks
    for warp in range(2):
        first.access(warp, "write", 128 * warp + 4 * LANES)
    first.sync()
    for each in publish:
        world.do(first, each)
    world.do(second, STRONG_LOAD)
    second.sync()
    for warp in range(2):
        second.access(warp, "read", 128 * warp + 4 * LANES, site=3)
    clean = len(publish) > 1 or RELEASE_STORE in publish
    assert world.rules() == ([] if clean else ["WRITE_READ"])


@pytest.mark.parametrize("barrier", ["before", "after", "both"])
def test_both_blocks_need_a_barrier(barrier: str) -> None:
    world = World()
    first, second = world.blocks
    for warp in range(2):
        first.access(warp, "write", 128 * warp + 4 * LANES)
    if barrier in ("before", "both"):
        first.sync()
    world.do(first, RELEASE_STORE)
    world.do(second, STRONG_LOAD)
    if barrier in ("after", "both"):
        second.sync()
    for warp in range(2):
        second.access(warp, "read", 128 * warp + 4 * LANES, site=3)
    assert world.rules() == ([] if barrier == "both" else ["WRITE_READ"])


def test_what_is_written_after_the_release_is_not_published() -> None:
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, RELEASE_STORE)
    first.access(0, "write", 4, lanes=1)
    world.do(second, STRONG_LOAD)
    second.access(0, "read", 0, lanes=1, site=3)
    assert world.rules() == []
    second.access(0, "read", 4, lanes=1, site=4)
    assert world.rules() == ["WRITE_READ"]


@pytest.mark.long
@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("where", ["all threads", "thread 0"])
@pytest.mark.parametrize("blocks", [4, MOST_PRECISE + 1])
def test_the_last_block_adds_up(fenced: bool, where: str, blocks: int) -> None:
    world = World(blocks=blocks, size=8192 if blocks < 9 else 300_000, most=1 << 16)
    at = 4096 if blocks < 9 else 299_000
    for block in world.blocks:
        for warp in range(2):
            block.access(warp, "write", 256 * block.number + 128 * warp + 4 * LANES)
            if fenced and where == "all threads":
                world.locations.perform(block.thread(warp, ALL), FENCE, [])
        block.sync()
        if fenced and where == "thread 0":
            world.do(block, FENCE)
        world.do(block, ATOM, at=at)
        block.sync()
    last = world.blocks[-1]
    for number in range(blocks - 1):
        for warp in range(2):
            last.access(warp, "read", 256 * number + 128 * warp + 4 * LANES, site=3)
    assert world.rules() == ([] if fenced else ["WRITE_READ"])


def test_a_block_that_is_not_the_last_must_not_add_up() -> None:
    world = World(blocks=3)
    for block in world.blocks:
        block.access(0, "write", 128 * block.number + 4 * LANES)
        block.sync()
        world.do(block, FENCE)
        world.do(block, ATOM)
    world.blocks[1].sync()
    world.blocks[1].access(1, "read", 4 * LANES, site=3)
    assert world.rules() == []
    world.blocks[1].access(1, "read", 256 + 4 * LANES, site=4)
    assert world.rules() == ["WRITE_READ"]


def test_a_barrier_of_the_grid_again_and_again() -> None:
    world = World(blocks=3)
    for turn in range(3):
        for block in world.blocks:
            for warp in range(2):
                at = 256 * block.number + 128 * warp + 4 * LANES
                block.access(warp, "write", at, value=turn + 1, site=turn)
            block.sync()
            world.do(block, FENCE)
            world.do(block, ATOM)
        for block in world.blocks:
            world.do(block, STRONG_LOAD)
            world.do(block, FENCE)
            block.sync()
            for other in range(3):
                at = 256 * other + 128 + 4 * LANES
                block.access(0, "read", at, site=10 + turn)
        if turn == 2:
            break
        for block in world.blocks:  # a second barrier, before the next write
            block.sync()
            world.do(block, FENCE)
            world.do(block, ATOM, at=FLAG + 4)
        for block in world.blocks:
            world.do(block, STRONG_LOAD, at=FLAG + 4)
            block.sync()
    assert world.rules() == []
    world.blocks[1].access(0, "write", 1024 + 4 * LANES, site=30, value=9)
    world.blocks[0].access(0, "read", 1024 + 4 * LANES, site=31)
    assert world.rules() == ["WRITE_READ"]


def test_a_warp_that_is_ahead_at_the_next_fence() -> None:
    world = World()
    first, second = world.blocks
    for _ in range(3):
        for warp in range(2):
            first.access(warp, "write", 128 * warp + 4 * LANES, site=warp)
            world.locations.perform(first.thread(warp), FENCE, [])
        first.sync()
        # Warp 1 comes to the next fence before warp 0 says that all is written.
        world.locations.perform(first.thread(1), FENCE, [])
        world.do(first, ATOM)
        first.sync()
    world.do(second, STRONG_LOAD)
    second.sync()
    second.access(1, "read", 128 + 4 * LANES, site=5)
    assert world.rules() == []


def test_a_word_in_shared_memory_has_two_addresses() -> None:
    world = World()
    block, other = world.blocks
    block.access(0, "write", 0, lanes=1)
    window = 8 << 36
    world.locations.perform(block.thread(0, 1), RELEASE_STORE, [(0, window + 1024)])
    world.locations.perform(other.thread(1, 1), STRONG_LOAD, [(0, 1024)])
    other.access(1, "read", 0, lanes=1, site=2)
    assert world.rules() == ["WRITE_READ"]  # the shared memory of another block
    world.locations.perform(block.thread(1, 1), STRONG_LOAD, [(0, 1024)])
    block.access(1, "read", 0, lanes=1, site=3)
    assert len(world.watch.found()) == 1


def test_a_message_by_way_of_a_third_block() -> None:
    world = World(blocks=3)
    first, second, third = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, RELEASE_STORE)
    world.do(second, STRONG_LOAD)
    world.do(second, RELEASE_STORE, at=FLAG + 4)
    world.do(third, STRONG_LOAD, at=FLAG + 4)
    third.access(0, "read", 0, lanes=1, site=3)
    assert world.rules() == []


def test_a_flag_within_a_block() -> None:
    world = World()
    block = world.blocks[0]
    block.access(0, "write", 0, lanes=1)
    world.do(block, RELEASE_STORE)
    world.do(block, STRONG_LOAD, warp=1, lane=7)
    block.access(1, "read", 0, lanes=1 << 7, site=3)
    assert world.rules() == []
    block.access(1, "read", 0, lanes=1 << 8, site=4)
    assert world.rules() == ["WRITE_READ"]


@pytest.mark.parametrize("given", Scope)
@pytest.mark.parametrize("taken", Scope)
def test_both_scopes_must_include_the_other_thread(given: Scope, taken: Scope) -> None:
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, RELEASE_STORE._replace(scope=given))
    world.do(second, STRONG_LOAD._replace(scope=taken))
    second.access(0, "read", 0, lanes=1, site=3)
    small = min(given, taken) < Scope.GPU
    assert ("WRITE_READ" in world.rules()) == small
    assert len(world.locations.narrow) == small
    for found in world.locations.narrow.values():
        assert found[1::2] == (given, taken)
        assert found.needed is Scope.GPU


@pytest.mark.parametrize("fence", Scope)
@pytest.mark.parametrize("store", Scope)
def test_the_narrower_of_fence_and_store_counts(fence: Scope, store: Scope) -> None:
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, FENCE._replace(scope=fence))
    world.do(first, RELAXED_STORE._replace(scope=store))
    world.do(second, STRONG_LOAD)
    second.access(0, "read", 0, lanes=1, site=3)
    small = min(fence, store) < Scope.GPU
    assert ("WRITE_READ" in world.rules()) == small


@pytest.mark.parametrize("later", Scope)
def test_a_narrow_fence_does_not_undo_a_wide_one(later: Scope) -> None:
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, FENCE)
    first.access(0, "write", 4, lanes=1)
    world.do(first, FENCE._replace(scope=later))
    world.do(first, ATOM)
    world.do(second, STRONG_LOAD)
    second.access(0, "read", 0, lanes=1, site=3)
    assert world.rules() == []
    second.access(0, "read", 4, lanes=1, site=4)
    assert world.rules() == ([] if later >= Scope.GPU else ["WRITE_READ"])


@pytest.mark.parametrize("then", ["nothing", "fence", "narrow fence", "barrier"])
def test_a_relaxed_read_needs_a_fence_or_a_barrier(then: str) -> None:
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, RELEASE_STORE)
    world.do(second, RELAXED_LOAD)
    if then == "barrier":
        second.sync()
    elif then != "nothing":
        scope = Scope.CTA if then == "narrow fence" else Scope.GPU
        world.do(second, FENCE._replace(scope=scope))
    second.access(0, "read", 0, lanes=1, site=3)
    clean = then in ("fence", "barrier")
    assert world.rules() == ([] if clean else ["WRITE_READ"])


@pytest.mark.parametrize("kind", ["acquire", "release"])
def test_a_fence_may_only_acquire_or_only_release(kind: str) -> None:
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, FENCE._replace(releases=kind == "release"))
    world.do(first, RELAXED_STORE)
    world.do(second, STRONG_LOAD)
    second.access(0, "read", 0, lanes=1, site=3)
    assert world.rules() == ([] if kind == "release" else ["WRITE_READ"])


@pytest.mark.parametrize("what, hidden", [(RELAXED_STORE, True), (ATOM, False)])
def test_a_store_hides_what_was_published_and_an_atomic_does_not(
    what: Role, hidden: bool
) -> None:
    world = World(blocks=3)
    first, second, third = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, RELEASE_STORE)
    world.do(second, what)
    world.do(third, STRONG_LOAD)
    third.access(0, "read", 0, lanes=1, site=3)
    assert ("WRITE_READ" in world.rules()) == hidden


def test_a_store_of_the_same_thread_does_not_hide_its_release() -> None:
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, RELEASE_STORE)
    first.access(0, "write", 4, lanes=1)
    world.do(first, RELAXED_STORE)
    world.do(second, STRONG_LOAD)
    second.access(0, "read", 0, lanes=1, site=3)
    assert world.rules() == []
    second.access(0, "read", 4, lanes=1, site=4)
    assert world.rules() == ["WRITE_READ"]


@pytest.mark.parametrize("read", ["read", "strong read"])
@pytest.mark.parametrize("wrote", ["write", "strong write", "atomic"])
def test_who_has_read_a_value_comes_after_its_write(wrote: str, read: str) -> None:
    world = World()
    first, second = world.blocks
    first.access(0, wrote, FLAG, lanes=1, site=1)
    second.access(0, read, FLAG, lanes=1, site=2)
    before = len(world.watch.found())
    second.access(0, "write", FLAG, lanes=1, site=3, value=7)
    strong = wrote != "write" and read == "strong read"
    assert (len(world.watch.found()) == before) == strong


HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.entry f(.param .u64 x) {\n"
BODY = """.reg .b64 %rd<2>; .reg .b32 %r<4>;
ld.param.u64 %rd1, [x];
ld.volatile.global.u32 %r1, [%rd1];
atom.global.add.u32 %r2, [%rd1], 1;
red.global.add.u32 [%rd1], 1;
ld.global.u32 %r3, [%rd1];
"""


@pytest.mark.parametrize(
    "fence, found",
    [
        ("", set()),
        ("membar.gl;", {1, 2, 3, 5}),
        ("fence.acq_rel.gpu;", {1, 2, 3, 5}),
        ("fence.proxy.async;", set()),
        ("membar.cta;", {1, 2, 3, 5}),
        ("st.release.gpu.global.u32 [%rd1], %r1;", {1, 2, 3, 5}),
    ],
)
def test_which_instructions_can_synchronise(fence: str, found: set[int]) -> None:
    module = reading.parse(f"{HEAD}{BODY}{fence}\nret;\n}}")
    assert synchronises(module.functions["f"]) == found


def test_what_instructions_can_do() -> None:
    text = "ld.acquire.cta.global.u32 %r1, [%rd1]; red.release.gpu.global.add.u32 [%rd1], 1;"
    made = reading.parse(f"{HEAD}{BODY}{text}\nret;\n}}").functions["f"].instructions
    load = Role(reads=True, acquires=True, scope=Scope.CTA)
    assert role(made[5]) == load
    assert role(made[6]) == Role(publishes=True, releases=True)
    assert role(made[3]) == Role(publishes=True)
    assert role(made[1]) == Role(reads=True, scope=Scope.SYS)
    assert role(made[0]) is None


@pytest.mark.parametrize(
    "text, expected",
    [
        ("fence.acq_rel.cluster", Scope.CLUSTER),
        ("membar.cta", Scope.CTA),
        ("membar.gl", Scope.GPU),
        ("membar.sys", Scope.SYS),
        ("atom.global.add.u32", Scope.GPU),
        ("atom.acquire.cluster.shared::cluster.add.u32", Scope.CLUSTER),
        ("st.volatile.global.u32", Scope.SYS),
        ("ld.mmio.relaxed.sys.global.u32", Scope.SYS),
        ("mbarrier.arrive.shared::cluster.b64", Scope.CTA),
        ("mbarrier.arrive.release.cluster.shared::cta.b64", Scope.CLUSTER),
        ("barrier.cluster.arrive", Scope.CLUSTER),
    ],
)
def test_the_scope_of_an_instruction(text: str, expected: Scope) -> None:
    assert scope(text.split(".")) is expected


# ── what repeats ────────────────────────────────────────────────────────────

AGENTS, EPOCHS = 3, 7


def _known(clock: Clock) -> set[tuple[int, int, int, int]]:
    """Everything that a clock knows, one by one: plane, agent, lane, epoch."""
    every = np.ndindex(2, AGENTS, 2, EPOCHS)
    return {(p, *rest) for p, *rest in every if knows(clock[p], *rest)}


def test_clocks_are_compared_and_joined_as_what_they_know() -> None:
    numbers = np.random.default_rng(0)
    same = 0
    for _ in range(300):
        one, two = numbers.integers(0, 5, (2, 2, 3, AGENTS), np.int32)
        one[:, 2], two[:, 2] = (each[:, 2] & 3 for each in (one, two))
        both = joined(one, two)
        assert _known(one) | _known(two) <= _known(both)
        assert (both[:, 0] == np.maximum(one[:, 0], two[:, 0])).all()
        if covers(one, two):
            same += 1
            assert _known(two) <= _known(one)
            assert _known(both) == _known(one)
    assert same


def test_threads_that_poll_publish_what_they_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fences are looked at again only if there is one more, or more is known."""
    asked: list[int] = []
    look = Locations._at_fences

    def counted(self: Any, thread: Any, *given: Any) -> Any:
        asked.append(thread.agent)
        return look(self, thread, *given)

    monkeypatch.setattr(Locations, "_at_fences", counted)
    world = World()
    first, second = world.blocks
    first.access(0, "write", 0, lanes=1)
    world.do(first, FENCE)
    for _ in range(2):  # the second knows what the first has published
        world.do(first, ATOM)
    before = len(asked)
    for _ in range(5):
        world.do(first, ATOM)
    assert len(asked) == before
    first.access(0, "write", 4, lanes=1)
    world.do(first, FENCE)
    world.do(first, ATOM)
    assert len(asked) > before
    world.do(second, STRONG_LOAD)
    for place in (0, 4):
        second.access(0, "read", place, lanes=1, site=3)
    assert world.rules() == []
    first.access(0, "write", 8, lanes=1)
    world.do(first, ATOM)
    world.do(second, STRONG_LOAD)
    second.access(0, "read", 8, lanes=1, site=4)
    assert world.rules() == ["WRITE_READ"]
