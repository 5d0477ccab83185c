"""Which operand of a ``wgmma.mma_async`` is what, and where is it in a warp?

:func:`describe` reads an instruction of a PTX file, and :func:`located` an event: the
same instruction with places in the memory of a warp instead of registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from fragmenta.errors import Error
from fragmenta.execution.warpgroup import FAMILIES, Ways
from fragmenta.isa.instruction import Instruction as Op
from fragmenta.isa.tables.wgmma import operands_from
from fragmenta.ptx.asynchronous.events import Operand
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.ptx.module import Instruction, Register, Vector


class WgmmaForm(NamedTuple):
    """The operands of a ``wgmma.mma_async``, in a PTX file or in an event."""

    op: Op
    d: tuple[Any, ...]
    a: tuple[Any, ...]
    """The registers of A; none if A is in shared memory."""
    descriptors: tuple[Any, ...]
    """That of A, if A is in shared memory, and that of B."""
    metadata: tuple[Any, ...]
    """One register, or none."""
    scale_d: Any
    constants: dict[str, Any]
    """The immediates that are written, by their names in the catalogue."""

    @property
    def in_registers(self) -> bool:
        """Whether A is in registers."""
        return bool(self.a)


def is_product(instruction: Instruction) -> bool:
    """Whether it is a ``wgmma`` that multiplies: ``wgmma.fence`` does not."""
    return instruction.opcode == "wgmma" and "mma_async" in instruction.qualifiers


def describe(instruction: Instruction) -> WgmmaForm:
    """The operands of an instruction by their names in the manual.

    >>> from fragmenta.ptx.module import Immediate, Instruction, Register, Vector
    >>> d = Vector(tuple(Register(f"f{i}", "f32", i) for i in range(4)))
    >>> a, b = Register("a", "b64", 4), Register("b", "b64", 5)
    >>> constants = tuple(Immediate(i, "int", i) for i in (1, 1, 1, 0, 1))
    >>> text = "mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    >>> words = tuple(text.split("."))
    >>> form = describe(Instruction("wgmma", words, (d, a, b, *constants), None, 1, 1))
    >>> form.constants["trans_b"].value, len(form.descriptors)
    (1, 2)
    """
    return _arranged(instruction.mnemonic, [_items(o) for o in instruction.operands])


def _items(operand: Any) -> tuple[Any, ...]:
    """What stands in braces; a vector variable for each of its elements."""
    if isinstance(operand, Vector):
        return operand.items
    if isinstance(operand, Register):
        return (operand,) * operand.lanes
    return (operand,)


def _arranged(mnemonic: str, operands: Sequence[tuple[Any, ...]]) -> WgmmaForm:
    op = named(mnemonic)
    if isinstance(op, Remark):
        raise Error(op.message)
    if op.family not in FAMILIES:
        raise Error(f"{mnemonic} does not multiply")
    in_registers = len(operands) > 1 and len(operands[1]) > 1
    names = [each.name for each in operands_from(op, registers=in_registers)]
    if len(names) != len(operands):
        raise Error(f"{op} has {len(names)} operands; given {len(operands)}")
    given = dict(zip(names, operands, strict=True))
    d, (b,), (scale_d,) = given.pop("d"), given.pop("b"), given.pop("scale_d")
    a, metadata = given.pop("a"), given.pop("metadata", ())
    descriptors = (b,) if in_registers else (*a, b)
    constants = {name: items[0] for name, items in given.items()}
    a = a if in_registers else ()
    return WgmmaForm(op, d, a, descriptors, metadata, scale_d, constants)


# ── events ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Located:
    """A ``wgmma.mma_async`` with the places of its operands in a warp's memory.

    Two of them are equal only if they are the same object: that makes it a quick key.
    """

    op: Op
    d: tuple[int, ...]
    """Where each register of D is."""
    a: tuple[Operand, ...]
    descriptors: tuple[Operand, ...]
    metadata: tuple[Operand, ...]
    scale_d: Operand
    selector: int
    ways: Ways

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """What is read from registers when the product runs."""
        return (*self.a, *self.metadata)


@lru_cache(maxsize=4096)
def located(words: tuple[str, ...], operands: tuple[Operand, ...]) -> Located:
    """An event as what it multiplies; one object for equal instructions.

    The engine writes an instruction more than once: for all lanes, and for some.
    """
    given = [each.items if each.kind == "v" else (each,) for each in operands]
    form = _arranged(".".join(words), given)
    numbers = {name: int(each.place) for name, each in form.constants.items()}
    selector = numbers.pop("selector", 0)
    return Located(
        form.op,
        tuple(each.place for each in form.d),
        form.a,
        form.descriptors,
        form.metadata,
        form.scale_d,
        selector,
        Ways(a_from_registers=form.in_registers, **numbers),
    )
