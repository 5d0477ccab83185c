"""Instructions of kernels that choose by a number, and do not say how they chose.

What may be done with sizes, places and addresses is a list; what is not on it was not
seen for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from fragmenta.frontends.judge.roots import (
    INDEX,
    MEMORY,
    PARAMETER,
    SMALL,
    THREAD,
    Roots,
    registers,
    where,
)
from fragmenta.ptx import families
from fragmenta.ptx.module import (
    INSTALLED,
    Function,
    Immediate,
    Instruction,
    Module,
    Special,
)
from fragmenta.ptx.opcodes import TABLE


def unseen(function: Function, roots: Roots) -> Iterator[str]:
    """Instructions that choose by a number, and do not say how they chose."""
    fenced = any(
        each.opcode in ("fence", "membar") or "acquire" in each.qualifiers
        for each in function.instructions
    )
    for each in function.instructions:
        given = [e.value for e in each.operands[1:] if isinstance(e, Immediate)]
        sizes = roots.kinds_of(each)
        kind = each.qualifiers[-1][:1] if each.qualifiers else ""
        # The last tile has less than others.
        least = TILE if INDEX in sizes else SMALL
        large = [e for e in given if isinstance(e, int) and abs(e) >= least]
        places = sizes & {INDEX, PARAMETER} and not sizes & {MEMORY}
        if each.opcode in ("set", "slct"):
            why = "chooses"
        elif _asks_strange(each):
            why = "asks for what is other on each GPU, or each time"
        elif roots.is_of_address(each) and not _is_of_addresses(each, given):
            why = "computes with an address"
        elif _adds_place(each, roots):
            why = "adds a float of a place or a size to data"
        elif sizes == {PARAMETER} and _is_hidden(each, given):
            why = "adds a large number to a size"
        elif each.is_comparison and roots.asks_atomic(each):
            why = "asks what an atomic found, which may change at once"
        elif each.is_load and not fenced and _is_loose(each):
            why = "reads what others write, and nothing orders that"
        elif each.opcode == "min" and kind in "su" and large and places:
            why = "cuts a size off"
        elif places and _is_step(each, given):
            why = "is the same for most sizes"
        elif sizes == {PARAMETER} and not _is_of_sizes(each, given):
            why = "is no arithmetic of sizes that is known"
        elif _is_table(each) and sizes <= {PARAMETER} and roots.mixes(each):
            why = "loads by a size alone"
        else:
            continue
        if INSTALLED.search(each.source.file if each.source else "") is None:
            yield f"{where(function, each)}: `{each.mnemonic}` {why}"


_KNOWN = re.compile(
    r"%(?:n?tid|n?ctaid|laneid|warpid|lanemask_\w+|clock\w*|globaltimer\w*|cluster\w*|"
    r"n?clusterid|is_explicit_cluster|\w*smem_size|\w*smem_\w+)(?:\.[xyzw])?"
)
"""Special registers that have the same number on each GPU, or are told of elsewhere."""


def _asks_strange(instruction: Instruction) -> bool:
    if instruction.opcode == "activemask":
        return True
    named = [each.name for each in instruction.operands if isinstance(each, Special)]
    return not all(map(_KNOWN.fullmatch, named))


def _is_of_addresses(instruction: Instruction, given: Sequence[object]) -> bool:
    """Whether an instruction only asks how an address is aligned."""
    if instruction.opcode == "and":
        return bool(given) and all(isinstance(e, int) and 0 <= e < SMALL for e in given)
    if instruction.is_conversion:
        return instruction.qualifiers[-2][0] in "sub"
    if instruction.opcode == "or":
        return not given
    return instruction.opcode not in _OF_PLACES


_OF_PLACES = frozenset(
    [
        *families.PERMUTATIONS | families.PRODUCTS,
        *("xor", "not", "lop3", "shr", "shl", "bfe", "bfi", "shf", "div"),
        *("rem", "min", "max", "popc", "clz", "brev", "bfind", "neg", "abs", "selp"),
    ]
)
"""Arithmetic that changes an address otherwise than by adding to it."""


_PLACES = {PARAMETER, INDEX, THREAD}


def _adds_place(instruction: Instruction, roots: Roots) -> bool:
    """Whether a float that follows a place or a size is added to one from memory."""
    words, read = instruction.qualifiers, instruction.operands[1:]
    if not words or words[-1] not in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        return False
    if instruction.is_sum:
        parts = [[each] for each in read]
    elif instruction.is_fused:
        parts = [[*read[:2]], [*read[2:]]]
    else:
        return False
    kinds = [{k for each in part for k in roots.of(each)[0]} for part in parts]
    places = [
        bool(kind & _PLACES) and MEMORY not in kind and not roots.is_given(part)
        for kind, part in zip(kinds, parts, strict=True)
    ]
    return any(places) and any(MEMORY in kind for kind in kinds)


def _is_hidden(instruction: Instruction, given: Sequence[object]) -> bool:
    """Whether a number is added to a size that is larger than those that are tried."""
    if instruction.opcode not in families.SUMS | {"mad"}:
        return False
    last = given[-1:] if instruction.opcode == "mad" else given
    kind = instruction.qualifiers[-1][:1]
    return kind in "su" and any(isinstance(e, int) and abs(e) > LARGE for e in last)


def _is_step(instruction: Instruction, given: Sequence[object]) -> bool:
    """Whether a result is the same for many numbers: a shift, a product, a rounding.

    Compilers divide by constants with products whose numbers are large.
    """
    words = {*instruction.qualifiers}
    if instruction.is_product:
        return "hi" in words and any(isinstance(e, int) and e < _MAGIC for e in given)
    if instruction.is_conversion:
        return bool(words & {"rni", "rzi", "rmi", "rpi", "sat"})
    return instruction.opcode in ("shr", "bfe") and any(e in _FAR for e in given)


_GROWS = frozenset(
    [
        *families.ARITHMETIC | families.MOVES | families.CONVERSIONS,
        *("cvta", "addc", "subc", "mul24", "mad24", "madc", "div", "rem", "neg"),
        *("sqrt", "rsqrt", "rcp", "lg2", *families.COMPARISONS, "set", "selp"),
        *("shl", "shr", "bfe", "szext", "shf", "slct"),
    ]
)
"""What may be done with sizes alone: it grows with them, or is asked elsewhere."""


def _is_of_sizes(instruction: Instruction, given: Sequence[object]) -> bool:
    """Whether an instruction does with sizes what is known, or computes nothing."""
    found = TABLE.find(instruction.mnemonic)
    if found is None or not found.syntax.computes or instruction.opcode in _GROWS:
        return True
    if instruction.opcode in ("min", "max", "abs"):
        return instruction.qualifiers[-1][0] in "su"
    masks = [abs(e) // max(1, abs(e) & -abs(e)) for e in given if isinstance(e, int)]
    if instruction.opcode == "and":  # the rest of a division, or what it leaves
        return any(not e & (e + 1) for e in masks) or not masks
    # Both of two numbers are asked at once whether they are small.
    return instruction.opcode in ("or", "not") and not masks


LARGE = 1 << 16
"""Numbers that hide sizes if they are added to them."""


def _is_table(load: Instruction) -> bool:
    """Whether an instruction loads what was there before a launch."""
    other = {"param", "shared", "local"} & {*load.qualifiers}
    return load.is_load and not other


def of_bits(function: Function) -> Iterator[str]:
    """Instructions that take the bits of numbers that were just loaded."""
    loaded: set[int] = set()
    for _ in range(3):
        for each in function.instructions:
            inner = {n for o in each.operands[1:] for n in registers(o)}
            load = each.is_load and "param" not in each.qualifiers
            if load or ((each.is_move or each.is_sum) and inner & loaded):
                whole = each.qualifiers[-1][:1] in "bsu" or load
                loaded |= registers(each.operands[0]) if whole else set()
    for each in function.instructions:
        inner = {n for o in each.operands[1:] for n in registers(o)}
        if each.opcode not in _BITS or not inner & loaded or _is_sign(each):
            continue
        if INSTALLED.search(each.source.file if each.source else "") is None:
            yield f"{where(function, each)}: `{each.mnemonic}` takes bits of a float"


def _is_sign(each: Instruction) -> bool:
    """Whether an instruction changes or asks for a sign: xor with it is a negation.

    A constant may be written as a negative number, with more bits than the word has.
    """
    size = 64 if each.qualifiers[-1][1:] == "64" else 32
    signs = {(1 << size - 1) - 1, 1 << size - 1}
    given = [o.bits for o in each.operands[1:] if isinstance(o, Immediate)]
    return any(bits % (1 << size) in signs for bits in given)


_BITS = frozenset(["and", "or", "xor", "lop3", "shr", "bfe"])


def _is_loose(load: Instruction) -> bool:
    """Whether a load is one of memory that other blocks may write."""
    words = {*load.qualifiers}
    return bool(words & {"volatile", "relaxed"}) and not words & {"shared", "local"}


def written_and_loaded(module: Module) -> set[str]:
    """The variables that kernels of a module write, and load other than by atomics."""
    loaded, written = set[str](), set[str]()
    for function in module.functions.values():
        roots = Roots(function)
        for each in function.instructions:
            at = each.operands[1:] if each.is_load else each.operands[:1]
            at = each.operands[1:2] if each.is_fetch else at
            if each.is_access:
                found = {name.partition("+")[0] for name in roots.names_of(at)}
                (loaded if each.is_load else written).update(found)
    return loaded & written & {*module.variables}


def only_counted(module: Module) -> set[str]:
    """The variables of which loaded values go into the same variable, nowhere else.

    >>> from fragmenta.ptx.reading import parse
    >>> text = '''.version 8.0
    ... .target sm_80
    ... .global .u32 calls;
    ... .entry f() {
    ...     .reg .b32 %r<2>;
    ...     ld.global.u32 %r0, [calls];
    ...     add.u32 %r1, %r0, 1;
    ...     st.global.u32 [calls], %r1;
    ... }'''
    >>> only_counted(parse(text))
    {'calls'}
    >>> only_counted(parse(text.replace("[calls], %r1", "[%r1], 1")))
    set()
    """
    found = written_and_loaded(module)
    for function in module.functions.values():
        found -= _used_otherwise(function, found)
    return found


def _used_otherwise(function: Function, names: set[str]) -> set[str]:
    """The variables of which values or addresses go elsewhere than into themselves."""
    roots = Roots(function)
    held: dict[int, set[str]] = {}
    """The variables whose values a register may have."""

    def values(operands: Iterable[object]) -> set[str]:
        return {v for e in operands for n in registers(e) for v in held.get(n, ())}

    def addresses(operands: Iterable[object]) -> set[str]:
        return {each.partition("+")[0] for each in roots.names_of(operands)} & names

    other, before = set[str](), -1
    while before != (before := sum(map(len, held.values()))):
        for each in function.instructions:
            first, rest = each.operands[:1], each.operands[1:]
            if each.is_load and not each.is_fetch:
                other |= values(rest)
                for register in registers(first):
                    held.setdefault(register, set()).update(addresses(rest))
            elif each.is_sum or each.is_move:
                for register in registers(first):
                    held.setdefault(register, set()).update(values(rest))
            elif each.is_store:
                own, stored = addresses(first), values(rest)
                other |= values(first) | addresses(rest) | stored - own
                other |= stored if len(own) > 1 else set()
            elif each.opcode != "cvta":
                other |= values(each.operands) | addresses(each.operands)
            other |= values([each.guard])
    return other


def strange(text: str) -> list[str]:
    """Registers of PTX that have other numbers on each GPU, in words.

    >>> strange("mov.u32 %r1, %smid;")
    ['a kernel reads %smid, which is another number on each GPU']
    """
    found = dict.fromkeys(_OF_GPU.findall(text))
    return [
        f"a kernel reads {each}, which is another number on each GPU" for each in found
    ]


_OF_GPU = re.compile(r"%(?:n?smid|n?warpid|gridid|pm\d+\w*|current_graph_exec)\b")
TILE = 1024
"""Tiles along an axis are smaller than this."""
_MAGIC = 1 << 26
_FAR = range(12, 27)
"""Shifts that leave nothing of places that are tried; longer ones are of signs."""
