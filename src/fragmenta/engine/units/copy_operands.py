"""Makes the copy that an instruction issues from its mnemonic and operands.

:func:`copy_from` takes those of one lane.  Their order is in
:mod:`fragmenta.engine.units.fast.copy_forms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from fragmenta.engine.units import blocks
from fragmenta.engine.units.blocks import Thread
from fragmenta.engine.units.bulk_copies import (
    AsyncStore,
    BulkCopy,
    Prefetch,
    no_slack,
)
from fragmenta.engine.units.fast.copy_forms import CopyForm, form
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.tma_copies import (
    TensorLoad,
    TensorPrefetch,
    TensorStore,
)
from fragmenta.engine.units.work import Copy, CopyBlock
from fragmenta.errors import one_of
from fragmenta.ptx import rules

Value: TypeAlias = "int | list[Value]"
"""An operand of one lane: a number, or several in braces or brackets."""


class CopyOperands(dict[str, Value]):
    """The operands of a copy, by name."""

    def number(self, name: str) -> int:
        """An operand that is a number."""
        value = self[name]
        if isinstance(value, list):
            raise CopyFault(
                rules.BAD_OPERANDS, f"{name} is one number; given {len(value)}"
            )
        return value

    def maybe(self, name: str) -> int | None:
        """A number, or None if there is no such operand."""
        return self.number(name) if name in self else None

    def numbers(self, name: str) -> list[int]:
        """An operand that is a number, or several in braces."""
        return _numbers(self[name])


def _numbers(value: Value) -> list[int]:
    if not isinstance(value, list):
        return [value]
    return [each for each in value if not isinstance(each, list)]


class Issuer(NamedTuple):
    """Who issues a copy."""

    block: CopyBlock
    thread: Thread
    site: int


def copy_from(
    block: CopyBlock, thread: Thread, site: int, mnemonic: str, values: list[Value]
) -> Copy:
    """The copy that one lane issues.

    ``values`` are the operands in their order: numbers, or their bits; a vector is a
    list, a predicate a bool, and a tensor ``[map, {coordinates}]`` a list of the
    address and the list of coordinates.
    """
    of = form(mnemonic)
    if len(values) != len(of.operands):
        raise CopyFault(
            rules.BAD_OPERANDS,
            f"{mnemonic} has the operands {one_of(of.operands, 'and')}; given "
            f"{len(values)}",
        )
    given = CopyOperands(zip(of.operands, values, strict=True))
    return _MAKERS[of.kind](of, Issuer(block, thread, site), given)


def _signed(value: int) -> int:
    return (int(value) + (1 << 31)) % (1 << 32) - (1 << 31)


def _word(value: int, bits: int = 32) -> int:
    return int(value) & (1 << bits) - 1


def _bulk(of: CopyForm, who: Issuer, given: CopyOperands) -> Copy:
    mask, kept = given.maybe("mask"), given.maybe("kept")
    left, right = (given.maybe(name) or 0 for name in ("left", "right"))
    slack = who.block.slack if isinstance(who.block, blocks.Block) else no_slack
    return BulkCopy(
        *who,
        given.number("goal"),
        given.number("source"),
        _word(given.number("size")),
        to=of.to,
        of=of.of,
        mbarrier=given.maybe("mbarrier"),
        mask=None if mask is None else _word(mask, 16),
        kept=0xFFFF if kept is None else _word(kept, 16),
        ignored=(_word(left), _word(right)),
        reduction=None if of.operation is None else (of.operation, of.type),
        slack=slack,
    )


def _prefetch(of: CopyForm, who: Issuer, given: CopyOperands) -> Copy:
    return Prefetch(*who, given.number("source"), _word(given.number("size")))


class _Tensor(NamedTuple):
    """The operand ``[map, {coordinates}]``, and the offsets of im2col."""

    map: int
    coordinates: tuple[int, ...]
    offsets: tuple[int, ...]


def _tensor(of: CopyForm, given: CopyOperands) -> _Tensor:
    match given["tensor"]:
        case [int(address), coordinates, *more]:
            pass
        case _:
            raise CopyFault(
                rules.BAD_OPERANDS,
                f"{of.mnemonic} takes [map, {{coordinates}}] in brackets",
            )
    offsets = given["offsets"] if "offsets" in given else more[0] if more else []
    found = tuple(map(_signed, _numbers(coordinates)))
    count = next(int(word[0]) for word in of.words if word[1:] == "d")
    if of.rows:
        count = 5
    if len(found) != count:
        raise CopyFault(
            rules.BAD_OPERANDS,
            f"{of.mnemonic} takes {count} coordinates; given {len(found)}",
        )
    return _Tensor(address, found, tuple(_word(each, 16) for each in _numbers(offsets)))


def _tensor_load(of: CopyForm, who: Issuer, given: CopyOperands) -> Copy:
    tensor, mask = _tensor(of, given), given.maybe("mask")
    return TensorLoad(
        *who,
        tensor.map,
        tensor.coordinates,
        tensor.offsets,
        given.number("goal"),
        given.number("mbarrier"),
        None if mask is None else _word(mask, 16),
        im2col=of.has("im2col"),
        space=of.to,
        paired=of.has("cta_group::2"),
        rows=of.rows,
    )


def _tensor_store(of: CopyForm, who: Issuer, given: CopyOperands) -> Copy:
    tensor = _tensor(of, given)
    return TensorStore(
        *who,
        tensor.map,
        tensor.coordinates,
        given.number("source"),
        im2col=of.has("im2col_no_offs"),
        operation=of.operation,
        rows=of.rows,
    )


def _tensor_prefetch(of: CopyForm, who: Issuer, given: CopyOperands) -> Copy:
    tensor = _tensor(of, given)
    return TensorPrefetch(*who, *tensor, im2col=of.has("im2col"), rows=of.rows)


def _registers(of: CopyForm, who: Issuer, given: CopyOperands) -> Copy:
    return AsyncStore(
        *who,
        given.number("goal"),
        given.numbers("values"),
        of.type,
        given.number("mbarrier"),
        space=of.to,
        operation=of.operation if of.words[0] == "red" else None,
    )


_MAKERS: dict[str, Callable[[CopyForm, Issuer, CopyOperands], Copy]] = {
    "load": _bulk,
    "exchange": _bulk,
    "store": _bulk,
    "prefetch": _prefetch,
    "tensor load": _tensor_load,
    "tensor store": _tensor_store,
    "tensor prefetch": _tensor_prefetch,
    "registers": _registers,
}
