"""The speed of Triton's matmuls for Blackwell on the CPU, watched and not.

The PTX is what Triton compiled for the tests: ``tcgen05.mma`` of 64 x 64 x 16, once
with ``cp.async`` and once with warps that copy by tensor maps.  Each is compared with
:func:`fragmenta.matmul` of the same product in the same run.  The time is that of this
process.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from timing import least

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.simt.arguments import Struct
from tests.ptx.blackwell_results import typed
from tests.ptx.test_triton_blackwell import kept

M, N, K = 256, 256, 1024
TILE = 64
ROUNDS = 3
KERNELS = {"matmul-bf16": "bf16", "matmul_specialised": "f16"}


def _word(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _map(recorded: str, rows: int) -> bytes:
    """The recorded map of an operand, for one with so many rows of K elements."""
    found = bytearray.fromhex(recorded)
    found[12:16] = _word(2 * K >> 4)
    found[32:36], found[36:40] = _word(K - 1), _word(rows - 1)
    return bytes(found)


def parameters(name: str, arrays: list[Any]) -> list[Any]:
    """What the kernel gets, for other sizes than the recorded ones."""
    a, b, d = (ptx.pointer(each) for each in arrays)
    if name == "matmul-bf16":
        return [a, b, d, *map(_word, (M, N, K, K)), 0, 0]
    row = kept()[name]
    maps = [each[2] for each in row["parameters"] if each[0] == "map"]
    wide = [K.to_bytes(8, "little"), (1).to_bytes(8, "little")]
    found: list[Any] = []
    for pointer, recorded, rows in ((a, maps[0], M), (b, maps[1], N)):
        found += [Struct(_map(recorded, rows), ((0, pointer),), 64)]
        found += [_word(rows), _word(K), *wide]
    return [*found, d, _word(N), _word(K), 0, 0]


class Launch:
    """A matmul of a recorded kernel, with operands of other sizes."""

    def __init__(self, name: str) -> None:
        row, rng = kept()[name], np.random.default_rng(0)
        self.row, self.of = row, KERNELS[name]
        spec = {"type": self.of}
        storage = fm.tcgen05("m64n64k16", a=self.of, d="f32").types["a"].storage
        self.a, self.b = (
            typed(spec, rng.normal(size=(rows, K)).astype(storage)) for rows in (M, N)
        )
        self.d = np.zeros((M, N), np.float32)
        arrays = [self.a.view(np.uint16), self.b.view(np.uint16), self.d]
        self.parameters = parameters(name, arrays)
        self.kernel = ptx.parse(row["text"], name).kernels[row["entry"]]

    def run(self, watch: bool, schedule: str) -> None:
        """Launch it."""
        self.kernel.launch(
            [M // TILE, N // TILE, 1],
            self.row["block"],
            self.parameters,
            shared=self.row["shared"],
            target="sm_100a",
            watch=watch,
            schedule=schedule,
        )

    def right(self) -> bool:
        """Whether it left the bits of :func:`fragmenta.matmul`."""
        return self.d.tobytes() == np.asarray(self.wanted(), np.float32).tobytes()

    def wanted(self) -> Any:
        """What it must leave."""
        op = fm.tcgen05("m64n64k16", a=self.of, d="f32")
        return fm.matmul(op, self.a, np.ascontiguousarray(self.b.T))


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("watched", [False, True], ids=["not watched", "watched"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_matmul(benchmark: Any, name: str, watched: bool, schedule: str) -> None:
    """Triton's matmul of 256 x 256 x 1024."""
    launch = Launch(name)
    benchmark.pedantic(lambda: None)
    clock = time.process_time
    whole = least(launch.wanted, ROUNDS, clock)
    seconds = least(lambda: launch.run(watched, schedule), ROUNDS, clock)
    benchmark.extra_info["seconds"] = seconds
    benchmark.extra_info["matmul"] = seconds / whole
    assert launch.right()
    kind = "watched" if watched else "not watched"
    print(
        f"\n{name}, {schedule}, {kind}: {1e3 * seconds:.0f} ms, "
        f"{seconds / whole:.1f} times fm.matmul"
    )
