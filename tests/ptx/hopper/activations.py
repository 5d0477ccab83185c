"""Launches that leave packed activations, and what an H200 left.

A :class:`Packing` is a launch of ``activate.cu``, a :class:`Fused` one of ``gemm.cu`` with
an activation.  Each knows its inputs, its launch without a GPU and the expected bytes.

    python -m tests.ptx.hopper.activations run FILE   # on the machine with the GPU
    python -m tests.ptx.hopper.activations keep FILE  # compare with the emulation
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.hopper.kernels import activate as acts
from fragmenta.hopper.kernels.arguments import Geometry, Matrix, arguments, geometry
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.emulate import Epilogue
from fragmenta.hopper.kernels.packing import packed_shape
from fragmenta.hopper.kernels.source import TARGET, source
from fragmenta.inspect.evidence import arguments as draw
from fragmenta.reference.registers.dtype import dtype
from tests.ptx.hopper.gemms import Rows, short_hash
from tests.ptx.hopper.launching import tensor_map

FILE = Path(__file__).parents[2] / "golden" / "kernels" / "activations.json"
POISON = 0xA5
REPEAT = 20


@dataclass(frozen=True)
class Packing:
    """Rows of activations that are packed."""

    given: str
    activation: str
    rows: int
    columns: int
    inputs: str = "normal"
    """``normal``, or ``special``: infinities, NaN, subnormals, ties."""

    @property
    def name(self) -> str:
        """A name that no other launch has."""
        size = f"{self.rows}x{self.columns}"
        return f"{self.given} {self.activation} {size} {self.inputs}"

    @cached_property
    def x(self) -> NDArray[Any]:
        """The rows."""
        kind = draw.special if self.inputs == "special" else draw.normal
        made = draw.make(
            kind(self.given, self.rows, self.columns), draw.seed_of(self.name)
        )
        assert isinstance(made, np.ndarray)
        return made.view(dtype(self.given).storage)

    def expected(self) -> list[NDArray[Any]]:
        """Packed bytes and scales."""
        packed, scales = acts.emulate_activate(self.x, self.activation)
        return [packed.data, scales]

    def digest(self) -> str:
        """A hash of the inputs."""
        return short_hash(self.x)

    @cached_property
    def text(self) -> str:
        """The PTX."""
        held = acts.held_slabs(self.columns)
        return to_ptx(acts.activate_source(self.given, self.activation, held), TARGET)

    def launch(self, kernel: ptx.Kernel | None = None, **options: Any) -> Outcome:
        """Run it here, or a changed kernel in its place."""
        width = 2 * self.columns
        room = np.full((self.rows, -(-width // 16) * 16), 0xFF, np.uint8)  # NaN
        room[:, :width] = np.ascontiguousarray(self.x).view(np.uint8)
        packed = np.full(
            packed_shape("e4m3", self.rows, self.columns), POISON, np.uint8
        )
        scales = np.zeros(self.rows, np.float32)
        given = [room, room.shape[1], self.rows, self.columns, packed, scales]
        entry = acts.entry_for(self.columns)
        chosen = kernel or ptx.parse(self.text).kernels[entry]
        blocks = acts.blocks_for(self.rows)
        result = chosen.launch(blocks, acts.THREADS, given, **options)
        return Outcome(result, [packed, scales])

    def left(self) -> list[NDArray[Any]]:
        """What a GPU leaves."""
        import fragmenta.torch as ft
        from fragmenta.hopper.torch.matrix import RESULTS, tensor_of

        x = tensor_of(self.x, RESULTS[self.given]).cuda()
        found, scales = ft.sparse_activations(x, self.activation)
        return [found.data.cpu().numpy(), scales.cpu().numpy()]


@dataclass(frozen=True)
class Outcome:
    """What a launch left, and what was said about it."""

    result: ptx.Result
    arrays: list[NDArray[Any]]

    def same(self, wanted: list[NDArray[Any]]) -> bool:
        """Whether all bytes are those."""
        pairs = zip(self.arrays, wanted, strict=True)
        return all(ours.tobytes() == theirs.tobytes() for ours, theirs in pairs)


@dataclass(frozen=True)
class Fused:
    """A product that leaves activations; its rows fill whole groups of 256."""

    kernel: Kernel
    m: int
    n: int
    k: int
    scale: float
    blocks: int = 4

    @property
    def name(self) -> str:
        """A name that no other launch has."""
        return f"{self.kernel} {self.m}x{self.n}x{self.k} {self.scale}"

    @property
    def geometry(self) -> Geometry:
        """Grid, block and everything else that does not depend on the memory."""
        return geometry(self.kernel, self.m, self.n, self.k, self.blocks)

    @cached_property
    def given(self) -> dict[str, NDArray[Any]]:
        """A, B and the scales."""
        found = {}
        for what, kind, shape in (
            ("a", "e4m3", (self.m, self.k)),
            ("b", "e4m3", (self.n, self.k)),
            ("scale_m", "f32", (self.m,)),
            ("scale_n", "f32", (self.n,)),
        ):
            made = draw.make(draw.normal(kind, *shape), draw.seed_of(self.name, what))
            assert isinstance(made, np.ndarray)
            found[what] = made.view(dtype(kind).storage)
        return found

    @property
    def _scales(self) -> dict[str, NDArray[Any]]:
        return {name: self.given[name] for name in ("scale_m", "scale_n")}

    def expected(self) -> list[NDArray[Any]]:
        """Packed bytes."""
        found = acts.emulate_activated(
            self.kernel,
            self.given["a"],
            self.given["b"],
            Epilogue(**self._scales),
            self.scale,
        )
        return [found.data]

    def digest(self) -> str:
        """A hash of the inputs."""
        return short_hash(*self.given.values())

    @cached_property
    def text(self) -> str:
        """The PTX, with line numbers of the source."""
        return to_ptx(source(self.kernel), TARGET, "-lineinfo", compiler="nvrtc")

    def launch(self, kernel: ptx.Kernel | None = None, **options: Any) -> Outcome:
        """Run it here, or a changed kernel in its place."""
        packed = np.full(packed_shape("e4m3", self.m, self.n), POISON, np.uint8)
        block = packed.shape[-1]
        inverse = np.array([1 / self.scale], np.float32)
        made = arguments(
            self.geometry,
            Rows.of(self.given["a"], "e4m3").matrix(),
            Rows.of(self.given["b"], "e4m3").matrix(),
            Matrix(packed.reshape(-1, block), packed.size // block, block, block),
            tensor_map,
            {**self._scales, "bias": inverse, "count_m": packed},
        )
        parts = [None if isinstance(each, int) else each for each in made.epilogue]
        maps = (made.map_a, made.map_b, made.map_d)
        sizes = (made.m, made.n, made.slabs)
        chosen = kernel or ptx.parse(self.text).kernels["gemm"]
        result = chosen.launch(
            self.geometry.grid,
            self.geometry.block,
            [*maps, made.packed, ptx.struct(*parts), *sizes],
            shared=self.geometry.shared,
            cluster=self.geometry.cluster,
            **options,
        )
        return Outcome(result, [packed])

    def left(self) -> list[NDArray[Any]]:
        """What a GPU leaves."""
        import torch

        from fragmenta.hopper.torch.matrix import RESULTS, TYPES, tensor_of

        kinds = {"e4m3": next(k for k, name in TYPES.items() if name == "e4m3")}
        a, b = (tensor_of(self.given[x], kinds["e4m3"]).cuda() for x in "ab")
        scales = [torch.from_numpy(x).cuda() for x in self._scales.values()]
        inverse = torch.tensor([1 / self.scale]).cuda()
        tile = self.kernel.tile
        sizes = (tile.m, tile.n, tile.cluster, int(tile.turns), tile.split)
        found = torch.ops.fragmenta.activated_mm(
            a,
            b,
            self.kernel.activation,
            RESULTS[self.kernel.out],
            *scales,
            inverse,
            sizes,
        )
        return [found.cpu().numpy()]


def _kernel(tile: Tile, out: str = "bf16", activation: str = "relu2") -> Kernel:
    return Kernel(
        "e4m3", out=out, sparse=False, scaled=True, tile=tile, activation=activation
    )


PACKINGS = [
    Packing("bf16", "relu2", 70, 520),
    Packing("bf16", "relu2", 33, 304, "special"),
    Packing("bf16", "relu", 19, 133, "special"),
    Packing("bf16", "none", 40, 264, "special"),
    Packing("f16", "relu2", 300, 129),
    Packing("f16", "relu2", 21, 1000, "special"),
    Packing("f16", "relu", 9, 7, "special"),
    Packing("f16", "none", 30, 260, "special"),
    Packing("bf16", "relu2", 5, 14336),
    Packing("bf16", "relu2", 4, 14536, "special"),
    Packing("bf16", "relu", 6, 28672),
]
FUSED = [
    Fused(_kernel(Tile(128, 256, 2)), 256, 300, 300, 4.0),
    Fused(_kernel(Tile(64, 256, 2, turns=True)), 256, 520, 260, 2.0),
    Fused(_kernel(Tile(128, 128, 2, turns=True), "f16", "relu"), 512, 260, 128, 0.25),
    Fused(_kernel(Tile(256, 128, 2), "bf16", "none"), 512, 128, 384, 0.5),
    Fused(_kernel(Tile(128, 128), "f16"), 256, 200, 528, 8.0),
    Fused(_kernel(Tile(128, 256), "bf16", "relu"), 256, 256, 128, 0.125),
]
LAUNCHES: list[Packing | Fused] = [*PACKINGS, *FUSED]


@cache
def recorded() -> Mapping[str, list[str]]:
    """Hashes of the inputs and of what an H200 left, by name."""
    found: Mapping[str, list[str]] = json.loads(FILE.read_text())["launches"]
    return found


def run(file: Path) -> None:
    """Run every launch on the GPU, several times, and write what it leaves."""
    from fragmenta.cuda.tools import device

    launches = {}
    for each in LAUNCHES:
        hashes = {short_hash(*each.left()) for _ in range(REPEAT)}
        launches[each.name] = [each.digest(), *sorted(hashes)]
    made = device.present().versions()
    file.write_text(json.dumps({"made": made, "launches": launches}, indent=1))


def keep(file: Path) -> None:
    """Compare with the emulation, and write the recording."""
    read = json.loads(file.read_text())
    launches = {}
    for each in LAUNCHES:
        found = read["launches"][each.name]
        wanted = [each.digest(), short_hash(*each.expected())]
        print(f"{each.name:60} {'same' if found == wanted else 'ANOTHER RESULT'}")
        if found == wanted:
            launches[each.name] = found
    kept = {"made": read["made"], "launches": launches}
    FILE.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "keep"])
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    {"run": run, "keep": keep}[options.what](options.file)


if __name__ == "__main__":
    main()
