"""A vector register computes what plain registers in braces compute."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import Error
from tests.simt.kernels import HEAD, launched

GIVEN = np.arange(1, 257, dtype=np.uint32) * 0x01020304
FOUR = GIVEN.reshape(32, 8)[:, :4]
VECTORS = """.reg .v4 .b32 %v, %w; .reg .v2 .b32 %u; .reg .v4 .f32 %g; .reg .v2 .b16 %s;
    .reg .v2 .b64 %l; .reg .v4 .b8 %c; .reg .v4 .b32 %n<3>; .reg .b64 %in;
    ld.param.u64 %in, [given]; mad.wide.u32 %in, %t, 32, %in;
    ld.global.v4.b32 %v, [%in]; mov.v4.b32 %w, {11, 12, 13, 14};
"""
BEFORE = """
.func (.reg .v4 .b32 r) turned(.reg .v4 .b32 a, .reg .b32 more)
{ mov.v4.b32 r, {a.y, a.z, a.w, a.x}; add.u32 r.x, r.x, more; ret; }
.func (.reg .v2 .b32 r) down(.reg .v2 .b32 a)
{ .reg .pred p; .reg .v2 .b32 b; setp.eq.u32 p, a.x, 0; mov.v2.b32 r, a; @p ret;
  sub.u32 b.x, a.x, 1; add.u32 b.y, a.y, a.x; call (r), down, (b); ret; }
"""

#: Each ends with the results in %v.
BODIES = {
    "ld": "",
    "parts": "add.u32 %v.x, %v.y, %v.z; xor.b32 %v.w, %v.x, %w.y;",
    "colours": "add.u32 %v.r, %v.g, %v.b; xor.b32 %v.a, %v.r, %w.g;",
    "mov": "mov.v4.b32 %w, %v; mov.b32 %v.x, 5; mov.b32 %v.y, %w.x;",
    "turn": "mov.v4.u32 %v, {%v.y, %v.z, %v.w, %v.x};",
    "swap": "mov.v4.b32 {%w.y, %w.x, _, %v.x}, %v; mov.v2.b32 {%v.y, %v.z}, {%w.x, %w.y};",
    "guarded": "setp.gt.u32 %p1, %t, 7; @%p1 mov.v4.b32 %v, %w;",
    "pack": "mov.b64 %rd1, {%v.x, %v.y}; mov.b64 %u, %rd1; mov.b64 %rd2, %u;"
    "mov.b64 {%v.z, %v.w}, %rd2;",
    "halves": "mov.b32 %s, %v.x; mov.b32 %v.y, {%s.y, %s.x}; mov.b32 %v.z, %s;",
    "bytes": "ld.global.v4.b8 %c, [%in+4]; mov.b32 %v.x, %c; cvt.u32.u8 %v.y, %c.z;",
    "b128": "mov.v2.b64 %l, {%in, 7}; sub.u64 %l.x, %l.x, %in; mov.b128 %q1, %l;"
    "mov.b128 %v, %q1;",
    "floats": "cvt.rn.f32.u32 %g.x, %v.x; mov.f32 %g.y, 0f40000000; mul.f32 %g.z, %g.x, %g.y;"
    "fma.rn.f32 %g.w, %g.x, %g.y, %g.z; mov.v4.f32 %v, %g;",
    "ranges": "mov.v4.b32 %n0, %v; mov.v4.b32 %n2, %w; add.u32 %n1.x, %n0.w, %n2.w;"
    "mov.v4.b32 %v, {%n1.x, %n2.y, %n0.z, %n2.w};",
    "wider": "ld.global.v4.u16 %v, [%in]; add.u32 %v.x, %v.x, %v.w;",
    "local": ".local .align 16 .b8 own[32]; st.local.v4.b32 [own+16], %v;"
    "ld.local.v2.b32 %u, [own+24]; mov.v2.b32 {%v.x, %v.y}, %u;",
    "shared": ".shared .align 16 .b8 tile[512]; mov.u32 %r1, tile; mad.lo.u32 %r1, %t, 16,"
    "%r1; st.shared.v4.b32 [%r1], %v; ld.shared.b32 %v.x, [%r1+12];",
    "shfl": "shfl.sync.bfly.b32 %v.x, %v.y, 3, 31, -1; selp.b32 %v.z, %v.x, %v.y, %p1;",
    "tid": "mov.v4.u32 %v, %tid; mov.v4.u32 %w, %ntid; add.u32 %v.w, %w.x, %v.x;",
    "mma": "mov.v2.b32 %u, {%v.x, %v.y}; mov.v4.f32 %g, {0.0, 1.0, 2.0, 3.0};"
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 %g, %w, %u, %g;"
    "mov.v4.f32 %v, %g;",
    "ldmatrix": ".shared .align 16 .b8 tile[512]; mov.u32 %r1, tile; mad.lo.u32 %r1, %t,"
    "16, %r1; st.shared.v4.b32 [%r1], %v; bar.sync 0;"
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 %v, [%r1];",
    "atom": "cvt.rn.f32.u32 %g.x, %t; mov.v4.f32 %g, {%g.x, %g.x, %g.x, %g.x};"
    "atom.global.add.v4.f32 %g, [%in], %g; mov.v4.f32 %v, %g;",
}
ELEMENTS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}


def plain(text: str) -> str:
    """The same with registers of one element, in braces where the vector is whole."""
    parts: dict[str, list[str]] = {"%tid": [], "%ntid": []}
    for name in parts:
        parts[name] = [f"{name}.{each}" for each in "xyzw"]

    def declared(found: re.Match[str]) -> str:
        lanes, kind, names = found.groups()
        made = []
        for stem, count in re.findall(r"(%\w+)(?:<(\d)>)?", names):
            for name in [f"{stem}{i}" for i in range(int(count))] if count else [stem]:
                parts[name] = [f"{name}_{i}" for i in range(int(lanes))]
                made += parts[name]
        return f".reg {kind} {', '.join(made)};"

    def used(found: re.Match[str]) -> str:
        name, element = found.groups()
        if name not in parts or (name == "%tid" and element):
            return found[0]
        if element:
            return parts[name][ELEMENTS[element]]
        return "{" + ", ".join(parts[name]) + "}"

    scalar = re.sub(r"\.reg \.v(\d) (\.\w+) ([^;]+);", declared, text)
    made = re.sub(r"(%\w+)(?:\.([xyzwrgba])\b)?", used, scalar)

    def one_by_one(found: re.Match[str]) -> str:
        """Special registers do not stand in braces."""
        kind, goals, special = found.groups()
        each = zip(goals.split(","), "xyzw", strict=True)
        return "".join(f"mov.{kind} {goal}, {special}.{e};" for goal, e in each)

    return re.sub(
        r"mov\.v4\.(\w+) \{([^}]*)\}, \{(%n?tid)\.x[^}]*\};", one_by_one, made
    )


def results(bodies: dict[str, str], *, scalar: bool = False) -> dict[str, np.ndarray]:
    """What each body leaves in %v, in 32 lanes; one kernel runs all of them."""
    text = ""
    for number, body in enumerate(bodies.values()):
        store = f"st.global.v4.b32 [%mine+{512 * number}], %v;"
        one = f"{VECTORS} {body} mad.wide.u32 %mine, %t, 16, %out; {store}"
        text += f"{{ {plain(one) if scalar else one} }}\n"
    found = launched(
        text + "ret;",
        32,
        1,
        [GIVEN.copy()],
        parameters=".param .u64 given",
        words=128 * len(bodies),
        before=BEFORE,
        watch=False,
    )
    return dict(zip(bodies, found.reshape(-1, 32, 4), strict=True))


def test_plain_registers_give_the_same() -> None:
    vectors, scalars = results(BODIES), results(BODIES, scalar=True)
    assert [name for name in BODIES if (vectors[name] != scalars[name]).any()] == []
    # They differ from one another: the comparison is not of what was loaded alone.
    assert len({each.tobytes() for each in vectors.values()}) > len(BODIES) - 3


@pytest.fixture(scope="module")
def known() -> dict[str, np.ndarray]:
    """Bodies whose results are told here."""
    return results(
        {
            "ld": "",
            "turn": BODIES["turn"],
            "block": "{ .reg .v2 .b32 %v; mov.v2.b32 %v, {3, 4}; mov.v2.b32 %u, %v; }"
            "mov.v2.b32 {%v.x, %v.y}, %u;",
            "call": "call (%w), turned, (%v, %t); mov.v4.b32 %v, %w;",
            "short tid": ".reg .v4 .u16 %tt; mov.v4.u16 %tt, %tid; cvt.u32.u16 %v.z, %tt.x;",
            "recursion": "mov.v2.b32 %u, {%t, 100}; call (%u), down, (%u);"
            "mov.v2.b32 {%v.x, %v.y}, %u;",
        }
    )


def test_a_load_has_all_elements(known: dict[str, np.ndarray]) -> None:
    assert (known["ld"] == FOUR).all()
    assert (known["turn"] == np.roll(FOUR, -1, axis=1)).all()


def test_halves_of_a_special_register(known: dict[str, np.ndarray]) -> None:
    assert (known["short tid"][:, 2] == np.arange(32)).all()


def test_an_inner_vector_hides_the_outer_one(known: dict[str, np.ndarray]) -> None:
    assert (known["block"][:, :2] == (3, 4)).all()
    assert (known["block"][:, 2:] == FOUR[:, 2:]).all()


def test_calls_pass_vectors(known: dict[str, np.ndarray]) -> None:
    want = np.roll(FOUR, -1, axis=1)
    want[:, 0] += np.arange(32, dtype=np.uint32)
    assert (known["call"] == want).all()


def test_a_function_that_calls_itself_keeps_its_vectors(
    known: dict[str, np.ndarray],
) -> None:
    assert (known["recursion"][:, 0] == 0).all()
    sums = [100 + t * (t + 1) // 2 for t in range(32)]
    assert (known["recursion"][:, 1] == sums).all()


@pytest.mark.parametrize(
    "wrong, said",
    [
        ("mov.b64 {%v.x, %v.y}, %u;", "a vector on both sides"),
        ("mov.v4.u32 %v, %t;", "vectors of 4 elements"),
        ("mov.v4.u32 %v, %u;", "4 registers in braces; given %u"),
        ("call (%v), turned, (%u, %t);", "a of turned has 128 bits"),
        ("call (%u), turned, (%v, %t);", "r of turned has 128 bits"),
        ("mov.b32 %r1, %u.z;", "'.x' or '.y'"),
        ("mov.b32 %r1, %v.q;", "'.x', '.y', '.z' or '.w'"),
        ("ld.global.b32 %r1, [%l];", "found '%l'"),
        ("mov.b64 %rd1, {%u, %u};", "in braces"),
        ("@%v bra DONE;", "a predicate"),
        (".reg .v8 .b32 %e;", "'.v4'"),
        (".reg .v4 .f64 %e;", "'.f32'"),
        (".reg .v2 .pred %e;", "'.b32'"),
    ],
)
def test_what_is_refused_is_said(wrong: str, said: str) -> None:
    with pytest.raises(Error, match=re.escape(said)):
        results({"wrong": wrong + " DONE: "})


def test_unused_elements_are_not_uninitialised() -> None:
    text = f"""{HEAD}.visible .entry k(.param .u64 x) {{
        .reg .v4 .b32 %v; .reg .b64 %d; ld.param.u64 %d, [x];
        mov.b32 %v.x, 1; mov.b32 %v.y, %v.z; st.global.v2.b32 [%d], {{%v.x, %v.y}};
        ret; }}"""
    found = [each.message for each in ptx.parse(text).check() if "read" in each.message]
    assert len(found) == 1
    assert found[0].startswith("%v.z is read")
