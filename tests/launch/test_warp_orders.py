"""Orders of warps: a turn ends at every synchronising event, and somebody says who is next.

What is right is the same in every order.  What is wrong in some order only is found.
"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt.synchronisation import synchronises
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.schedule import ADVERSARIAL, POLICIES, Standing
from fragmenta.errors import BadCall, KernelError, KernelFault
from fragmenta.inspect.evidence import launches
from fragmenta.ptx.reading import parse
from fragmenta.ptx.rules import INFO
from tests.launch.orders_of_warps import ONE_BARRIER, WRONG, Wrong, kernel
from tests.ptx import recordings
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.ptx.test_launches import RACES
from tests.thinning import THOROUGH, some

RIGHT = [case for case in cases() if not case.bug]
ORDERS = (*ADVERSARIAL, "5+random-9")
FEW = ptx.Limits(instructions=200_000)


def orders(number: int) -> tuple[str, ...]:
    """One order for each case, and all of them in turn; a thorough run: all."""
    return ORDERS if THOROUGH else (ORDERS[number % len(ORDERS)],)


# ── what is right ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", some(RIGHT, 40, 10), ids=lambda case: case.name)
def test_nothing_is_said_about_a_right_kernel(case: Case) -> None:
    for schedule in orders(RIGHT.index(case) // 20):
        said, arrays = running.launch(case, schedule)
        assert not [each for each in said if each.severity != INFO], schedule
        assert running.left(case.row, arrays) == running.expected(case), schedule


LAUNCHES = recordings.every_launch()


@pytest.mark.parametrize(
    "launch", some(LAUNCHES, 96, 7), ids=lambda launch: launch.identity
)
def test_a_launch_leaves_the_bytes_of_the_gpu(launch: recordings.Launch) -> None:
    number = LAUNCHES.index(launch) // 48
    for schedule in orders(number):
        watch = THOROUGH or number % 3 == 0
        found = launches.replay_one(
            launch.file, launch.row, watch=watch, schedule=schedule
        )
        assert not found.lines, schedule
        expected = RACES.get(launch.identity, set()) if watch else set()
        assert {each.rule for each in found.hazards} == expected


# ── what is wrong in some order ─────────────────────────────────────────────


def outcome(wrong: Wrong, schedule: Any) -> tuple[bytes, set[str]]:
    """What a launch left, and the rules of its errors."""
    x = np.zeros(128, np.int32)
    options = {"schedule": schedule, "watch": "report", "limits": FEW}
    result = kernel(wrong).launch(1, wrong.threads, [x], **options)
    wrongs = {each.rule for each in result.hazards if each.severity == "error"}
    return x.tobytes(), wrongs


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_an_adversary_finds_what_round_robin_does_not(name: str) -> None:
    wrong = WRONG[name]
    plain = outcome(wrong, "eager")
    assert not plain[1]
    assert outcome(wrong, "lazy") == plain == outcome(wrong, 1)
    found = {each for each in POLICIES if outcome(wrong, f"eager+{each}") != plain}
    assert found >= set(wrong.finds.split())


def test_chance_finds_two_roles_with_one_barrier() -> None:
    """Every order shows that the roles are not ordered; some also pair the wrong warps."""
    assert outcome(ONE_BARRIER, "eager")[1] == {"barrier-collision"}
    rules = [outcome(ONE_BARRIER, f"random-{seed}")[1] for seed in range(4)]
    assert {"barrier-collision", "shared-race"} in rules


def test_several_orders_are_compared() -> None:
    wrong, x = WRONG["a ticket that is taken for the warp"], np.zeros(128, np.int32)
    several = ("eager", "adversarial")
    result = kernel(wrong).launch(1, 64, [x], schedule=several, watch="report")
    said = [str(each) for each in result.problems if each.rule == "schedule"]
    assert len(said) == 1
    assert "the schedules 'eager' and 'lazy+" in said[0]


# ── recorded turns ──────────────────────────────────────────────────────────

SEEN = [case for case in RIGHT if case.row.cluster == 2][:2] + RIGHT[::40]


@pytest.mark.parametrize("case", SEEN, ids=lambda case: case.name)
@pytest.mark.parametrize("schedule", ["lazy+oldest-waits", "3+random-1"])
def test_a_recorded_schedule_is_repeated(case: Case, schedule: str) -> None:
    row = case.row
    made = running.loaded(row.source, case.bug).kernels[row.entry]
    options: dict[str, Any] = {"cluster": row.cluster} if row.cluster > 1 else {}

    def run(given: Any) -> tuple[dict[str, Any], dict[str, int], list[bytes]]:
        arguments = running.made(row)
        values = running.for_launch(row, arguments)
        result = made.launch(
            row.grid, row.block, values, schedule=given, watch="report", **options
        )
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        return result.schedule, result.counts, running.left(row, arrays)

    first = run(schedule)
    recorded = json.loads(json.dumps(first[0]))
    assert recorded["turns"]
    assert run(recorded) == first
    assert run(recorded | {"warps": "in-steps"})[0]["turns"] == recorded["turns"]


def test_a_deadlock_is_repeated() -> None:
    wrong = WRONG["a phase that nobody holds back"]
    seen = []
    given: Any = "lazy+youngest-waits"
    for _ in range(2):
        with pytest.raises(KernelFault, match="waits") as caught:
            kernel(wrong).launch(1, 96, [np.zeros(8, np.int32)], schedule=given)
        seen.append((str(caught.value), caught.value.schedule["turns"]))
        given = json.loads(json.dumps(caught.value.schedule))
    assert seen[0] == seen[1]


def test_round_robin_needs_no_turns() -> None:
    case = RIGHT[0]
    result = (
        running.loaded(case.row.source, 0)
        .kernels[case.row.entry]
        .launch(
            case.row.grid,
            case.row.block,
            running.for_launch(case.row, running.made(case.row)),
        )
    )
    assert result.schedule == {"work": "eager", "warps": "round-robin"}


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ({"0": [[0, 9]]}, "blocks 0 to 0 have warps 0 to 1"),
        ({"0": [["work", 3]]}, "in flight are none"),
        (
            {"0": [[0, 0], [0, 1]] * 30},
            "which has ended; it was recorded from another launch",
        ),
        ({"0": [[0]]}, "a turn is"),
        ({"0": "lazy"}, "are a list"),
        ({"first": []}, "by the number of the cluster"),
        ([[0, 0]], "by the number of the cluster"),
    ],
)
def test_wrong_turns_are_refused(turns: Any, words: str) -> None:
    wrong = WRONG["a ticket that is taken for the warp"]
    with pytest.raises(BadCall, match=words):
        kernel(wrong).launch(
            1, 64, [np.zeros(128, np.int32)], schedule={"turns": turns}
        )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lasy", "lazy"),
        ("oldest", "oldest-waits"),
        ("lazy+oldest-wait", "lazy+oldest-waits"),
        ("eager+random", "eager+random-1"),
        ("adverserial", "adversarial"),
        ({"works": "lazy"}, "work"),
        ({"warps": "producers-wait"}, "producer-waits"),
    ],
)
def test_an_error_names_the_nearest_schedule(given: Any, meant: str) -> None:
    wrong = WRONG["a ticket that is taken for the warp"]
    with pytest.raises(BadCall, match=f"did you mean {meant.replace('+', '.')}\\?"):
        kernel(wrong).launch(1, 64, [np.zeros(128, np.int32)], schedule=given)


# ── who decides ─────────────────────────────────────────────────────────────


class Orders:
    """Walks through all orders of turns, one launch after the other."""

    work = "held"

    def __init__(self) -> None:
        self.prefix: list[int] = []
        self.widths: list[int] = []

    def choose(self, standing: Standing) -> tuple[int, int] | tuple[str, int] | None:
        work = [("work", each) for each in standing.in_flight]
        every = [*standing.can_go_on, *work]
        if not every:
            return None
        place = len(self.widths)
        self.widths.append(len(every))
        if place == len(self.prefix):
            self.prefix.append(0)
        return every[self.prefix[place]]

    def next(self) -> bool:
        """Go on to the next order; whether there is one."""
        self.prefix = self.prefix[: len(self.widths)]
        while self.prefix and self.prefix[-1] + 1 == self.widths[len(self.prefix) - 1]:
            self.prefix.pop()
        if self.prefix:
            self.prefix[-1] += 1
        self.widths = []
        return bool(self.prefix)


def test_all_orders_of_a_small_kernel() -> None:
    """Three warps take a number each, in 3! orders."""
    made = ptx.parse(""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
.reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>;
ld.param.u64 %d1, [x]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31;
setp.ne.u32 %p, %r2, 0; @%p exit;
shr.u32 %r1, %r1, 5; atom.global.add.u32 %r2, [%d1], 1;
mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2; st.global.u32 [%d3+4], %r2;
exit; }""").kernels["k"]
    chooser, seen, launched = Orders(), set(), 0
    while launched == 0 or chooser.next():
        x = np.zeros(4, np.int32)
        result = made.launch(1, 96, [x], schedule=chooser, watch=False)
        turns = [warp for _, warp in result.schedule["turns"]["0"]]
        order = list(dict.fromkeys(turns))  # a second turn only ends the warp
        assert [order.index(warp) for warp in range(3)] == x[1:].tolist()
        seen.add(tuple(order))
        launched += 1
    assert len(seen) == 6
    assert launched == 90  # 6! / (2! 2! 2!) orders of two turns each


def test_work_is_done_when_it_is_chosen() -> None:
    made = ptx.parse(""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
.reg .b32 %r<4>; .reg .b64 %d<3>; .shared .align 16 .b32 tile;
ld.param.u64 %d1, [x];
cp.async.ca.shared.global [tile], [%d1], 4;
cp.async.commit_group;
fence.acq_rel.cta;
ld.volatile.shared.u32 %r1, [tile];
st.global.u32 [%d1+4], %r1;
cp.async.wait_all;
ret; }""").kernels["k"]
    found = {}
    for late in (False, True):
        turns: list[Any] = [[0, 0]] * 4
        turns.insert(4 if late else 2, ["work", 1])
        x = np.array([7, 0], np.int32)
        given = {"work": "held", "warps": "in-steps", "turns": {"0": turns}}
        made.launch(1, 1, [x], schedule=given, watch=False)
        found[late] = x[1]
    assert found == {False: 7, True: 0x7FFF7FFF}


# ── where turns end ─────────────────────────────────────────────────────────

EVENTS = """bar.sync 0; bar.arrive 1, 64; barrier.sync 0; barrier.cluster.arrive;
barrier.cluster.wait; mbarrier.init.shared.b64 [bar], 1;
mbarrier.arrive.shared.b64 %d1, [bar]; mbarrier.test_wait.shared.b64 %p, [bar], %d1;
mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
cp.async.ca.shared.global [bar], [%d1], 4; cp.async.commit_group;
cp.async.wait_group 0; cp.async.wait_all; cp.async.mbarrier.arrive.shared.b64 [bar];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [bar], [%d1], 16, [bar];
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
atom.global.add.u32 %r1, [%d1], 1; red.global.add.u32 [%d1], 1;
ld.volatile.global.u32 %r1, [%d1]; ld.acquire.gpu.global.u32 %r1, [%d1];
ld.relaxed.cta.shared.u32 %r1, [bar]; st.volatile.shared.u32 [bar], 1;
st.release.gpu.global.u32 [%d1], 1; st.relaxed.gpu.global.u32 [%d1], 1;
fence.acq_rel.gpu; fence.proxy.async; membar.gl; nanosleep.u32 20;"""
OTHERS = """bar.warp.sync -1; shfl.sync.idx.b32 %r1, %r1, 0, 31, -1;
ld.global.u32 %r1, [%d1]; st.shared.u32 [bar], %r1; add.u32 %r1, %r1, 1;
cp.async.bulk.prefetch.L2.global [%d1], 16; prefetch.global.L2 [%d1];
mbarrier.pending_count.b64 %r1, %d1; ld.volatile.local.u32 %r1, [place];"""


def instructions(text: str) -> list[Any]:
    """The instructions of a text."""
    head = ".version 8.0 .target sm_90a .address_size 64 .entry k() { .reg .pred %p; "
    more = ".reg .b32 %r<3>; .reg .b64 %d<3>; .shared .b64 bar; .local .b32 place; "
    return list(parse(f"{head}{more}{text} }}", "").functions["k"].instructions)


def test_a_turn_ends_at_every_synchronising_event() -> None:
    for each in instructions(EVENTS):
        assert synchronises(each), each.mnemonic
    for each in instructions(OTHERS):
        assert not synchronises(each), each.mnemonic


POLLS = {
    "volatile": "ld.volatile.shared.u32 %r1, [flag];",
    "relaxed": "ld.relaxed.cta.shared.u32 %r1, [flag];",
    "acquire": "ld.acquire.cta.shared.u32 %r1, [flag];",
    "atomic": "atom.shared.add.u32 %r1, [flag], 0;",
    "with a pause": "ld.volatile.shared.u32 %r1, [flag]; nanosleep.u32 20;",
    "with a fence": "ld.relaxed.cta.shared.u32 %r1, [flag]; fence.acq_rel.cta;",
    "ordinary": "ld.shared.u32 %r1, [flag];",
}


@pytest.mark.parametrize("name", POLLS)
def test_a_warp_that_polls_gives_way(name: str) -> None:
    """The preferred warps poll what the one that is kept waiting has to set."""
    made = ptx.parse(f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{ .reg .pred %p; .reg .b32 %r<3>; .shared .b32 flag;
mov.u32 %r2, %tid.x; shr.u32 %r2, %r2, 5; setp.eq.u32 %p, %r2, 1; @%p bra SET;
WAIT: {POLLS[name]} setp.eq.u32 %p, %r1, 0; @%p bra WAIT; ret;
SET: st.volatile.shared.u32 [flag], 1; ret; }}""").kernels["k"]
    for schedule in ("oldest-waits", "youngest-waits", "in-steps", "random-1"):
        result = made.launch(1, 96, schedule=schedule, watch=False)
        assert result.instructions < (200_000 if name == "ordinary" else 6_000)


def test_code_ends_a_turn_there() -> None:
    """All events that one warp can execute alone, in the order of the text."""
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
.reg .pred %p, %q; .reg .b32 %r<3>; .reg .b64 %d<3>; .shared .align 8 .b64 bar;
ld.param.u64 %d1, [x]; setp.eq.u64 %q, %d1, 0;
mbarrier.init.shared.b64 [bar], 32; bar.sync 0; mbarrier.arrive.shared.b64 %d2, [bar];
mbarrier.test_wait.shared.b64 %p, [bar], %d2;
@%q atom.global.add.u32 %r1, [%d1], 1;
atom.global.add.u32 %r1, [%d1], 1; st.volatile.global.u32 [%d1], %r1;
fence.acq_rel.gpu; ld.acquire.gpu.global.u32 %r2, [%d1]; nanosleep.u32 5;
red.global.add.u32 [%d1], 1; ret; }"""
    made = ptx.parse(text.replace("[bar], 32", "[bar], 1")).kernels["k"]

    class Always:
        work = "eager"
        seen: list[Any] = []  # noqa: RUF012 - of one launch

        def choose(self, standing: Standing) -> tuple[int, int]:
            self.seen.append(standing.last)
            return 0, 0

    chooser = Always()
    made.launch(1, 1, [np.zeros(1, np.int32)], schedule=chooser, watch=False)
    code = made.function.instructions
    names = [code[e.instruction].mnemonic.split(".")[0] for e in chooser.seen[1:]]
    # The guarded one takes no part.
    wanted = "mbarrier bar mbarrier mbarrier atom st fence ld nanosleep red"
    assert names == wanted.split()


def test_who_issues_copies_is_the_producer() -> None:
    """The warp that copies waits until the others have nothing to do, and vice versa."""
    made = ptx.parse(""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x) {
.reg .pred %p; .reg .b32 %r<6>; .reg .b64 %d<3>; .shared .align 8 .b64 bar;
.shared .align 16 .b8 tile[16];
ld.param.u64 %d1, [x]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5;
mov.u32 %r4, 0;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
mbarrier.init.shared.b64 [bar], 1;
READY: bar.sync 0; setp.ne.u32 %p, %r2, 0; @%p exit;
setp.ne.u32 %p, %r3, 1; @%p bra CONSUME;
mbarrier.arrive.expect_tx.shared.b64 %d2, [bar], 16;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1], 16, [bar];
STORE: st.volatile.global.u32 [%d1+64], %r4; add.u32 %r4, %r4, 1;
setp.lt.u32 %p, %r4, 20; @%p bra STORE; exit;
CONSUME: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @!%p bra CONSUME;
MORE: st.volatile.global.u32 [%d1+68], %r4; add.u32 %r4, %r4, 1;
setp.lt.u32 %p, %r4, 20; @%p bra MORE; exit; }""").kernels["k"]
    last = {}
    for policy in ("producer-waits", "consumer-waits"):
        x = np.zeros(32, np.int32)
        result = made.launch(1, 96, [x], schedule=policy, watch=False)
        turns = [warp for _, warp in result.schedule["turns"]["0"]]
        last[policy] = turns[-1]
        # Once they are known, the kept ones run only when the others have ended.
        changes = sum(a != b for a, b in pairwise(w == 1 for w in turns[8:]))
        assert changes <= 4
    assert last["producer-waits"] == 1
    assert last["consumer-waits"] != 1


def test_fast_paths_and_python_have_the_same_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    chosen = [case for case in RIGHT if "ring" in case.name or "pipe" in case.name][:4]
    assert chosen
    for fast in (True, False):
        monkeypatch.setattr(Machine, "fast", fast)
        found.append([])
        for case in chosen:
            made = running.loaded(case.row.source, 0).kernels[case.row.entry]
            values = running.for_launch(case.row, running.made(case.row))
            options = {"cluster": case.row.cluster} if case.row.cluster > 1 else {}
            result = made.launch(
                case.row.grid,
                case.row.block,
                values,
                schedule="lazy+consumer-waits",
                watch=False,
                **options,
            )
            found[-1].append((result.schedule, result.counts))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "body, said",
    [
        ("for (;;) atomicAdd(x + w, 1);", "may run forever"),
        (WRONG["two locks in two orders"].body, "deadlock: every warp"),
    ],
    ids=["limit", "deadlock"],
)
def test_an_order_without_an_end_is_told(body: str, said: str) -> None:
    with pytest.raises(KernelError, match=said) as caught:
        kernel(Wrong(64, body, "")).launch(
            1, 64, [np.zeros(8, np.int32)], schedule="in-steps", limits=FEW, watch=False
        )
    assert caught.value.schedule["turns"]


# ── lanes ───────────────────────────────────────────────────────────────────


def relay(seed: int, warps: int) -> str:
    """Every lane waits for its number and hands on the next, on ways of its own.

    On hardware since Volta it ends, however the lanes are nested and wait.
    """
    rng = random.Random(seed)
    threads = 32 * warps
    places = list(range(threads))
    rng.shuffle(places)
    waits = (
        "while (*(volatile int *) &turn != mine) ;",
        "while (*(volatile int *) &turn != mine) __nanosleep(50);",
        "while (atomicAdd(&turn, 0) != mine) ;",
        "for (;;) { int seen; asm volatile("
        '"ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(at) : "memory");'
        " if (seen == mine) break; }",
    )
    hands = (
        "*(volatile int *) &turn = mine + 1;",
        "atomicAdd(&turn, 1);",
        "atomicExch(&turn, mine + 1);",
    )

    def part(low: int, high: int, depth: int) -> str:
        if depth == 0 or high - low < 2:
            wait, hand = rng.choice(waits), rng.choice(hands)
            return f"{wait} x[mine] = t; __threadfence_block(); {hand}"
        middle = rng.randrange(low + 1, high)
        first, second = part(low, middle, depth - 1), part(middle, high, depth - 1)
        sign = rng.choice(("<", ">="))
        both = (first, second) if sign == "<" else (second, first)
        body = f"if (t % 32 {sign} {middle}) {{ {both[0]} }} else {{ {both[1]} }}"
        return f"{body} __syncwarp(__activemask());" if rng.random() < 0.2 else body

    order = ", ".join(map(str, places))
    return f"""__constant__ short place[{threads}] = {{{order}}};
    extern "C" __global__ void relay(int *x) {{
        __shared__ int turn;
        int t = threadIdx.x, mine = place[t];
        unsigned at = __cvta_generic_to_shared(&turn);
        if (t == 0) turn = 0;
        __syncthreads();
        {part(0, 32, 3)}
    }}"""


@pytest.mark.parametrize("seed", range(40 if THOROUGH else 3))
def test_lanes_hand_on_in_any_order(seed: int) -> None:
    warps = 1 + seed % 2
    source = relay(seed, warps)
    made = ptx.RawKernel(source, "relay").kernel
    places = source.partition("{")[2].partition("}")[0].split(",")
    wanted = np.argsort([int(each) for each in places])
    for schedule in ("eager", "lazy+oldest-waits", f"random-{seed}"):
        x = np.full(32 * warps, -1, np.int32)
        made.launch(1, 32 * warps, [x], schedule=schedule, watch=False)
        assert (x == wanted).all(), schedule
