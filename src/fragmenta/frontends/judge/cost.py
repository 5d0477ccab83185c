"""What the launches of a call did, in exact counts, and a bound of their time.

This is the one place of the judge that reads the counters of a launch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.reference.cards import DEFAULT, card

if TYPE_CHECKING:
    from fragmenta.values.counters.report import Counters


@dataclass
class Cost:
    """What some launches did."""

    kernels: Counter[str] = field(default_factory=Counter)
    """How often each kernel was launched."""
    metrics: Counter[str] = field(default_factory=Counter)
    """The counts of all launches, by the names of Nsight Compute."""
    read: int = 0
    """Bytes that launches load, each once in a launch; and those of bulk copies."""
    written: int = 0
    lane_products: Counter[str] = field(default_factory=Counter)
    tensor_products: Counter[str] = field(default_factory=Counter)
    first: int = 0
    """Bytes that loads of the first launch read: they are in no cache before."""
    cycles: Counter[str] = field(default_factory=Counter)
    """Cycles of a processor that each part takes, at least."""

    def add(self, kernel: str, counted: Counters | None) -> None:
        """Add a launch, which may not have been counted."""
        self.kernels[kernel] += 1
        if counted is None:
            return
        if self.launches == 1:
            self.first = counted.read
        self.metrics.update(counted.metrics)
        bulk = Counter(counted.tma)
        self.read += counted.read + bulk["read"]
        self.written += counted.written + bulk["written"] + bulk["reduced"]
        self.lane_products.update(counted.lane_products)
        products = {str(unit): n for unit, n in counted.products.items()}
        self.tensor_products.update(products)
        self.cycles.update(counted.cycles())

    @property
    def launches(self) -> int:
        """How many launches there were."""
        return self.kernels.total()

    @property
    def all_products(self) -> int:
        """Products of lanes and of Tensor Cores."""
        return self.lane_products.total() + self.tensor_products.total()

    def least_seconds(self) -> dict[str, float]:
        """Seconds that each part of the launches takes on an H200, at least."""
        chosen = card(DEFAULT)
        found = {part: n / chosen.cycles for part, n in self.cycles.items() if n}
        return {"memory": self.first / chosen.bandwidth, **found}

    def to_dict(self) -> dict[str, object]:
        """The counts as plain values."""
        by = self.least_seconds()
        return {
            "launches": self.launches,
            "kernels": dict(self.kernels),
            "metrics": {name: n for name, n in self.metrics.items() if n},
            "bytes_read": self.read,
            "bytes_written": self.written,
            "lane_products": dict(self.lane_products),
            "tensor_products": dict(self.tensor_products),
            "seconds_at_least_on_h200": max(by.values()),
            "bound_by": max(by, key=lambda part: by[part]),
        }


def problem_seconds(needed: int, products: int) -> float:
    """A bound: no H200 reads so many bytes, or does so many products, in less time.

    >>> f"{problem_seconds(1 << 20, 0):.2e}"
    '2.18e-07'
    """
    chosen = card(DEFAULT)
    rate = chosen.lanes + chosen.rates["f16"]
    return max(needed / chosen.bandwidth, products / rate / chosen.cycles)
