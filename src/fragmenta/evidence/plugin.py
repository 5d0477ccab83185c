"""A pytest plugin that launches kernels on a GPU, or on the CPU without one.

It has the fixture ``gpu``, a :class:`~fragmenta.evidence.testing.Launcher`, and the
option ``--fragmenta``.  Nothing heavy is imported before a test uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fragmenta.evidence.testing import Launcher

__all__ = ["gpu", "pytest_addoption"]

CHOICES = ("auto", "gpu", "cpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options ``--fragmenta`` and ``--fragmenta-target``."""
    group = parser.getgroup("fragmenta", "kernels on a GPU or on the CPU")
    group.addoption(
        "--fragmenta",
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


@pytest.fixture(scope="session")
def gpu(request: pytest.FixtureRequest) -> Launcher:
    """Launches kernels: on a GPU if there is one, else on the CPU.

    ``gpu.launch(ptx, name, grid, block, arguments, shared=0)`` changes the arrays among
    the arguments in place.  ``gpu.name`` says where; ``gpu.is_real`` is True on a GPU.
    """
    from fragmenta.evidence.testing import launcher

    where = request.config.getoption("--fragmenta")
    return launcher(where, request.config.getoption("--fragmenta-target"))
