"""The variables of a module have their values, and can be set."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import Error, ShapeError
from tests.simt.kernels import HEAD, module, run


def test_a_module_may_declare_thousands_of_variables() -> None:
    # As the headers of <cuda/std/...> do; nothing uses them.
    before = "\n".join(f".global .u32 unused{i} = {i};" for i in range(3000))
    before += "\n.global .u32 used = 7;"
    made = module("ld.global.u32 %r1, [used]; st.global.u32 [%out], %r1;", "", before)
    out = np.zeros(1, np.uint32)
    run(made.kernels["k"], out, threads=1)
    assert out[0] == 7
    assert made.variables["unused2999"].view(np.uint32)[0] == 2999
    assert len(made.variables) == 3001


@pytest.mark.parametrize("space", ["global", "const"])
def test_more_variables_than_there_is_room_for(space: str) -> None:
    def loading(count: int) -> ptx.Kernel:
        names = [f"v{i}" for i in range(count)]
        before = "".join(f".{space} .u32 {n} = {i};\n" for i, n in enumerate(names))
        body = "".join(
            f"ld.{space}.u32 %r1, [{n}]; add.u32 %r2, %r2, %r1;\n" for n in names
        )
        found: ptx.Kernel = module(
            f"mov.u32 %r2, 0;{body}st.global.u32 [%out], %r2;", "", before
        ).kernels["k"]
        return found

    # One of the places for variables is that of a cooperative grid's workspace.
    most = 511 if space == "global" else 512
    out = np.zeros(1, np.uint32)
    run(loading(most), out, threads=1)
    assert out[0] == sum(range(most))
    said = f"uses more than {most} variables in .{space}; v{most}"
    with pytest.raises(Error, match=said):
        run(loading(most + 1), out, threads=1)


def test_a_variable_can_be_set() -> None:
    body = "ld.const.u32 %r1, [x+4]; st.global.u32 [%out], %r1;"
    made = module(body, "", ".const .b8 x[8];")
    out = np.zeros(1, np.float32)
    made.variables["x"] = np.float32([1, 2])
    run(made.kernels["k"], out, threads=1)
    assert out[0] == 2
    made.variables["x"] = bytes(4) + b"abcd"
    run(made.kernels["k"], out, threads=1)
    assert out.tobytes() == b"abcd"
    assert list(made.variables) == ["x"]
    assert repr(made.variables) == "Variables(x: 8 bytes)"
    with pytest.raises(ShapeError, match="x has 8 bytes; given 4 bytes, float32"):
        made.variables["x"] = np.float32(1)
    with pytest.raises(Error, match="no variable y; there are x"):
        made.variables["y"] = bytes(8)


def test_bytes_of_an_address() -> None:
    text = f"""{HEAD}
    .global .u32 x[4];
    .global .u64 whole = generic(x) + 4;
    .global .b8 parts[3] = {{0xff(x), 0xff00(x), 0xff0000000000(x)}};
    .global .b8 row[8] = {{0xff(x), 0xff00(x), 0xff0000(x), 0xff000000(x),
        0xff00000000(x), 0xff0000000000(x), 0xff000000000000(x),
        0xff00000000000000(x)}};
    .entry k() {{ ret; }}"""
    found = ptx.parse(text).variables
    address = found["row"].view(np.uint64)[0]
    assert found["whole"].view(np.uint64)[0] == address + np.uint64(4)
    each = found["row"]
    assert found["parts"].tolist() == [each[0], each[1], each[5]]
    assert each[5]
