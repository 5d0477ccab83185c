"""What every test and doctest shares."""

import os
import tempfile
from importlib.util import find_spec

import pytest

# Compiled kernels of the tests stay out of the user's own cache.
os.environ.setdefault("FRAGMENTA_CACHE", tempfile.mkdtemp(prefix="fragmenta-"))

# PyTorch takes gigabytes, so its tests have an environment of their own: `make
# torch`.  Elsewhere they are not collected, rather than skipped.
HAS_TORCH = find_spec("torch") is not None
needs_torch = [
    "src/fragmenta/torch",
    "tests/golden/make_exchange.py",
    "tests/torch",
]
collect_ignore = [] if HAS_TORCH else needs_torch
if find_spec("triton") is None:  # only the recorder compiles these
    collect_ignore += ["tests/ptx/corpus/triton_kernels.py"]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what is marked as PyTorch's where PyTorch is not installed."""
    if HAS_TORCH:
        return
    left_out = [item for item in items if item.get_closest_marker("torch")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("torch")]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where all must run, a test that was skipped for want of a tool is a failure.

    ``FRAGMENTA_COMPLETE`` says that all must run.  A GPU may be missing.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("FRAGMENTA_COMPLETE") or reporter is None:
        return
    wrong = [
        f"{report.nodeid}: {report.longrepr[2]}"
        for report in reporter.stats.get("skipped", [])
        if "GPU" not in str(report.longrepr)
    ]
    if wrong:
        reporter.section("skipped, but must run here")
        for line in wrong:
            reporter.line(line)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
