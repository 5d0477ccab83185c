"""``st.async`` and ``red.async`` that release: stores that are done later, with a flag.

No Blackwell GPU was at hand: what they mean is what the manual says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.ptx.checking.texts import check_text
from tests.ptx.opcodes.test_carried_out import split

SCHEDULES = ("eager", "lazy", 1, "lazy+oldest-waits")
STORE = "st.async.release.gpu.global.u32 [%rd2], 1;"
FORMS = (
    STORE,
    "st.async.release.sys.u32 [%rd2], 1;",
    "st.async.mmio.release.sys.global.u32 [%rd2], 1;",
    "red.async.release.gpu.global.add.u32 [%rd2], 1;",
    "red.async.mmio.release.sys.global.add.u32 [%rd2], 1;",
)
HEAD = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag, .param .u64 out)
{
    .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;
    .reg .f32 %f<9>; .reg .f64 %d<4>;
    .shared .align 16 .b32 near[4]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [flag]; ld.param.u64 %rd3, [out];
"""
HANDED = """
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, {producer};
    @%p1 bra consume;
    st.global.u32 [%rd1], 42;
    {release}
    ret;
consume:
    {poll}
    ld.global.u32 %r5, [%rd1];
    st.global.u32 [%rd3], %r5;
    {then}
"""
RELAXED, ACQUIRE, NARROW = "relaxed.gpu", "acquire.gpu", "acquire.cta"


def polled(how: str, word: str = "%rd2", label: str = "again") -> str:
    """A loop until a word is not 0."""
    return f"""{label}: ld.{how}.global.u32 %r4, [{word}];
    setp.eq.u32 %p2, %r4, 0; @%p2 bra {label};"""


def launched(
    body: str, grid: int = 1, block: int = 1, dtype: Any = np.uint32, **options: Any
) -> tuple[list[Any], Any]:
    """What the first words of the arrays are, and the result."""
    arrays = [np.zeros(4, dtype) for _ in range(3)]
    kernel = ptx.parse(f"{HEAD}{body}\nret;\n}}").kernels["k"]
    if "instruments" not in options:
        options.setdefault("watch", "report")
    result = kernel.launch(grid, block, arrays, **options)
    return [each[0].item() for each in arrays], result


def handed(
    release: str = STORE,
    how: str = ACQUIRE,
    producer: int = 0,
    then: str = "",
    **options: Any,
) -> tuple[list[Any], Any]:
    """One block hands a number to the other."""
    poll = polled(how) if how else ""
    body = HANDED.format(release=release, poll=poll, producer=producer, then=then)
    return launched(body, 2, **options)


def said(result: Any) -> list[tuple[str, str, str]]:
    """The rules, and the two instructions of each."""
    return [
        (each.rule, opcode(each.text), opcode(each.related[0].text))
        for each in result.problems
        if each.severity != "info"
    ]


def opcode(line: str) -> str:
    """The instruction of a line, which may begin with a label."""
    return next(word for word in line.split() if "." in word)


# ── right kernels ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("release", FORMS)
def test_what_is_handed_over_arrives_and_is_no_race(
    release: str, schedule: str | int
) -> None:
    for producer in (0, 1):
        words, result = handed(release, producer=producer, schedule=schedule)
        assert words == [42, 1, 42]
        assert not result.problems


def test_a_fence_after_a_relaxed_loop_acquires() -> None:
    fence = "fence.acq_rel.gpu; ld.global.u32 %r5, [%rd1];"
    poll = polled(RELAXED) + fence
    body = HANDED.format(release=STORE, poll=poll, producer=0, then="")
    _, result = launched(body, 2)
    assert not result.problems


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_who_acquires_may_take_the_flag_back(schedule: str | int) -> None:
    words, result = handed(then="st.global.u32 [%rd2], 0;", schedule=schedule)
    assert words == [42, 0, 42]
    assert not result.problems


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_who_acquires_may_copy_the_flag(schedule: str | int) -> None:
    then = """
    mbarrier.init.shared.b64 [bar], 1; fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes
        [near], [%rd2], 16, [bar];
    arrives: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra arrives;
    ld.shared.u32 %r6, [near]; st.global.u32 [%rd3], %r6;"""
    words, result = handed(then=then, schedule=schedule)
    assert words == [42, 1, 1]
    assert not result.problems


def test_other_work_is_not_done_because_a_flag_is_polled() -> None:
    """Of a missing wait, ``lazy`` shows the poison, also behind a loop on a word."""
    body = f"""
    mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [near], 7, [bar];
    {STORE} {polled(ACQUIRE)}
    ld.shared.u32 %r5, [near]; st.global.u32 [%rd3], %r5;"""
    for schedule, found in (("eager", 7), ("lazy", 0x7FFF7FFF)):
        words, _ = launched(body, cluster=1, schedule=schedule)
        assert words == [0, 1, found]


@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_threads_that_poll_each_other_go_on(
    schedule: str | int, watch: bool | str
) -> None:
    """Nothing waits for the store: it is done when nothing else can go on."""
    back = polled(ACQUIRE, "%rd2+8", "back") + "ld.global.u32 %r6, [%rd2+12];"
    then = """st.global.u32 [%rd2+12], 9;
        red.async.release.gpu.global.add.u32 [%rd2+8], 1;"""
    words, result = handed(STORE + back, then=then, schedule=schedule, watch=watch)
    assert words == [42, 1, 42]
    assert not result.problems


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("other", [1, 32])
def test_lanes_and_warps_hand_over_within_a_block(
    other: int, schedule: str | int
) -> None:
    body = f"""
    mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, {other}; @%p1 bra consume;
    setp.ne.u32 %p1, %r1, 0; @%p1 ret;
    st.global.u32 [%rd1], 42; {STORE} ret;
consume:
    {polled(ACQUIRE)} ld.global.u32 %r5, [%rd1]; st.global.u32 [%rd3], %r5;"""
    words, result = launched(body, block=other + 1, schedule=schedule)
    assert words == [42, 1, 42]
    assert not result.problems


ADDS = "red.async.release.gpu.global.add"


@pytest.mark.parametrize("schedule", ["eager", "lazy", 1])
@pytest.mark.parametrize(
    ("line", "lanes", "left"),
    [
        ("st.async.release.gpu.global.b16 [%rd2+2], %h1;", 1, 0x12340000),
        ("st.async.release.gpu.global.s16 [%rd2], -2;", 1, 0xFFFE),
        ("st.async.release.sys.global.f64 [%rd2], %d1;", 1, 0x3FF8000000000000),
        ("st.async.release.gpu.global.f32 [%rd2], 0f3F800000;", 1, 0x3F800000),
        ("st.async.release.gpu.global.f64 [%rd2], 1.5;", 1, 0x3FF8000000000000),
        (f"{ADDS}.u32 [%rd2], %r2;", 32, 0xFFFFFFC0),
        (f"{ADDS}.s32 [%rd2], %r2;", 3, 0xFFFFFFFA),
        (f"{ADDS}.u64 [%rd2], 5;", 32, 160),
        (f"{ADDS}.s64 [%rd2], -1;", 32, 2**64 - 32),
    ],
)
def test_the_bits_of_each_type(
    line: str, lanes: int, left: int, schedule: str | int
) -> None:
    given = "mov.b16 %h1, 0x1234; mov.f64 %d1, 0d3FF8000000000000;"
    body = f"{given} mov.u32 %r2, 0xfffffffe; {line}"
    words, result = launched(body, 1, lanes, np.uint64, schedule=schedule)
    assert words[1] == left
    assert not result.problems


def test_a_store_takes_its_value_when_it_is_issued() -> None:
    body = f"mov.u32 %r2, 5; {STORE.replace('1;', '%r2;')} mov.u32 %r2, 6;"
    words, _ = launched(body, schedule="lazy")
    assert words[1] == 5


# ── wrong kernels ───────────────────────────────────────────────────────────

DATA = [("global-race", "ld.global.u32", "st.global.u32")]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", [RELAXED, "volatile"])
def test_a_loop_that_does_not_acquire_is_a_race(how: str, schedule: str | int) -> None:
    for release in FORMS:
        assert said(handed(release, how, schedule=schedule)[1]) == DATA


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_read_without_a_loop_is_a_race(schedule: str | int) -> None:
    assert said(handed(how="", schedule=schedule)[1]) == DATA
    written_later = [("global-race", "st.global.u32", "ld.global.u32")]
    assert said(handed(how="", producer=1, schedule=schedule)[1]) == written_later


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_comes_after_the_issue_is_not_released(schedule: str | int) -> None:
    _, result = handed(f"{STORE}\nst.global.u32 [%rd1], 43;", schedule=schedule)
    assert said(result) == DATA


def test_a_scope_that_is_too_small() -> None:
    _, result = handed(how=NARROW)
    poll = ("global-race", "ld.acquire.cta.global.u32", OWN)
    assert said(result) == [poll, *DATA]
    told = [each for each in map(str, result.problems) if "at least .gpu" in each]
    assert len(told) == 2


OWN = "st.async.release.gpu.global.u32"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_thread_itself_does_not_know_when_it_is_done(schedule: str | int) -> None:
    load = f"{STORE}\nld.global.u32 %r7, [%rd2];\nst.global.u32 [%rd3], %r7;"
    words, result = launched(load, schedule=schedule)
    assert said(result) == [("global-race", "ld.global.u32", OWN)]
    assert "Nothing waits for it" in result.problems[0].hint
    store = f"{STORE}\nst.global.u32 [%rd2], 5;"
    words, result = launched(store, schedule=schedule)
    assert said(result) == [("global-race", "st.global.u32", OWN)]
    assert words[1] == 1 or schedule == "eager"
    strong = f"{STORE}\nld.relaxed.gpu.global.u32 %r7, [%rd2];"
    assert not launched(strong, schedule=schedule)[1].problems


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_later_flag_does_not_say_that_an_earlier_one_is_there(
    schedule: str | int,
) -> None:
    """Another thread that knows of the issue does not know that the store is done."""
    later = f"{STORE}\nst.release.gpu.global.u32 [%rd2+4], 1;"
    poll = polled(ACQUIRE, "%rd2+4") + "\nld.global.u32 %r6, [%rd2];"
    poll += "\nst.global.u32 [%rd3+4], %r6;"
    body = HANDED.format(release=later, poll=poll, producer=0, then="")
    _, result = launched(body, 2, schedule=schedule)
    assert said(result) == [("global-race", "ld.global.u32", OWN)]


def test_undefined_bits_go_along() -> None:
    for line in (STORE.replace("1;", "%r7;"), f"{ADDS}.u32 [%rd2], %r7;"):
        _, result = launched(line)
        assert [each.rule for each in result.problems] == ["uninitialised"]


# ── all instruments ─────────────────────────────────────────────────────────

ROUNDED = """
    mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f33000000; add.f32 %f1, %f1, %f2;
    mov.f32 %f4, 0f3E800000; st.global.f32 [%rd2], %f4;
    st.async.release.gpu.global.f32 [%rd2], %f1;
    mov.f32 %f1, 0f00000000;
    ld.relaxed.gpu.global.f32 %f3, [%rd2];
    st.global.f32 [%rd3], %f3;
"""


@pytest.mark.parametrize(("schedule", "seen"), [("eager", 1.0), ("lazy", 0.25)])
def test_all_instruments_in_one_launch(schedule: str, seen: float) -> None:
    """The sum loses 2**-25; who reads too early gets what was there, which is exact."""
    words, result = launched(
        ROUNDED,
        dtype=np.float32,
        schedule=schedule,
        instruments=[
            ptx.Watch("report"),
            ptx.Counting(),
            ptx.ExactValues(),
            ptx.Window(),
            ptx.AllOrders(100),
        ],
    )
    assert words == [0.0, 1.0, seen]
    assert not result.problems
    (numerics,) = result.followed
    assert numerics["flag"].error[0] == -(2.0**-25)
    assert numerics["out"].error[0] == -(2.0**-25) * (seen == 1)
    assert result.orders.verdict == "all orders"
    (unit,) = result.replay().units
    assert unit["kind"] == "st.async.release"
    assert unit["bytes"] == 4
    assert (unit["done"] > unit["issued"]) == (schedule == "lazy")
    assert result.counters.metrics["ptx__inst_executed.sum"] >= 9


def test_a_kernel_is_the_same_as_itself() -> None:
    kernel = ptx.parse(f"{HEAD}{ROUNDED}ret; }}").kernels["k"]
    call = ptx.Call(kernel, 1, 1, [np.zeros(4, np.float32) for _ in range(3)])
    assert ptx.same(call, call).verdict == "same"


def test_orders_let_what_is_strong_overtake_it() -> None:
    """A relaxed store after it may be seen first; after ``st.release`` it may not."""
    body = f"""
    mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra consume;
    {{}}
    st.relaxed.gpu.global.u32 [%rd1], 1;
    ret;
consume:
    {polled(ACQUIRE, "%rd1")}
    ld.acquire.gpu.global.u32 %r5, [%rd2]; setp.ne.u32 %p3, %r5, 0; @%p3 bra done;
    {polled(ACQUIRE, "%rd3", "forever")}
done:"""
    add = f"{ADDS}.u32 [%rd2], 1;"
    for release, verdict in (
        (STORE, "hangs"),
        (add, "hangs"),
        (STORE.replace(".async", ""), "all orders"),
    ):
        _, result = launched(body.format(release), 2, orders=1000)
        assert result.orders.verdict == verdict


def test_orders_find_what_one_run_does_not() -> None:
    """The last block waits for two of three: which two is left open."""
    body = f"""
    mov.u32 %r1, %ctaid.x; mad.wide.u32 %rd4, %r1, 4, %rd1;
    setp.eq.u32 %p1, %r1, 3; @%p1 bra consume;
    st.global.u32 [%rd4], 1; {ADDS}.u32 [%rd2], 1; ret;
consume:
    again: ld.acquire.gpu.global.u32 %r4, [%rd2];
    setp.lt.u32 %p2, %r4, {{}}; @%p2 bra again;
    ld.global.u32 %r5, [%rd1+8]; st.global.u32 [%rd3], %r5;"""
    rules = [
        [each.rule for each in launched(body.format(n), 4, orders=1000)[1].problems]
        for n in (2, 3)
    ]
    assert rules == [["global-race"], []]


def test_the_timeline_has_the_store() -> None:
    _, result = handed(how=RELAXED, schedule="lazy")
    assert "st.async" in str(result.timeline())


# ── what there is, and where ────────────────────────────────────────────────

TYPES = ["b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"]
REGISTERS = {"16": "%h1", "32": "%r2", "64": "%d2"}


def lines() -> list[str]:
    """Forms of all types and scopes, also those that do not exist."""
    found = []
    for kind in (*TYPES, "b8", "u8", "f16"):
        register = REGISTERS.get(kind[1:], "%h1")
        for word in ("release.gpu", "release.sys", "release.cta", "mmio.release.sys"):
            found.append(f"st.async.{word}.global.{kind} [%d1], {register};")
            found.append(f"red.async.{word}.global.add.{kind} [%d1], {register};")
    return found


@pytest.mark.parametrize("target", ["sm_90a", "sm_100", "sm_120", "sm_103a"])
def test_the_check_refuses_what_the_assembler_refuses(target: str) -> None:
    theirs, ours = split(lines(), target)
    assert theirs == ours
    adds = [each for each in lines() if each not in theirs and each.startswith("red")]
    stores = [each for each in lines() if each not in theirs and each[0] == "s"]
    has = target != "sm_90a"
    assert (len(stores), len(adds)) == (has * 3 * len(TYPES), has * 3 * 4)


def test_hopper_does_not_have_it() -> None:
    for release in FORMS:
        words, result = handed(release, target="sm_90a")
        problem = result.problems[-1]
        assert problem.rule == "target"
        assert f"sm_90a does not have {release.split()[0]};" in str(problem)
        assert "it needs sm_100 or later" in str(problem)
        assert words[1] == 0
    text = f"{HEAD}{STORE}ret; }}"
    assert not check_text(text)
    (problem,) = check_text(text.replace("sm_100a", "sm_90a"))
    assert problem.rule == "target"
    (problem,) = check_text(text.replace("8.7", "8.6"))
    assert problem.rule == "version"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("st.async.release.gpu.global.u32 [%rd2+2], 1;", "misaligned"),
        ("st.async.release.gpu.global.u32 [%rd2+16], 1;", "out of bounds"),
        (f"{ADDS}.u32 [%rd2+4096], 1;", "out of bounds"),
        ("st.async.release.gpu.u32 [%rd4], 1;", "must be in global memory"),
    ],
)
def test_a_place_that_is_none_is_refused(line: str, why: str) -> None:
    with pytest.raises(ptx.KernelError, match=why):
        launched(f"mov.u64 %rd5, near; cvta.shared.u64 %rd4, %rd5; {line}", watch=False)
