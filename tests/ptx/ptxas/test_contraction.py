"""The rule for fused products and sums is that of ptxas.

The cases are judged by the machine code that ptxas writes for them.  What is expected
is written as three numbers: how many fma, mul, and add or sub there are in the end.
"""

import random
import re
from collections import Counter

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.ptx import parse
from fragmenta.ptx.ptxas.contraction import contract
from fragmenta.ptx.ptxas.pieces import Pieces
from fragmenta.ptx.ptxas.quotients import contract_all
from tests.disassembly import disassemble
from tests.ptx.opcodes.judging import forms, lines, statement, supported
from tests.thinning import some

TARGET = "sm_90a"
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"
BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4}

# What is computed of a, b, c, e, g, h; the results; fma, mul, add.  TT is the type.
CASES = [
    ("mul.TT t,a,b; add.TT d,t,c;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; add.TT d,c,t;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; sub.TT d,t,c;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; sub.TT d,c,t;", "d", (1, 0, 0)),
    ("mul.rn.TT t,a,b; add.TT d,t,c;", "d", (0, 1, 1)),
    ("mul.TT t,a,b; add.rn.TT d,t,c;", "d", (0, 1, 1)),
    ("mul.TT t,a,b; fma.rn.TT d,c,e,t;", "d", (1, 1, 0)),
    # several uses
    ("mul.TT t,a,b; add.TT d,t,c; add.TT u,t,e;", "d u", (2, 0, 0)),
    ("mul.TT t,a,b; add.TT d,t,c;", "d t", (0, 1, 1)),
    ("mul.TT t,a,b; add.TT d,t,c; mul.TT u,t,e;", "d u", (0, 2, 1)),
    ("mul.TT t,a,b; add.TT d,t,c; add.rn.TT u,t,e;", "d u", (0, 1, 2)),
    ("mul.TT t,a,b; add.TT d,t,t;", "d", (0, 1, 1)),
    ("mul.TT t,a,b; add.TT d,t,c; add.TT u,t,e;", "d", (1, 0, 0)),  # u is not used
    ("mul.TT t,a,b; add.TT d,t,c; add.TT u,d,t;", "d u", (2, 0, 0)),
    # two products
    ("mul.TT t,a,b; mul.TT u,c,e; add.TT d,t,u;", "d", (1, 1, 0)),
    ("mul.TT t,a,b; mul.TT u,c,e; add.TT d,t,u;", "d u", (1, 1, 0)),
    ("mul.TT t,a,b; mul.TT u,c,e; add.TT d,t,u; add.TT v,u,g;", "d v", (1, 1, 1)),
    ("mul.TT t,a,b; mul.TT u,c,e; add.TT d,t,u; sub.TT v,t,u;", "d v", (2, 1, 0)),
    (
        "mul.TT t,a,b; mul.TT u,c,e; mul.TT w,g,h; add.TT d,t,u; add.TT v,u,w; add.TT x,w,t;",
        "d v x",
        (3, 2, 0),
    ),
    (
        "mul.TT t,a,b; mul.TT u,c,e; mul.TT w,g,h; add.TT d,w,t; add.TT v,w,u; add.TT x,u,t;",
        "d v x",
        (2, 2, 1),
    ),
    # something in between
    ("mul.TT t,a,b; mov.BITS n,t; add.TT d,n,c;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; abs.TT n,t; add.TT d,n,c;", "d", (0, 1, 1)),
    ("mul.TT t,a,b; bar.sync 0; add.TT d,t,c;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; membar.gl; add.TT d,t,c;", "d", (0, 1, 1)),
    (
        "mul.TT t,a,b; div.u32 %z,%z,3; add.TT d,t,c; @%p1 st.u32 [%q],%z;",
        "d",
        (1, 0, 0),
    ),
    (
        "mul.TT t,a,b; div.s32 %z,%z,3; add.TT d,t,c; @%p1 st.u32 [%q],%z;",
        "d",
        (0, 1, 1),
    ),
    (
        "mul.TT t,a,b; bfind.u64 %z,%q; add.TT d,t,c; @%p1 st.u32 [%q],%z;",
        "d",
        (0, 1, 1),
    ),
    (
        "mul.TT t,a,b; @%p1 ld.u32 %z,[%q]; add.TT d,t,c; st.u32 [%q],%z;",
        "d",
        (0, 1, 1),
    ),
    ("mul.TT t,a,b; add.TT a,e,g; add.TT d,t,c;", "d a", (1, 0, 1)),  # a changes
    ("mul.TT a,a,b; add.TT a,a,c;", "a", (1, 0, 0)),
    # branches and guards
    ("mul.TT t,a,b; mov.BITS d,c; @%p1 bra L; add.TT d,t,c; L:", "d", (0, 1, 1)),
    ("mul.TT t,a,b; @%p1 bra L; bra L; L: add.TT d,t,c;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; bra M; L: trap; M: add.TT d,t,c; @%p1 bra L;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; mov.BITS d,c; @%p1 add.TT d,t,c;", "d", (1, 0, 0)),
    ("mov.BITS t,e; @%p1 mul.TT t,a,b; add.TT d,t,c;", "d", (0, 1, 1)),
    ("mul.TT t,a,b; @%p1 mov.BITS t,e; add.TT d,t,c;", "d", (0, 1, 1)),
]
NEGATIONS = [
    ("mul.TT t,a,b; neg.TT n,t; add.TT d,n,c;", "d", (1, 0, 0)),
    ("mul.TT t,a,b; neg.TT n,t; add.TT d,n,c; add.TT u,t,e;", "d u", (2, 0, 0)),
    ("mul.TT t,a,b; neg.TT n,t; sub.TT d,c,n;", "d", (1, 0, 0)),
]
# Scalars: a product without other uses comes first, wherever it stands.
SCALARS = [
    ("mul.TT t,a,b; mul.TT u,c,e; add.TT d,t,g; add.TT v,u,t;", "d v", (1, 1, 1)),
    ("mul.TT t,a,b; mul.TT u,c,e; add.TT v,u,t; add.TT d,t,g;", "d v", (1, 1, 1)),
]
PAIRS = [("mul.TT t,a,b; mul.TT u,c,e; add.TT d,t,g; add.TT v,u,t;", "d v", (2, 1, 0))]
FLUSHED = [
    ("mul.ftz.TT t,a,b; add.ftz.TT d,t,c;", "d", (1, 0, 0)),
    ("mul.ftz.TT t,a,b; add.TT d,t,c;", "d", (0, 1, 1)),
    ("mul.TT t,a,b; add.ftz.TT d,t,c;", "d", (0, 1, 1)),
    ("mul.sat.TT t,a,b; add.TT d,t,c;", "d", (0, 1, 1)),
    ("mul.ftz.TT t,a,b; sub.ftz.sat.TT d,c,t;", "d", (1, 0, 0)),
]
BY_TYPE = {
    "f32": CASES + NEGATIONS + SCALARS + FLUSHED,
    "f64": CASES + NEGATIONS + SCALARS,
    "f16": CASES + NEGATIONS + SCALARS + FLUSHED,
    "bf16": CASES + NEGATIONS + SCALARS,
    "f16x2": CASES + NEGATIONS + PAIRS + FLUSHED,
    "bf16x2": [*CASES, *PAIRS, (NEGATIONS[0][0], "d", (0, 1, 1))],
}


def kernel(name, of, body, results):
    """A kernel around some instructions."""
    size, bits = BYTES[of], f"b{8 * BYTES[of]}"
    names = sorted({*re.findall(r"\b[a-hnt-x]\d*\b", body), *"abcegh"} - {"f"})
    loads = [
        f"ld.global.{bits} {each}, [%q+{at * size}];"
        for at, each in enumerate("abcegh")
    ]
    stores = [
        f"st.global.{bits} [%q+{(8 + at) * size}], {each};"
        for at, each in enumerate(results)
    ]
    body = re.sub(r"\b([LM])\b", rf"\1{name}", body)
    return "\n".join(
        [
            f".visible .entry {name}(.param .u64 data, .param .u32 more) {{",
            ".reg .b64 %q; .reg .b32 %z; .reg .pred %p<2>;",
            f".reg .{bits} {', '.join(names)};",
            "ld.param.u64 %q, [data]; ld.param.u32 %z, [more]; setp.ne.u32 %p1, %z, 0;",
            *loads,
            body.replace("TT", of).replace("BITS", bits),
            *stores,
            "ret; }",
        ]
    )


def ours(function, of):
    """How many fma, mul and add there are after contraction."""
    code = contract(function)
    dead = {*Pieces(code).dead()}
    found = Counter(
        {"sub": "add"}.get(each.opcode, each.opcode)
        for place, each in enumerate(code.instructions)
        if place not in dead and each.qualifiers[-1:] == (of,)
    )
    return found["fma"], found["mul"], found["add"]


@pytest.mark.parametrize("of", BY_TYPE)
def test_what_is_fused(of):
    for number, (body, results, expected) in enumerate(BY_TYPE[of]):
        text = HEADER + kernel(f"k{number}", of, body, results.split())
        function = parse(text).functions[f"k{number}"]
        assert ours(function, of) == expected, body


def machine_code(text, *options):
    """The opcodes and operands of each kernel."""
    said = disassemble(assembler.assemble(text, TARGET, *options))
    found = {}
    for part in re.split(r"\.section\s+\.text\.", said)[1:]:
        lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?(.*?)\s*;", part)
        found[re.match(r'"?([\w$]+)', part)[1]] = lines
    return found


def theirs(lines, of):
    """The same numbers from machine code."""
    if of in ("f32", "f64"):
        first = of.replace("f32", "F").replace("f64", "D")
        # -(a * b) is written as an fma with -0.
        fused = [x for x in lines if x.startswith(f"{first}FMA") and "-RZ" not in x]
        negated = [x for x in lines if x.startswith(f"{first}FMA") and "-RZ" in x]
        products = [x for x in lines if x.startswith(f"{first}MUL")] + negated
        sums = [x for x in lines if x.startswith(f"{first}ADD") and "-RZ" not in x]
        return len(fused), len(products), len(sums)
    some = [x for x in lines if x.startswith("H")]
    sums = [x for x in some if (x.startswith("HADD2") and "RZ" not in x) or "1, 1" in x]
    alone = [x for x in some if re.search(r", -RZ(\.H0_H0)?$", x)]
    products = [x for x in some if x.startswith("HMUL2")] + [
        x for x in alone if x.startswith("HFMA2") and not re.match(r"\S+ R\d+, -?RZ", x)
    ]
    fused = [
        x for x in some if x.startswith("HFMA2") and "RZ" not in x and "1, 1" not in x
    ]
    return len(fused), len(products), len(sums)


@pytest.mark.parametrize("of", ["f32", "f64", "f16x2", "bf16x2"])
def test_ptxas_does_the_same(of):
    cases = BY_TYPE[of]
    text = HEADER + "\n".join(
        kernel(f"k{number}", of, body, results.split())
        for number, (body, results, _) in enumerate(cases)
    )
    found = machine_code(text)
    for number, (body, _, expected) in enumerate(cases):
        assert theirs(found[f"k{number}"], of) == expected, body


# ── quotients ───────────────────────────────────────────────────────────────

QUOTIENTS = [
    (f"div.{how}{z}.TT t,a,b; {between} {add}{z}.TT d,c,t;", fused)
    for how in ("approx", "full")
    for z in ("", ".ftz")
    for add in ("add", "sub")
    for between, fused in (
        ("", True),
        ("bar.sync 0;", True),
        ("@%p1 ld.global.f32 c,[%q+100];", False),
        ("@%p1 st.global.f32 [%q+100],e;", False),
        ("@%p1 mov.f32 c,e;", True),
        ("@%p1 bra L; add.f32 c,c,e; L:", False),
    )
]


def test_quotients_are_fused_as_products_are():
    text = HEADER + "\n".join(
        kernel(f"k{number}", "f32", body, ["d"])
        for number, (body, _) in enumerate(QUOTIENTS)
    )
    found, functions = machine_code(text), parse(text).functions
    for number, (body, fused) in enumerate(QUOTIENTS):
        code = contract_all(functions[f"k{number}"]).instructions
        assert any(each.opcode == "fma" for each in code) == fused, body
        assert theirs(found[f"k{number}"], "f32")[0] == fused, body


# ── guards ──────────────────────────────────────────────────────────────────

# A guarded instruction between a product and its sum; its result; whether the two are
# fused.  u is 0 before.
GUARDED = [
    ("ld.global.f32 u,[%q+100];", "u", False),
    ("ld.global.cg.f32 u,[%q+100];", "u", False),
    ("ld.global.nc.f32 u,[%q+100];", "u", False),
    ("ld.global.v2.f32 {u,v},[%q+104];", "u", False),
    ("ld.shared.f32 u,[%z];", "u", False),
    ("ld.param.f32 u,[more];", "u", False),
    ("ld.f32 u,[%q+100];", "u", False),
    ("st.global.f32 [%q+100],e;", "", False),
    ("st.shared.f32 [%z],e;", "", False),
    ("atom.global.add.f32 u,[%q+100],e;", "u", False),
    ("red.global.add.f32 [%q+100],e;", "", False),
    ("cp.async.ca.shared.global [%z],[%q],4;", "", False),
    ("cp.async.commit_group;", "", False),
    ("cp.async.wait_group 0;", "", False),
    ("prefetch.global.L1 [%q];", "", False),
    ("discard.global.L2 [%q],128;", "", False),
    ("shfl.sync.bfly.b32 u,e,1,31,-1;", "u", False),
    ("vote.sync.ballot.b32 u,%p1,-1;", "u", False),
    ("activemask.b32 u;", "u", False),
    ("redux.sync.add.s32 u,e,-1;", "u", False),
    ("match.any.sync.b32 u,e,-1;", "u", False),
    ("bar.sync 0;", "", False),
    ("bar.warp.sync -1;", "", False),
    ("barrier.cta.arrive 1,64;", "", False),
    ("mbarrier.init.shared.b64 [%z],1;", "", False),
    ("fence.proxy.async;", "", False),
    ("griddepcontrol.wait;", "", False),
    ("nanosleep.u32 10;", "", False),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {u},[%z];", "u", False),
    ("mov.u32 u,%clock;", "u", True),
    ("getctarank.shared::cluster.u32 u,%z;", "u", True),
    ("mapa.shared::cluster.u32 u,%z,0;", "u", True),
    # what is not used is left out
    ("ld.global.f32 u,[%q+100];", "", True),
    ("ld.relaxed.gpu.global.f32 u,[%q+100];", "", True),
    ("ld.acquire.gpu.global.f32 u,[%q+100];", "", False),
    ("ld.volatile.global.f32 u,[%q+100];", "", False),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {u},[%z];", "", True),
    ("shfl.sync.bfly.b32 u,e,1,31,-1;", "", True),
    ("vote.sync.ballot.b32 u,%p1,-1;", "", True),
    ("activemask.b32 u;", "", True),
    ("atom.global.add.f32 u,[%q+100],e;", "", False),
]
ALWAYS = "mov.pred %p1,-1;"


@pytest.fixture(scope="module")
def guarded():
    """Each instruction with a guard, then with one that always holds; the fusions."""
    bodies = {}
    for first in ("", ALWAYS):
        for instruction, result, fused in GUARDED:
            body = (
                f"{first} mov.b32 u,0; mul.TT t,a,b; @%p1 {instruction} add.TT d,c,t;"
            )
            bodies[body, ("d", *result)] = fused or bool(first)
    text = HEADER + "\n".join(
        kernel(f"k{number}", "f32", *each).replace("setp.ne.u32 %p1, %z, 0;", "")
        if each[0].startswith(ALWAYS)
        else kernel(f"k{number}", "f32", *each)
        for number, each in enumerate(bodies)
    )
    return text, [*bodies.items()]


def test_guards_that_become_jumps(guarded):
    text, bodies = guarded
    functions = parse(text).functions
    for number, ((body, _), fused) in enumerate(bodies):
        assert ours(functions[f"k{number}"], "f32")[0] == fused, body


def test_ptxas_makes_jumps_of_the_same_guards(guarded):
    text, bodies = guarded
    found = machine_code(text)
    for number, ((body, _), fused) in enumerate(bodies):
        assert theirs(found[f"k{number}"], "f32")[0] == fused, body


def between(form, name, of, guard):
    """An instruction of the table between a product and its sum."""
    *declared, instruction = statement(form)
    loads, stores = [], []
    for each in declared:
        kind, register = re.fullmatch(r"\.reg \.(\w+) (\w+);", each).groups()
        if kind == "pred":
            loads.append(f"ld.global.u32 %z,[%q+4]; setp.gt.u32 {register},%z,%y;")
            stores.append(f"selp.u32 %z,1,0,{register}; st.global.u32 [%q+4],%z;")
            continue
        loads.append(f"ld.volatile.global.{kind} {register},[%q];")
        stores.append(f"st.volatile.global.{kind} [%q],{register};")
    both = f"mul.{of} t,a,b; {guard} {instruction} add.{of} d,c,t;"
    first = "{ .reg .u32 %y; ld.global.u32 %y,[%q];"
    body = "\n".join([first, *declared, *loads, both, *stores, "}"])
    return kernel(name, of, body, ["d"])


@pytest.mark.long
@pytest.mark.parametrize(("start", "guard"), [(0, ""), (1, "@%p1")])
def test_what_computes_in_each_lane(start, guard):
    """The lines of the table, before ptxas and before us."""
    chosen = {}
    for line in some(lines(), 2, start):
        form = [*forms(line, few=True)][-1]
        wide = any(".b128" in each for each in statement(form))
        if supported(line, TARGET) and not wide and form.mnemonic != "div.rn.f64":
            chosen[f"k{len(chosen)}"] = form
    # What ptxas writes for an instruction may have fused products of its own type.
    kinds = {
        name: "f32" if "f64" in form.mnemonic.split(".") else "f64"
        for name, form in chosen.items()
    }
    text = HEADER.replace("9.0", "9.4") + "\n".join(
        between(form, name, kinds[name], guard) for name, form in chosen.items()
    )
    found, functions = machine_code(text), parse(text).functions
    assert len(chosen) > 140
    wrong = {
        form.mnemonic
        for name, form in chosen.items()
        if ours(functions[name], kinds[name])[0] != theirs(found[name], kinds[name])[0]
    }
    assert not wrong


# ── random programs ─────────────────────────────────────────────────────────


def program(draw, of):
    """A straight piece of code with many products and sums, and its results."""
    values, products, code, seen = list("abcegh"), [], [], set()
    for number in range(draw.randint(3, 9)):
        while True:
            opcode = draw.choices(("mul", "add", "sub", "mul.rn"), (40, 35, 20, 5))[0]
            factors = values[:6] if draw.random() < 0.8 else values
            terms = products if products and draw.random() < 0.6 else values
            pool = factors if opcode.startswith("mul") else terms
            x, y = draw.choice(pool), draw.choice(pool if len(pool) > 1 else values)
            key = (opcode[:3] in ("add", "sub"), *sorted((x, y)))
            if x != y and key not in seen:
                break
        seen.add(key)  # nothing is computed twice: ptxas would see that
        code.append(f"{opcode}.{of} v{number},{x},{y};")
        values.append(f"v{number}")
        if opcode == "mul":
            products.append(f"v{number}")
    names = values[6:]
    return " ".join(code), sorted({*draw.sample(names, 2), *names[-2:]})


@pytest.mark.parametrize("of", ["f32", "f64", "f16x2"])
def test_random_programs(of):
    draw = random.Random(of)
    made = [program(draw, of) for _ in range(80)]
    text = HEADER + "\n".join(
        kernel(f"k{number}", of, body, results)
        for number, (body, results) in enumerate(made)
    )
    found, functions = machine_code(text), parse(text).functions
    fused = 0
    for number, (body, _) in enumerate(made):
        answer = ours(functions[f"k{number}"], of)
        fused += answer[0]
        assert theirs(found[f"k{number}"], of) == answer, body
    assert fused > 30


# ── kernels as compilers write them ─────────────────────────────────────────

ROTARY = """
.visible .entry rotary(.param .u64 x, .param .u32 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f32 %f<12>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [y];
    mov.u32 %r2, %tid.x; setp.ge.u32 %p1, %r2, %r1; @%p1 bra DONE;
    mul.wide.u32 %rd2, %r2, 16; add.s64 %rd3, %rd1, %rd2;
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3];
    mul.f32 %f5, %f1, %f3; mul.f32 %f6, %f2, %f4; sub.f32 %f7, %f5, %f6;
    mul.f32 %f8, %f1, %f4; fma.rn.f32 %f9, %f2, %f3, %f8;
    st.global.v2.f32 [%rd3], {%f7, %f9};
DONE: ret; }
"""
SOFTMAX = """
.visible .entry softmax(.param .u64 x, .param .u32 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f32 %f<24>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 16; add.s64 %rd3, %rd1, %rd2;
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3];
    max.f32 %f5, %f1, %f2; max.f32 %f6, %f3, %f4; max.f32 %f7, %f5, %f6;
    mul.f32 %f8, %f7, 0f3FB8AA3B;
    mul.f32 %f9, %f1, 0f3FB8AA3B; sub.f32 %f10, %f9, %f8; ex2.approx.ftz.f32 %f11, %f10;
    mul.f32 %f12, %f2, 0f3FB8AA3B; sub.f32 %f13, %f12, %f8; ex2.approx.ftz.f32 %f14, %f13;
    mul.f32 %f15, %f11, %f3; mul.f32 %f16, %f14, %f4; add.f32 %f17, %f15, %f16;
    add.f32 %f18, %f11, %f14; div.full.f32 %f19, %f17, %f18;
    st.global.f32 [%rd3], %f19; ret; }
"""
COMPENSATED = """
.visible .entry compensated(.param .u64 x, .param .u32 y) {
    .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .f64 %d<16>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 32; add.s64 %rd3, %rd1, %rd2;
    ld.global.v2.f64 {%d1, %d2}, [%rd3]; ld.global.v2.f64 {%d3, %d4}, [%rd3+16];
    mul.f64 %d5, %d1, %d2; sub.f64 %d6, %d5, %d3; add.f64 %d7, %d4, %d6;
    sub.f64 %d8, %d7, %d4; sub.f64 %d9, %d8, %d6; mul.f64 %d10, %d9, %d9;
    add.f64 %d11, %d10, %d7; st.global.f64 [%rd3], %d11; st.global.f64 [%rd3+8], %d9; ret; }
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "text", [ROTARY, SOFTMAX, COMPENSATED], ids=["rotary", "softmax", "compensated"]
)
def test_as_many_fusions_as_ptxas_without_them_has_products(text):
    """--fmad=false writes every product and sum: the difference is what was fused."""
    ((name, function),) = parse(HEADER + text).functions.items()
    of = "f64" if "f64" in text else "f32"
    before, after = (
        Counter(
            re.match(r"\w+", line)[0]
            for line in machine_code(HEADER + text, flag)[name]
        )
        for flag in ("--fmad=false", "--fmad=true")
    )
    opcode = {"f32": "FFMA", "f64": "DFMA"}[of]
    made = ours(function, of)[0] - sum(x.opcode == "fma" for x in function.instructions)
    assert made == after[opcode] - before[opcode] > 0


def test_what_the_new_instructions_are():
    """Signs are changed by neg, and a factor that changes is copied before."""
    body = "mul.f32 t,a,b; mov.f32 a,e; neg.f32 n,t; sub.ftz.f32 u,c,a; sub.f32 d,c,n; @%p1 bra L; L:"
    text = HEADER + kernel("k", "f32", body, ["d", "a", "u"])
    code = contract(parse(text).functions["k"])
    made = [
        f"{each.mnemonic} {','.join(getattr(x, 'name', '?') for x in each.operands)}"
        for each in code.instructions
        if each.qualifiers[-1:] in (("f32",), ("b32",))
        and each.opcode not in ("ld", "st")
    ]
    copy = made[0].split()[1].split(",")[0]
    assert made == [
        f"mov.b32 {copy},a",
        "mov.f32 a,e",
        "sub.ftz.f32 u,c,a",
        f"fma.rn.f32 d,{copy},b,c",
    ]
    assert set(code.labels.values()) <= {*range(len(code.instructions) + 1)}
    assert code.registers[-1].name == copy
