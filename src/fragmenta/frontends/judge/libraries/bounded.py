"""Values with bounds of their errors, of a reference in double precision.

Each value has three parts: what it is exactly, how far an implementation may be from it
at most, and how far it is expected to be.  Every operator of ATen that the reference
uses passes them on.  An implementation may add in any order: a sum of k products is off
by at most k units of roundoff of the sum of their sizes, and about by the square root
of that.  Functions may be approximated as the hardware does, by a few units.

An operator without a rule here is evaluated with inputs that are moved within their
bounds; such a bound is an estimate, and the result says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from fragmenta.base.arrays.lazy_dataclass import dataclass

Function: TypeAlias = Callable[..., Any]
TINY = 2.0**-126
"""The smallest normal float: results below it may be flushed to zero."""
WINOGRAD = 4
"""How many times fewer products other ways to convolve need."""
UNITS = 8
"""Units of roundoff that one operator may be off by; approximations have some."""


class Format(NamedTuple):
    """The format that an implementation computes in."""

    unit: float
    """Half of the distance from 1 to the next number."""
    largest: float
    factor: float = 0.0
    """The relative error of the factors of a product, if they are rounded first."""
    tiny: float = TINY
    sums: float = 2.0**-24
    """The unit of sums, which may be wider than the results."""


FLOAT32 = Format(2.0**-24, 3.4028234e38)
FLOAT64 = Format(2.0**-53, 1.79e308, tiny=2.0**-1022, sums=2.0**-53)
FLOAT16 = Format(2.0**-11, 65504.0, 2.0**-11, 2.0**-14)
BFLOAT16 = Format(2.0**-8, 3.38e38, 2.0**-8)
TF32 = Format(2.0**-24, 3.4028234e38, 2.0**-10)
FLOAT16_SUMS = FLOAT16._replace(sums=2.0**-11)
FORMATS = {
    "float64": FLOAT64,
    "float32": FLOAT32,
    "tf32": TF32,
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "float16 sums": FLOAT16_SUMS,
}
LOWER = ("tf32", "float16", "bfloat16", "float16 sums")
"""Formats whose errors are recognised."""
_FORMAT = [FLOAT32]
ESTIMATED: set[str] = set()
"""Operators that had no rule, since the last evaluation began."""
DIVISOR = [0.0]
"""0, or what exact sums of whole numbers were divided by until now: see
:func:`use_format`."""
PRODUCTS = [0]
"""Products of two numbers that are not zero, in sums, since then."""


class Unruled(Exception):
    """The bounds of a reference cannot be followed."""


class Bounded(torch.Tensor):  # type: ignore[misc, unused-ignore]
    """A tensor with bounds of its errors."""

    value: torch.Tensor
    most: torch.Tensor
    variance: torch.Tensor
    """The square of the error that is expected."""
    is_view: bool

    @staticmethod
    def __new__(
        cls: type[Bounded],
        value: torch.Tensor,
        most: torch.Tensor,
        square: torch.Tensor,
        is_view: bool = False,
    ) -> Bounded:
        """Make one of its three parts."""
        made: Bounded = torch.Tensor._make_wrapper_subclass(
            cls, value.shape, dtype=value.dtype, device=value.device
        )
        made.value, made.is_view = value, is_view
        beyond = ~(value.abs() <= _FORMAT[0].largest) & value.isfinite()
        # An infinite bound excuses everything; NaN has none, it must be NaN.
        unknown = torch.where(value.isnan(), math.nan, math.inf)
        most = torch.where(most.isnan(), unknown, most)
        made.most = torch.where(beyond, math.inf, most)
        made.variance = square.nan_to_num(nan=math.inf, posinf=math.inf)
        return made

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Function,
        types: object,
        args: Sequence[object] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        return _dispatch(func, tuple(args), dict(kwargs or {}))


def exact(value: torch.Tensor) -> Bounded:
    """A value without an error, as inputs are."""
    wide = value.double()
    return Bounded(wide, torch.zeros_like(wide), torch.zeros_like(wide))


def use_format(name: str, whole: bool = False) -> None:
    """Let implementations compute in this format.

    ``whole``: sums and products of whole numbers are exact, if no order of them leaves
    the numbers that the format has all of.
    """
    _FORMAT[0] = FORMATS[name]
    DIVISOR[0] = float(whole)
    ESTIMATED.clear()
    PRODUCTS[0] = 0


# ── the operators ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class OperatorCall:
    """An operator, and what it is asked about."""

    func: Function
    args: tuple[object, ...]
    named: dict[str, object]

    @property
    def name(self) -> str:
        """The name of the operator, without that of its variant."""
        return str(getattr(self.func, "__name__", self.func)).partition(".")[0]

    @property
    def given(self) -> Bounded:
        """Its first argument."""
        first = self.args[0]
        assert isinstance(first, Bounded)
        return first

    @property
    def two(self) -> tuple[Bounded, Bounded]:
        """Its first two arguments."""
        a, b = (_bounded(each) for each in self.args[:2])
        return a, b

    def all_of(self, value: torch.Tensor) -> Any:
        """What the operator makes of another first argument."""
        return self.func(value, *self.args[1:], **self.named)

    def of(self, value: torch.Tensor) -> torch.Tensor:
        """The same, if it is one tensor; of several, the first."""
        made = self.all_of(value)
        made = made[0] if isinstance(made, tuple) else made
        assert isinstance(made, torch.Tensor)
        return made

    def plain(self) -> Any:
        """What the operator makes of the values."""
        return self.func(*_map(self.args, "value"), **_map(self.named, "value"))


Rule: TypeAlias = Callable[[OperatorCall], object]
RULES: dict[str, Rule] = {}


def _rule(names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names.split():
            RULES[name] = rule
        return rule

    return register


def _dispatch(
    func: Function, args: tuple[object, ...], named: dict[str, object]
) -> object:
    asked = OperatorCall(func, args, named)
    name = asked.name
    if name in ("detach", "alias", "lift_fresh"):
        return args[0]
    if name in RULES:
        return RULES[name](asked)
    if name.endswith("_") and not name.startswith("_"):
        return _in_place(name[:-1], args, named)
    made = asked.plain()
    if not _is_float(made):
        return made
    ESTIMATED.add(name)
    return _moved(asked, made)


def _in_place(name: str, args: tuple[object, ...], named: dict[str, object]) -> object:
    target = args[0]
    function = getattr(torch.ops.aten, name, None)
    if not isinstance(target, Bounded) or target.is_view or function is None:
        raise Unruled(f"{name}_ changes a part of a tensor")
    made = args[1] if name == "copy" else function(*args, **named)
    if name in ("fill", "zero"):
        made = exact(
            torch.full_like(target.value, _map(args[1], "value") if args[1:] else 0.0)
        )
    if not isinstance(made, Bounded):
        made = exact(torch.as_tensor(made))
    wanted = target.value.shape
    target.value, target.most, target.variance = (
        each.expand(wanted).clone() for each in (made.value, made.most, made.variance)
    )
    return target


def _map(tree: object, part: str) -> Any:
    """Arguments with one part of each value."""
    if isinstance(tree, Bounded):
        return getattr(tree, part)
    if isinstance(tree, list | tuple):
        return type(tree)(_map(each, part) for each in tree)
    if isinstance(tree, dict):
        return {key: _map(each, part) for key, each in tree.items()}
    if isinstance(tree, torch.Tensor) and part != "value" and tree.is_floating_point():
        return torch.zeros_like(tree)
    return tree


def _is_float(made: object) -> bool:
    parts = made if isinstance(made, list | tuple) else [made]
    return any(isinstance(p, torch.Tensor) and p.is_floating_point() for p in parts)


def _moved(asked: OperatorCall, made: object) -> object:
    """The bounds of an operator without a rule: its inputs are moved within theirs."""
    if not isinstance(made, torch.Tensor):
        raise Unruled(f"{asked.name} has several results")
    unit, most = _FORMAT[0].unit, torch.zeros_like(made)
    generator = torch.Generator().manual_seed(1)

    def moved(tree: object) -> Any:
        if isinstance(tree, Bounded):
            signs = torch.randint(0, 2, tree.shape, generator=generator) * 2 - 1
            by = tree.most + UNITS * unit * tree.value.abs()
            return tree.value + signs * by.nan_to_num(0, 0, 0)
        if isinstance(tree, list | tuple):
            return type(tree)(moved(each) for each in tree)
        return tree

    for _ in range(8):
        other = asked.func(*moved(asked.args), **_map(asked.named, "value"))
        most = torch.maximum(most, (other - made).abs())
    most = 4 * most + UNITS * unit * made.abs() + _FORMAT[0].tiny
    return Bounded(made, most, (most / 4) ** 2)


def _rounded(
    value: torch.Tensor,
    most: torch.Tensor,
    square: torch.Tensor,
    floor: torch.Tensor | float = 0.0,
) -> Bounded:
    """A result that is rounded once; ``floor`` is the size of what it is made from."""
    unit, tiny = _FORMAT[0].unit, _FORMAT[0].tiny
    size = (value.abs() + floor).nan_to_num(nan=0.0, posinf=0.0)
    return Bounded(
        value,
        most + UNITS * unit * size + tiny,
        square + (unit * size) ** 2 + tiny**2,
    )


def _is_whole(given: Sequence[Bounded]) -> bool:
    """Whether values are whole numbers without errors, where that is looked at."""
    return bool(DIVISOR[0]) and all(
        bool((each.value == each.value.round()).all() & (each.most == 0).all())
        for each in given
    )


def _exact_up_to(made: Bounded, sizes: torch.Tensor, divisor: float = 1.0) -> Bounded:
    """A result of whole numbers: exact where ``sizes`` are those of no larger ones."""
    if math.frexp(divisor)[0] != 0.5:  # not by a power of two
        return made
    DIVISOR[0] = max(DIVISOR[0], divisor)
    proved = sizes * divisor <= 0.5 / _FORMAT[0].unit
    most = torch.where(proved, 0.0, made.most)
    return Bounded(made.value, most, torch.where(proved, 0.0, made.variance))


def _bounded(value: object) -> Bounded:
    if isinstance(value, Bounded):
        return value
    return exact(torch.as_tensor(value, dtype=torch.float64))


# What moves elements moves their bounds.


@_rule(
    "view _unsafe_view reshape permute transpose t expand slice select squeeze "
    "unsqueeze clone flip unfold split split_with_sizes chunk unbind as_strided repeat "
    "constant_pad_nd diagonal cat stack index_select gather tril triu roll narrow "
    "contiguous where index masked_fill diag_embed diag reflection_pad2d "
    "replication_pad2d movedim swapaxes pixel_shuffle upsample_nearest2d _reshape_alias"
)
def _moves(asked: OperatorCall) -> object:
    parts = []
    for part in ("value", "most", "variance"):
        given = _map(asked.args, part)
        assert isinstance(given, tuple)
        if part != "value" and asked.name in ("masked_fill", "constant_pad_nd"):
            given = (*given[:2], *([0.0] if len(given) > 2 else []))
        parts.append(asked.func(*given, **_map(asked.named, part)))
    if isinstance(parts[0], list | tuple):
        return type(parts[0])(
            Bounded(v, m, s, is_view=True) for v, m, s in zip(*parts, strict=True)
        )
    value, most, variance = parts
    new = asked.name in ("clone", "cat", "stack", "where")
    return Bounded(value, most, variance, is_view=not new)


@_rule("_to_copy")
def _converts(asked: OperatorCall) -> object:
    """Formats are those of the judge; only other kinds of numbers are converted."""
    dtype, given = asked.named.get("dtype"), asked.given
    if isinstance(dtype, torch.dtype) and not dtype.is_floating_point:
        return given.value.to(dtype)
    return given


@_rule(
    "zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones"
)
def _makes(asked: OperatorCall) -> object:
    made = asked.plain()
    return exact(made) if _is_float(made) else made


@_rule(
    "eq ne lt le gt ge isnan isinf isfinite argsort logical_not bitwise_not sign sgn "
    "floor ceil round trunc is_same_size _local_scalar_dense item any all nonzero"
)
def _plain(asked: OperatorCall) -> object:
    made = asked.plain()
    return exact(made) if _is_float(made) and isinstance(made, torch.Tensor) else made


# Sums.


def _sum(
    add: Callable[[torch.Tensor], torch.Tensor],
    given: Bounded,
    count: float,
    divisor: float = 1.0,
) -> Bounded:
    """A sum of ``count`` values, divided by a number; ``add`` does both."""
    unit = _FORMAT[0].sums
    made = add(given.value)
    most = add(given.most) + (count + 2) * unit * add(given.value.abs())
    spread = add(given.value**2) / divisor
    square = add(given.variance) / divisor
    square = square + unit**2 * (count / 2 * spread + count / 3 * made**2)
    rounded = _rounded(made, most, square)
    if not _is_whole([given]):
        return rounded
    return _exact_up_to(rounded, add(given.value.abs()), divisor)


@_rule("sum mean nansum")
def _sums(asked: OperatorCall) -> object:
    asked.named.pop("dtype", None)
    count = _taken(asked)
    return _sum(asked.of, asked.given, count, count if asked.name == "mean" else 1.0)


def _taken(asked: OperatorCall) -> float:
    """How many elements a result is made of."""
    given = asked.given.value
    return float(given.numel() / max(1, asked.of(given).numel()))


@_rule("cumsum")
def _running(asked: OperatorCall) -> object:
    given, axis = asked.given, asked.args[1]
    assert isinstance(axis, int)
    count = given.value.shape[axis] if given.value.dim() else 1
    return _sum(lambda each: torch.cumsum(each, axis), given, count)


@_rule("cumprod")
def _running_product(asked: OperatorCall) -> object:
    given, axis = asked.given, asked.args[1]
    assert isinstance(axis, int)
    unit, made = _FORMAT[0].unit, torch.cumprod(given.value, axis)
    share = torch.cumsum(given.most / given.value.abs() + 2 * unit, axis)
    likely = torch.cumsum(given.variance / given.value**2 + unit**2, axis)
    # A product that becomes zero or small on its way is flushed in some orders.
    most = made.abs() * torch.expm1(share) + _FORMAT[0].tiny
    most = torch.where(_leaves_range(given.value, axis), math.inf, most)
    return _rounded(made, most, made**2 * likely)


def _leaves_range(values: torch.Tensor, axis: int) -> torch.Tensor:
    """Where a product of neighbours, which scans multiply first, leaves the format."""
    powers = values.abs().log2().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    whole = torch.cumsum(powers, axis)
    before = whole - powers
    up = whole - torch.cummin(before, axis)[0]
    down = torch.cummax(before, axis)[0] - whole
    most = torch.cummax(torch.maximum(up, down), axis)[0]
    return most > math.log2(_FORMAT[0].largest) - 1


@_rule("prod")
def _product(asked: OperatorCall) -> object:
    made, count = asked.of(asked.given.value), _taken(asked)
    return _rounded(
        made,
        made.abs() * 4 * count * _FORMAT[0].unit,
        (made * _FORMAT[0].unit) ** 2 * count,
    )


@_rule("avg_pool1d avg_pool2d avg_pool3d")
def _averages(asked: OperatorCall) -> object:
    given, window = asked.given, asked.args[1]
    assert isinstance(window, list | tuple)
    axes = given.value.dim() - 2 if given.value.dim() > 2 else 1
    count = math.prod(window) ** (1 if len(window) > 1 else axes)
    return _sum(asked.of, given, count, count)


# Products.


def _bilinear(
    asked: OperatorCall,
    count: float,
) -> Bounded:
    """A sum of ``count`` products."""
    (a, b), rest = asked.two, asked.args[2:]

    def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = asked.func(x, y, *rest)
        assert isinstance(made, torch.Tensor)
        return made

    form = _FORMAT[0]
    unit = form.sums
    made = multiply(a.value, b.value)
    sizes = multiply(a.value.abs(), b.value.abs())
    squares = multiply(a.value**2, b.value**2)
    most = multiply(a.value.abs() + a.most, b.most) + multiply(a.most, b.value.abs())
    most = most + ((count + 2) * unit + 2 * form.factor) * sizes
    full = multiply((a.value != 0).double(), (b.value != 0).double())
    PRODUCTS[0] += int(full.sum())
    most = torch.where(multiply(_odd(a.value), _zero(b.value)) > 0, math.inf, most)
    most = torch.where(multiply(_zero(a.value), _odd(b.value)) > 0, math.inf, most)
    square = multiply(a.value**2, b.variance) + multiply(a.variance, b.value**2)
    by_order = unit**2 * (count / 2 * squares + count / 3 * made**2)
    square = square + by_order + form.factor**2 * squares
    rounded = _rounded(made, most, square)
    return _exact_up_to(rounded, sizes) if _is_whole([a, b]) else rounded


def _odd(value: torch.Tensor) -> torch.Tensor:
    """Where a value is not finite.  Its product with zero may be left out, or not."""
    return (~value.isfinite()).double()


def _zero(value: torch.Tensor) -> torch.Tensor:
    return (value == 0).double()


@_rule("mm bmm mv dot matmul")
def _products(asked: OperatorCall) -> object:
    a, b = asked.two
    return _bilinear(OperatorCall(asked.func, (a, b), {}), a.value.shape[-1])


@_rule("addmm baddbmm addmv")
def _products_and_sum(asked: OperatorCall) -> object:
    c, a, b = asked.args[:3]
    alpha, beta = asked.named.get("alpha", 1), asked.named.get("beta", 1)
    assert isinstance(c, torch.Tensor)
    return torch.matmul(a, b) * alpha + c * beta


@_rule("convolution")
def _convolves(asked: OperatorCall) -> object:
    args = asked.args
    x, weight = asked.two
    bias = args[2]
    count = weight.value[0].numel()
    if args[6]:  # it is turned round
        groups = args[8]
        assert isinstance(groups, int)
        count = weight.value.shape[0] // groups * weight.value[0, 0].numel()
    before = PRODUCTS[0]
    without = OperatorCall(asked.func, (x, weight, None, *args[3:]), {})
    made = _bilinear(without, count)
    PRODUCTS[0] = before + (PRODUCTS[0] - before) // WINOGRAD
    if not isinstance(bias, torch.Tensor):
        return made
    return made + bias.reshape(1, -1, *[1] * (made.dim() - 2))


# Elements.


@_rule("add sub rsub")
def _adds(asked: OperatorCall) -> object:
    a, b = asked.two
    alpha = asked.named.get("alpha", 1)
    assert isinstance(alpha, int | float)
    x, y = a.value, b.value * alpha
    made = {"add": x + y, "sub": x - y, "rsub": y - x}[asked.name]
    rounded = _rounded(
        made, a.most + abs(alpha) * b.most, a.variance + alpha**2 * b.variance
    )
    whole = alpha == 1 and _is_whole([a, b])
    return _exact_up_to(rounded, x.abs() + y.abs()) if whole else rounded


@_rule("mul")
def _multiplies(asked: OperatorCall) -> object:
    a, b = asked.two
    most = a.value.abs() * b.most + a.most * (b.value.abs() + b.most)
    square = a.value**2 * b.variance + a.variance * b.value**2
    skipped = _odd(a.value) * _zero(b.value) + _zero(a.value) * _odd(b.value)
    most = torch.where(skipped > 0, math.inf, most)
    rounded = _rounded(a.value * b.value, most, square)
    return _exact_up_to(rounded, rounded.value.abs()) if _is_whole([a, b]) else rounded


@_rule("div")
def _divides(asked: OperatorCall) -> object:
    if asked.named.get("rounding_mode") is not None:
        return _plain(asked)
    a, b = asked.two
    made, below = a.value / b.value, (b.value.abs() - b.most).clamp(min=0)
    most = (a.most + made.abs() * b.most) / below
    most = torch.where((a.most == 0) & (b.most == 0), 0.0, most)
    square = (a.variance + made**2 * b.variance) / b.value**2
    square = torch.where((a.variance == 0) & (b.variance == 0), 0.0, square)
    return _rounded(made, most, square)


@_rule("maximum minimum fmax fmin")
def _chooses(asked: OperatorCall) -> object:
    a, b = asked.two
    made = asked.plain()
    most, square = torch.maximum(a.most, b.most), torch.maximum(a.variance, b.variance)
    return Bounded(made, most.expand(made.shape), square.expand(made.shape))


@_rule("clamp clamp_min clamp_max abs neg relu hardtanh threshold leaky_relu prelu")
def _bends(asked: OperatorCall) -> object:
    """What does not stretch differences; a slope is a product."""
    rounded = _rounded(asked.plain(), asked.given.most, asked.given.variance)
    slopes = asked.name in ("leaky_relu", "prelu", "threshold")
    if slopes or not _is_whole([asked.given, exact(rounded.value)]):
        return rounded
    return _exact_up_to(rounded, asked.given.value.abs())


_FLOORS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "": lambda x, y: torch.zeros_like(x),
    "one": lambda x, y: torch.ones_like(x),
    "size": lambda x, y: x.abs(),
    "power": lambda x, y: torch.where(x < 0, 1.0, x.abs()),
    "exponent": lambda x, y: x.abs() * y.abs(),
    "exponents": lambda x, y: x.abs() * y.abs() + x.abs().clamp(max=1.0),
}
"""What an implementation goes through: numbers of this size are rounded on the way."""
_SMOOTH = {
    "sqrt rsqrt reciprocal square": "",
    "log log2 log10 log1p tanh sigmoid erf erfc hardsigmoid": "one",
    "gelu silu mish softplus hardswish log_sigmoid_forward": "size",
    "elu selu celu": "power",
    "exp exp2": "exponent",
    "expm1": "exponents",
    "sin cos tan atan asin acos sinh cosh": "size",
}


def _smooth(floor: str) -> Rule:
    def rule(asked: OperatorCall) -> object:
        given, at = asked.given, asked.of
        made = at(given.value)
        above, below = at(given.value + given.most), at(given.value - given.most)
        most = torch.maximum((above - made).abs(), (below - made).abs())
        most = torch.where(given.most == 0, 0.0, most)
        likely = given.variance.sqrt()
        square = ((at(given.value + likely) - at(given.value - likely)) / 2) ** 2
        square = torch.where(given.variance == 0, 0.0, square)
        size = _FLOORS[floor](given.value, made)
        found = _rounded(made, most, square, size)
        if asked.name == "square" and _is_whole([given]):
            found = _exact_up_to(found, made)
        return (found, found) if "log_sigmoid" in asked.name else found

    return rule


for _names, _floor in _SMOOTH.items():
    for _name in _names.split():
        RULES[_name] = _smooth(_floor)


@_rule("pow")
def _powers(asked: OperatorCall) -> object:
    base, exponent = asked.args[:2]
    if isinstance(base, Bounded) and isinstance(exponent, int | float):
        size = "" if float(exponent) in (2.0, 3.0, 0.5, -0.5, -1.0) else "exponent"
        found = _smooth(size)(asked)
        assert isinstance(found, Bounded)
        whole = exponent == 2 and _is_whole([base])
        return _exact_up_to(found, found.value) if whole else found
    raise Unruled("a power with a tensor as its exponent")


# What chooses elements.


@_rule("amax amin")
def _greatest(asked: OperatorCall) -> object:
    over = OperatorCall(torch.ops.aten.amax, asked.args, {})
    return Bounded(
        asked.of(asked.given.value),
        over.of(asked.given.most),
        over.of(asked.given.variance),
    )


@_rule("max min median")
def _greatest_of(asked: OperatorCall) -> object:
    args, given = asked.args, asked.given
    if len(args) > 1 and isinstance(args[1], torch.Tensor):
        return _chooses(asked)
    made = asked.all_of(given.value)
    if isinstance(made, torch.Tensor):
        return Bounded(made, given.most.max(), given.variance.max())
    assert isinstance(made, tuple)
    values, places = made[0], made[1]
    rest = [[args[1]], *args[2:]]
    over = torch.ops.aten.amax
    return Bounded(values, over(given.most, *rest), over(given.variance, *rest)), places


@_rule("max_pool2d_with_indices max_pool3d_with_indices max_pool1d_with_indices")
def _pools(asked: OperatorCall) -> object:
    values, places = asked.all_of(asked.given.value)
    most, square = asked.of(asked.given.most), asked.of(asked.given.variance)
    return Bounded(values, most, square), places


@_rule("argmax argmin")
def _place_of(asked: OperatorCall) -> object:
    return asked.all_of(asked.given.value)
