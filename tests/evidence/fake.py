"""A GPU for tests: this package again, with the wrong bits that a test asks for."""

from __future__ import annotations

from typing import Any

import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import programs
from fragmenta.cuda.tools.programs import DeviceLaunch, LaunchOutput

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.global .u32 calls;
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 by)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r0, [n];
    ld.param.f32 %f0, [by];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p, %r1, %r0;
    @%p ret;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, %f0;
    st.global.f32 [%rd4], %f2;
    atom.global.add.u32 %r2, [calls], 1;
    ret;
}
"""


class Fake:
    """A GPU that is this package again, and may change a byte on the way."""

    name, target = "a fake", "sm_90a"

    def versions(self) -> dict[str, str]:
        return {"gpu": self.name, "target": self.target}


def install(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the fake was asked; ``spoil`` is (buffer, byte) that it changes."""
    seen: dict[str, Any] = {"spoil": None, "programs": []}

    def launch(
        gpu: Fake, program: DeviceLaunch, buffers: Any, pattern: int | None = None
    ) -> LaunchOutput:
        seen["programs"].append(program)
        copies = [each.copy() for each in buffers]
        given = [
            each if isinstance(each, bytes) else ptx.pointer(copies[each[0]], each[1])
            for each in program.parameters
        ]
        kernel = ptx.parse(TEXT).kernels[program.entry]
        kernel.launch(
            program.grid, program.block, given, target=gpu.target, watch=False
        )
        if seen["spoil"]:
            which, place = seen["spoil"]
            copies[which][place] ^= 0x80
        return LaunchOutput(copies, seen.get("printed", ""))

    monkeypatch.setattr(programs, "launch", launch)
    return seen
