"""Hostile texts: operands too many, too few, too wide, too narrow, out of range.

Each is made of a right instruction, of the table of opcodes or of the catalogue, by one
change.  Either it is refused, in words and before anything is compiled; or it is
compiled, and what it does is bounded.  The parameters of kernels and functions, and
calls, have places that are known before a kernel runs: see :func:`modules`.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

from fragmenta.ptx.opcodes import TABLE
from tests.fuzz.bounds.forms import HEAD, REGISTERS, Form, catalogue_forms
from tests.ptx.opcodes.carried import statements

OTHERS = (
    "%p1",
    "%h1",
    "%r1",
    "%d1",
    "%q1",
    "!%p1",
    "_",
    "0",
    "-4",
    "16",
    "1048576",
    "1.5",
    "0xFFFFFFFFFFFFFFFF",
    "%tid.x",
    "%clock64",
    "%envreg3",
    "variable",
    "tile",
    "DONE",
    "%r1|%p1",
    "%p1|%q1",
    "{}",
    "[%d1]",
    "[%p1]",
    "[%q1]",
    "[tile+4294967296]",
    "[%d1, {%r1, %r2}]",
    "[variable-8]",
    "-%r1",
    "%r1.h1",
)
"""What an operand may be replaced by."""
COUNTS = (1, 2, 3, 5, 8, 16, 33, 400, 4000)
"""Registers in braces."""


def _vector(draw: random.Random) -> str:
    name, count = draw.choice(["%p", "%h", "%r", "%d", "%q"]), draw.choice(COUNTS)
    return f"{{{', '.join(f'{name}{i % 9}' for i in range(count))}}}"


def _split(operands: str) -> list[str]:
    """Operands at the commas that stand in no brackets."""
    return [each.strip() for each in re.split(r",(?![^\[{]*[\]}])", operands)]


def _hurt(draw: random.Random, operands: list[str]) -> list[str]:
    """One change."""
    made = list(operands)
    place = draw.randrange(len(made) + 1)
    kind = draw.randrange(6)
    if kind == 0 and made:
        del made[min(place, len(made) - 1)]
    elif kind == 1:
        made.insert(place, draw.choice([*OTHERS, *operands, _vector(draw)]))
    elif made:
        new = _vector(draw) if kind == 2 else draw.choice(OTHERS)
        made[min(place, len(made) - 1)] = new
    return made


def hurt(count: int, seed: int) -> Iterator[Form]:
    """Instructions with one change each, of the table and of the catalogue in turns."""
    draw = random.Random(f"texts {seed}")
    lines = [
        line
        for some in TABLE.lines.values()
        for line in some
        if not line.opcode.startswith("_") and line.opcode not in NO_TEXT
    ]
    listed = catalogue_forms()
    for number in range(count):
        if number % 3:
            right = draw.choice(statements(draw.choice(lines), draw, _addressed))
            mnemonic, operands = right.mnemonic, list(right.operands)
            scope = "{}"
        else:
            form = draw.choice(listed)
            *before, statement, _ = form.text.split("\n")
            head, _, rest = statement.removesuffix(";").partition(" ")
            if head == "@%first":
                head, _, rest = rest.partition(" ")
            mnemonic, operands = head, _split(rest) if rest else []
            scope = "\n".join([*before, "{}", "}"])
        text = f"{mnemonic} {', '.join(_hurt(draw, operands))};"
        yield Form(scope.replace("{}", text, 1) if "\n" in scope else text, "hurt")


NO_TEXT = ("call", "brx", "bra", "ret", "exit", "trap", "brkpt", "bar", "barrier")
"""Opcodes that end a block, or at which threads wait for one another."""


def _addressed(number: int, found: dict[str, str]) -> str:
    return f"%d{number}"


# ── modules ─────────────────────────────────────────────────────────────────

OFFSETS = (
    0,
    4,
    7,
    8,
    12,
    16,
    24,
    4096,
    1 << 20,
    1 << 32,
    (1 << 63) - 1,
    -4,
    -64,
    -(1 << 31),
    -(1 << 63),
)
TYPES = ("u8", "u32", "u64", "v2.u32", "v4.u32", "b128")
_TAKES = {
    "u8": "%h1",
    "u32": "%r1",
    "u64": "%d1",
    "v2.u32": "{%r1, %r2}",
    "v4.u32": "{%r1, %r2, %r3, %r4}",
    "b128": "%q1",
}
VPRINTF = ".extern .func ({}) vprintf({});\n"


def modules() -> Iterator[str]:
    """Texts of modules with a kernel ``k(.param .u64 x)``."""
    for offset, kind in itertools.product(OFFSETS, TYPES):
        place, value = f"{offset:+d}", _TAKES[kind]
        yield kernel_text(f"ld.param.{kind} {value}, [x{place}];")
        yield kernel_text(
            f"{{ .param .b64 a; st.param.{kind} [a{place}], {value}; call g, (a); }}",
            ".func g(.param .b64 y) { ret; }",
        )
        yield kernel_text(
            "{ .param .b64 r; call (r), g; }",
            f".func (.param .b64 out) g() {{ {REGISTERS} st.param.{kind} "
            f"[out{place}], {value}; ret; }}",
        )
        yield kernel_text(
            "{ .param .b64 a; call g, (a); }",
            f".func g(.param .b64 y) {{ {REGISTERS} ld.param.{kind} {value}, "
            f"[y{place}]; ret; }}",
        )
    yield from _calls()
    yield from _printing()


def _calls() -> Iterator[str]:
    given = (
        "",
        ", (%p1)",
        ", (%h1)",
        ", (%r1)",
        ", (%d1)",
        ", (%q1)",
        ", (5)",
        ", (a)",
        ", (big)",
        ", (%r1, %r2)",
        ", (tile)",
        ", (_)",
        ", (nothing)",
    )
    takes = (
        "",
        ".reg .b32 y",
        ".reg .b64 y",
        ".reg .pred y",
        ".reg .b128 y",
        ".param .b8 y[3]",
        ".param .b64 y",
        ".param .b8 y[4000]",
    )
    body = "{ .param .b32 a; .param .b8 big[4096]; "
    uses = "{ .reg .b64 %z; mov.b64 %z, y; ret; }"
    for take, give in itertools.product(takes, given):
        yield kernel_text(f"{body} call g{give}; }}", f".func g({take}) {{ ret; }}")
        yield kernel_text(
            f"{body} mov.u64 %d1, g; P: .callprototype _ ({take.replace('y', '_')}); "
            f"call %d1{give}, P; }}",
            f".func g({take}) {{ ret; }}",
        )
        if take:
            yield kernel_text(f"{body} call g{give}; }}", f".func g({take}) {uses}")
        yield kernel_text(
            f"{body} call {give[2:] + ', ' if give else ''}g; }}",
            f".func ({take.replace('y', 'out')}) g() {{ ret; }}",
        )
    for number in ("0", "0x7FFFFFFFFFFFFFFF", "0xB000000000", "0xB000000010", "-1"):
        yield kernel_text(
            f"mov.u64 %d1, {number}; P: .callprototype _ (); call %d1, (), P;",
            ".func g() { ret; }\n.global .u64 t[1] = {g};",
        )
    yield kernel_text("call k, (%d1);")
    yield kernel_text(
        "mov.u64 %d1, k; P: .callprototype _ (.param .b64 _); "
        "{ .param .b64 a; call %d1, (a), P; }"
    )
    yield kernel_text("call nobody, (%d1);")
    for index in ("2", "3", "-1", "0x7FFFFFFF"):
        yield kernel_text(
            f"mov.u32 %r1, {index}; L: .branchtargets A, B; brx.idx %r1, L; "
            "A: ret; B: ret;"
        )
        yield kernel_text(
            f"mov.u32 %r1, {index}; bar.sync %r1; bar.arrive %r1, 64; "
            "bar.red.popc.u32 %r2, %r1, %p1;"
        )
        yield kernel_text(
            f"mov.u32 %r1, {index}; alloca.u64 %d1, %d2, 16; "
            "stackrestore.u64 %d2; st.local.u32 [%d1], %r1;"
        )


def _printing() -> Iterator[str]:
    """``vprintf`` and its kin, with other parameters than they have."""
    for results, takes in itertools.product(
        ("", ".param .b32 r", ".reg .pred r"),
        (
            "",
            ".param .b64 a",
            ".param .b64 a, .param .b64 b",
            ".reg .b32 a, .reg .b16 b",
            ".param .b32 a, .param .b32 b",
            ".param .b8 a[400], .param .b64 b",
        ),
    ):
        for name in ("vprintf", "__assertfail", "malloc", "free"):
            declared = VPRINTF.format(results, takes).replace("vprintf", name)
            parts = [each for each in takes.split(", ") if each]
            own = [
                f"{each.replace('.reg', '.param').replace('pred', 'b8')}"
                for each in parts
            ]
            names = [each.split()[-1].split("[")[0] for each in own]
            inner = " ".join(f"{each};" for each in own) + " .param .b32 r;"
            gets = "(r), " if results else ""
            yield kernel_text(
                f"{{ {inner} call {gets}{name}, ({', '.join(names)}); }}", declared
            )
    for number in (
        "0x400",
        "0xE00000",
        "0x8000000000",
        "0x8001000400",
        "0x8000000400",
        "0x7FFF000000000000",
        "-1",
        "0x9000000000",
        "0xA000000000",
    ):
        for second in ("0", number):
            yield kernel_text(
                "{ .param .b32 r; .param .b64 a; .param .b64 b; "
                f"mov.u64 %d1, {number}; mov.u64 %d2, {second}; st.param.b64 [a], %d1; "
                "st.param.b64 [b], %d2; call (r), vprintf, (a, b); }",
                VPRINTF.format(".param .b32 r", ".param .b64 a, .param .b64 b"),
            )


def kernel_text(body: str, before: str = "", registers: str = "") -> str:
    """A module with a kernel; ``registers`` are declared behind all others."""
    return (
        f"{HEAD}{before}\n.visible .entry k(.param .u64 x) {{\n{REGISTERS}"
        f".shared .align 128 .b8 tile[1000];\n{registers}{body}\nret;\n}}\n"
    )
