"""The algebra of hashes.

A *hash* is a pair (U, V) of 64 bits each.  All functions take NumPy arrays of
``uint64`` or traced values (:mod:`fragmenta.base.jit.trace`), with the same bits for
both: Python names inputs and draws trees, compiled code hashes what a kernel computes.

- The hash of an operation is made of its name and of the hashes of its operands.  Equal
  expressions have equal hashes.  Different ones have different hashes, except with a
  probability of about 2**-100.
- Operands that commute are mixed in the same way and added.
- What associates, too, as ``max`` does, is added after a bijection, whose inverse makes
  a hash of the sum again: brackets are nowhere.
- A 16-bit number has only 64 bits of hash.  The halves of a 32-bit number are such
  numbers: U is that of the upper half, V that of the lower half.  So a bf16 that
  becomes the upper half of an f32 keeps its hash.
- Zero is no hash: it means a number as it is, a constant.  :func:`constant` makes the
  hash of a constant where it meets something else.
- Products that one step adds exactly are added here, too: in the ring of integers
  modulo 2**64, twice.  The sum of products of random numbers there is the same for two
  different sums with a probability of about 2**-57, for both rings 2**-114.

The lowest bits of U and V say what is known of a number of 32 bits: ``CLEAN`` that it
has only the one NaN which the hardware makes, ``STEP`` that it is the result of a step
of a Tensor Core, which is never -0.  In 64 bits of hash, the lowest bit is ``STEP``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fragmenta.base.jit.trace import Value, select, shift_unsigned
from fragmenta.engine.simt.library import as_signed

Numbers: TypeAlias = Any
"""An array of ``uint64``, or traced values of 64 bits."""

MASK = (1 << 64) - 1
_LOW = (1 << 32) - 1
STEP = 1
"""The bit of V that results of Tensor Core steps have."""
CLEAN = 1
"""The bit of U that results of f32 operations have: their only NaN is 0x7fffffff."""
SOME = 2
"""A bit that U and V of every hash have: neither is zero."""


class Hash(NamedTuple):
    """A hash of 128 bits, or an array of them."""

    u: Numbers
    v: Numbers


@cache
def key(text: str) -> Hash:
    """The hash of a text: the name of an operation or of an input.

    >>> key("add.rn.f32") == key("add.rn.f32"), key("add.rn.f32") == key("add.rz.f32")
    (True, False)
    """
    found = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return Hash(
        int.from_bytes(found[:8], "little"), int.from_bytes(found[8:], "little")
    )


# Keys that nobody chose.
_KEYS = tuple(
    int.from_bytes(hashlib.blake2b(bytes([n]), digest_size=8).digest(), "little")
    for n in range(24)
)


# ── arithmetic of both kinds ────────────────────────────────────────────────


def number(x: Numbers, given: int) -> Any:
    """A constant that can be combined with x."""
    if isinstance(x, Value):
        return as_signed(given, 64)
    return np.uint64(given & MASK)


def _right(x: Numbers, by: int) -> Numbers:
    return shift_unsigned(x, by) if isinstance(x, Value) else x >> np.uint64(by)


def _left(x: Numbers, by: int) -> Numbers:
    return x << by if isinstance(x, Value) else x << np.uint64(by)


def _rotated(x: Numbers, by: int) -> Numbers:
    return _left(x, by) | _right(x, 64 - by)


def choose(condition: Any, x: Numbers, y: Numbers) -> Numbers:
    """x where a condition holds, else y."""
    if isinstance(condition, Value):
        return select(condition, x, y)
    return np.where(condition, x, y)


def stir(x: Numbers, of: int) -> Numbers:
    """Mix the bits of a number: its halves are multiplied with one another."""
    y = x ^ number(x, of)
    return (y & number(y, _LOW)) * _right(y, 32) + _rotated(y, 29)


# ── hashes ──────────────────────────────────────────────────────────────────


def _entering(x: Hash, place: int) -> Hash:
    """A hash as operand number ``place`` of an operation."""
    k = _KEYS[4 * place : 4 * place + 2]
    return Hash(
        stir(x.u, k[0]) + _rotated(x.v, 17), stir(x.v, k[1]) - _rotated(x.u, 41)
    )


def _added(x: Hash, y: Hash) -> Hash:
    return Hash(x.u + y.u, x.v + y.v)


def _finished(total: Hash, name: Hash) -> Hash:
    u = stir(total.u + number(total.u, name.u), _KEYS[2])
    v = stir(total.v ^ number(total.v, name.v), _KEYS[3])
    u = stir(u + _rotated(v, 31), _KEYS[6])
    v = stir(v ^ _rotated(u, 11), _KEYS[7])
    u = u ^ _right(v, 23)
    keep = number(u, MASK ^ STEP)
    return Hash(u & keep | number(u, SOME), v & keep | number(v, SOME))


def operation(
    name: str, operands: Sequence[Hash], commutes: int = 0, *, clean: bool = False
) -> Hash:
    """The hash of an operation; its first ``commutes`` operands commute.

    ``clean`` says that its results have only the one NaN.

    >>> a, b = (leaf("x", np.arange(2, dtype=np.uint64) + n) for n in (0, 2))
    >>> bool((operation("add", [a, b], 2).u == operation("add", [b, a], 2).u).all())
    True
    >>> bool((operation("div", [a, b]).u == operation("div", [b, a]).u).any())
    False
    """
    total = None
    for place, each in enumerate(operands):
        entered = _entering(each, 1 if place < commutes else place + 2)
        total = entered if total is None else _added(total, entered)
    assert total is not None
    found = _finished(total, key(f"{name}/{len(operands)}"))
    return Hash(found.u | number(found.u, CLEAN), found.v) if clean else found


_RING = (1 << 62) - 1
_FACTORS = tuple(each & _RING | 1 for each in _KEYS[16:18])


def _spread(x: Numbers, of: int) -> Numbers:
    """A bijection of the upper 62 bits of a hash, as a number below 2**62."""
    y = (_right(x, 2) ^ number(x, of & _RING)) * number(x, _FACTORS[0])
    y = y & number(x, _RING)
    return (y ^ _right(y, 31)) * number(x, _FACTORS[1]) & number(x, _RING)


def _gathered(y: Numbers, of: int) -> Numbers:
    """Its inverse: the upper 62 bits of a hash."""
    back = [number(y, pow(each, -1, _RING + 1)) for each in _FACTORS]
    y = y * back[1] & number(y, _RING)
    y = (y ^ _right(y, 31)) * back[0] & number(y, _RING)
    return _left(y ^ number(y, of & _RING), 2)


def associated(name: str, operands: Sequence[Hash], *, clean: bool = False) -> Hash:
    """The hash of an operation whose operands commute and associate.

    >>> a, b, c = (leaf("x", np.arange(2, dtype=np.uint64) + n) for n in (0, 2, 4))
    >>> left = associated("max", [associated("max", [a, b]), c])
    >>> right = associated("max", [associated("max", [c, b]), a])
    >>> bool((left.u == right.u).all() and (left.v == right.v).all())
    True
    >>> bool((associated("max", [a, a]).u == a.u).any())
    False
    """
    of = key(name)
    u, v = _spread(operands[0].u, of.u), _spread(operands[0].v, of.v)
    for each in operands[1:]:
        u, v = u + _spread(each.u, of.u), v + _spread(each.v, of.v)
    u, v = _gathered(u, of.u), _gathered(v, of.v)
    flags = SOME | CLEAN if clean else SOME
    return Hash(u | number(u, flags), v | number(v, SOME))


def leaf(name: str, index: Numbers) -> Hash:
    """The hashes of elements of an input.

    >>> found = leaf("x", np.arange(3, dtype=np.uint64))
    >>> len(set(found.u.tolist())), len(set(found.v.tolist()))
    (3, 3)
    """
    return operation(f"input {name}", [Hash(index, index)])


def constant(half: Numbers) -> Numbers:
    """The 64 bits of hash that a constant of 16 bits has beside a hash.

    >>> constant(np.array([0, 1], np.uint64)).tolist()[0] != 0
    True
    """
    mixed = stir(stir(half, _KEYS[8]), _KEYS[9])
    return mixed & number(half, MASK ^ STEP) | number(half, SOME)


def short(x: Hash) -> Numbers:
    """A hash of 64 bits, for a number of 16 bits or less; it keeps the bit STEP."""
    mixed = stir(x.u ^ _rotated(x.v, 7), _KEYS[10])
    kept = x.v & number(x.v, STEP)
    return mixed & number(mixed, MASK ^ STEP) | number(mixed, SOME) | kept


def widened(x: Numbers) -> Hash:
    """The hash of a number of 64 bits of hash as an operand."""
    return Hash(x, x ^ x)


def negative(x: Hash) -> Hash:
    """The hash of -x; that of -(-x) is the hash of x, but for the bit STEP.

    All bits but those that have a meaning are inverted.
    """
    flip = number(x.u, MASK ^ CLEAN ^ SOME)
    none = x.v ^ x.v
    v = choose(x.v == none, none, x.v ^ flip)  # a bf16 in the upper half stays one
    return Hash(x.u ^ flip, v & number(v, MASK ^ STEP))  # -0 may be the result


def negated(x: Hash) -> Hash:
    """The hash of ``neg.f32``: first, all NaN become the one."""
    clean = operation("clean", [x], clean=True)
    known = (x.u & number(x.u, CLEAN)) != x.u ^ x.u
    return negative(Hash(choose(known, x.u, clean.u), choose(known, x.v, clean.v)))


# ── sums of products ────────────────────────────────────────────────────────


def factor(x: Hash) -> Hash:
    """A number in both rings, for the operand of a product.

    That of -x is the negative number: a product of -x is the negative of that of x.
    """
    zero = x.u ^ x.u
    minus = _right(x.u, 63) != zero
    other = negative(x)
    x = Hash(choose(minus, other.u, x.u), choose(minus, other.v, x.v))
    u = stir(stir(x.u + _rotated(x.v, 9), _KEYS[12]), _KEYS[13])
    v = stir(stir(x.v + _rotated(x.u, 27), _KEYS[14]), _KEYS[15])
    u, v = u | number(u, 1), v | number(v, 1)
    return Hash(choose(minus, zero - u, u), choose(minus, zero - v, v))


def step(name: str, accumulator: Hash, total: Hash) -> Hash:
    """The hash of one step: an accumulator and the sum of products."""
    entered = _added(_entering(accumulator, 4), _entering(total, 5))
    found = _finished(entered, key(f"step {name}"))
    return Hash(found.u | number(found.u, CLEAN), found.v | number(found.v, STEP))
