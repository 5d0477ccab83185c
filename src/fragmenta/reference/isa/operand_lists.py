"""The operands that an instruction takes, in the order of the PTX statement.

What an instruction takes is its list of operands (:attr:`Instruction.operands`),
the list that statements are written from.  The tables here add what the list
leaves open: what the manual calls each operand, and which registers may hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fragmenta.errors import one_of
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.tables.wgmma import operands_from

# The manual's word for an operand, where it is not ours.
WORDS = """
family | operand  | word
mma    | metadata | e
mma    | selector | f
mma    | scale_a  | scale-a-data
mma    | scale_b  | scale-b-data
mma    | byte_a   | byte-id-a
mma    | byte_b   | byte-id-b
mma    | thread_a | thread-id-a
mma    | thread_b | thread-id-b
wgmma  | metadata | sp-meta
wgmma  | selector | sp-sel
wgmma  | scale_d  | scale-d
wgmma  | imm_scale_a  | imm-scale-a
wgmma  | imm_scale_b  | imm-scale-b
wgmma  | trans_a  | imm-trans-a
wgmma  | trans_b  | imm-trans-b
tcgen05 | d       | d-tmem
tcgen05 | a       | a-tmem
tcgen05 | metadata | sp-meta-tmem
tcgen05 | scale_a | scale-A-tmem
tcgen05 | scale_b | scale-B-tmem
tcgen05 | disable_output_lane | disable-output-lane
tcgen05 | enable_input_d | enable-input-d
tcgen05 | scale_input_d | scale-input-d
tcgen05 | zero_column_mask | zero-column-mask-desc
tcgen05 | imm_half_splitoff | immHalfSplitoff
"""
_WORDS = {(line["family"], line["operand"]): line["word"] for line in read(WORDS)}
# Which declared registers an operand takes: the first line that fits it, empty
# cells fit all.  ``elements`` is the type in the registers.
REGISTERS = """
class     | family                        | elements            | registers
.f32      |                               |                     | .f32 .b32
.s32      |                               |                     | .s32 .u32 .b32
.f64      | wmma.mma wmma.load wmma.store |                     | .f64 .b64
.f64      |                               |                     | .f64 .b64 .u64 .s64
.b64      |                               |                     | .b64 .u64 .s64
.pred     |                               |                     | .pred
stride    |                               |                     | .b32 .u32 .s32
address   |                               |                     | .b32 .u32 .s32 .b64 .u64 .s64
tensor    | tcgen05.ld tcgen05.st tcgen05.cp tcgen05 |          | .b32 .u32 .s32
tensor    |                               |                     | .b32
number    |                               |                     | .b32 .u32 .s32
columns   |                               |                     | .b32 .u32 .s32
.b16      |                               |                     | .b16 .u16 .s16
.b32      | wgmma wgmma.sp                | bf16 tf32 e4m3 e5m2 | .b32 .f16x2
.b32      |                               | bf16 tf32           | .b32
.b32      |                               | f16                 | .b32 .f16x2
.b32      | wmma.mma wmma.load            |                     | .b32 .u32 .s32
.b32      |                               |                     | .b32 .u32 .s32 .f32 .f16x2
"""
_REGISTERS = read(REGISTERS)
BRACKETS = ("address", "tensor")
#: What the instructions on structured sparsity write, maybe two operands.
_SPARSITY = {"spcompress": ("mdata", "cdata"), "spdecompress": ("data",)}


def lists(op: Instruction) -> list[tuple[Operand, ...]]:
    """The lists of operands: two for wgmma, whose A has two places.

    Those of tcgen05.mma leave out more, or less, of what may be left out.

    >>> import fragmenta as fm
    >>> [len(each) for each in lists(fm.wgmma("m64n8k16", a="f16", d="f32"))]
    [8, 7]
    """
    if op.warpgroup:
        return [operands_from(op, registers=each) for each in (False, True)]
    return list(op.form.lists(op)) if op.form.lists else [op.operands]


def form_of(slot: tuple[Operand, ...]) -> str:
    """How the operands of a slot are written: address, vector or scalar.

    >>> form_of((Operand("d", "tensor", vector=False),))
    'address'
    """
    if slot[0].ptx in BRACKETS:
        return "address"
    return "vector" if len(slot) > 1 or is_vector(slot[0]) else "scalar"


def word(op: Instruction, operand: Operand) -> str:
    """The manual's name of an operand.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="tf32", sp="sp")
    >>> [word(op, each) for each in op.operands]
    ['d', 'a', 'b', 'c', 'e (metadata)', 'f (selector)']
    """
    found = _WORDS.get((op.unit, operand.name), operand.name)
    if operand.ptx == ".b64":
        return found if found.endswith("-desc") else f"{operand.name}-desc"
    plain = operand.name in ("metadata", "selector")
    return f"{found} ({operand.name})" if plain else found


def values_of(operand: Operand) -> str:
    """The legal values of an immediate, for a message.

    >>> values_of(Operand("scale_input_d", "immediate", values=tuple(range(16))))
    '0 to 15'
    """
    first, last = operand.values[0], operand.values[-1]
    if last - first > 4:
        return f"{first} to {last}"
    return one_of(operand.values)


def syntax(op: Instruction, operands: Iterable[Operand] | None = None) -> str:
    """What may come after the mnemonic, for a message.

    >>> import fragmenta as fm
    >>> print(syntax(fm.find("ldmatrix.m8n8.x4.b16")))
    its operands are {d: 4 x .b32}, [address]
    """
    operands = op.operands if operands is None else tuple(operands)
    if not operands:
        return "it has no operands"
    texts = [
        "{" + ", ".join(_described(op, each) for each in slot) + "}"
        if len(slot) > 1 or is_vector(slot[0])
        else _described(op, slot[0])
        for slot in slots(operands)
    ]
    return f"its operands are {', '.join(texts)}"


def _described(op: Instruction, operand: Operand) -> str:
    name = word(op, operand)
    if operand.values:
        return f"{name}: {values_of(operand)}"
    if operand.ptx in BRACKETS:
        return f"[{name}]"
    if operand.ptx in ("number", "columns"):
        return f"{name}: .b32 or a number"
    if operand.ptx in ("stride", "integer", "constant"):
        return f"{name}: {'if any' if operand.ptx == 'stride' else 'a number'}"
    count = f"{operand.count} x " if operand.vector else ""
    return f"{name}: {count}{operand.ptx}"


def is_vector(operand: Operand) -> bool:
    """Whether it is registers in braces.

    >>> is_vector(Operand("d", ".f32", 4)), is_vector(Operand("b", ".b64", vector=False))
    (True, False)
    """
    return operand.vector and operand.ptx.startswith(".")


def slots(operands: Iterable[Operand]) -> list[tuple[Operand, ...]]:
    """One for each operand as it is written: {byte, thread} share their braces.

    >>> pair = [Operand(name, "immediate") for name in ("byte_a", "thread_a")]
    >>> len(slots(pair))
    1
    """
    found: list[tuple[Operand, ...]] = []
    for each in operands:
        if each.name.startswith("thread_"):
            found[-1] = (*found[-1], each)
        else:
            found.append((each,))
    return found


def destination(op: Instruction) -> str:
    """The first operand whose registers are written; empty if it is memory.

    >>> import fragmenta as fm
    >>> destination(fm.find("wmma.load.b.col.m8n8k32.s4")), destination(
    ...     fm.find("stmatrix.m8n8.x1.b16"))
    ('b', '')
    """
    if op.unit == "sparsity":
        return _SPARSITY[op.family][0]
    if op.loads and op.unit != "matrix":
        return op.values["operand"] if op.unit == "wmma" else "r"
    in_registers = op.form.multiplies == "registers"
    return "d" if in_registers or op.moves in ("load", "transpose") else ""


def is_written(op: Instruction, operand: Operand) -> bool:
    """Whether the instruction writes these registers.

    >>> import fragmenta as fm
    >>> op = fm.instruction("tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32")
    >>> [is_written(op, each) for each in op.operands]
    [True, True, False]
    >>> op = fm.instruction("spcompress.b8.b2.sp::2:4.x1")
    >>> [each.name for each in op.operands if is_written(op, each)]
    ['mdata', 'cdata']
    """
    results = (destination(op), "spmeta", "redval")
    return operand.name in _SPARSITY.get(op.family, results)


def columns(op: Instruction) -> Collection[int]:
    """How many columns of tensor memory can be allocated.

    >>> import fragmenta as fm
    >>> columns(fm.instruction("tcgen05.dealloc.cta_group::1.sync.aligned.b32"))
    (32, 64, 128, 256, 512)
    """
    exclusive = bool(op.values["exclusive"])
    return range(32, 1 << 32, 32) if exclusive else (32, 64, 128, 256, 512)


def has_variables(op: Instruction, operand: Operand) -> bool:
    """Whether a vector variable can stand for the braces.

    >>> import fragmenta as fm
    >>> op = fm.find("ldmatrix.m8n8.x4.b16")
    >>> [has_variables(op, each) for each in op.operands]
    [True, False]
    """
    bits = 64 if operand.ptx == ".f64" else 32
    fits = operand.count in (2, 4) and operand.count * bits <= 128
    accumulates = op.warpgroup and operand.name == "d"
    takes = op.unit in ("mma", "matrix") or op.warpgroup
    return fits and takes and not accumulates


def has_sinks(op: Instruction) -> bool:
    """Whether ``_`` can stand in what is written: not where it is also read.

    The tf32 of wmma takes two steps, the second of which reads D.  ``tcgen05.ld`` writes
    all its registers, as do ``spcompress`` and ``spdecompress``.

    >>> import fragmenta as fm
    >>> has_sinks(fm.mma("m16n8k8", a="tf32")), has_sinks(fm.wgmma("m64n8k8", a="tf32"))
    (True, False)
    """
    in_two_steps = op.unit == "wmma" and op.multiplies and op.values["a"] == "tf32"
    return not (op.warpgroup or in_two_steps or writes_all(op))


def writes_all(op: Instruction) -> bool:
    """Whether every register of a result is written, and none can be left out.

    >>> import fragmenta as fm
    >>> writes_all(fm.instruction("spdecompress.b8.b4.sp::2:4.x2"))
    True
    """
    return op.unit == "sparsity" or (op.unit == "tcgen05" and op.loads)


def registers(op: Instruction, operand: Operand) -> list[str]:
    """The types of registers that an operand takes.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> [registers(op, each) for each in op.operands[:2]]
    [['.f32', '.b32'], ['.b32', '.f16x2']]
    """
    elements = op.values.get(operand.name) or op.values.get("type", "")
    for line in _REGISTERS:
        families, types = line["family"].split(), line["elements"].split()
        if (
            line["class"] == operand.ptx
            and (not families or op.family in families)
            and (not types or elements in types)
        ):
            return line["registers"].split()
    raise AssertionError(f"no line for {operand}")
