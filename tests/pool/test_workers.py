"""Workers that crash, hang, lie or grow: each is an error in words, and is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.frontends.pool import confining
from fragmenta.frontends.pool.pool import Pool
from tests.clock import HANG
from tests.pool.texts import TEXT
from tests.thinning import some

#: What a worker does before it answers, if the target of a check is the name of it.
DEEDS = {
    "segfault": "os.kill(os.getpid(), 11)",
    "abort": "os.abort()",
    "killed": "os.kill(os.getpid(), 9)",
    "processor": f"os.kill(os.getpid(), {int(signal.SIGXCPU)})",
    "status": "os._exit(3)",
    "leaves": "os._exit(0)",
    "closes": "pool.close(); signal.pause()",
    "garbage": "pool.sendall(b'x' * 100); signal.pause()",
    "too long": "pool.sendall(LENGTHS.pack(1 << 40, 0, n)); signal.pause()",
    "other arrays": "pool.sendall(LENGTHS.pack(2, 9, n) + b'{}' + bytes(9))",
    "no JSON": "pool.sendall(LENGTHS.pack(2, 0, n) + b'{]')",
    "no object": "pool.sendall(LENGTHS.pack(2, 0, n) + b'[]')",
    "no answer": "pool.sendall(LENGTHS.pack(11, 0, n) + b'{\"ends\": 0}')",
    "evil error": "pool.sendall(LENGTHS.pack(52, 0, n) + "
    'b\'{"ends": 0, "error": "__builtins__", "given": ["x"]}  \')',
    "another number": "pool.sendall(LENGTHS.pack(2, 0, n + 1) + b'{}')",
    "raises": "raise RuntimeError('as it were')",
    "no memory": "raise MemoryError",
    "recursion": "def f(): f()\nf()",
    "hangs": "signal.pause()",
    "own process": "raise RuntimeError(os.getpid())",
}

#: A fork server whose workers can be told to misbehave.
PROGRAM = f"""
import os, signal
from fragmenta.frontends.pool import forkserver, worker
from fragmenta.frontends.pool.frames import LENGTHS
DEEDS = {DEEDS!r}

def run(pool, terms):
    answer = worker._Worker._check

    def check(self, question):
        if question.target in DEEDS:
            exec(DEEDS[question.target], globals() | {{"pool": pool, "n": question.number}})
        return answer(self, question)

    worker._Worker._check = check
    worker.work(pool, terms)

forkserver.main(run)
"""


class Wild(Pool):
    """A pool whose workers can be told to misbehave."""

    _program = PROGRAM


@pytest.fixture(scope="module")
def wild() -> Iterator[Wild]:
    with Wild(1, limits=ptx.Limits(seconds=60), warm=False) as made:
        yield made


def misbehave(pool: Pool, deed: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("fragmenta.frontends.pool.pool.check_target", lambda name: name)
    return pool.check(TEXT, deed)


SAID = {
    "segfault": "crashed with SIGSEGV; this is a mistake of fragmenta",
    "abort": "crashed with SIGABRT",
    "killed": "the system ended the process that ran the kernel",
    "processor": r"used up its processor time; .*--seconds on the command line",
    "status": "ended with status 3 and no answer",
    "leaves": "ended with status 0 and no answer",
    "garbage": "no answer that can be read",
    "too long": "no answer that can be read",
    "other arrays": "no answer that can be read",
    "no JSON": "no answer that can be read",
    "no object": "no answer that can be read",
    "no answer": "no answer that can be read",
    "another number": "no answer that can be read",
    "raises": "failed with RuntimeError: as it were",
    "no memory": "the system has no memory left for the launch",
    "recursion": "failed with RecursionError",
}
KINDS = {"killed": "memory", "processor": "seconds", "no memory": "memory"}


@pytest.mark.long
@pytest.mark.parametrize("deed", some(SAID, 2))
def test_a_worker_that_goes_wrong_is_an_error_in_words(
    wild: Wild, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = misbehave(wild, deed, monkeypatch)
    after = wild.check(TEXT)  # by another worker, which took its place
    with pytest.raises(fm.errors.KernelFault, match=SAID[deed]) as why:
        job.result()
    assert why.value.kind == KINDS.get(deed, "crash")
    assert after.result() == ptx.parse(TEXT).check()


def test_an_error_of_another_module_is_a_plain_one(
    wild: Wild, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(fm.Error, match=r"^x$") as why:
        misbehave(wild, "evil error", monkeypatch).result()
    assert type(why.value) is fm.Error


@pytest.mark.parametrize("deed", ["hangs", "closes"])
def test_a_worker_that_waits_is_ended(
    wild: Wild, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confining, "GRACE", -59.9)
    with pytest.raises(fm.errors.LimitReached, match="was ended") as why:
        misbehave(wild, deed, monkeypatch).result()
    assert why.value.kind == "seconds"


def test_a_worker_that_hangs_can_be_cancelled(
    wild: Wild, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = misbehave(wild, "hangs", monkeypatch)
    while not job.running():
        os.sched_yield()
    assert job.cancel()
    assert wild.check(TEXT).result() is not None


def test_a_fork_server_that_is_killed_is_replaced(
    wild: Wild, monkeypatch: pytest.MonkeyPatch
) -> None:
    wild.check(TEXT).result()
    job = misbehave(wild, "hangs", monkeypatch)
    while not job.running():
        os.sched_yield()
    wild._manager._server.kill()
    with pytest.raises(fm.errors.KernelFault, match="ended with status -9"):
        job.result()
    assert wild.check(TEXT).result() is not None


def test_workers_can_have_one_launch_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says the number of its process."""
    found = []
    with Wild(1, launches=1, warm=False) as pool:
        for _ in range(3):
            job = misbehave(pool, "own process", monkeypatch)
            found.append(str(job.exception()))
    assert len(set(found)) == 3


@pytest.mark.long
@pytest.mark.parametrize("launches, kept", [(1, 3), (100, 1)])
def test_a_worker_fills_the_cache_until_it_runs_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launches: int, kept: int
) -> None:
    """Whatever ran in a worker, it cannot write machine code that others trust."""
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    texts = [
        f".version 8.0 .target sm_80 .entry f{each}() {{ exit; }}" for each in range(3)
    ]
    with Pool(1, launches=launches, warm=False) as pool:
        for text in texts:
            pool.submit(text, 1, 1, watch=False).result()
    assert sum(b'"f' in each.read_bytes() for each in tmp_path.iterdir()) == kept


@pytest.mark.parametrize(
    "program, said",
    [
        ("import sys; sys.exit(7)", "the workers of the pool ended with status 7"),
        (
            "from fragmenta.frontends.pool import forkserver; forkserver.main(lambda *_: 1 / 0)",
            "5 workers in a row ended as they began, the last with status 1",
        ),
    ],
)
def test_a_pool_that_cannot_start_says_so(program: str, said: str) -> None:
    class Broken(Pool):
        _program = program

    with Broken(1, warm=False) as pool:
        with pytest.raises(fm.Error, match=said):
            pool.check(TEXT).result()
        with pytest.raises(fm.Error, match="the pool is closed"):
            pool.check(TEXT)


@pytest.mark.parametrize(
    "deed, said",
    [
        ("os.write(os.open(path, os.O_CREAT | os.O_WRONLY), b'x')", "OSError"),
        ("bytearray(64 << 30)", "MemoryError"),
        (
            "confining.release(); print(resource.getrlimit(resource.RLIMIT_AS)[0])",
            "-1",
        ),
        ("print(resource.getrlimit(resource.RLIMIT_CORE))", "(0, 0)"),
        ("resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))", "ValueError"),
    ],
)
def test_a_worker_may_not_do_much(tmp_path: Any, deed: str, said: str) -> None:
    code = (
        "import os, resource; from fragmenta.frontends.pool import confining\n"
        "from fragmenta.launch.limits import Limits\n"
        f"path = {str(tmp_path / 'made')!r}\nconfining.seal()\n"
        f"confining.confine(Limits(60, 1 << 30))\n"
        f"try:\n    {deed}\nexcept Exception as why:\n    print(type(why).__name__)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG,
    )
    assert found.stdout.strip() == said


def test_the_limit_of_processor_time_is_counted_from_now() -> None:
    limits = confining.resource.getrlimit(confining.resource.RLIMIT_CPU)
    try:
        confining.confine(ptx.Limits(seconds=1000, memory=1 << 40))
        soft = confining.resource.getrlimit(confining.resource.RLIMIT_CPU)[0]
        assert soft >= 1000
    finally:
        confining.release()
    assert confining.resource.getrlimit(confining.resource.RLIMIT_CPU) == limits


def test_a_worker_that_has_grown_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from fragmenta.frontends.pool import worker
    from fragmenta.frontends.pool.orders import WorkerTerms
    from fragmenta.frontends.pool.packing import pack
    from fragmenta.frontends.pool.questions import KernelText, LaunchQuestion

    monkeypatch.setattr(worker, "seal", lambda: None)  # this process writes files
    made = worker._Worker(WorkerTerms(10, 1))
    packed, memory = pack([np.arange(4, dtype=np.int32)])
    limits = ptx.Limits(seconds=HANG)
    request = ptx.LaunchRequest(1, 4, limits=limits)
    question = LaunchQuestion(KernelText(TEXT, "", "twice"), request, packed)
    made.answer(question, memory)
    assert not made.ended
    assert memory[0].view(np.int32).tolist() == [0, 2, 4, 6]
    monkeypatch.setattr(worker, "GROWN", -(1 << 50))
    made.answer(question, memory)
    assert made.ended
