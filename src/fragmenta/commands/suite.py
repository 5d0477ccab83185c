"""``pytest --fragmenta`` watches every launch of a test suite.

Kernels of Triton and of other front ends run on the CPU in all tests.  What is wrong
with a launch fails its test, as an error.  At the end, all that was found is listed,
warnings too, and written as SARIF.  With pytest-xdist, the workers send what they
found.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

import pytest

from fragmenta.commands.problems import of_fault, sarif_log, sarif_result
from fragmenta.errors import KernelError
from fragmenta.launch.frames import origin
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.listening import listening
from fragmenta.launch.result import Result
from fragmenta.ptx.checking.problem import Problem, wrapped
from fragmenta.ptx.rules import INFO

NAME = "fragmenta-suite"
FRONTENDS = {"triton": "fragmenta.triton", "numba_cuda": "fragmenta.frontends.numba"}
"""What runs the launches of a package here."""


class ProblemRecord(TypedDict):
    """What is wrong with a launch, as plain values."""

    test: str
    severity: str
    origin: str
    """Which lines of the program launched it."""
    text: str
    result: dict[str, object]
    """The same as a result of SARIF."""


class Suite:
    """The plugin: collects what is launched."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.target: str = config.getoption("--fragmenta-target")
        self.found: list[ProblemRecord] = []
        self.launches = 0
        self.kernels: set[str] = set()
        self._test = "collection"
        self._raised: list[ProblemRecord] = []
        self._open = ExitStack()

    # ── launches ────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Take the launches of all front ends that are installed."""
        self._open.enter_context(listening(self.heard))
        for package, module in FRONTENDS.items():
            if find_spec(package) is not None and find_spec(module) is not None:
                self._open.enter_context(self._on_cpu(module))

    def _on_cpu(self, module: str) -> AbstractContextManager[object]:
        options = {}
        if module == "fragmenta.triton":
            options = {"torch": find_spec("torch") is not None, "autotune": "first"}
        opened: AbstractContextManager[object] = importlib.import_module(module).on_cpu(
            self.target, **options
        )
        return opened

    def heard(self, kernel: Kernel, made: Result | KernelError) -> None:
        """Keep what is wrong with a launch."""
        self.launches += 1
        self.kernels.add(kernel.name)
        if isinstance(made, Result):
            self.found += self._described(made.hazards, origin(kernel.name))
        else:  # it fails the test, unless the test expects it
            self._raised += self._described(of_fault(made), made.origin)

    def _described(self, problems: list[Problem], launched: str) -> list[ProblemRecord]:
        return [
            {
                "test": self._test,
                "severity": each.severity,
                "origin": launched,
                "text": _text(each),
                "result": sarif_result(None, each),
            }
            for each in problems
            if each.severity != INFO
        ]

    # ── what pytest calls ───────────────────────────────────────────────────

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        """What is launched now belongs to this test."""
        self._test, self._raised = item.nodeid, []
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What a test that failed raised is wrong; what it expected is not."""
        if report.failed and report.nodeid == self._test:
            self.found += self._raised
            self._raised = []

    def pytest_sessionfinish(self) -> None:
        """Send or write what was found."""
        self._open.close()
        sent = getattr(self.config, "workeroutput", None)
        if sent is not None:
            sent[NAME] = json.dumps([self.found, self.launches, sorted(self.kernels)])
            return
        path = self.config.getoption("--fragmenta-sarif")
        if path:
            self._write(Path(path))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take what a worker of pytest-xdist found."""
        told = getattr(node, "workeroutput", {}).get(NAME)
        if told:
            found, launches, kernels = json.loads(told)
            self.found += found
            self.launches += launches
            self.kernels |= set(kernels)

    def _write(self, path: Path) -> None:
        made = sarif_log([each["result"] for each in self.found])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """List what was found, each once, with the first test that showed it."""
        write = terminalreporter.write_line
        kinds = [each["severity"] for each in self.found]
        told = f"{self.launches} launches of {len(self.kernels)} kernels"
        for word in ("error", "warning"):
            count = kinds.count(word)
            told += f", {count} {word}{'s' * (count != 1)}" if count else ""
        terminalreporter.section(f"fragmenta: {told}")
        seen = set()
        for each in self.found:
            if each["text"] not in seen:
                seen.add(each["text"])
                write(f"{each['severity']} in {each['test']}")
                for line in [*each["origin"].splitlines(), *each["text"].splitlines()]:
                    write(f"  {line}")


def _text(problem: Problem) -> str:
    """A problem in lines that fit, with paths from the current folder."""
    whole = problem.paragraph(sys.maxsize).replace(f"{Path.cwd()}/", "")
    return "\n".join(wrapped(each, 78, "") for each in whole.splitlines())


def pytest_configure(config: pytest.Config) -> None:
    """Begin to watch."""
    if not config.pluginmanager.has_plugin(NAME):
        made = Suite(config)
        config.pluginmanager.register(made, NAME)
        made.begin()
