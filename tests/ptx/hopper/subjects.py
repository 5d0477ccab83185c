"""The launches whose mutants are judged.

Launches of the project's own kernels with small tiles, and one recorded launch of each
kernel of the corpus that synchronises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fragmenta import ptx
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.kernels import Kernel, Tile
from tests.ptx import recordings
from tests.ptx.hopper import descriptors, launching
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
    Kernel("bf16", tile=Tile(64, 16, split=2)),
    Kernel("s4", "e4m3", tile=Tile(64, 8), group=64),
    Kernel("s4", "bf16", tile=Tile(128, 64), group=128),
)
"""Every kind of kernel, with small tiles: all their mutants are judged."""
RINGS = (3, 8)
"""Stages of their rings.

In a small ring, every barrier has many phases.  In one that has room for a whole tile,
the warps of a consumer can be far apart.
"""
JUDGED = [(each, RINGS[0]) for each in KERNELS] + [
    (each, RINGS[1]) for each in KERNELS[:5] if each.slabs == 1
]
"""The kernels whose mutants are judged, and their rings."""


class Launch(NamedTuple):
    """One way to launch a kernel."""

    name: str
    run: Callable[..., tuple[ptx.Result, str]]
    """Launches a kernel with options; a hash of what it left in memory."""
    expected: Callable[[], str]
    """The hash of the right bits."""


@dataclass(frozen=True)
class Subject:
    """A kernel whose mutants are judged."""

    name: str
    text: str
    entry: str
    launches: tuple[Launch, ...]
    """The later ones are for mutants that the first does not show."""
    ring: int | None = None
    source: str = ""

    @property
    def keeps(self) -> bool:
        """Whether a launch changes what the next one of the same module sees."""
        return ".global .align" in self.text

    @property
    def asynchronous(self) -> bool:
        """Whether a schedule makes a difference."""
        return any(word in self.text for word in ("cp.async", "wgmma", "mbarrier"))

    def mutants(self) -> list[Mutant]:
        """Every mutant."""
        return list(mutants(self.text, self.entry, self.ring, self.source))

    def mistakes(self) -> list[Mutant]:
        """Every mutant, and those of descriptors: once for all rings."""
        wrong = descriptors.mutants(self.text) if self.ring == RINGS[0] else ()
        return [*self.mutants(), *wrong]


# ── the project's own kernels ───────────────────────────────────────────────


def of_kernel(kernel: Kernel, ring: int = RINGS[0], text: str = "") -> Subject:
    """Launches of one cluster, with a ring of so many stages, or fewer.

    ``text`` is the PTX, if it is known: then nothing is compiled.
    """
    stages = min(ring, kernel.stages)
    gemms = [_gemm(kernel, stages, *shape) for shape in _shapes(kernel)]
    return Subject(
        f"{kernel} ring {stages}",
        text or gemms[0].text,
        launching.ENTRY,
        tuple(map(launch_of, gemms)),
        stages,
        gemms[0].source,
    )


def _shapes(kernel: Kernel) -> list[tuple[int, int]]:
    """Slabs along k, and tiles.

    First, a tile has several stages.  The compiler makes four copies of the producer's
    loop, and three for the rest: all of them run.  Five tiles, because with turns one
    consumer has to have the last.  Then:

    - tiles with one slab, so that one is near the next.  With turns they are so many
      that a barrier for 128 arrivals, which gets one too many in each round, has a
      whole round too many in the end;
    - with turns, tiles that do not fit into the ring;
    - if a stage has several slabs: the last stage is complete, or the only one is not,
      or it has an odd number.  An incomplete one has any number of slabs.

    If the tile is split along k, a block has one tile.  First, it has more stages than
    its ring, twice over; then three or two, of which the last has any number of slabs;
    then one that is not complete; then so many that a barrier which turns one arrival
    too early is several too early in the end.
    """
    size, turns, split = kernel.slabs, kernel.tile.turns, kernel.tile.split
    if split > 1:
        few = [(x * size - less, 2) for x in (5, 4) for less in range(size)]
        rounds = (36 * split * size, 1)
        return [(8 * split * size - 1, 2), *few, (split * size - 1, 2), rounds]
    shapes = [(7 if size == 1 else 3 * size - 1, 5), (1, 266 if turns else 120)]
    if turns:
        shapes.append((15, 3))
    if size > 1:
        shapes.append((3 * size, 5))
        shapes += [(each, 12) for each in range(2, size)]
        shapes += [(each, 5) for each in range(size + 1, 2 * size)]
    return shapes


def _gemm(kernel: Kernel, stages: int, slabs: int, tiles: int) -> Gemm:
    tile = kernel.tile
    return Gemm(
        kernel,
        tile.m * tile.cluster - 5,
        tiles * tile.n - 3,
        slabs * kernel.slab_k,
        tile.cluster,
        parts=SCALES if kernel.scaled else (),
        stages=stages,
    )


def launch_of(gemm: Gemm) -> Launch:
    def run(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, str]:
        found = launching.launch(gemm, kernel, **options)
        return found.result, short_hash(found.d.inside)

    sizes = f"{gemm.m}x{gemm.n}x{gemm.k}"
    return Launch(sizes, run, lambda: short_hash(gemm.expected))


# ── the corpus ──────────────────────────────────────────────────────────────


def of_recording(recorded: recordings.Launch) -> Subject:
    """A recorded launch of the corpus."""
    row = recorded.row

    def run(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, str]:
        made = recorded.make_arguments()
        given, target = for_kernel(made), recorded.file.made["target"]
        result = kernel.launch(
            row.grid, row.block, given, shared=row.shared, target=target, **options
        )
        return result, short_hash(*made)

    def expected() -> str:
        return short_hash(*recorded.expected())

    text = recorded.file.texts[row.text][1]
    launch = Launch("recorded", run, expected)
    return Subject(recorded.identity, text, row.entry, (launch,))


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
