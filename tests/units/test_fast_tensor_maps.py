"""Tensor maps made in machine code are those that Python alone makes.

Every field is set to numbers of all sizes, in shared and in global memory: the 128
bytes are the same, and what is refused is refused in the same words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.engine.units.fast.map_fields import LIMITS, REPLACED, TF32
from fragmenta.engine.units.machine import Machine
from fragmenta.errors import Error
from fragmenta.reference.shared.tensor_map import BYTES
from tests.simt.kernels import kernel
from tests.thinning import some

WIDE = ("global_address", "global_stride")
VALUES = (0, 1, 2, 3, 255, 256, 0x12345, 0xFFFFFFFF, 0x123456789ABCD0, (1 << 64) - 1)
CASES = [
    (name, ordinal, space)
    for name, line in REPLACED.items()
    for ordinal in range(int(line["many"]))
    for space in ("shared::cta", "global")
]
BODY = """
    .shared .align 128 .b8 map[256];
    mov.u32 %r1, map; ld.param.u64 %rd1, [given]; ld.param.u64 %rd2, [value];
    ld.param.u32 %r5, [ordinal]; cvt.u32.u64 %r6, %rd2;
    mul.wide.u32 %rd3, %t, 4; add.u64 %rd4, %rd1, %rd3; shl.b32 %r2, %t, 2;
    add.u32 %r2, %r1, %r2; ld.global.u32 %r3, [%rd4]; st.shared.u32 [%r2], %r3;
    bar.sync 0; setp.eq.u32 %p1, %t, 3;
    {0}
    bar.sync 0; add.u64 %rd5, %rd1, 128;
    {1}
    bar.sync 0; ld.global.u32 %r3, [%rd4+128]; st.global.u32 [%mine], %r3;
"""
PUBLISH = (
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync."
    "aligned [%rd5], [%r1], 128;"
)
COPY = "ld.global.u32 %r3, [%rd4]; st.global.u32 [%rd4+128], %r3;"


def change(name: str, ordinal: int, space: str, value: int) -> str:
    """The instruction that changes a field."""
    place = "%rd1" if space == "global" else "%r1"
    size = "b64" if name in WIDE else "b32"
    given = "%rd2" if name in WIDE else "%r6"
    if name in LIMITS:
        given = str(value)
    dimension = "" if REPLACED[name]["many"] == "1" else f"{ordinal}, "
    words = f"tensormap.replace.tile.{name}.{space}.b1024.{size}"
    return f"@%p1 {words} [{place}], {dimension}{given};"


def made(body: str, space: str) -> Any:
    return kernel(
        BODY.format(body, COPY if space == "global" else PUBLISH),
        ".param .u64 given, .param .u64 value, .param .u32 ordinal",
    )


def outcome(given: Any, value: int, fast: bool) -> tuple[Any, list[str]]:
    """What the map is in the end, or what is said; and the events of Python."""
    seen: list[str] = []
    memory = np.random.default_rng(5).integers(0, 256, 4 * BYTES, np.uint8)
    out, call = np.zeros(32, np.uint32), Machine._call

    def called(self: Machine, block: int, warp: int, number: int, lanes: int) -> int:
        seen.append(self.events[number].mnemonic)
        return call(self, block, warp, number, lanes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Machine, "fast", fast)
        patch.setattr(Machine, "_call", called)
        try:
            given.launch(1, 32, [out, memory, value, 0], watch=False)
        except Error as error:
            return f"{type(error).__name__}: {error}", seen
    return (out.tobytes(), memory.tobytes()), seen


@pytest.mark.parametrize(("name", "ordinal", "space"), some(CASES, 3))
def test_fields(name: str, ordinal: int, space: str) -> None:
    """The types with a bit of their own are left to Python."""
    if name in LIMITS:  # a constant
        texts = {v: made(change(name, ordinal, space, v), space) for v in _few(name)}
        pairs = [(one, value) for value, one in texts.items()]
    else:
        one = made(change(name, ordinal, space, 0), space)
        pairs = [(one, value) for value in VALUES]
    asked = set()
    for one, value in pairs:
        (fast, events), (alone, _) = (outcome(one, value, f) for f in (True, False))
        assert fast == alone
        asked |= {value} if events else set()
    assert asked == ({*TF32} if name == "elemtype" else set())


def _few(name: str) -> set[int]:
    return {0, LIMITS[name], *([*TF32, min(TF32) - 1] if name == "elemtype" else [])}


WRONG = {
    "misaligned": "add.u32 %r1, %r1, 32;",
    "the system's memory": "mov.u32 %r1, 0;",
    "out of bounds": "add.u32 %r1, %r1, 192;",
    "another block": "add.u32 %r1, %r1, 0x1000000;",
    "global, misaligned": "add.u64 %rd5, %rd5, 32;",
    "global, out of bounds": "add.u64 %rd5, %rd5, 320;",
    "no memory": "mov.u64 %rd5, 4096;",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    text = change("rank", 0, "shared::cta", 0)
    body = BODY.format(
        ("" if name.startswith(("global", "no")) else WRONG[name]) + text,
        (WRONG[name] if name.startswith(("global", "no")) else "") + PUBLISH,
    )
    given = ".param .u64 given, .param .u64 value, .param .u32 ordinal"
    one = kernel(body, given)
    (fast, _), (alone, _) = (outcome(one, 2, f) for f in (True, False))
    assert fast == alone
    assert isinstance(fast, str)


def test_lanes_with_different_maps_are_left_to_python() -> None:
    text = change("rank", 0, "shared::cta", 0).replace("@%p1", "")
    one = made(text, "shared")
    (fast, events), (alone, _) = (outcome(one, 2, f) for f in (True, False))
    assert fast == alone
    assert len(events) == 1
