"""All litmus tests, topic by topic."""

from __future__ import annotations

from tests.races.litmus import (
    atomicity,
    barriers,
    buffering,
    coherence,
    copies,
    mbarriers,
    message_passing,
)
from tests.races.litmus.products import KERNELS, Kernel
from tests.races.litmus.rows import MBARRIER, ORDERED, Litmus

TOPICS = (
    message_passing,
    buffering,
    coherence,
    atomicity,
    barriers,
    mbarriers,
    copies,
)
TESTS = [test for each in TOPICS for test in each.litmus.tests]

__all__ = ["KERNELS", "MBARRIER", "ORDERED", "TESTS", "Kernel", "Litmus"]
