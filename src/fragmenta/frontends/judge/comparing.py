"""Compares the outputs of a candidate with exact results and their bounds."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.layout import POISON
from fragmenta.frontends.judge.findings import Finding
from fragmenta.frontends.judge.held import PLAIN as CONTIGUOUS
from fragmenta.frontends.judge.held import elements, form, leaves
from fragmenta.frontends.judge.situations import MANY as MANY_SITUATIONS
from fragmenta.frontends.judge.values import EXTREME, INFINITE, PLAIN, SPECIAL, is_float
from fragmenta.frontends.judge.wire import Tree

Values = NDArray[np.float64]
Case = dict[str, Tree]
LIKELY = 8.0
"""How many times the expected error the typical one may be."""
ENOUGH = 32
"""Elements that are needed to speak of a typical error."""


@dataclass
class ComparedOutput:
    """One output of one call, held against its exact values."""

    case: Case
    number: int
    made: Array
    exact: Values
    most: Values
    variance: Values
    demands: Case | None = None
    """Where it must be NaN, may not be NaN instead of infinity, and signs of zeros; and
    what the reference has in its own format, where that leaves its range."""

    def __post_init__(self) -> None:
        self.values: Values = self.made.astype(np.float64)
        with np.errstate(all="ignore"):
            self.off: Values = np.abs(self.values - self.exact)
            finite = np.isfinite(self.exact)
            same = np.isnan(self.exact) & np.isnan(self.values)
            # A result beyond the range of its type is an infinity, or nearly one.
            limit = _largest(self.made.dtype.name)
            wide = np.abs(self.exact) + self.most >= limit
            same |= self.exact == self.values
            own = cast("Values", (self.demands or {}).get("own", self.exact))
            same |= (own == self.values) | (np.isnan(own) & np.isnan(self.values))
            ends = np.isinf(self.values) & wide & (self.values * self.exact > 0)
            excused = np.isinf(self.most)
            # Another way to compute it may have infinity minus infinity.
            lost = np.isinf(self.exact) & np.isnan(self.values) & self.is_estimated
            excused |= lost & (self._where("infinity") == 0)
            excused |= np.isnan(self.most) & (self.case.get("values") == EXTREME)
            if self.case["values"] in (*INFINITE, MANY_SITUATIONS):
                excused |= self._born() & np.isfinite(self.values)
            if self.is_plain:  # as the root of a negative number: no other way has it
                excused &= ~(np.isnan(self.exact) & np.isnan(own))
            close = finite & (self.off <= self.most)
            signs = (self._where("signs") != 0) & (self.values == 0)
            signs &= np.signbit(self.values) != (self._where("signs") < 0)
            nan = (self._where("nan") != 0) & ~np.isnan(self.values)
            wrong = ~(same | close | ends | excused)
            self.bad: NDArray[np.bool_] = wrong | signs | nan
            self.only_kept_wrong = bool(self.bad.any() and not (wrong & ~nan).any())
            self.special: NDArray[np.bool_] = signs | (
                self.bad & ~(finite & np.isfinite(self.values))
            )

    def _born(self) -> NDArray[np.bool_]:
        """Where NaN comes from no NaN: from infinity times zero, or less infinity."""
        born: NDArray[np.bool_] = np.isnan(self.exact)
        for leaf in leaves(self.case.get("inputs", [])):
            if is_float(leaf) and elements(leaf).shape == born.shape:
                born &= ~np.isnan(elements(leaf).astype(np.float64))
        return born

    def _where(self, name: str) -> Values:
        """Where something is demanded; nowhere if the case says nothing about it."""
        found = (self.demands or {}).get(name)
        return cast("Values", found) if found is not None else np.zeros(self.made.shape)

    @property
    def is_estimated(self) -> bool:
        """Whether nothing is known of the operators of the reference."""
        return self.case.get("estimated") == ["all"]

    @property
    def is_plain(self) -> bool:
        """Whether the inputs have ordinary values."""
        return self.case["values"] == PLAIN

    def place(self) -> str:
        """The first element that is wrong, and how far it is off."""
        at = tuple(int(each) for each in np.argwhere(self.bad)[0])
        where = f"output {self.number}" + (f"{list(at)}" if at else "")
        most = np.broadcast_to(self.most, self.bad.shape)
        bound = f"may be off by {most[at]:.2g}"
        count = int(self.bad.sum())
        return (
            f"{where} is {self.values[at]:.9g}, exactly {self.exact[at]:.9g}, {bound}; "
            f"{count:,} of {self.bad.size:,} elements are off"
        )

    def is_random(self) -> bool:
        """Whether errors have any sign, as roundings have.

        Those of an approximation have the same sign for results that are alike.  Tensor
        Cores cut off bits of tf32, which makes all results smaller: that is left out.
        """
        order = np.argsort(self.exact, axis=None, kind="stable")
        exact = self.exact.reshape(-1)[order]
        apart = (self.values.reshape(-1)[order] - exact) if exact.size else exact
        usable = np.isfinite(apart)
        exact, apart = exact[usable], apart[usable]
        if exact.size < ENOUGH or not exact.any():
            return True
        rest = apart - exact * (apart @ exact) / (exact @ exact)
        signs = np.sign(rest[rest != 0])
        if signs.size < ENOUGH:
            return True
        if np.linalg.norm(rest) < 0.2 * np.linalg.norm(apart):  # a wrong factor
            return False
        return bool(np.mean(signs[1:] != signs[:-1]) > 0.25)

    def typical(self) -> float:
        """The typical error, in units of the expected one; 0 if it is unknown."""
        usable = np.isfinite(self.off) & np.isfinite(self.variance)
        usable &= np.isfinite(self.exact) & (self.variance > 0)
        if usable.sum() < ENOUGH:
            return 0.0
        shares = self.off[usable] ** 2 / self.variance[usable]
        return float(np.sqrt(np.median(shares) / 0.455))


def _largest(name: str) -> float:
    return {"float16": 65504.0, "bfloat16": 3.38e38, "float64": 1.79e308}.get(
        name, 3.4028234e38
    )


def compared(case: Case, outputs: Tree) -> list[ComparedOutput] | Finding:
    """Each output of a call held against its exact values."""
    found, wanted = leaves(outputs), cast("list[Case]", case["expected"])
    types = [str(each) for each in cast("list[Tree]", case["types"])]
    name = str(case["name"])
    if case.get("form", form(outputs)) != form(outputs):
        said = f"it returns {form(outputs)}, the reference {case['form']}"
        return Finding("wrong-form", said, name)
    if len(found) != len(wanted):
        said = f"{len(found)} outputs, the reference has {len(wanted)}"
        return Finding("wrong-form", said, name)
    made = []
    for number, (leaf, row) in enumerate(zip(found, wanted, strict=True)):
        array, exact = elements(leaf), cast("Values", row["value"])
        shapes = array.shape, exact.shape
        if shapes[0] != shapes[1] or str(leaf["type"]) != types[number]:
            said = (
                f"output {number} has the shape {list(shapes[0])} of {leaf['type']}, "
                f"the reference {list(shapes[1])} of {types[number]}"
            )
            return Finding("wrong-form", said, name)
        bounds = cast("Values", row["most"]), cast("Values", row["variance"])
        made.append(ComparedOutput(case, number, array, exact, *bounds, row))
    return made


# ── what is wrong ───────────────────────────────────────────────────────────


@dataclass
class CompletedCall:
    """A call of the candidate that came to its end."""

    case: Case
    outputs: list[ComparedOutput]

    @property
    def wrong(self) -> list[ComparedOutput]:
        """The outputs with an element that is wrong."""
        return [] if self.case["values"] == EXTREME else self.off

    @property
    def off(self) -> list[ComparedOutput]:
        """The same, also if the values are so extreme that it is no fault."""
        return [each for each in self.outputs if each.bad.any()]


def diagnose(calls: list[CompletedCall]) -> list[Finding]:
    """Why results are wrong, as far as the first wrong call shows it."""
    wrong = [call for call in calls if call.wrong]
    if not wrong:
        return [*precision(calls), *_extremes(calls)]
    in_order = [call for call in wrong if call.case["layout"] == CONTIGUOUS]
    if not in_order:  # it is right for what most programs give it
        place = wrong[0].wrong[0].place()
        remark = Finding("ignores-strides", place, str(wrong[0].case["name"]))
        return [*precision(calls), remark]
    call = in_order[0]
    output = call.wrong[0]
    name = _by_itself(output) or _by_others(output, calls) or _by_cases(call, calls)
    format_name = "" if name else low_format(output, calls[0].case)
    said = output.place() + (f", as of {format_name} inside" if format_name else "")
    name = name or ("low-precision" if format_name else _by_size(output))
    return [Finding(name, said, str(call.case["name"]))]


def _extremes(calls: list[CompletedCall]) -> list[Finding]:
    """Whether results are others for values near the limits of a format.

    An honest kernel may overflow on its way, or flush what is small to zero.
    """
    return [
        Finding("extreme-values", call.off[0].place(), str(call.case["name"]))
        for call in calls
        if call.off and not call.wrong
    ]


def _by_itself(output: ComparedOutput) -> str:
    """What one output shows."""
    if _unwritten(output):
        return "unwritten"
    if output.only_kept_wrong:  # NaN, or the sign of a zero
        return "special-values"
    made, exact = output.values, output.exact
    varies = exact.size > 1 and not (exact == exact.flat[0]).all()
    if varies and (made == made.flat[0]).all():
        return "zeros" if made.flat[0] == 0 else "constant"
    if made.size > 1 and np.isnan(made).all() and not np.isnan(exact).any():
        return "special-values"
    if made.size == 1 and made.flat[0] == 0 and exact.flat[0] != 0:
        return "zeros"
    for leaf in leaves(output.case["inputs"]):
        same = cast("Array", leaf["data"]).tobytes() == output.made.tobytes()
        if same and made.size > 1:
            return "input-returned"
    return ""


def _unwritten(output: ComparedOutput) -> bool:
    size = output.made.dtype.itemsize
    word = np.array([POISON, POISON], np.uint32).view(np.uint8)
    raw = np.ascontiguousarray(output.made).reshape(-1).view(np.uint8).reshape(-1, size)
    halves = [word[i : i + size] for i in range(0, 4, min(size, 4))]
    mask = np.zeros(len(raw), np.bool_)
    for each in halves:
        mask |= (raw == each).all(axis=1)
    wrong = output.bad.reshape(-1)
    few = size == 1  # many bytes are the same by chance
    return bool((mask[wrong].all() if few else mask[wrong].any()) and wrong.any())


def _by_others(output: ComparedOutput, calls: list[CompletedCall]) -> str:
    """What the outputs of calls with other inputs show."""
    raw = output.made.tobytes()
    if output.made.size < 2:
        return ""
    for call in calls:
        for other in call.outputs:
            if other.case is output.case or other.number != output.number:
                continue
            if other.made.tobytes() == raw and not _same(other.exact, output.exact):
                return "ignores-inputs" if other.bad.any() else "cached"
    return ""


def _same(one: Values, other: Values) -> bool:
    """Whether results are the same, but where one of them is NaN, which may be lost."""
    if one.shape != other.shape:
        return False
    return bool(((one == other) | np.isnan(one) | np.isnan(other)).all())


def _by_cases(call: CompletedCall, calls: list[CompletedCall]) -> str:
    """What it shows that other cases are right."""
    case = call.case
    right = [each.case for each in calls if not each.wrong]
    first = calls[0].case
    if case is first or first not in right:
        return ""
    plain_main = [each for each in right if each["set"] == "main"]
    if case["set"] == "main" and case["values"] == PLAIN and len(plain_main) == 1:
        return "seed-specific"
    same = [each for each in right if each["set"] == case["set"]]
    ordinary = [e for e in same if e["values"] == PLAIN and e["layout"] == CONTIGUOUS]
    if case["set"] != "main" and not ordinary:
        return "shape-specific"
    if case["values"] != PLAIN and ordinary:
        only = all(each.special.sum() == each.bad.sum() for each in call.wrong)
        return (
            "special-values" if case["values"] in SPECIAL or only else "values-specific"
        )
    return ""


def _by_size(output: ComparedOutput) -> str:
    """What the number of errors shows."""
    some = 0 < output.bad.mean() < 0.9 and output.made.size > 1
    return "part-computed" if some else "inaccurate"


def low_format(output: ComparedOutput, first: Case) -> str:
    """The format whose errors these are; empty if there is none."""
    if output.case is not first or output.special.any() or not output.is_random():
        return ""
    lower = cast("dict[str, list[list[Values] | None]]", first.get("lower", {}))
    for name, rows in lower.items():
        row = rows[output.number]
        if row is None:
            continue
        most, variance = row
        other = ComparedOutput(
            first, output.number, output.made, output.exact, most, variance
        )
        if not other.bad.any() and 0 < other.typical() < 2:
            return name
    return ""


def precision(calls: list[CompletedCall]) -> list[Finding]:
    """Errors that are within their bounds, but those of a smaller format."""
    for output in calls[0].outputs if calls else []:
        typical = output.typical()
        name = low_format(output, calls[0].case)
        if typical > LIKELY and name:
            said = (
                f"output {output.number}: the typical error is {typical:.0f} times "
                f"what is expected, as of {name} inside"
            )
            return [Finding("low-precision", said, str(output.case["name"]))]
    return []
