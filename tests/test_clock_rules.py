"""No test looks at the wall clock.

A test that does fails on a busy machine.  ``tests/clock.py`` has what to use instead.
Strings are read, too: they may be programs that a test starts.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: What reads a clock, waits for a while, or ends what takes too long.
LOOKS = {
    name: re.compile(pattern)
    for name, pattern in {
        "the module time": r"\bimport time\b|\bfrom time import|\btime\.\w+\(",
        "a function of time": r"\b(perf_counter|process_time|thread_time|monotonic)"
        r"(_ns)?\(",
        "timeit": r"\btimeit\b",
        "the time of day": r"\b(datetime|date)\.(now|utcnow|today)\b",
        "a sleep": r"\bsleep\(|waitForTimeout",
        "a timer": r"\bTimer\(|\bsetitimer\b|\bsched\.scheduler\b"
        r"|\bsignal\.alarm\((?!int\(HANG)",
        "a time-out": r"\btimeout\b\"?'?\s*[=:]\s*(?!HANG\b|None\b)[\w.]",
        "a wait": r"\.(wait|join|communicate|poll|result|acquire)\(\s*[0-9.]+\s*\)",
        "a deadline": r"\bdeadline\s*=\s*(?!None\b)",
        "the age of a file": r"\bst_[mc]time(_ns)?\b",
        "performance.now": r"\bperformance\.now\b|\bDate\.now\b",
    }.items()
}

#: The files that may, and why.
ALLOWED = {
    "tests/clock.py": "it is what the others use",
    "tests/test_clock_rules.py": "it names what it looks for",
    "tests/judge/candidates.py": "candidates look at clocks, which the judge finds",
    "tests/judge/test_values.py": "names clocks of candidates, which the judge finds",
    "tests/fuzz/__main__.py": "a command says how long it took",
    "tests/fuzz/bounds/__main__.py": "a command dates its report and says how long it took",
    "tests/fuzz/engine.py": "says how long it took; whoever seems slow is judged by work",
    "tests/counters/gpu.py": "a command gives up what hangs on a GPU",
    "tests/launch/ended_blocks.py": "a command gives up what hangs on a GPU",
    "tests/orders/compare.py": "a command dates its report",
    "tests/orders/mutated.py": "a command dates its report",
    "tests/orders/survey.py": "a command dates its report and says how long it took",
    "tests/ptx/hazards/record.py": "a command dates what it records on a GPU",
    "tests/ptx/hopper/judging.py": "a command says how long it took",
    "tests/ptx/on_gpu.py": "a command says how long a GPU took",
    "tests/ptx/record.py": "a command gives up a kernel that hangs on a GPU",
    "tests/ptx/special_check.py": "a command says how long a GPU took",
    "tests/jit/test_cache.py": "compares ages that it gave the files itself",
    "tests/sameness/fuzzing.py": "a command dates its report",
    "tests/thorough.py": "a command dates its report",
    "tests/triton/tutorials.py": "a command says how long it took",
    "tests/triton/configurations.py": "a command dates what it records on a GPU",
    "tests/triton/record.py": "a command dates what it records on a GPU",
    "tests/view/replay_in_browser.py": "a command says how long it took",
    "tests/torch/test_torch_on_device.py": "needs a GPU, which is kept busy meanwhile",
}


def looks(text: str) -> set[str]:
    """How a file looks at a clock."""
    return {name for name, pattern in LOOKS.items() if pattern.search(text)}


def test_no_test_looks_at_a_clock() -> None:
    files = [*ROOT.glob("tests/**/*.py"), ROOT / "conftest.py"]
    found = {
        str(path.relative_to(ROOT)): seen
        for path in files
        if (seen := looks(path.read_text(encoding="utf-8")))
    }
    wrong = {path: seen for path, seen in found.items() if path not in ALLOWED}
    assert not wrong, "tests/clock.py has what to use instead"
    assert set(ALLOWED) <= set(found), "a file that may, but does not"


@pytest.mark.parametrize(
    "text, name",
    [
        ("import time", "the module time"),
        ("from time import perf_counter", "the module time"),
        ('SCRIPT = "import sys, time; time.time()"', "the module time"),
        ("start = perf_counter()", "a function of time"),
        ("start = clock.monotonic_ns()", "a function of time"),
        ("timeit.timeit(call)", "timeit"),
        ("datetime.now()", "the time of day"),
        ("await asyncio.sleep(1)", "a sleep"),
        ("threading.Timer(1, call).start()", "a timer"),
        ("signal.setitimer(signal.ITIMER_REAL, 1)", "a timer"),
        ("subprocess.run(words, timeout=60)", "a time-out"),
        ('options = {"timeout": 60}', "a time-out"),
        ("queue.get(timeout=0.5)", "a time-out"),
        ("@pytest.mark.timeout(60)\n@settings(timeout = 3)", "a time-out"),
        ("thread.join(5)", "a wait"),
        ("process.wait(1.5)", "a wait"),
        ("@settings(deadline=200)", "a deadline"),
        ("path.stat().st_mtime_ns", "the age of a file"),
        ("path.stat().st_mtime", "the age of a file"),
    ],
)
def test_a_look_is_seen(text: str, name: str) -> None:
    assert name in looks(text)


@pytest.mark.parametrize(
    "text",
    [
        "subprocess.run(words, timeout=HANG)",
        "@settings(max_examples=5, deadline=None)",
        'b.atomic_rmw("add", cell, one, "monotonic")',
        "thread.join(); event.wait(); ', '.join(words)",
        "# at this time the runtime.start() is sometime.over()",
    ],
)
def test_other_words_are_none(text: str) -> None:
    assert not looks(text)
