"""Types of llvmlite's objects, for the type checker.

llvmlite has no annotations.  These protocols state what the package uses of it, so that
mypy tells a traced :class:`~fragmenta.base.jit.trace.Value` from the LLVM value in
it.  They do nothing when the package runs.  A :class:`Type` has all attributes that any
kind of type has; which of them exist is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from llvmlite import ir


class Type(Protocol):
    """A type: integers have a width, vectors an element and a count."""

    width: int
    count: int
    element: Type
    pointee: Type

    def __call__(self, number: int | None) -> Raw:
        """A constant of this type."""

    def as_pointer(self) -> Type:
        """The type of a pointer to it."""


class Raw(Protocol):
    """A value of LLVM: a constant, an argument, or the result of an instruction."""

    align: int

    @property
    def type(self) -> Type:
        """Its type."""

    def get_reference(self) -> str:
        """How instructions name it."""

    def gep(self, indices: Sequence[Raw]) -> Raw:
        """The address of a part of a constant."""


class Phi(Raw, Protocol):
    """A value that depends on the basic block that control came from."""

    def add_incoming(self, value: Raw, block: BasicBlock) -> None:
        """Its value when control comes from a block."""


class BasicBlock(Protocol):
    """A basic block."""

    @property
    def function(self) -> ir.Function:
        """The function that it is a part of."""


Emit: TypeAlias = Callable[[Raw, Raw], Raw]


class Builder(Protocol):
    """Appends instructions to a basic block: ``llvmlite.ir.IRBuilder``."""

    @property
    def module(self) -> ir.Module:
        """The module that is written."""

    @property
    def block(self) -> BasicBlock:
        """The basic block that is written."""

    # Integers.
    add: Callable[..., Raw]
    mul: Emit
    shl: Emit
    lshr: Emit
    ashr: Emit
    or_: Emit

    # Floats: comparisons take a sign and two values.
    fcmp_ordered: Callable[[str, Raw, Raw], Raw]
    fcmp_unordered: Callable[[str, Raw, Raw], Raw]
    icmp_signed: Callable[[str, Raw, Raw], Raw]
    icmp_unsigned: Callable[[str, Raw, Raw], Raw]

    # Conversions.
    bitcast: Callable[[Raw, Type], Raw]
    fpext: Callable[[Raw, Type], Raw]
    fptosi: Callable[[Raw, Type], Raw]
    fptrunc: Callable[[Raw, Type], Raw]
    inttoptr: Callable[[Raw, Type], Raw]
    ptrtoint: Callable[[Raw, Type], Raw]
    sext: Callable[[Raw, Type], Raw]
    sitofp: Callable[[Raw, Type], Raw]
    trunc: Callable[[Raw, Type], Raw]
    uitofp: Callable[[Raw, Type], Raw]
    zext: Callable[[Raw, Type], Raw]

    # Vectors.
    extract_element: Emit
    insert_element: Callable[[Raw, Raw, Raw], Raw]
    shuffle_vector: Callable[[Raw, Raw, Raw], Raw]
    select: Callable[[Raw, Raw, Raw], Raw]

    # Memory.
    alloca: Callable[..., Raw]
    gep: Callable[[Raw, Sequence[Raw]], Raw]
    load: Callable[[Raw], Raw]
    store: Callable[[Raw, Raw], Raw]
    atomic_rmw: Callable[[str, Raw, Raw, str], Raw]
    fence: Callable[[str], Raw]

    # Control flow.
    append_basic_block: Callable[..., BasicBlock]
    branch: Callable[[BasicBlock], Raw]
    cbranch: Callable[[Raw, BasicBlock, BasicBlock], Raw]
    call: Callable[..., Raw]
    phi: Callable[[Type], Phi]
    position_at_end: Callable[[BasicBlock], None]
    ret: Callable[[Raw], Raw]
    ret_void: Callable[[], Raw]

    def if_then(self, predicate: Raw) -> AbstractContextManager[None]:
        """Write what runs where a condition holds."""

    def if_else(
        self, predicate: Raw
    ) -> AbstractContextManager[
        tuple[AbstractContextManager[None], AbstractContextManager[None]]
    ]:
        """Write what runs where a condition holds, and what runs elsewhere."""
