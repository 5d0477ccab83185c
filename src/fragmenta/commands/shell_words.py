"""Joins words of the command line that are one argument.

Shells split at blanks.  An instruction in several words, an instruction with its
descriptor, and the indices of an element become the arguments that commands take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from fragmenta.errors import BadCall, Error
from fragmenta.reference.isa.families import FORMS
from fragmenta.reference.isa.matching import row_words
from fragmenta.reference.isa.sass import is_machine_name
from fragmenta.reference.isa.searching import find
from fragmenta.reference.isa.synonyms import has_synonym, meaning

# The commands that take one instruction, then other things that are not files.
_ONE_INSTRUCTION = (
    "formula",
    "where",
    "holds",
    "table",
    "which",
    "draw",
    "matmul",
    "explain",
    "metadata",
    "shared",
    "shuffle",
)
_HEADS = {form.name.split(".")[0] for form in FORMS} - {"sync"}
_ELEMENT = re.compile(
    r"(?P<operand>[A-Za-z_]*)\s*[\[(]?\s*(?P<indices>-?\d+(\s*,\s*-?\d+)+)\s*[\])]?",
    re.ASCII,
)
# Registers, a predicate or an address: only lines of a disassembler have them.
_OPERANDS = re.compile(r"\sU?R(\d+|Z)\b|\sgdesc\[|\stmem\[|@!?U?P\w|/\*|;$")


def arranged(args: list[str]) -> list[str]:
    """The arguments of a command, the name of the command first.

    >>> arranged(["where", "mma", "m16n8k16", "f32", "f16", "B[9,3]"])
    ['where', 'mma m16n8k16 f32 f16', 'B', '9', '3']
    >>> arranged(["which", "HMMA.16816.F32", "9,3"])
    ['which', 'HMMA.16816.F32', '9', '3']
    >>> arranged(["which", "@P0", "HMMA.16816.F32", "R4,", "R8,", "R12,", "R4", ";"])
    ['which', '@P0 HMMA.16816.F32 R4, R8, R12, R4 ;']
    """
    if not args:
        return args
    found = _with_descriptors(args)
    if found[0] == "which":
        found = _with_line(found)
    if found[0] in ("where", "which"):
        found = [each for arg in found for each in _element(arg, found[0])]
    return _with_instruction(found) if found[0] in _ONE_INSTRUCTION else found


def grouped(words: Iterable[str]) -> list[str]:
    """The instructions that several arguments name, each as one text.

    Bare words belong together, up to a comma or to the name of another instruction.
    What is in quotes stays as it is.

    >>> grouped(["mma", "m16n8k16", "bf16"])
    ['mma m16n8k16 bf16']
    >>> grouped(["mma.m16n8k16.f32.f16", "wgmma", "fp8", "m64n8k32"])
    ['mma.m16n8k16.f32.f16', 'wgmma fp8 m64n8k32']
    >>> grouped(["sparse", "fp8", "mma,", "fp8", "mma"])
    ['sparse fp8 mma', 'fp8 mma']
    """
    groups: list[list[str]] = [[]]
    given = list(words)
    for arg in given:
        if re.search(r"[\s{}%]", arg.strip()):
            groups += [[arg], []]
            continue
        for number, piece in enumerate(arg.split(",")):
            if number or (piece and _begins(piece.strip(), groups[-1])):
                groups.append([])
            groups[-1] += [piece.strip()] * bool(piece.strip())
    found = [" ".join(group) for group in groups if group]
    if given and not found:
        raise BadCall(f"no instruction is named; given {' '.join(given)!r}")
    return found


def _begins(word: str, group: list[str]) -> bool:
    """Whether another instruction begins with this word."""
    if not group:
        return False
    whole = len(group) == 1 and "." in group[0] and _is_one(group)
    return whole or (_is_head(word) and any(map(_is_head, group)))


def _is_head(word: str) -> bool:
    """Whether it is, or begins with, the name of an instruction."""
    first = word.lower().split(".")[0]
    found = meaning(first)
    return first in _HEADS or bool(found and found.families)


def _with_descriptors(args: list[str]) -> list[str]:
    """A ``tcgen05.mma`` and the descriptor after it as one argument.

    Instructions are printed with a space between the two, which shells split.
    """
    found: list[str] = []
    for each in args:
        before = found[-1] if found else ""
        number = re.fullmatch(r"0[xX][0-9a-fA-F]+", each)
        if number and re.fullmatch(r"tcgen05\.mma[^\s,]*", before):
            found[-1] = f"{before} {each}"
        else:
            found.append(each)
    return found


def _with_line(args: list[str]) -> list[str]:
    """The words of a line that a disassembler printed as one argument."""
    end = next((i for i, arg in enumerate(args) if arg.startswith("--")), len(args))
    while end > 2 and re.fullmatch(r"[-\d, ]+", args[end - 1]):  # an index
        end -= 1
    line = " ".join(args[1:end])
    whole = end > 2 and _OPERANDS.search(line) and is_machine_name(line)
    return [args[0], line, *args[end:]] if whole else args


def _element(arg: str, command: str) -> list[str]:
    """``B[9,3]``, ``B[9][3]``, ``9,3`` and ``9,`` as an operand and indices."""
    if re.fullmatch(r"-?\d+,|,-?\d+", arg, re.ASCII):
        return [arg.strip(",")]
    whole = _ELEMENT.fullmatch(arg.strip().replace("][", ","))
    if whole is None:
        return [arg]
    name, indices = whole["operand"], re.split(r"\s*,\s*", whole["indices"])
    if command == "which":  # it is about D
        return indices if name.lower() in ("", "d") else [arg]
    return [name, *indices] if name else indices


def _with_instruction(args: list[str]) -> list[str]:
    """The words of an instruction as one argument.

    They end where a word is none of its words, or where they name one instruction that
    the next word would not name, too.
    """
    start = 2 if args[1:2] == ["--json"] else 1
    end = start + 1
    if len(args) <= end or not (_is_word(args[start]) and _is_word(args[end])):
        return args
    while end < len(args) and _is_word(args[end]) and not _ends(args[start : end + 1]):
        end += 1
    return [*args[:start], " ".join(args[start:end]), *args[end:]]


def _ends(words: list[str]) -> bool:
    """Whether the last word does not belong to the others.

    A number may be an index, and what follows an instruction in one argument is
    something else, perhaps a file that is called ``half``.
    """
    *others, last = words
    if not _is_one(others):
        return False
    return len(others) == 1 or last.isdecimal() or not _is_one(words)


def _is_word(text: str) -> bool:
    """Whether an instruction may have all of the words in the text."""
    words = [word for word in re.split(r"[.\s]+", text.lower()) if word]
    return bool(words) and all(
        len(word) > 1
        and (
            word in _known()
            or has_synonym([word])
            or re.fullmatch(r"m\d+n\d+(k\d+)?", word)
        )
        for word in words
    )


@cache
def _known() -> frozenset[str]:
    """Every word of a mnemonic."""
    return frozenset(w for form in FORMS for row in row_words(form) for w in row)


def _is_one(words: list[str]) -> bool:
    try:
        find(" ".join(words))
    except Error:
        return False
    return True
