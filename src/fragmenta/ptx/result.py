"""What came of a launch?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fragmenta.ptx.engine.compiled import Compiled

if TYPE_CHECKING:
    from fragmenta.ptx.checking.problem import Problem

FIDELITY = {
    "ieee": "exact by IEEE 754 or integer arithmetic",
    "h200": "recorded on an H200",
    "published": "by a published model",
    "modelled": "modelled",
}
"""How sure the bits of an instruction are."""


@dataclass(frozen=True)
class Result:
    """What a launch did.

    ``counts`` are executed warp instructions by mnemonic; ``fidelity`` counts them by
    how sure their bits are: see :data:`FIDELITY`.
    """

    counts: dict[str, int]
    fidelity: dict[str, int]
    output: str = ""
    """What the kernel printed."""
    seconds: float = 0.0
    find: Callable[[], list[Problem]] = field(default=list, repr=False, compare=False)

    @cached_property
    def problems(self) -> list[Problem]:
        """What is wrong with the kernel, or worth knowing: see ``module.check``."""
        return self.find()

    @property
    def instructions(self) -> int:
        """All executed warp instructions."""
        return sum(self.counts.values())


def counted(compiled: Compiled, blocks: Any) -> tuple[dict[str, int], dict[str, int]]:
    """The instructions by mnemonic and by fidelity, from the counts of code blocks."""
    counts: Counter[str] = Counter()
    for times, mnemonics in zip(blocks.tolist(), compiled.counted, strict=True):
        if times:
            for mnemonic in mnemonics:
                counts[mnemonic] += times
    sure: Counter[str] = Counter()
    for mnemonic, times in counts.items():
        sure[compiled.fidelity.get(mnemonic, "ieee")] += times
    return dict(counts.most_common()), dict(sure.most_common())


def total(compiled: Compiled, blocks: Any) -> int:
    """All executed warp instructions."""
    lengths = np.array([len(each) for each in compiled.counted], np.int64)
    return int(lengths @ blocks)
