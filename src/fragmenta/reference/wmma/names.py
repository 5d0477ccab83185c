"""The names of ``nvcuda::wmma``, and the target that is used.

The module has uses, layouts, element types and bit operations with their CUDA names,
and the target that calls compute for.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from enum import Enum, IntEnum
from types import TracebackType
from typing import NamedTuple, TypeVar

import numpy as np

from fragmenta.base.arrays.checks import is_among
from fragmenta.errors import BadCall, Error, UnknownType, one_of
from fragmenta.reference.isa.target import check_target
from fragmenta.reference.registers.dtype import DType, dtype, nearest_type
from fragmenta.reference.wmma.memory import RULES


class Use(Enum):
    """The role of a fragment in ``D = A B + C``."""

    matrix_a = "A"
    matrix_b = "B"
    accumulator = "C"


class Major(Enum):
    """How matrix_a or matrix_b is stored: with contiguous rows, or columns."""

    row_major = "row"
    col_major = "col"


class layout_t(Enum):
    """How an accumulator is stored; an argument of the call, not of the fragment."""

    mem_row_major = "row"
    mem_col_major = "col"


matrix_a, matrix_b, accumulator = Use
row_major, col_major = Major
mem_row_major, mem_col_major = layout_t

half = __half = dtype("f16")
nv_bfloat16 = __nv_bfloat16 = dtype("bf16")
double = dtype("f64")
signed_char, unsigned_char = dtype("s8"), dtype("u8")


class precision:
    """Element types that are stored as another type.

    >>> precision.tf32.storage
    dtype('float32')
    """

    tf32 = dtype("tf32")


class bmmaBitOp(IntEnum):
    """How a bit of A and a bit of B are combined."""

    bmmaBitOpXOR = 1
    bmmaBitOpAND = 2


class bmmaAccumulateOp(IntEnum):
    """How the resulting bits are accumulated: they are counted."""

    bmmaAccumulateOpPOPC = 1


class experimental:
    """Sub-byte types and operations, which the guide calls a preview feature.

    >>> experimental.precision.u4.bits, int(experimental.bmmaBitOpAND)
    (4, 2)
    """

    class precision:
        """4-bit unsigned, 4-bit signed, and single bits."""

        u4, s4, b1 = dtype("u4"), dtype("s4"), dtype("b1")

    bmmaBitOp = bmmaBitOp
    bmmaAccumulateOp = bmmaAccumulateOp
    bmmaBitOpXOR = bmmaBitOp.bmmaBitOpXOR
    bmmaBitOpAND = bmmaBitOp.bmmaBitOpAND
    bmmaAccumulateOpPOPC = bmmaAccumulateOp.bmmaAccumulateOpPOPC


# The first name is the one in messages.
NAMES = {
    "f16": ("half", "__half"),
    "bf16": ("__nv_bfloat16", "nv_bfloat16"),
    "tf32": ("precision::tf32",),
    "f32": ("float",),
    "f64": ("double",),
    "s8": ("signed char",),
    "u8": ("unsigned char",),
    "s32": ("int",),
    "u4": ("experimental::precision::u4",),
    "s4": ("experimental::precision::s4",),
    "b1": ("experimental::precision::b1",),
}
_BY_NAME = {name: of for of, names in NAMES.items() for name in (of, *names)}

#: The type of the storage element that packed elements share.
SUB_BYTE_STORAGE = {"u4": np.uint32, "s4": np.int32, "b1": np.uint32}


def element_type(given: object) -> DType:
    """The element type for a CUDA name, a name of this package, or a NumPy type.

    >>> element_type("unsigned char"), element_type(float), element_type("wmma::half")
    (dtype('u8'), dtype('f32'), dtype('f16'))
    """
    if isinstance(given, DType):
        found = given.name
    elif isinstance(given, str):
        found = _BY_NAME.get(given.replace("wmma::", ""), given)
    elif given is float or given is int:  # the types of C++, not those of Python
        found = "f32" if given is float else "s32"
    else:
        found = _of_numpy(given)
    if found not in NAMES:
        allowed = one_of((names[0] for names in NAMES.values()), "and")
        hint = nearest_type(str(given), _BY_NAME)
        raise UnknownType(
            f"no fragment has elements of {given}{hint}; there are {allowed}"
        )
    return dtype(found)


def _of_numpy(given: object) -> str:
    """The name of the element type that a NumPy type stores, or an empty text."""
    if given is None:  # NumPy would take None as float64
        return ""
    try:
        stored = np.dtype(given)  # type: ignore[call-overload]
    except TypeError:
        return ""
    # float32 means float, not tf32; uint8 means unsigned char, not single bits.
    plain = (of for of in NAMES if of not in ("tf32", "b1"))
    return next((of for of in plain if dtype(of).storage == stored), "")


# ── which target, and which rules ───────────────────────────────────────────


class CallTarget(NamedTuple):
    """The target of a call, whether it was given, and the alignment rules."""

    name: str
    named: bool
    rules: str


_DEFAULT = CallTarget("sm_90", False, "either")
_current: ContextVar[CallTarget] = ContextVar("target", default=_DEFAULT)


class target:
    """A context manager: calls within it are for this target.

    ``rules`` are the alignment rules: those of the programming ``"guide"``, or those of
    the ``"ptx"`` manual, which require less alignment for small fragments and more for
    large ones.  The default ``"either"`` accepts what one of them accepts.

    >>> import numpy as np
    >>> from fragmenta import wmma
    >>> with wmma.target("sm_75"):
    ...     b = wmma.fragment(wmma.matrix_b, 16, 16, 16, "bf16", wmma.row_major)
    ...     wmma.load_matrix_sync(b, np.zeros(256, np.uint16), 16)
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnsupportedTarget: \
fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> needs sm_80+; given sm_75
    """

    def __init__(self, name: str, *, rules: str = "either") -> None:
        if rules not in RULES:
            raise BadCall(f"rules must be {one_of(RULES)}; given {rules!r}")
        self._chosen = CallTarget(check_target(name), True, rules)
        self._tokens: list[Token[CallTarget]] = []

    def __enter__(self) -> target:
        self._tokens.append(_current.set(self._chosen))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _current.reset(self._tokens.pop())


def choose(given: str | None) -> CallTarget:
    """The target given to a call, else that of the surrounding ``with``."""
    around = _current.get()
    return (
        around if given is None else CallTarget(check_target(given), True, around.rules)
    )


_Member = TypeVar("_Member", bound=Enum)


def member(kind: type[_Member], given: object, what: str) -> _Member:
    """A member of an enum, given as itself or by its name."""
    if isinstance(given, kind):
        return given
    if is_among(given, kind.__members__):
        return kind[str(given)]
    raise no_member(kind, given, what)


def no_member(kind: type[Enum], given: object, what: str) -> Error:
    """The error for a value that is not a member of an enum.

    >>> print(no_member(bmmaBitOp, True, "bmmaBitOp"))
    bmmaBitOp must be bmmaBitOpXOR or bmmaBitOpAND; given True
    """
    shown = given.name if isinstance(given, Enum) else repr(given)
    return BadCall(f"{what} must be {one_of(kind.__members__)}; given {shown}")
