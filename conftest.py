"""What every test and doctest shares."""

import atexit
import gc
import os
import shutil
import tempfile
from importlib.util import find_spec
from typing import Any

import pytest

from tests import thinning


def _folder_of_its_own(variable: str, prefix: str) -> None:
    """A folder for this run, unless the variable names one; removed at the end."""
    if variable not in os.environ:
        os.environ[variable] = tempfile.mkdtemp(prefix=prefix)
        atexit.register(shutil.rmtree, os.environ[variable], ignore_errors=True)


# Trees of syntax, catalogues and compiled kernels stay.  To search them for garbage
# again and again takes a twentieth of the time.  Tests about garbage collect it.
gc.set_threshold(20_000, 10, 5)

# Compiled kernels of the tests stay out of the user's own cache.
_folder_of_its_own("FRAGMENTA_CACHE", "fragmenta-")

# How fast the machine is decides nothing: no notice of work that takes long, also in
# other processes, and no time-outs of hypothesis.
os.environ["FRAGMENTA_PATIENCE"] = "never"
if find_spec("hypothesis") is not None:
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("no clock")

for what in ("CONNECT", "TCP"):
    os.environ[f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{what}"] = "1800s"

# Triton 3.9 warns unless this is said; it is what the GPU recordings were made with.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

# Other libraries have environments of their own, which take up to gigabytes: `make
# torch`, `make triton`, `make cutlass`.  Elsewhere their tests are not collected.
NEEDS = {
    "cuda.core": ["tests/frontends/test_cuda_core.py"],
    "cuda.tile": ["tests/frontends/test_cutile.py"],
    "cupy": ["tests/ptx/special_check.py"],
    "helion": ["tests/triton/test_helion.py"],
    "numba": [
        "src/fragmenta/frontends/numba.py",
        "tests/frontends/test_fixture.py",
        "tests/frontends/test_numba.py",
    ],
    "pycuda": ["tests/frontends/test_pycuda.py"],
    "pyptx": ["tests/cutlass"],
    "tilelang": [
        "src/fragmenta/frontends/tilelang.py",
        "tests/frontends/test_tilelang.py",
    ],
    "torch": [
        "src/fragmenta/frontends/judge/libraries",
        "src/fragmenta/hopper/torch",
        "src/fragmenta/torch.py",
        "tests/golden/make_exchange.py",
        "tests/torch",
    ],
    "triton": [
        "src/fragmenta/frontends/triton",
        "src/fragmenta/triton.py",
        "tests/numerics/planted/keep_triton.py",
        "tests/numerics/planted/sources/triton_kernels.py",
        "tests/ptx/corpus/gluon_blackwell.py",
        "tests/ptx/corpus/triton_blackwell.py",
        "tests/ptx/corpus/triton_hopper.py",
        "tests/ptx/corpus/triton_kernels.py",
        "tests/triton",
    ],
    "warp": ["src/fragmenta/frontends/warp.py", "tests/frontends/test_warp.py"],
}


def _installed(name: str) -> bool:
    """Whether a module can be imported; its package may be missing, too."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


MISSING = [name for name in NEEDS if not _installed(name)]
collect_ignore = [path for name in MISSING for path in NEEDS[name]]
if "triton" not in MISSING:
    _folder_of_its_own("TRITON_CACHE_DIR", "triton-")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what needs a missing package, repeats a kind, or takes long."""
    missing = set(MISSING)
    named = config.option.markexpr or any("::" in each for each in config.args)
    if not (named or thinning.THOROUGH):
        missing.add("long")
    repeated = thinning.left_out(items)
    kept, left_out = [], []
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        (left_out if marks & missing or item in repeated else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file run in one process, so that what they share is made once.

    Groups may join files.  Without a scheduler of our own, ``--dist loadgroup`` would
    give the tests of a file to all processes in turn.

    If a process dies, the test it ran has failed, and a new process runs the rest of
    its file.  pytest-xdist would also hand out files that are done, or one test alone:
    a process that has nothing to run, or does not know what comes next, says nothing,
    and all wait for ever.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            group = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if group == nodeid else group

        def remove_node(self, node: Any) -> str | None:
            units = self.assigned_work.pop(node)
            left = [test for unit in units.values() for test in unit if not unit[test]]
            for test in left[1:]:
                self.workqueue.setdefault(self._split_scope(test), {})[test] = False
            return left[0] if left else None

        def _reschedule(self, node: Any) -> None:
            if node not in self.registered_collections:
                return  # a new process, which still collects
            super()._reschedule(node)
            while not node.shutting_down and self._waits(node):
                super()._reschedule(node)

        def _waits(self, node: Any) -> bool:
            return self._pending_of(self.assigned_work[node]) < 2

    return ByFile(config, log)


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
