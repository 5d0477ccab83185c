"""Records which lane's store stays if lanes of a warp store to one place.

The manual leaves it open.  On a machine with a GPU and CuPy:

    python -m tests.ptx.colliding tests/golden/h200/colliding_stores.json

``test_colliding.py`` compares the recording with the engine.  Each warp of a block has a
place of its own.  Before it records, it checks with a single lane that each kernel
stores what its name says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTHS = {"u8": 1, "u16": 1, "u32": 1, "u64": 1, "v2.u32": 2, "v4.u32": 4, "v2.u64": 2}
SPACES = ("shared", "global")
WARPS = 256
BLOCK = 4
"""Warps of a block."""


def kernel(space: str, width: str) -> str:
    """PTX: the lanes of each warp's mask store their number; what stays is kept."""
    kind = width.rpartition(".")[2]
    register = {"u8": "%h", "u16": "%h", "u64": "%l"}.get(kind, "%lane")
    stored = register
    if WIDTHS[width] > 1:
        stored = "{" + ", ".join([register] * WIDTHS[width]) + "}"
    goal = "%s" if space == "shared" else "%to"
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry f(.param .u64 masks, .param .u64 out, .param .u64 scratch)
{{
    .shared .align 16 .b8 place[{16 * BLOCK}];
    .reg .pred %p; .reg .b16 %h; .reg .b32 %lane, %mask, %warp, %kept, %s;
    .reg .b64 %l, %at, %masks, %out, %to;
    ld.param.u64 %masks, [masks]; ld.param.u64 %out, [out]; ld.param.u64 %to, [scratch];
    mov.u32 %warp, %tid.x; shr.u32 %warp, %warp, 5; mov.u32 %lane, %laneid;
    mov.u32 %s, place; mad.lo.u32 %s, %warp, 16, %s;
    mov.u32 %kept, %ctaid.x; mad.lo.u32 %warp, %kept, {BLOCK}, %warp;
    mad.wide.u32 %to, %warp, 16, %to;
    cvt.u16.u32 %h, %lane; cvt.u64.u32 %l, %lane;
    mad.wide.u32 %at, %warp, 4, %masks; ld.global.u32 %mask, [%at];
    shr.u32 %mask, %mask, %lane; and.b32 %mask, %mask, 1; setp.ne.u32 %p, %mask, 0;
    @%p st.{space}.{width} [{goal}], {stored};
    bar.sync 0;
    ld.{space}.u8 %kept, [{goal}];
    mad.wide.u32 %at, %warp, 4, %out; st.global.u32 [%at], %kept;
    ret;
}}
"""


def masks() -> NDArray[np.uint32]:
    """All lanes, each single lane, and lanes at random, many and few."""
    rng = np.random.default_rng(31)
    found = rng.integers(1, 1 << 32, WARPS, dtype=np.uint64)
    found[::2] &= rng.integers(1, 1 << 32, WARPS // 2, dtype=np.uint64)
    found[found == 0] = 1
    found[:32], found[32] = 1 << np.arange(32, dtype=np.uint64), 0xFFFFFFFF
    return found.astype(np.uint32)


def _check(space: str, width: str, scratch: NDArray[np.uint8]) -> None:
    """The first 32 warps have one lane each: it must have stored this many bytes."""
    size = WIDTHS[width] * int(width.rpartition("u")[2]) // 8
    stored = 0 if space == "shared" else size
    changed = (scratch.reshape(32, 16) != 255).sum(axis=1)
    if (changed != stored).any():
        raise SystemExit(f"{space} {width} stored {changed} bytes, not {stored}")


def record(path: Path) -> None:
    """Launch every kernel a hundred times, and write down what stayed."""
    import cupy  # type: ignore[import-not-found,unused-ignore]

    device = cupy.cuda.Device()
    given = cupy.asarray(masks())
    kept: dict[str, Any] = {}
    for space in SPACES:
        for width in WIDTHS:
            # Each has its own path: CuPy keeps what it loaded from one before.
            text = path.with_name(f"{space}-{width}.ptx")
            text.write_text(kernel(space, width))
            module = cupy.RawModule(path=str(text))
            seen = set()
            for _ in range(100):
                out = cupy.zeros(WARPS, cupy.uint32)
                scratch = cupy.full(16 * WARPS, 255, cupy.uint8)
                launch = module.get_function("f")
                launch((WARPS // BLOCK,), (32 * BLOCK,), (given, out, scratch))
                seen.add(tuple(cupy.asnumpy(out).tolist()))
                _check(space, width, cupy.asnumpy(scratch[: 16 * 32]))
            text.unlink()
            if len(seen) > 1:
                raise SystemExit(f"{space} {width}: not the same each time")
            kept[f"{space} {width}"] = list(seen.pop())
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    about = {"gpu": name, "driver": cupy.cuda.runtime.driverGetVersion(), "runs": 100}
    path.write_text(json.dumps({**about, "kept": kept}) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
