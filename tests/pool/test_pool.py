"""A pool answers as ``launch`` does, in order or as answers come, and leaves nothing."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.frontends.pool import packing
from fragmenta.frontends.pool.pool import AHEAD, Pool
from tests.clock import HANG
from tests.fuzz.wrong_types import WRONG
from tests.pool.texts import TEXT

MODULE = ptx.parse(TEXT)
FOREVER = ptx.Limits(seconds=HANG)


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2, limits=FOREVER) as made:
        yield made


def outcome(launch: Any) -> tuple[Any, ...]:
    """What came of a launch, as plain values."""
    try:
        result = launch()
    except fm.Error as error:
        result = getattr(error, "result", None)
        names = ("kind", "line", "source", "place", "block", "thread", "output")
        more = [getattr(error, name, None) for name in (*names, "column", "before")]
        problems = list(getattr(error, "problems", []))
        notes = getattr(error, "__notes__", [])
        told = (type(error), str(error), error.args, more, problems, notes)
    else:
        told = ()
    if result is None:
        return told
    fields = (
        "counts",
        "fidelity",
        "output",
        "target",
        "written_for",
        "watched",
        "complete",
    )
    about = [getattr(result, name) for name in (*fields, "problems", "hazards")]
    about.append(result.counters)
    return *told, about, str(result)


# ── the same answers ────────────────────────────────────────────────────────

CASES: dict[str, tuple[Any, ...]] = {
    "right": ("twice", {}),
    "not watched": ("twice", {"watch": False}),
    "strict": ("twice", {"watch": "strict", "schedule": ["eager", "lazy", 3]}),
    "a race": ("race", {}),
    "a race, reported": ("race", {"watch": ptx.Watch("report")}),
    "a fault": ("outside", {}),
    "it prints": ("prints", {}),
    "too much printed": ("prints", {"limits": ptx.Limits(output=2)}),
    "too many instructions": ("endless", {"limits": ptx.Limits(instructions=900)}),
    "wide limits": ("twice", {"limits": ptx.Limits(1e300, 1 << 80, None, 1 << 80)}),
    "too much memory": ("twice", {"limits": ptx.Limits(memory=1)}),
    "a limit that is none": ("twice", {"shared": -1}),
    "a size that no target has": ("large", {}),
    "another target": ("twice", {"target": "sm_90"}),
    "counted": ("twice", {"counters": True}),
    "no target": ("twice", {"target": "sm_91x"}),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_that_of_a_launch(pool: Pool, case: str) -> None:
    name, options = CASES[case]
    x = np.arange(64, dtype=np.int32)
    job = pool.submit(MODULE, 1, 64, [x], kernel=name, **options)
    found = outcome(job.result)
    assert np.array_equal(x, np.arange(64))  # what was given is not changed
    kernel = ptx.parse(TEXT).kernels[name]
    assert found == outcome(lambda: kernel.launch(1, 64, [x], **options))
    assert np.array_equal(job.arguments[0], x)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text, kernel",
    [
        ("", None),
        (".version 8.0 .target sm_80 .entry f( { ret; }", None),
        ("__global__ void f() {}", None),
        (TEXT, "twise"),
    ],
)
def test_a_text_that_cannot_be_launched(pool: Pool, text: str, kernel: str) -> None:
    job = pool.submit(text, 1, 1, kernel=kernel)
    assert outcome(job.result) == outcome(
        lambda: ptx.parse(text).kernels[kernel].launch(1, 1)
    )


def test_a_text_with_several_kernels_needs_a_name(pool: Pool) -> None:
    with pytest.raises(fm.errors.BadCall, match=r"has 8 kernels, name one: twice, "):
        pool.submit(TEXT, 1, 1).result()


def test_a_check_is_that_of_a_module(pool: Pool) -> None:
    wrong = TEXT.replace("add.s32 %r2, %r2, %r2;", "add.s32 %r2, %r2;")
    assert pool.check(wrong).result() == ptx.parse(wrong).check()
    assert [each.rule for each in pool.check("x").result()] == ["syntax"]
    target = pool.check(TEXT, "sm_90").result()
    assert target == MODULE.check("sm_90")


def test_a_timeline_is_drawn_there(pool: Pool) -> None:
    x = np.arange(64, dtype=np.int32)
    job = pool.submit(MODULE, 1, 64, [x], kernel="race", watch="report", timeline=True)
    job.result()
    kernel = MODULE.kernels["race"]
    drawn = kernel.launch(1, 64, [x.copy()], watch="report").timeline()
    assert job.timeline == str(drawn)


# ── arguments ───────────────────────────────────────────────────────────────

F32 = np.float32


def views() -> list[Any]:
    whole = np.arange(16, dtype=F32)
    return [whole[2:6], whole[4:12], 0.5]


def the_same() -> list[Any]:
    whole = np.arange(16, dtype=F32)
    return [whole, whole, 2.0]


def pointers() -> list[Any]:
    whole = np.arange(16, dtype=F32)
    return [ptx.pointer(whole, 8), ptx.pointer(whole, 32), np.float32(3)]


def fixed(count: int) -> Any:
    made = np.arange(count, dtype=F32)
    made.setflags(write=False)
    return made


def transposed() -> list[Any]:
    rows = np.arange(4, dtype=F32).reshape(2, 2)
    return [rows.T, np.zeros((2, 2), F32, order="F"), 1]


FORMS: dict[str, Callable[[], list[Any]]] = {
    "two arrays": lambda: [np.arange(4, dtype=F32), np.zeros(4, F32), 1],
    "views of one": views,
    "the same twice": the_same,
    "pointers": pointers,
    "another order": transposed,
    "other types": lambda: [
        np.ones(8, ml_dtypes.bfloat16),
        np.zeros(16, np.uint8),
        ctypes.c_float(1.5),
    ],
    "not aligned": lambda: [
        np.zeros(17, np.uint8)[1:],
        np.zeros(18, np.uint8)[1:17],
        bytes(4),
    ],
    "read-only": lambda: [fixed(4), np.zeros(4, F32), 1],
    "an array that may not be written": lambda: [np.zeros(4, F32), fixed(4), 1],
    "unwritten": lambda: [ptx.empty(4), np.zeros(4, F32), 1],
    "no elements": lambda: [np.zeros(0, F32), np.zeros(4, F32), 1],
    "too few": lambda: [np.zeros(4, F32)],
    "a text": lambda: [np.zeros(4, F32), np.zeros(4, F32), "1"],
    "nothing": lambda: [None, np.zeros(4, F32), 1],
}


@pytest.mark.parametrize("form", FORMS)
def test_arguments_arrive_as_they_were_given(pool: Pool, form: str) -> None:
    given = FORMS[form]()
    job = pool.submit(MODULE, 1, 4, given, kernel="copy")
    found = outcome(job.result)
    assert found == outcome(lambda: MODULE.kernels["copy"].launch(1, 4, given))
    for after, here in zip(job.arguments, given, strict=True):
        after, here = (getattr(each, "array", each) for each in (after, here))
        if isinstance(here, np.ndarray):
            assert isinstance(after, np.ndarray)
            about = [(e.dtype, e.shape, e.flags.writeable) for e in (after, here)]
            assert about[0] == about[1]
            assert after.tobytes() == here.tobytes()


def test_structs_arrive_with_their_pointers() -> None:
    x = np.arange(8, dtype=np.int32)
    made = ptx.struct(np.int32(7), x, ptx.pointer(x, 8), None)
    (after,) = packing.unpack(*packing.pack([made]))
    assert isinstance(after, type(made))
    assert (after.data, after.align) == (made.data, made.align)
    arrays = [each.array for _, each in after.pointers]
    assert arrays[0] is arrays[1]
    places = [(at, p.offset) for at, p in after.pointers]
    assert places == [(at, p.offset) for at, p in made.pointers]


@pytest.mark.parametrize(
    "wrong, said",
    [
        ([object()], "argument 0 is a number, an array"),
        ([np.zeros((4, 4))[:, ::2]], "not contiguous"),
        ([np.array([None])], "holds Python objects"),
        (np.zeros(3), "arguments is a list"),
    ],
)
def test_what_is_no_argument_is_refused_at_once(
    pool: Pool, wrong: Any, said: str
) -> None:
    with pytest.raises(fm.Error, match=said):
        pool.submit(MODULE, 1, 1, wrong, kernel="twice")


RIGHT: dict[str, Any] = {
    "ptx": MODULE,
    "grid": 1,
    "block": 4,
    "arguments": [np.zeros(4, np.int32)],
    "kernel": "twice",
    "cluster": None,
    "cooperative": False,
    "shared": 0,
    "target": None,
    "contract": True,
    "schedule": "eager",
    "watch": True,
    "limits": FOREVER,
    "timeline": False,
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_wrong_option_is_an_error_of_its_own_job(pool: Pool, name: str) -> None:
    """Whatever is given, the workers are as before."""

    class Number(int):
        """It is not known to the workers."""

    jobs = []
    limits = FOREVER._replace(memory=Number(1 << 40))
    for wrong in (*WRONG, Number(1), [Number(1)], lambda: 0, limits):
        with contextlib.suppress(fm.Error):
            jobs.append(pool.submit(**{**RIGHT, name: wrong}))
    for job in jobs:
        error = job.exception()
        assert error is None or isinstance(error, fm.Error)
        assert getattr(error, "kind", "") != "crash", error
    assert pool.submit(**RIGHT).result()


def test_variables_begin_as_given_and_come_back(pool: Pool) -> None:
    x = np.zeros(1, np.uint32)
    for _ in range(5):  # more often than there are workers
        job = pool.submit(TEXT, 1, 1, [x], kernel="count")
        job.result()
        assert job.arguments[0] == 6
        assert job.variables["counter"] == np.uint32(6).tobytes()
    own = ptx.parse(TEXT)
    own.variables["counter"] = np.uint32(40)
    job = pool.submit(own.kernels["count"], 1, 1, [x])
    job.result()
    assert job.arguments[0] == 41
    assert own.variables["counter"].view(np.uint32) == 40


# ── order, and many at a time ───────────────────────────────────────────────


def squares(pool: Pool, count: int) -> Iterator[Any]:
    for number in range(count):
        x = np.full(1, number, np.int32)
        yield pool.submit(MODULE, 1, 1, [x], kernel="twice", watch=False)


def test_jobs_come_in_order_or_as_they_are_done(pool: Pool) -> None:
    wanted = [2 * number for number in range(20)]
    found = [int(job.arguments[0][0]) for job in pool.in_order(squares(pool, 20))]
    assert found == wanted
    jobs = list(squares(pool, 20))
    found = [int(job.arguments[0][0]) for job in pool.as_completed(jobs)]
    assert sorted(found) == wanted


def test_a_quick_job_overtakes_a_slow_one(pool: Pool) -> None:
    slow = pool.submit(MODULE, 1, 1, [0], kernel="endless")
    quick = next(squares(pool, 1))
    done = pool.as_completed([slow, quick])
    assert next(done) is quick
    assert not slow.done()
    assert slow.cancel()
    assert next(done) is slow
    assert slow.cancelled()


@pytest.mark.parametrize("way", ["as_completed", "in_order"])
def test_an_iterator_is_not_taken_all_at_once(pool: Pool, way: str) -> None:
    taken = []

    def made() -> Iterator[Any]:
        for job in squares(pool, 60):
            taken.append(job)
            yield job

    found = getattr(pool, way)(made())
    next(found)
    assert len(taken) == AHEAD * pool.workers
    assert len(list(found)) == 59


def test_many_threads_share_a_pool(pool: Pool) -> None:
    found: list[int] = []

    def ask() -> None:
        jobs = pool.in_order(squares(pool, 10))
        found.extend(int(job.arguments[0][0]) for job in jobs)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(HANG)
    assert sorted(found) == sorted([2 * n for n in range(10)] * 6)


# ── the end ─────────────────────────────────────────────────────────────────


def test_cancelled_jobs_end_and_others_go_on(pool: Pool) -> None:
    jobs = [pool.submit(MODULE, 1, 1, [0], kernel="endless") for _ in range(6)]
    while not jobs[0].running():
        os.sched_yield()
    for each in jobs:
        assert each.cancel()
        with pytest.raises(CancelledError):
            each.result()
    assert [job.result().output for job in squares(pool, 3)] == [""] * 3
    assert not jobs[0].running()


def test_the_time_of_a_launch_is_over(pool: Pool) -> None:
    job = pool.submit(MODULE, 1, 1, [0], kernel="endless", limits=ptx.Limits(0.05))
    with pytest.raises(fm.errors.LimitReached, match=r"longer than 0\.05 s") as why:
        job.result()
    assert why.value.kind == "seconds"


def test_a_pool_waits_for_its_jobs() -> None:
    with Pool(1, limits=FOREVER, warm=False) as pool:
        jobs = list(squares(pool, 3))
    assert all(job.done() and not job.cancelled() for job in jobs)
    with pytest.raises(fm.Error, match="the pool is closed"):
        pool.submit(TEXT, 1, 1)
    pool.close()  # a second time is of no harm


def test_a_pool_cancels_its_jobs_if_something_goes_wrong() -> None:
    jobs = []

    def go_wrong() -> None:
        with Pool(1, warm=False) as pool:
            asked = (MODULE, 1, 1, [0])
            jobs.extend(pool.submit(*asked, kernel="endless") for _ in range(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        go_wrong()
    assert [job.cancelled() for job in jobs] == [True, True]


def test_a_pool_is_of_the_process_that_made_it(pool: Pool) -> None:
    pid = os.fork()
    if not pid:
        try:
            pool.submit(TEXT, 1, 1)
        except fm.Error as error:
            os._exit(0 if "the process that made it" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert next(squares(pool, 1)).result()


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": 1.5},
        {"workers": 10**6},
        {"workers": True},
        {"launches": 0},
        {"limits": 3},
    ],
)
def test_wrong_options_are_refused(options: Any) -> None:
    with pytest.raises(fm.errors.BadCall, match=next(iter(options))):
        Pool(**options)


#: It says which processes it has, and waits to be ended.
VICTIM = """
import os, sys
from fragmenta.frontends.pool.pool import Pool
pool = Pool(2, warm=False)
text = '''.version 8.0 .target sm_80 .entry f() {{
    .reg .u64 %n; mov.u64 %n, 0; L: add.u64 %n, %n, 1; bra L; }}'''
pool.check(text).result()
jobs = [pool.submit(text, 1, 1) for _ in range(3)]
while not jobs[1].running():
    os.sched_yield()
print(pool._manager._server.pid, flush=True)
{then}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "then, killed",
    [
        ("sys.stdin.read()", True),
        ("sys.exit()", False),
        ("del pool; jobs[0].cancel(); jobs[1].cancel(); jobs[2].cancel()", False),
        ("os.fork() or sys.stdin.read(); os.abort()", False),
    ],
    ids=["killed", "exits", "forgets it", "forks and crashes"],
)
def test_no_process_outlives_its_pool(then: str, killed: bool) -> None:
    """The error stream is open as long as one of them lives."""
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM.format(then=then)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        if killed:
            process.kill()
        process.communicate(timeout=HANG)
