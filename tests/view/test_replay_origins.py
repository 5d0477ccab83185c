"""Where the page says that registers come from: the value there is the register's."""

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.tracing import log
from tests.thinning import THOROUGH
from tests.view.test_explorer_page import need
from tests.view.test_replay_products import answers

pytestmark = pytest.mark.xdist_group("explorer")

HEAD = """.version 9.4
.target {target}
.address_size 64
.visible .entry moved(.param .u64 in, .param .u64 out)
{{
    .reg .b32 %r<24>; .reg .b64 %l<6>; .reg .f32 %f<6>; .reg .pred %p<4>;
    .shared .align 128 .b8 tile[4096];
    ld.param.u64 %l1, [in];
    ld.param.u64 %l2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %l3, %r1, 4;
    add.s64 %l4, %l1, %l3;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, tile;
    add.u32 %r2, %r3, %r2;
"""
FILLED = "".join(
    f"""    ld.global.u32 %r20, [%l4+{each}];
    st.shared.u32 [%r2+{each}], %r20;
"""
    for each in range(0, 2048, 128)
)
END = """    mov.f32 %f1, 0f00000000;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f5},
        {%r8, %r9, %r10, %r11}, {%r8, %r9}, {%f1, %f1, %f1, %f1};
    add.s64 %l5, %l2, %l3;
    st.global.f32 [%l5], %f2;
    ret;
}
"""
"""A page has the forms of moves if it has a product."""

LOADS = [
    ("m8n8.x1.shared.b16", 16, 1, "sm_80"),
    ("m8n8.x2.shared.b16", 16, 2, "sm_80"),
    ("m8n8.x4.shared.b16", 16, 4, "sm_80"),
    ("m8n8.x1.trans.shared.b16", 16, 1, "sm_80"),
    ("m8n8.x2.trans.shared.b16", 16, 2, "sm_80"),
    ("m8n8.x4.trans.shared.b16", 16, 4, "sm_80"),
    ("m16n16.x1.trans.shared.b8", 8, 2, "sm_120a"),
    ("m16n16.x2.trans.shared.b8", 8, 4, "sm_120a"),
]
"""An ldmatrix, the bits of an element, registers, a target."""
NARROW = [
    (f"{shape}{trans}.shared.b8x16.{kind}", bits, registers, "sm_120a")
    for shape, trans, registers in (
        ("m8n16.x1", "", 1),
        ("m8n16.x4", "", 4),
        ("m16n16.x1", ".trans", 2),
        ("m16n16.x2", ".trans", 4),
    )
    for kind, bits in (("b6x16_p32", 6), ("b4x16_p64", 4))
]
"""Those that make bytes of 6 or 4 bits."""


def recorded(body, target="sm_80"):
    text = HEAD.format(target=target) + body + END
    (kernel,) = ptx.parse(text).kernels.values()
    given = np.random.default_rng(5).integers(0, 1 << 32, 512, np.uint32)
    out = np.zeros(32, np.float32)
    made = kernel.launch(1, 32, [given, out], target=target, replay=True, watch=False)
    return made.replay()


def loaded(form, registers, target):
    """A recorded ldmatrix; its rows are in no order, 16 bytes each."""
    goals = ", ".join(f"%r{8 + each}" for each in range(registers))
    zeros = "".join(f"    mov.b32 %r{8 + each}, 0;\n" for each in range(registers, 4))
    body = f"""{FILLED}    bar.sync 0;
    mul.lo.u32 %r4, %r1, 7;
    and.b32 %r4, %r4, 31;
    shl.b32 %r4, %r4, 4;
    add.u32 %r4, %r3, %r4;
    ldmatrix.sync.aligned.{form} {{{goals}}}, [%r4];
{zeros}"""
    return recorded(body, target)


def chains(replay, path, opcode, bits, names, warp=0):
    """The chains of all parts of registers in all lanes, and their values."""
    (site,) = [n for n, e in enumerate(replay.sites) if e.opcode.startswith(opcode)]
    step = int(np.flatnonzero(replay.steps.site == site)[0])
    numbers = {each.name: n for n, each in enumerate(replay.registers)}
    held = replay.registers_at(step, warp)
    asked, values = [], []
    for name in names:
        for lane in range(32):
            for low in range(0, 32, bits):
                asked.append([step, warp, numbers[name], lane, low, bits])
                values.append(int(held[name][lane]) >> low & (1 << bits) - 1)
    return answers(replay, path, {"chains": asked})["chains"], values


def names_of(registers):
    return [f"%r{8 + each}" for each in range(registers)]


@pytest.mark.parametrize(("form", "bits", "registers", "target"), LOADS)
def test_what_ldmatrix_loaded_is_at_its_origin(form, bits, registers, target, tmp_path):
    need("whether the replay page finds what ldmatrix has loaded")
    replay = loaded(form, registers, target)
    found, values = chains(
        replay, tmp_path / "page.html", "ldmatrix", bits, names_of(registers)
    )
    for chain, value in zip(found, values, strict=True):
        # The register, shared memory, the register that was stored, the array.
        kinds = [each["kind"] for each in chain]
        assert kinds == ["register", "memory", "register", "memory"]
        assert [int(each["value"]) for each in chain] == [value] * 4
        last = replay.memories[chain[-1]["memory"]]
        assert last.name == "argument 0 (in)"
    ends = {(each[-1]["offset"], each[-1]["bytes"]) for each in found}
    assert len(ends) == len(found)  # each element has an origin of its own


@pytest.mark.parametrize(
    ("form", "bits", "registers", "target"), NARROW if THOROUGH else NARROW[2:5]
)
def test_narrow_elements_are_in_the_bytes_of_their_origin(
    form, bits, registers, target, tmp_path
):
    need("whether the replay page finds what ldmatrix has made bytes of")
    replay = loaded(form, registers, target)
    found, values = chains(
        replay, tmp_path / "page.html", "ldmatrix", 8, names_of(registers)
    )
    for chain, value in zip(found, values, strict=True):
        place, size = int(chain[1]["value"]), 8 * chain[1]["bytes"]
        inside = [
            place >> low & (1 << bits) - 1 for low in range(0, size - bits + 1, 2)
        ]
        assert value in inside
        assert value < 1 << bits


@pytest.mark.parametrize(
    "move",
    [
        "shfl.sync.bfly.b32 %r8, %r5, 5, 31, -1;",
        "shfl.sync.down.b32 %r8, %r5, 3, 31, -1;",
        "shfl.sync.up.b32 %r8|%p1, %r5, 2, 0x1800, -1;",
        "shfl.sync.idx.b32 %r8, %r5, %r2, 0x181f, -1;",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r8, %r5;",
    ],
)
def test_what_comes_from_another_lane_is_found_there(move, tmp_path):
    need("whether the replay page finds the lane that a value comes from")
    rest = "".join(f"    mov.b32 %r{each}, 0;\n" for each in (9, 10, 11))
    body = f"    ld.global.u32 %r5, [%l4];\n    {move}\n{rest}"
    opcode = move.partition(" ")[0]
    found, values = chains(recorded(body), tmp_path / "page.html", opcode, 16, ["%r8"])
    lanes = set()
    for number, (chain, value) in enumerate(zip(found, values, strict=True)):
        assert [int(each["value"]) for each in chain] == [value] * 3
        lanes.add((chain[1]["lane"], number // 2))
    assert any(one != other for one, other in lanes)


# ── lanes without a value ───────────────────────────────────────────────────

SOME = """    setp.lt.u32 %p1, %r1, 3;
    @%p1 add.u32 %r5, %r1, 100;
    setp.eq.u32 %p2, %r1, 1;
    @%p2 add.u32 %r5, %r1, 200;
    mov.b32 %r8, 0;
    mov.b32 %r9, 0;
    mov.b32 %r10, 0;
    mov.b32 %r11, 0;
"""


def test_lanes_that_never_wrote_a_register_have_no_value(tmp_path):
    need("whether the replay page shows values that were never written")
    replay = recorded(SOME)
    steps = [
        step
        for step in range(len(replay))
        if replay.sites[replay.steps.site[step]].opcode == "add.u32"
        and replay.steps.lanes[step] < 0xFF
    ]
    number = [each.name for each in replay.registers].index("%r5")
    assert "%r5" not in replay.registers_at(steps[0] - 1, 0)
    for step, wanted in zip(steps, ([100, 101, 102], [100, 201, 102]), strict=True):
        held = replay.registers_at(step, 0)["%r5"]
        assert isinstance(held, np.ma.MaskedArray)
        assert held.compressed().tolist() == wanted
        assert np.flatnonzero(~held.mask).tolist() == [0, 1, 2]
        asked = {
            "registers": [[step, 0]],
            "expressions": [[step, 0, "%r5"]],
            "chains": [[step, 0, number, lane, 0, 32] for lane in (0, 1, 5)],
        }
        said = answers(replay, tmp_path / "page.html", asked)
        (shown,) = [each[2] for each in said["registers"][0] if each[0] == number]
        assert shown == [*map(str, wanted), *["–"] * 29]
        texts = [*map(str, wanted), *["0?"] * 29]
        (expression,) = said["expressions"]
        assert [each.replace("0x0?", "0?") for each in expression["texts"]][
            3:
        ] == texts[3:]
        wrote = [each[0]["wrote"] for each in said["chains"]]
        assert wrote == [steps[0], step, -1]
    full = replay.registers_at(len(replay) - 1, 0)["%r1"]
    assert not isinstance(full, np.ma.MaskedArray)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("first", [3, 12, 15])
def test_a_part_of_a_run_knows_which_lanes_had_written(first, small, monkeypatch):
    whole = recorded(SOME)
    if small:  # the log is emptied every two steps
        rooms = [(*e[:3], 2 if e[4] == 4 else e[3], e[4]) for e in log._ROOMS]
        monkeypatch.setattr(log, "_ROOMS", tuple(rooms))
    (kernel,) = ptx.parse(HEAD.format(target="sm_80") + SOME + END).kernels.values()
    given, out = np.zeros(512, np.uint32), np.zeros(32, np.float32)
    part = kernel.launch(
        1, 32, [given, out], replay=ptx.Window(first=first), watch=False
    ).replay()
    for step in range(-1, len(part)):
        here, there = (
            {k: np.ma.getmaskarray(v).tolist() for k, v in each.items()}
            for each in (
                part.registers_at(step, 0),
                whole.registers_at(step + first, 0),
            )
        )
        assert here == there
