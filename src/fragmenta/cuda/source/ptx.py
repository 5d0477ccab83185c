"""PTX statements of instructions, with operands and register declarations.

Registers are named after their operands: ``%d0``, ``%a0`` … of the class the
manual gives.  An operand that is an immediate takes a value; by default the
first legal one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fragmenta.errors import BadCall, ValueRangeError, one_of
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.tables import tcgen05_mma, wgmma

#: The registers that are declared for operands which take several kinds of them.
DECLARED = {
    "address": ".b64",
    "stride": ".b32",
    "tensor": ".b32",
    "number": ".b32",
    "columns": ".b32",
}
#: The operands that are no registers.
CONSTANTS = ("immediate", "integer", "constant")


class MmaOptions(NamedTuple):
    """Optional operands of a ``tcgen05.mma``."""

    a_tensor: bool = False
    """Whether A is in tensor memory, not in shared memory."""
    disable_output_lane: bool = False
    scale_input_d: bool = False
    zero_column_mask: bool = False

    @property
    def tag(self) -> str:
        """The suffix of a function that has them."""
        return "".join(f"_{name}" for name in self._asdict() if getattr(self, name))


PLAIN = MmaOptions()


def check_options(op: Instruction, options: MmaOptions) -> MmaOptions:
    """The options, with those that the instruction requires; others are refused.

    >>> import fragmenta as fm
    >>> op = fm.tcgen05("m128n64k16", a="f16", d="f32", ashift=True)
    >>> check_options(op, PLAIN).a_tensor
    True
    """
    if not op.tensor_memory:
        if any(options):
            raise BadCall(f"{options.tag[1:]} is for tcgen05.mma; {op} is none")
        return options
    lists = tcgen05_mma.lists(op)
    if not any(_a_in_shared_memory(each) for each in lists):
        options = options._replace(a_tensor=True)
    known = {operand.name for each in lists for operand in each} | {"a_tensor"}
    for name, wanted in options._asdict().items():
        if wanted and name not in known:
            have = one_of((n for n in MmaOptions._fields if n in known), "and")
            raise BadCall(f"{op} takes no {name}; it may take {have}")
    return options


def _a_in_shared_memory(listed: Iterable[Operand]) -> bool:
    return any(each.name == "a" and each.ptx == ".b64" for each in listed)


def operands(
    op: Instruction, *, a_registers: bool = False, options: MmaOptions = PLAIN
) -> tuple[Operand, ...]:
    """The operands; ``a_registers`` takes wgmma's A from registers."""
    if op.warpgroup:
        return wgmma.operands_from(op, registers=a_registers)
    if op.tensor_memory:
        chosen = check_options(op, options)
        return tcgen05_mma.operands_from(
            op,
            tensor_a=chosen.a_tensor,
            mask=chosen.disable_output_lane,
            last=chosen.scale_input_d or chosen.zero_column_mask,
        )
    return op.operands


def statement(
    op: Instruction,
    *,
    a_registers: bool = False,
    options: MmaOptions = PLAIN,
    **given: int | str,
) -> str:
    """The instruction with its operands, as one PTX statement.

    >>> import fragmenta as fm
    >>> print(statement(fm.mma("m16n8k16", a="f16", d="f32")))
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, \
{%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};
    """
    listed = operands(op, a_registers=a_registers, options=options)
    unknown = set(given) - {each.name for each in listed}
    if unknown:
        have = one_of((each.name for each in listed), "and")
        raise BadCall(f"{op} has no operand {min(unknown)}; it has {have}")
    texts = [_operand(each, given) for each in listed]
    joined = ", ".join(_braced(listed, texts))
    return f"{op.mnemonic} {joined};" if joined else f"{op.mnemonic};"


def declarations(op: Instruction, *, a_registers: bool = False) -> list[str]:
    """The registers that :func:`statement` names.

    >>> import fragmenta as fm
    >>> declarations(fm.mma("m16n8k16", a="f16", d="f32"))[0]
    '.reg .f32 %d<4>;'
    """
    return declared(operands(op, a_registers=a_registers))


def declared(listed: Iterable[Operand]) -> list[str]:
    """The same for operands.

    >>> declared([Operand("x", ".b32", 2), Operand("n", "immediate")])
    ['.reg .b32 %x<2>;']
    """
    lines = []
    for each in listed:
        if each.ptx in DECLARED:
            lines.append(f".reg {DECLARED[each.ptx]} %{each.name};")
        elif each.ptx not in CONSTANTS:
            name = f"%{each.name}<{each.count}>" if each.vector else f"%{each.name}"
            lines.append(f".reg {each.ptx} {name};")
    return lines


def names(operand: Operand) -> list[str]:
    """The registers of one operand.

    >>> names(Operand("a", ".b32", 2)), names(Operand("metadata", ".b32", vector=False))
    (['%a0', '%a1'], ['%metadata'])
    """
    if not operand.vector:
        return [f"%{operand.name}"]
    return [f"%{operand.name}{i}" for i in range(operand.count)]


def size(operand: Operand) -> int:
    """Bytes of the registers of one operand.

    >>> size(Operand("d", ".f64", 4))
    32
    """
    return operand.count * (8 if operand.ptx.endswith("64") else 4)


def default(operand: Operand) -> int:
    """An immediate's default: do not negate, do not transpose, the first.

    >>> default(Operand("imm_scale_a", "immediate", values=(-1, 1)))
    1
    """
    if operand.ptx in ("integer", "constant"):
        return 0
    return 1 if -1 in operand.values else operand.values[0]


def immediates(
    op: Instruction,
    given: Mapping[str, int],
    *,
    a_registers: bool = False,
    options: MmaOptions = PLAIN,
) -> dict[str, int]:
    """The value of each immediate: as given, else its default.

    >>> import fragmenta as fm
    >>> immediates(fm.wgmma("m64n8k8", a="tf32"), {"imm_scale_b": -1})
    {'imm_scale_a': 1, 'imm_scale_b': -1}
    """
    found: dict[str, int] = {}
    for each in operands(op, a_registers=a_registers, options=options):
        if not (each.values or each.ptx in ("integer", "constant")):
            continue
        value = given.get(each.name, default(each))
        legal = each.values or range(1 << 64)
        if type(value) is not int or value not in legal:
            raise ValueRangeError(
                f"{each.name} {value} is not legal for {op}; "
                f"it is {one_of(each.values) or 'an integer, 0 or more'}"
            )
        found[each.name] = value
    unknown = sorted(given.keys() - found.keys())
    if unknown:
        have = one_of(found, "and") or "none"
        raise BadCall(f"{op} has no immediate {unknown[0]}; it has {have}")
    return found


def _operand(operand: Operand, given: Mapping[str, int | str]) -> str:
    if operand.ptx == "immediate":
        return str(given.get(operand.name, operand.values[0]))
    if operand.ptx in ("integer", "constant"):
        return str(given.get(operand.name, 0))
    if operand.name in given:
        return str(given[operand.name])
    if operand.ptx in ("address", "tensor"):
        return f"[%{operand.name}]"
    if not operand.vector:
        return f"%{operand.name}"
    return "{" + ", ".join(names(operand)) + "}"


def _braced(listed: tuple[Operand, ...], texts: list[str]) -> list[str]:
    """Join each pair of scale selectors, which PTX writes as {byte, thread}."""
    joined: list[str] = []
    for operand, text in zip(listed, texts, strict=True):
        if operand.name.startswith("thread_"):
            joined[-1] = "{" + f"{joined[-1]}, {text}" + "}"
        else:
            joined.append(text)
    return joined
