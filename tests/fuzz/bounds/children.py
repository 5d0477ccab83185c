"""Jobs in child processes, which may be killed.

A child gets the number of a job on a line, says on a line what became of it, and waits
for the next.  If it dies, the job that it had is a finding, and another child goes on.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.bounds.harness import Outcome
from tests.fuzz.bounds.plan import Job, Work, jobs

ROOT = Path(__file__).parents[3]
COUNTED = ("accesses", "faults", "texts", "refused")
"""What is counted over all jobs."""
TELL = 20
"""Jobs between two lines that say how far it is."""


def serve(every: Sequence[Work]) -> None:
    """Run the jobs whose numbers come in, until there are no more."""
    for line in sys.stdin:
        found = every[int(line)].run()
        print(json.dumps(found._asdict()), flush=True)


class Child:
    """A process that runs jobs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def run(self, number: int) -> dict[str, Any]:
        """What became of a job."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(f"{number}\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            said: dict[str, Any] = json.loads(line)
            return said
        died = how(self._ended())
        self._start()
        return Outcome(0, 0, [died])._asdict()

    def close(self) -> None:
        """No more jobs."""
        self._ended()

    def _ended(self) -> int:
        """Wait for the end of the process; its status."""
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        return int(self._process.returncode)


def how(status: int) -> str:
    """How a process ended."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def run_all(count: int, seed: int, processes: int) -> dict[str, Any]:
    """All jobs, in several processes."""
    every = jobs(count, seed)
    numbers = iter(range(len(every)))
    total: dict[str, Any] = dict.fromkeys(COUNTED, 0)
    total["jobs"] = len(every)
    findings: list[dict[str, Any]] = []
    lock = threading.Lock()

    def work() -> None:
        numbers_of = ["--count", str(count), "--seed", str(seed)]
        child = Child(
            [sys.executable, "-m", "tests.fuzz.bounds", "--serve", *numbers_of]
        )
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                break
            said = child.run(number)
            with lock:
                _add(total, findings, number, every[number], said)
        child.close()

    workers = [threading.Thread(target=work) for _ in range(processes)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    total["instructions"] = sum(dict(_families(every)).values())
    total["families"] = dict(_families(every))
    total["findings"] = findings
    return total


def _add(
    total: dict[str, Any],
    findings: list[dict[str, Any]],
    number: int,
    job: Work,
    said: dict[str, Any],
) -> None:
    for name in COUNTED:
        total[name] += said[name]
    for what in said["findings"]:
        findings += [{"job": number, "name": job.name, "what": what}]
        print(f"job {number}, {job.name}: {what}", file=sys.stderr, flush=True)
    if number % TELL == 0:
        print(
            f"job {number:,} of {total['jobs']:,}: {total['accesses']:,} accesses, "
            f"{len(findings)} findings",
            file=sys.stderr,
            flush=True,
        )


def _families(every: Sequence[Work]) -> Iterator[tuple[str, int]]:
    """How many instructions there are of each family."""
    bundles = [job for job in every if isinstance(job, Job)]
    texts = {(form.family, form.text) for job in bundles for form in job.forms}
    for family in sorted({name for name, _ in texts}):
        yield family, sum(name == family for name, _ in texts)
