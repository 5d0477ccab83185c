"""Launches of other kernels whose mutants are judged: experts, activations, packing.

They are no plain products, so that each has launches of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.hopper.kernels import widening
from fragmenta.hopper.kernels.activate import entry_for
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.packing import packed_shape
from fragmenta.hopper.kernels.source import TARGET, source
from tests.kernels.test_widening import packed as packed_integers
from tests.kernels.test_widening import powers_of
from tests.ptx.hopper import grouped
from tests.ptx.hopper.activations import Fused, Outcome, Packing
from tests.ptx.hopper.gemms import short_hash
from tests.ptx.hopper.launching import ENTRY
from tests.ptx.hopper.subjects import RINGS, Launch, Subject

GROUPED = (
    Kernel("e4m3", out="bf16", tile=Tile(64, 8), transposed=True, grouped=True),
    Kernel("bf16", tile=Tile(64, 8, split=2), transposed=True, grouped=True),
)
_FUSED = Kernel(
    "e4m3",
    out="bf16",
    sparse=False,
    scaled=True,
    tile=Tile(64, 128),
    activation="relu2",
)
FUSED = (_FUSED, replace(_FUSED, tile=Tile(64, 128, turns=True)))


def of_fused(kernel: Kernel, ring: int = RINGS[0]) -> Subject:
    """A product that leaves activations: several tiles for one block."""
    stages = min(ring, kernel.stages)
    launches = [
        Fused(kernel, 256, 200, slabs * kernel.slab_k, 4.0, 1) for slabs in (3, 5)
    ]
    whole = source(kernel).replace(
        f"#define STAGES {kernel.stages}\n", f"#define STAGES {stages}\n"
    )
    text = to_ptx(whole, TARGET, "-lineinfo", compiler="nvrtc")
    made = tuple(_of_outcome(each, text) for each in launches)
    return Subject(f"{kernel} ring {stages}", text, ENTRY, made, stages, whole)


def of_packing() -> Subject:
    """Activations of rows, with slabs that are held and others that are read again."""
    launches = [Packing("bf16", "relu2", *sizes) for sizes in ((9, 520), (5, 14536))]
    made = [_of_outcome(each, each.text) for each in launches]
    first = launches[0]
    return Subject(
        "activate_rows bf16 relu2", first.text, entry_for(first.columns), (made[0],)
    )


def _of_outcome(launch: Fused | Packing, text: str) -> Launch:
    def run(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, str]:
        found: Outcome = launch.launch(kernel=kernel, **options)
        return found.result, short_hash(*found.arrays)

    return Launch(launch.name, run, lambda: short_hash(*launch.expected()))


def of_widening() -> Subject:
    """Integers that become bf16."""
    integers, (m, k) = Integers("bf16", 64), (70, 190)
    text = to_ptx(widening.widen_source(integers, "bf16"), TARGET, compiler="nvrtc")

    def run(kernel: ptx.Kernel, **options: Any) -> tuple[ptx.Result, str]:
        made = packed_integers(integers, m, k)
        left = np.full(packed_shape("bf16", m, k), 0xA5, np.uint8)
        given = [made.data, powers_of(made), left, m, left.shape[1]]
        grid = widening.widen_grid(integers, m, k)
        result = kernel.launch(grid, widening.THREADS, given, **options)
        return result, short_hash(left)

    def expected() -> str:
        made = packed_integers(integers, m, k)
        return short_hash(widening.widened(made, "bf16", powers_of(made)).data)

    launch = Launch(f"{m}x{k}", run, expected)
    return Subject("widen s4-64 bf16", text, "widen", (launch,))


OTHERS: dict[str, Callable[[], Subject]] = {
    **{str(each): (lambda k=each: grouped.subject(k)) for each in GROUPED},
    **{str(each): (lambda k=each: of_fused(k)) for each in FUSED},
    "activate_rows": of_packing,
    "widen": of_widening,
}
"""Subjects by the beginning of their names."""
