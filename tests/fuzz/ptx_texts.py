"""PTX texts: every text is read and written, or refused in words.

Kernels that use calls, sizes, counts and names in many ways are changed a little.  They
are read, checked and written in LLVM's language; none is run.  The judge: an answer, or
a :class:`fragmenta.Error`; nothing else comes out.
"""

from __future__ import annotations

import random
import re
from functools import cache

from fragmenta import ptx
from fragmenta.engine.simt import compiling, emitter
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.simt.program import program
from tests.fuzz.engine import Ask, Surface

SOURCE = """.version 8.8
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 8 .b8 text[8] = {37, 100, 0};
.const .f32 factor[2] = {0f3F800000, 0f40000000};
.shared .align 16 .b8 tile[1024];
.extern .shared .align 16 .b8 more[];
.func (.param .b32 out) add(.param .b32 a, .param .b32 b)
{
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [a]; ld.param.b32 %r2, [b];
    add.s32 %r3, %r1, %r2;
    st.param.b32 [out], %r3;
    ret;
}
.func (.reg .b32 %o) half(.reg .b32 %i) { shr.u32 %o, %i, 1; ret; }
.func deep(.param .align 8 .b8 p[16]) { .local .align 8 .b8 s[64]; call deep, (p); ret; }
.visible .entry f(.param .u64 x, .param .align 8 .b8 s[24], .param .u32 n)
{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
    .reg .f32 %f<8>; .reg .v4 .b32 %v; .local .align 8 .b8 own[32];
    ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [s+8];
    mov.u32 %r2, %tid.x; mov.u64 %rd2, own; mov.u32 %r3, tile;
    cvta.to.global.u64 %rd1, %rd1;
    ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1+16];
    st.shared.v2.f32 [tile+8], {%f1, %f2};
    { .param .b32 a; .param .b32 b; .param .b32 c;
    st.param.b32 [a], %r1; st.param.b32 [b], 7;
    call.uni (c), add, (a, b); ld.param.b32 %r8, [c]; }
    call (%r9), half, (%r8);
    { .param .align 8 .b8 p[16]; st.param.b64 [p+8], %rd1; call deep, (p); }
    { .param .b64 a; .param .b64 b; .param .b32 c; mov.u64 %rd3, text;
    st.param.b64 [a], %rd3; st.param.b64 [b], %rd2;
    call (c), vprintf, (a, b); }
    proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _);
    mov.u64 %rd4, add;
    { .param .b32 a; .param .b32 b; .param .b32 c;
    call (c), %rd4, (a, b), proto; }
    cp.async.ca.shared.global [%r3], [%rd1], 16, 8; cp.async.wait_all;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3},
        {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r3];
    shfl.sync.bfly.b32 %r4|%p1, %r5, 1, 31, -1;
    atom.global.cas.b32 %r4, [%rd1], %r5, %r6; red.shared.add.u32 [tile], 1;
    setp.lt.and.u32 %p1|%p2, %r1, %r2, !%p3; selp.b32 %r1, %r2, 5, %p1;
    prmt.b32 %r1, %r2, %r3, 0x5410; bfe.u32 %r1, %r2, 3, 4; lop3.b32 %r1, %r2, %r3, %r4, 8;
    mov.b64 %rd5, {%r1, %r2}; mov.b32 {%h1, %h2}, %r1; vote.sync.ballot.b32 %r1, %p1, -1;
    ts: .branchtargets L1, L2;
    brx.idx %r1, ts;
    L1: @!%p1 bra L2; bar.sync 1, 64; barrier.cluster.arrive;
    mbarrier.init.shared.b64 [tile+64], 1; mapa.shared::cluster.u32 %r1, %r3, 1;
    L2: @%p1 exit; st.local.u8 [own+31], 1; ret;
}
"""
ODD = (
    "",
    "0",
    "1",
    "-1",
    "-4",
    "3",
    "64",
    "400",
    "65536",
    "1048576",
    "4294967296",
    "18446744073709551615",
    "0f3F800000",
    "1.5",
    "_",
    "%r1",
    "%rd1",
    "%p1",
    "%f1",
    "%v",
    "%v.x",
    "%v.q",
    "%tid.x",
    "%q",
    "!%p1",
    "-%r1",
    "{}",
    "{%r1}",
    "()",
    "(a)",
    "{%r1, %r2, %r3, %r4, %r5}",
    "[%rd1]",
    "[x]",
    "[x+4096]",
    "[nothing]",
    "[]",
    "tile",
    "own",
    "text",
    "add",
    "f",
    "deep",
    "nothing",
    "vprintf",
    "L1",
    "ts",
    "proto",
    "call",
    "ret",
    "bra",
    ".b8",
    ".f64",
    ".pred",
    ".v4",
    ".v8",
    ".x4",
    ".param",
    ".reg",
    ".local",
    ".shared",
    ";",
    ",",
    ".align 3",
    "%r1|%p1",
    "<1000000000>",
    "[2][2][65536]",
)
WORDS = re.compile(r"[%.]?[\w:]+|[^\s\w]")


@cache
def tokens() -> tuple[tuple[int, int], ...]:
    """Where each word of the source is."""
    return tuple(each.span() for each in WORDS.finditer(SOURCE))


NUMBERS = [word for word in ODD if word.lstrip("-").isdecimal()]
OPERANDS = [word for word in ODD if word and word[0] in "%!-_{[("]


def similar(word: str, rng: random.Random) -> str:
    """Another word that may stand where this one stands."""
    if word[0].isdecimal():
        return rng.choice(NUMBERS)
    if word[0] == "%":
        return rng.choice(OPERANDS)
    same = [other for other in map(spelled, tokens()) if _kind(other) == _kind(word)]
    return rng.choice(same)


def _kind(word: str) -> tuple[bool, bool]:
    return word[0] == ".", word[0].isalpha()


def spelled(span: tuple[int, int]) -> str:
    return SOURCE[slice(*span)]


def mutated(rng: random.Random) -> str:
    """The source with a few words changed, left out, doubled or exchanged."""
    text = SOURCE
    wild = rng.random() < 0.2
    for span in sorted(rng.sample(tokens(), rng.randint(1, 3)), reverse=True):
        word, (start, stop) = spelled(span), span
        if not wild:
            plain = word[0] in ".%" or word[0].isalnum()
            new = similar(word, rng) if plain else word
        else:
            other = spelled(rng.choice(tokens()))
            new = rng.choice(
                (
                    rng.choice(ODD),
                    "",
                    f"{word} {word}",
                    other,
                    f"{word}, {other}",
                    word[:-1],
                )
            )
        text = (
            f"{text[:start]}{new}{text[stop:]}"
            if not wild
            else (f"{text[:start]} {new} {text[stop:]}")
        )
    return text


def written(text: str, mode: Mode, contract: bool) -> None:
    """All that is done with a text before LLVM has it."""
    module = ptx.parse(text)
    module.check()
    for name, kernel in module.kernels.items():
        repr(kernel)
        parts = program(module.changed(contract), name)
        compiling.write(emitter.Writer(parts, "sm_90a", mode))


# ── games ───────────────────────────────────────────────────────────────────


def changed(ask: Ask) -> None:
    """A text that was changed."""
    rng = ask.rng
    mode = Mode(*(rng.random() < 0.5 for _ in Mode._fields))
    ask(written, mutated(rng), mode, rng.random() < 0.5)


SURFACE = Surface("ptx_texts", {changed: 1}, share=0.01)
