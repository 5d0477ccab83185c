"""A pytest plugin that launches kernels on a GPU, or on the CPU without one.

It has the fixture ``gpu``, a :class:`~fragmenta.inspect.evidence.testing.Launcher`, and
the option ``--fragmenta``, which watches every launch.  Nothing heavy is imported
before a test uses the fixture, or without that option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from fragmenta.inspect.evidence.testing import Launcher
    from fragmenta.inspect.sameness.deciding import Sameness

__all__ = [
    "assert_same_bits_for_all_inputs",
    "gpu",
    "pytest_addoption",
    "pytest_configure",
]

CHOICES = ("auto", "gpu", "cpu")
_LANGUAGES = "fragmenta.commands.languages"
"""The front ends are above this room: pytest loads them as a plugin."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that begin with ``--fragmenta``."""
    group = parser.getgroup("fragmenta", "kernels on a GPU or on the CPU")
    group.addoption(
        "--fragmenta",
        action="store_true",
        help="watch every launch of the test suite: kernels of Triton and of other "
        "front ends run on the CPU, and what is wrong with a launch fails its test",
    )
    group.addoption(
        "--fragmenta-sarif",
        metavar="FILE",
        help="with --fragmenta: write what was found as SARIF",
    )
    group.addoption(
        "--fragmenta-on",
        choices=CHOICES,
        default="auto",
        help="where the fixture gpu launches kernels: on a GPU (gpu), on the CPU with "
        "the bits of a GPU (cpu), or on a GPU if there is one (auto, the default)",
    )
    group.addoption(
        "--fragmenta-target",
        default="sm_90a",
        metavar="TARGET",
        help="the GPU whose bits the CPU returns (default: sm_90a)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the launches of the suite, if that is wanted."""
    if config.getoption("--fragmenta"):
        # It is a plugin of its own: it needs the front ends, which are above this room.
        config.pluginmanager.import_plugin("fragmenta.commands.suite")
    elif config.getoption("--fragmenta-sarif"):
        raise pytest.UsageError("--fragmenta-sarif is written with --fragmenta only")


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest) -> Launcher:
    """Launches kernels: on a GPU if there is one, else on the CPU.

    ``gpu.launch(ptx, name, grid, block, arguments, shared=0)`` changes the arrays among
    the arguments in place.  ``gpu.name`` says where; ``gpu.is_real`` is True on a GPU.
    ``gpu.launch(kernel, None, grid, block, arguments, BLOCK=64)`` takes kernels of
    Triton and Numba.
    """
    from fragmenta.inspect.evidence.testing import launcher

    where = request.config.getoption("--fragmenta-on")
    target = request.config.getoption("--fragmenta-target")
    plugins = request.config.pluginmanager
    plugins.import_plugin(_LANGUAGES)
    found = plugins.get_plugin(_LANGUAGES)
    return launcher(where, target, getattr(found, "LANGUAGES", ()))


@pytest.fixture(scope="session")
def assert_same_bits_for_all_inputs() -> Callable[..., Sameness]:
    """Fails unless two launches leave the same bits for every input.

    See :func:`fragmenta.inspect.evidence.testing.assert_same_bits_for_all_inputs`.
    """
    from fragmenta.inspect.evidence import testing

    return testing.assert_same_bits_for_all_inputs
