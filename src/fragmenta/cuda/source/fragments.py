"""CUDA functions that move the operands of an instruction, with their comments.

Each operand has functions for row- and column-major memory under one comment:
its layout's line, and the same in the words of the PTX manual.
"""

from __future__ import annotations

from fragmenta.cuda.source.access import FragmentAccess, load, store
from fragmenta.cuda.source.formatting import WIDTH, comment
from fragmenta.cuda.source.helpers import Snippet
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers import notation
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.metadata import Metadata

_DIMENSIONS = {"A": "mk", "B": "kn", "C": "mn", "D": "mn"}


def fragment_piece(op: Instruction, part: Fragment, direction: str) -> Snippet:
    """Functions that load (or store) one operand, row- and column-major.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> fragment_piece(op, op.a, "load").name
    'load_a_m16k16_f16'
    """
    name = f"{direction}_{function_tag(op, part)}"
    write = load if direction == "load" else store
    texts = [_about(part)]
    needs: list[str] = []
    for order in ("row", "col"):
        text, needed = write(part, order, f"{name}_{order}_major")
        texts.append(_memory(FragmentAccess(part, order), direction) + text)
        needs += needed
    return Snippet(name, "\n".join(texts), tuple(dict.fromkeys(needs)))


def metadata_pieces(op: Instruction) -> list[Snippet]:
    """Functions that load the metadata of one tile, or of a tile per selector.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
    >>> [piece.name for piece in metadata_pieces(op)]
    ['load_metadata_m16k64_s4', 'load_metadata_m16k64_s4_tiles']
    """
    part = op.metadata
    name = f"load_{function_tag(op, part.fragment)}"
    found = [_metadata_piece(part, name)]
    if part.tiles > 1:
        found.append(_metadata_piece(part.shared, f"{name}_tiles", part.tiles))
    return found


def _metadata_piece(part: Metadata, name: str, tiles: int = 1) -> Snippet:
    held = part.fragment
    access = FragmentAccess(held, "row")
    text, needs = load(held, "row", name)
    rows, chunks = held.shape
    said = (
        f"Metadata: {rows} x {chunks} codes of 4 bits, one per row and chunk of "
        f"{part.granularity.chunk} columns of A ({part.granularity}), from row-major "
        f"memory, two codes to a byte. stride: codes from one row to the next, "
        f"{_multiple(access)}."
    )
    if tiles > 1:
        said += (
            f" All lanes load: the word serves {tiles} tiles that lie side by side "
            f"along k, and tile s is read with selector s."
        )
    elif held.selectors:
        said += " Lanes that the selector leaves unread hold 0."
    comments = [*comment(said), *_formula(held)]
    return Snippet(name, "\n".join(comments) + "\n" + text, needs)


def function_tag(op: Instruction, part: Fragment) -> str:
    """What a fragment's functions are named after: operand, shape and type.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="e4m3", b="e2m1", kind="f8f6f4", d="f32")
    >>> function_tag(op, op.a), function_tag(op, op.b)
    ('a_m16k32_e4m3', 'b_k32n8_e2m1_bytes')
    """
    if part.name == "metadata":
        m, _, k = op.shape
        return f"metadata_m{m}k{k}_{op.types['a']}"
    of = f"{part.dtype}"
    if part.container.bits != part.dtype.bits:
        of += "_bytes"
    letter = part.name.lower()
    if len(part.layout.data) > 2:  # several small matrices
        words = [op.family, op.values["shape"], op.values.get("num", "")]
        words += [op.values.get("trans", "") or op.values.get(f"{letter}layout", "")]
        if op.moves == "transpose":
            words = [op.family, op.values["shape"]]
        return "_".join([letter, *filter(None, words), of])
    if part.name in _DIMENSIONS:
        sides = zip(_DIMENSIONS[part.name], part.shape, strict=True)
        shape = "".join(f"{side}{size}" for side, size in sides)
    else:
        shape = "x".join(map(str, part.shape))
    return f"{letter}_{shape}_{of}"


def _about(part: Fragment) -> str:
    """The operand, its layout line, and the manual's formula."""
    size = " x ".join(map(str, part.shape[-2:]))
    several = part.layout.sizes.get("matrix", 1)
    what = f"{several} matrices of {size}" if several > 1 else size
    each = f", {part.elements} elements in each" if part.elements > 1 else ""
    count = f"{part.registers} register{'s' * (part.registers > 1)}"
    said = f"{part.name}: {what} {part.dtype} in {count}{each}."
    if part.dtype.name == "tf32":
        said += " Of each, a float in memory, the 13 low bits are ignored."
    if part.container.bits != part.dtype.bits:
        slot = part.container
        high = slot.shift + slot.width - 1
        said += (
            f" Memory holds one element per byte, in its low bits; registers want it "
            f"in bits {high}:{slot.shift} of a byte."
        )
    return "\n".join([*comment(said), *_formula(part)]) + "\n"


def _formula(part: Fragment) -> list[str]:
    """The layout's line, then the manual's formula for element i."""
    found = notation.formula(part.layout, part.letter)
    lines = [str(part.layout)]
    lines += [f"{name} = {text}" for name, text in found.definitions]
    for name, cases in found.cases:
        if name in part.layout.data and part.layout.sizes[name] == 1:
            continue
        width = max(len(case.expression) for case in cases)
        for number, (text, condition) in enumerate(cases):
            head = " " * (len(name) + 3) if number else f"{name} = "
            line = f"{head}{text:<{width}}  {condition}".rstrip()
            if len(line) > WIDTH - 5:
                lines.append(f"{head}{text}")
                line = " " * (len(head) + 4) + condition
            lines.append(line)
    return [f"//   {line}" for line in lines]


def _memory(access: FragmentAccess, direction: str) -> str:
    """What a function expects of memory, in a comment."""
    way = "from" if direction == "load" else "to"
    line = {"row": "row", "col": "column"}[access.order]
    packing = {4: " Two elements to a byte.", 1: " Eight elements to a byte."}
    said = (
        f"{direction.capitalize()} {access.part.name} {way} {line}-major memory."
        f"{packing.get(access.bits, '')} stride: elements from one {line} to the next"
    )
    if access.run > 1:
        size = access.run * access.bits // 8
        said += f", {_multiple(access)}; each begins on a multiple of {size} bytes"
    if access.matrices:
        said += "; matrix_stride: elements from one matrix to the next"
    return "\n".join(comment(said + ".")) + "\n"


def _multiple(access: FragmentAccess) -> str:
    return f"a multiple of {access.run}"
