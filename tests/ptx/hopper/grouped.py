"""Launches of grouped kernels: experts of uneven numbers of tokens, in one launch.

They are launches as in :mod:`tests.ptx.hopper.gemms`, with one A for each expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fragmenta as fm
from fragmenta.hopper.kernels.arguments import Geometry, geometry
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.emulate import STORAGE, Epilogue, emulate_grouped
from fragmenta.hopper.kernels.packing import Packed, pack
from fragmenta.inspect.evidence import arguments as draw
from tests.ptx.hopper.gemms import (
    POISON,
    SCALES,
    TYPES,
    Gemm,
    Memory,
    Rows,
    short_hash,
)
from tests.ptx.hopper.launching import ENTRY
from tests.ptx.hopper.subjects import Subject, launch_of


@dataclass(frozen=True)
class Grouped(Gemm):
    """One launch of a grouped kernel; n counts the tokens, with those of no expert."""

    counts: tuple[int, ...] = (1,)
    """The tokens of each expert."""
    settled: bool = False
    """Whether the ends of the experts' rows are read early."""

    @property
    def name(self) -> str:
        """A name that no other launch has."""
        runs = ((each, len(list(same))) for each, same in groupby(self.counts))
        told = "+".join(
            f"{many}*{x}" if many > 3 else "+".join([str(x)] * many) for x, many in runs
        )
        return f"{super().name} of {told}{' settled' if self.settled else ''}"

    @property
    def geometry(self) -> Geometry:
        """Grid, block and everything else that does not depend on the memory."""
        sizes = (self.m, self.n, self.k, self.blocks)
        return geometry(self.kernel, *sizes, len(self.counts))

    @property
    def ends(self) -> NDArray[np.int32]:
        """The number of tokens up to and with each expert."""
        return np.cumsum(self.counts, dtype=np.int32)

    @cached_property
    def experts(self) -> list[Packed]:
        """The weight of each expert."""
        op, found = self.kernel.instruction, []
        if self.kernel.four_bits:
            return [self._integers(str(number)) for number in range(len(self.counts))]
        for number in range(len(self.counts)):
            drawn = self._drawn(f"a{number}", self.kernel.a, self.m, self.k)
            pruned = fm.sparse.prune(op, drawn, pad=True)
            found.append(pack(op, fm.sparse.compress(op, pruned, pad=True)))
        return found

    @cached_property
    def epilogue(self) -> dict[str, NDArray[Any]]:
        """What the epilogue is given: a row for each expert, or one for each token."""
        found: dict[str, NDArray[Any]] = {}
        for name in self.parts:
            count = {"scale": (1,), "scale_n": (self.n,)}.get(
                name, (len(self.counts), self.m)
            )
            made = draw.make(draw.normal("f32", *count), draw.seed_of(self.name, name))
            assert isinstance(made, np.ndarray)
            found[name] = made
        return found

    @cached_property
    def expected(self) -> NDArray[Any]:
        """D, by the emulation; poison where no expert has a token."""
        given: dict[str, Any] = dict(self.epilogue)
        if "scale" in given:
            given["scale"] = given["scale"].reshape(())
        d = emulate_grouped(
            self.kernel, self.experts, self.b, self.ends, Epilogue(**given)
        )
        d[self.ends[-1] :].view(np.uint8)[:] = POISON
        return d

    def memory(self) -> Memory:
        """The arrays that the kernel gets, with D poisoned."""
        width = self.m * STORAGE[self.kernel.out].itemsize
        return Memory(
            np.concatenate([each.data.reshape(-1) for each in self.experts]),
            Rows.of(self.b, self.kernel.b),
            Rows.empty(self.n, width),
            self.epilogue,
            self.ends,
            self.settled,
        )

    def digest(self) -> str:
        """A short hash of all inputs."""
        made = self.memory()
        assert isinstance(made.a, np.ndarray)
        return short_hash(made.a, made.b.buffer, self.ends, *made.epilogue.values())


# ── the list ────────────────────────────────────────────────────────────────

#: Tokens of each expert, in tiles of so many columns.
SHARES = (
    lambda n: (3, 0, n + 1, 1, 0, 2 * n),
    lambda n: (0, 0, 5, 0),
    lambda n: (n - 1, n, n + 1),
    lambda n: (1,) * 9,
    lambda n: (2 * n + 3,),
    lambda n: (0,) * 33 + (7, 0, 2) + (0,) * 40,
)
TILES = (
    Tile(64, 8),
    Tile(64, 16),
    Tile(128, 8),
    Tile(64, 16, split=2),
    Tile(128, 32),
    Tile(64, 8, split=4),
    Tile(128, 64, split=2),
    Tile(64, 64),
    Tile(128, 128, 2),
    Tile(256, 64),
    Tile(64, 24),
    Tile(64, 120),
    Tile(256, 160, 1),
    Tile(256, 128, 2),
)


def _all() -> Iterator[Grouped]:
    kinds = [x for x in TYPES if x[0] == x[1]]
    given: list[tuple[str, ...]] = [SCALES, ("scale_m", "scale_n"), ("bias",)]
    for number, tile in enumerate(TILES):
        a, b = kinds[number % len(kinds)]
        scaled = number % 3 > 0 or a in ("s8", "u8")
        out = ("bf16", "f32", "f16")[number % 3]
        if tile.n % 16 and a in ("s8", "u8"):
            a = b = "e4m3"
        kernel = Kernel(a, b, out, tile, scaled=scaled, transposed=True, grouped=True)
        shares = SHARES[number % len(SHARES)](tile.n)
        yield grouped(kernel, number, shares, parts=given[number % 3] if scaled else ())
    for number, (a, promote) in enumerate((("bf16", False), ("e4m3", True))):
        kernel = Kernel(
            a,
            out="bf16",
            tile=Tile(64, 16),
            promote=promote,
            scaled=promote,
            transposed=True,
            grouped=True,
        )
        yield grouped(kernel, number, (0, 5, 16, 0, 20), inputs="special")


def grouped(
    kernel: Kernel, number: int, counts: tuple[int, ...], **more: Any
) -> Grouped:
    """A launch; ``number`` varies its edges and the tokens that no expert has."""
    tile = kernel.tile
    slabs = (2 * tile.split + 1) * kernel.slabs - (kernel.slabs > 1 and number % 2)
    step = 128 // fm.dtype(kernel.multiplied).bits
    return Grouped(
        kernel,
        (1 + (tile.m == 64)) * tile.m * tile.cluster - (0, 5, 17, 40)[number % 4],
        max(1, sum(counts) + (0, 3)[number % 2]),
        slabs * kernel.slab_k - (0, step)[number % 2],
        (1 + number % 2) * tile.cluster,
        counts=counts,
        settled=number % 3 != 1,
        **more,
    )


INTEGERS = (
    ("bf16", 128, Tile(64, 8)),
    ("e4m3", 64, Tile(128, 16)),
    ("f16", 0, Tile(64, 32, split=2)),
    ("e4m3", 128, Tile(128, 64)),
    ("bf16", 32, Tile(256, 48)),
    ("e4m3", 128, Tile(128, 96)),
    ("bf16", 128, Tile(128, 32)),
)
"""Experts of 4-bit integers: what they are multiplied with, their groups, and tiles."""


def _integers() -> Iterator[Grouped]:
    for number, (b, group, tile) in enumerate(INTEGERS):
        kernel = Kernel(
            "s4",
            b,
            ("bf16", "f32", "f16")[number % 3],
            tile,
            scaled=number % 2 == 1 or not group,
            transposed=True,
            grouped=True,
            group=group,
            scales=("f16", "bf16")[number % 2],
        )
        parts = ("scale_m", "scale_n", "bias") if kernel.scaled else ()
        yield grouped(kernel, number, SHARES[number % len(SHARES)](tile.n), parts=parts)


GROUPED: list[Grouped] = list(_all())
OF_INTEGERS: list[Grouped] = list(_integers())
"""Weights of 4-bit integers."""


def subject(kernel: Kernel, ring: int = 3) -> Subject:
    """Launches of a grouped kernel whose mutants are judged.

    The last stage is not complete, or it is, or the only one is short, so that one tile
    is near the next.  If k is split, each part has so many slabs.  Ends that are settled
    are read early, with the first stages.
    """
    tile, stages, size = kernel.tile, min(ring, kernel.stages), kernel.slabs
    launches = [
        Grouped(
            kernel,
            2 * tile.m * tile.cluster - 5,
            sum(shares) + 2,
            slabs * tile.split * kernel.slab_k,
            tile.cluster,
            stages=stages,
            counts=shares,
            settled=settled,
        )
        for slabs, settled, shares in (
            (7 * size - 1, False, (3, 0, 2 * tile.n + 1, 1, tile.n)),
            (6 * size, True, (3, 0, 2 * tile.n + 1, 1, tile.n)),
            (1, False, (2, 0, 6 * tile.n + 1, 1, 5 * tile.n)),
            (2 * size - 1, True, (tile.n, 3)),
        )
        if slabs * tile.split > (tile.split - 1) * size
    ]
    made = tuple(map(launch_of, launches))
    first, name = launches[0], f"{kernel} ring {stages}"
    return Subject(name, first.text, ENTRY, made, stages, first.source)
