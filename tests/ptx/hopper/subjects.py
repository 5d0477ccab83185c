"""Which launches' mutants are judged?

Launches of the project's own kernels with small tiles, and one recorded launch of each
kernel of the corpus that synchronises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fragmenta import ptx
from fragmenta.evidence.launches import for_kernel
from fragmenta.kernels import Kernel, Tile
from tests.ptx import recordings
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import SCALES, Gemm, short_hash
from tests.ptx.hopper.mutants import Mutant, mutants

KERNELS = (
    Kernel("e4m3", tile=Tile(64, 16), promote=True),
    Kernel("u8", tile=Tile(64, 8), sparse=False),
    Kernel("s8", "u8", tile=Tile(128, 16, 2)),
    Kernel("bf16", tile=Tile(64, 64, turns=True), sparse=False),
    Kernel(
        "bf16", out="f16", tile=Tile(64, 16, 2, True), sparse=False, transposed=True
    ),
    Kernel("b1", tile=Tile(64, 16, 2), sparse=False, xor=True),
    Kernel("f16", out="bf16", tile=Tile(64, 8), scaled=True),
    Kernel("e5m2", tile=Tile(64, 64), sparse=False, promote=True),
)
"""Every kind of kernel, with small tiles: all their mutants are judged."""
RINGS = (3, 8)
"""Stages of their rings.

In a small ring, every barrier has many phases.  In one that has room for a whole tile,
the warps of a consumer can be far apart.
"""


@dataclass(frozen=True)
class Subject:
    """A launch whose mutants are judged."""

    name: str
    text: str
    entry: str
    launch: Callable[..., tuple[ptx.Result, str]]
    """Launches a kernel with options; a hash of what it left in memory."""
    expected: Callable[[], str]
    """The hash of the right bits."""
    ring: int | None = None
    source: str = ""

    @property
    def asynchronous(self) -> bool:
        """Whether a schedule makes a difference."""
        return any(word in self.text for word in ("cp.async", "wgmma", "mbarrier"))

    def mutants(self) -> list[Mutant]:
        """Every mutant."""
        return list(mutants(self.text, self.entry, self.ring, self.source))


def of_kernel(kernel: Kernel, ring: int = RINGS[0], text: str = "") -> Subject:
    """A launch of one cluster, with a ring of so many stages, or fewer.

    The compiler makes four copies of the loop over k, and three for the rest: all of
    them run.  Five tiles, because with turns one consumer has to have the last.
    ``text`` is the PTX, if it is known: then nothing is compiled.
    """
    tile, stages = kernel.tile, min(ring, kernel.stages)
    slabs = 7 if kernel.slabs == 1 else 3 * kernel.slabs - 1
    gemm = Gemm(
        kernel,
        tile.m * tile.cluster - 5,
        5 * tile.n - 3,
        slabs * kernel.slab_k,
        tile.cluster,
        parts=SCALES if kernel.scaled else (),
        stages=stages,
    )

    def launch(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, str]:
        found = launching.launch(gemm, kernel, **options)
        return found.result, short_hash(found.d.inside)

    return Subject(
        f"{gemm.name} ring {stages}",
        text or gemm.text,
        launching.ENTRY,
        launch,
        lambda: short_hash(gemm.expected),
        stages,
        gemm.source,
    )


def of_recording(recorded: recordings.Launch) -> Subject:
    """A recorded launch of the corpus."""
    row = recorded.row

    def launch(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, str]:
        made = recorded.make_arguments()
        given, target = for_kernel(made), recorded.file.made["target"]
        result = kernel.launch(
            row.grid, row.block, given, shared=row.shared, target=target, **options
        )
        return result, short_hash(*made)

    def expected() -> str:
        return short_hash(*recorded.expected())

    text = recorded.file.texts[row.text][1]
    return Subject(recorded.identity, text, row.entry, launch, expected)


def subject(name: str, ring: int = RINGS[0]) -> Subject:
    """The first launch whose name begins so."""
    for kernel in KERNELS:
        if str(kernel).startswith(name):
            return of_kernel(kernel, ring)
    for recorded in recordings.every_launch():
        if recorded.identity.startswith(name):
            return of_recording(recorded)
    raise ValueError(f"no launch is called {name}")


def corpus() -> list[Subject]:
    """One launch of each kernel of the corpus that synchronises."""
    found: dict[str, Subject] = {}
    for each in recordings.every_launch():
        made = of_recording(each)
        found.setdefault(each.file.texts[each.row.text][0] + made.entry, made)
    return [each for each in found.values() if each.mutants()]
