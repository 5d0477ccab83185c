"""The command line: every call is answered, or refused in words.

The judge: the status, what is on which stream, JSON as others read it, and the
answers that the library gives to the same questions.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import typer.main

import fragmenta as fm
from fragmenta.commands import app
from tests.fuzz.engine import NUMBERS, Ask, Surface, Wrong, bits, expect
from tests.fuzz.files import archived, array, damaged, folder, put, saved
from tests.fuzz.parser import known, names, vocabulary

OPERANDS = ("A", "B", "C", "D", "metadata", "scale_A", "a", "E", "", "\x1b[2J")
COMMANDS = (
    "list",
    "show",
    "formula",
    "where",
    "holds",
    "table",
    "which",
    "draw",
    "matmul",
    "explain",
    "sparsity",
    "metadata",
    "shuffle",
    "shared",
    "emit",
    "launch",
    "replay",
)
OPTIONS = (
    "--json",
    "--lane",
    "--warp",
    "--register",
    "--by",
    "--format",
    "--row",
    "--col",
    "--target",
    "--swizzle",
    "--major",
    "--k",
    "--pitch",
    "--family",
    "--type",
    "--shape",
    "--size",
    "--long",
    "--prune",
    "--compress",
    "--pad",
    "--selector",
    "--language",
    "--access",
    "--compare",
    "--header",
    "--grid",
    "--block",
    "--arg",
    "--save",
    "--limit",
    "--list",
    "--bits",
    "--k-steps",
    "--load-bytes",
    "--layout",
    "--nibbles",
    "--pack",
    "--function",
    "--language",
    "--source",
    "--zero",
    "-x",
    "--",
)
WORDS = (
    "1",
    "-1",
    "0",
    "3",
    "31",
    "32",
    "128",
    "k",
    "mn",
    "lane",
    "csv",
    "json",
    "text",
    "sm_90a",
    "sm_1",
    "float64",
    "ptx",
    "cuda",
    "marlin",
    "awq",
    "repack",
    "64x128",
    "E* R* L* Y* X*",
    "rows",
    "m16n8k*",
    "*",
    "mma",
    "f16",
    "0xe4e4e4e4",
    "1,2",
    "zeros:f32:4",
    "i32:7",
    "pointer:0+4",
    "0=y.npy",
    "99999999999",
    "9" * 5000,
    "x",
    "",
    "é",
    "\x1b[2J",
    "[",
)


class Answer(NamedTuple):
    """What came back."""

    status: int
    output: str
    complaint: str


@cache
def program() -> Any:
    """The commands, made once: making them takes longer than most answers."""
    return typer.main.get_command(app)


def ask_program(*words: str) -> Answer:
    """Run the program in this process."""
    output, complaint = io.StringIO(), io.StringIO()
    status: Any = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaint):
        try:
            program().main(list(words), prog_name="fragmenta")
        except SystemExit as end:
            status = end.code
    return Answer(int(status or 0), output.getvalue(), complaint.getvalue())


def strict(text: str) -> Any:
    """JSON without the words that it does not have."""

    def refuse(word: str) -> None:
        raise Wrong(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def judged(ask: Ask, *words: str) -> Answer:
    """Ask, and check what every answer must be."""
    found = ask(ask_program, *words)
    if found.status == 2:
        ask.count_refusal()
    expect(found.status in (0, 1, 2), f"status {found.status}")
    whole = found.output + found.complaint
    expect("Traceback" not in whole, f"a traceback: {whole[-300:]}")
    expect("\x1b" not in whole, "an escape reaches the terminal")
    if found.status == 2:
        expect(not found.output, f"an error with an answer: {found.output!r:.100}")
        expect(bool(found.complaint.strip()), "an error without a word")
    if found.status == 0 and "--json" in words and "--help" not in words:
        strict(found.output)
    return found


# ── games ───────────────────────────────────────────────────────────────────


def any_words(ask: Ask) -> None:
    """Any words at all."""
    rng = ask.rng
    words = [rng.choice(COMMANDS)]
    if rng.random() < 0.8:
        words.append(rng.choice(names()) if rng.random() < 0.7 else _short(rng))
    for _ in range(rng.randrange(5)):
        pool = rng.choice((OPTIONS, WORDS, OPERANDS, ("nothing.npy",)))
        words.append(rng.choice(pool))
    judged(ask, *words)


def _short(rng: random.Random) -> str:
    return ".".join(rng.choices(vocabulary(), k=rng.randint(1, 4)))


def operand(rng: random.Random) -> tuple[fm.Instruction, str]:
    """An instruction that holds something, and the name of it."""
    while not (op := known()[rng.choice(names())]).fragments:
        pass
    return op, rng.choice(list(op.fragments))


def where(ask: Ask) -> None:
    """The place that the library names."""
    rng = ask.rng
    op, name = operand(rng)
    part = op.fragments[name]
    at = [rng.randrange(size) for size in part.shape]
    if rng.random() < 0.3:
        at[rng.randrange(len(at))] = rng.choice(NUMBERS)
    right = all(0 <= x < size for x, size in zip(at, part.shape, strict=True))
    found = judged(ask, "where", str(op), name, *map(str, at), "--json")
    expect((found.status == 0) == right, f"status {found.status} for {at}")
    if right:
        place = part.where(*at)
        told = str(strict(found.output))
        for wanted in (f"'lane': {place.lane}", f"'register': {place.register}"):
            expect(wanted in told, f"{wanted} is not in {told:.200}")


def holds(ask: Ask) -> None:
    """The elements that the library names."""
    rng = ask.rng
    op, name = operand(rng)
    part = op.fragments[name]
    lane = rng.choice((rng.randrange(32), rng.choice(NUMBERS)))
    found = judged(ask, "holds", str(op), name, str(lane), "--json")
    expect((found.status == 0) == (0 <= lane < 32), f"status {found.status} for {lane}")
    if found.status == 0:
        listed = json.dumps(strict(found.output))
        first = part.holds(lane)[0]
        expect(str(first[-1]) in listed, f"{first} is not in {listed:.200}")


@cache
def quick() -> list[fm.Instruction]:
    """Instructions to multiply with: two of integers, two of floats."""
    return [
        fm.mma("m16n8k32", a="s8"),
        fm.mma("m16n8k16", a="f16", d="f32"),
        fm.mma("m16n8k32", a="s8", sp="sp"),
        fm.mma("m16n8k32", a="e4m3", d="f32"),
    ]


def run(ask: Ask) -> None:
    """The product that the library computes, in a file."""
    rng = ask.rng
    op = rng.choice(quick())
    m, n, k = (rng.randint(1, 9) for _ in range(3))
    k = 4 * k
    A = (bits(rng, np.uint8, (m, k)) % 5).astype(np.int8)
    if op.sparse:
        A[:, 1::2] = 0
    B = (bits(rng, np.uint8, (k + rng.choice((0, 0, 0, 1, -1)), n)) % 5).astype(np.int8)
    a, b = put(saved(A), "a.npy"), put(saved(B), "b.npy")
    out = folder() / "d.npy"
    found = judged(ask, "matmul", str(op), a, b, "-o", str(out), "--force", "--json")
    expect((found.status == 0) == (len(B) == k), f"status {found.status}: {found}")
    if found.status == 0:
        wanted = A.astype(np.int64) @ B
        expect((np.load(out) == wanted).all(), "another product")


def strange_files(ask: Ask) -> None:
    """Files of any kind, in the place of matrices."""
    rng = ask.rng
    one = saved(array(rng)) if rng.random() < 0.6 else archived({"a": array(rng)}, True)
    content = damaged(one, rng) if rng.random() < 0.6 else one
    path = put(content, rng.choice(("s.npy", "s.npz")))
    op = str(rng.choice(quick()))
    words = rng.choice(
        (
            ("matmul", op, path, path),
            ("sparsity", path, str(quick()[2])),
            ("explain", op, path, path, "--row", "0", "--col", "0"),
            ("replay", path),
            ("matmul", op, path, path, "--compare", "float64", "--json"),
        )
    )
    judged(ask, *words)


def sparsity(ask: Ask) -> None:
    """Whether a matrix is sparse: what the library finds."""
    rng = ask.rng
    A = (bits(rng, np.uint8, (3, 8)) % 3).astype(np.int8)
    op = quick()[2]
    report = fm.sparse.report(op, A)
    found = judged(ask, "sparsity", put(saved(A)), str(op), "--json")
    expect(found.status == (0 if report.satisfied else 1), f"status {found.status}")
    told = strict(found.output)
    expect(told["violating"] == report.violating, f"{told['violating']} are too full")


def metadata(ask: Ask) -> None:
    """What words say: what the library reads."""
    rng = ask.rng
    op = quick()[2]
    word, lane = rng.getrandbits(32), rng.choice((rng.randrange(32), 40))
    text = f"{word:x}" if rng.random() < 0.9 else rng.choice(WORDS)
    found = judged(ask, "metadata", str(op), text, "--lane", str(lane), "--json")
    if lane < 32 and text == f"{word:x}":
        codes = op.metadata.decode([word], lane=lane)
        legal = not any(code.problem for code in codes)
        expect(strict(found.output)["legal"] == legal, f"legal is {legal}")
    elif lane >= 32:
        expect(found.status == 2, f"lane {lane} is none")


SURFACE = Surface(
    "commands",
    {
        any_words: 10,
        where: 4,
        holds: 4,
        run: 1,
        strange_files: 2,
        sparsity: 1,
        metadata: 2,
    },
    share=0.02,
)
