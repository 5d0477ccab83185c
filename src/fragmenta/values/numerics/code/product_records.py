"""The record of a product's site, and sums over the elements of an instruction."""

from __future__ import annotations

from fragmenta.base.jit.trace import (
    F64,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    each_lane,
    select,
)
from fragmenta.engine.planes.code.gathering import memory_at
from fragmenta.engine.planes.code.products import Eight
from fragmenta.values.numerics.code import product_layout as at


class SiteTally:
    """The record of a site."""

    def __init__(self, code: Code, address: Value) -> None:
        self.code, self.address = code, address

    def _memory(self, place: int, of: object) -> Memory:
        return memory_at(self.code, self.address + place, of)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Value:
        of = I64 if name in at.WHOLE else F64
        return self._memory(at.AT[name], of)[0]

    def __setitem__(self, name: str, value: Value) -> None:
        of = I64 if name in at.WHOLE else F64
        self._memory(at.AT[name], of)[0] = value

    def bin(self, number: Value) -> Bin:
        """A bin of the curve."""
        width = 8 * len(at.BIN_FIELDS)
        start = self.address + at.CURVE + number * width
        return Bin(memory_at(self.code, start, F64))

    def operand(self, name: str) -> Memory:
        """Where an operand of the worst element is kept."""
        place = at.OPERAND_FIELDS.index(name)
        return self._memory(at.OPERANDS + 8 * at.MOST_K * place, I64)


class Bin:
    """A bin of the curve over k."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def __getitem__(self, name: str) -> Value:
        return self.memory[at.BIN_FIELDS.index(name)]

    def __setitem__(self, name: str, value: Value) -> None:
        self.memory[at.BIN_FIELDS.index(name)] = value


_SUMS = at.FIELDS[1 : at.FIELDS.index("worst")]
"""What is summed over the elements of an instruction."""


class ErrorSums:
    """Sums over the elements of an instruction, eight columns at a time."""

    def __init__(self, code: Code) -> None:
        self.code = code
        zero = code.constant(0.0, F64).in_all_lanes()
        self.zero = zero
        self._of: dict[str, Variable] = {name: code.variable(zero) for name in _SUMS}
        self._worst = {
            name: code.variable(zero) for name in ("worst", "worst_total", "exact")
        }
        whole = code.constant(0, I64).in_all_lanes()
        self._row, self._panel = code.variable(whole), code.variable(whole)
        self._worst |= {name: code.variable(whole) for name in "cd"}
        self._more = whole

    def _add(self, name: str, value: Value) -> None:
        self._of[name].value = self._of[name].value + value

    def note(
        self, here: Eight, error: Value, total: Value, exact: Value, usual: Value
    ) -> None:
        """Eight elements."""
        one = self.zero.lift(1.0)
        self._add("elements", select(usual, one, 0.0))
        self._add("odd", select(usual, self.zero, one))
        self._add("added", error)
        self._add("size", abs(error))
        self._add("total", abs(total))
        self._add("values", select(usual, abs(exact), 0.0))
        more = abs(error) > self._worst["worst"].value
        for variable, new in (
            (self._worst["worst"], abs(error)),
            (self._worst["exact"], exact),
            (self._row, here.row.in_all_lanes()),
            (self._panel, here.panel_b.in_all_lanes()),
        ):
            variable.value = select(more, new, variable.value)
        self._more = more
        most = self._worst["worst_total"]
        most.value = select(abs(total) > most.value, abs(total), most.value)

    def keep(self, c: Value, d: Value) -> None:
        """The bits of C and D of the same elements, where one is the worst so far."""
        for name, bits in (("c", c), ("d", d)):
            wide = convert(bits, I64, signed=False)
            variable = self._worst[name]
            variable.value = select(self._more, wide, variable.value)

    def split(self, keep: Value, last: Value, error: Value, usual: Value) -> None:
        """What eight elements lose, by cause."""
        rest = select(usual, (error - keep) - last, 0.0)
        for name, value in (("alignment", rest), ("keep", keep), ("rounding", last)):
            self._add(name, value)
            self._add(f"{name}_size", abs(value))
        self._add("sampled", select(usual, self.zero.lift(1.0), 0.0))

    def differ(self, those: Value) -> None:
        """Elements whose steps do not give the hardware's D."""
        self._add("differing", select(those, self.zero.lift(1.0), 0.0))

    def count(self, products: Value, gone: Value) -> None:
        """Products that are not zero, and those that vanish."""
        self._add("nonzero", products)
        self._add("vanished", gone)

    def _total(self, name: str) -> Value:
        found = each_lane(self._of[name].value)
        total = found[0]
        for each in found[1:]:
            total = total + each
        return total

    def add(self, record: SiteTally) -> None:
        """Add everything to a record."""
        for name in _SUMS:
            total = self._total(name)
            if name in at.WHOLE:
                total = convert(total, I64)
            record[name] = record[name] + total
        worst = self.largest("worst_total")
        before = record["worst_total"]
        record["worst_total"] = select(worst > before, worst, before)

    def of_bin(self) -> dict[str, Value]:
        """What a bin of the curve gets."""
        names = ("elements", "size", "total", "values", "nonzero", "vanished")
        return {name: self._total(name) for name in names}

    def largest(self, name: str) -> Value:
        """The largest of eight."""
        found = each_lane(self._worst[name].value)
        top = found[0]
        for each in found[1:]:
            top = select(each > top, each, top)
        return top

    def place_of_worst(self, worst: Value) -> tuple[Value, Value, Value]:
        """The row, the panel and the lane of the worst element."""
        lanes = each_lane(self._worst["worst"].value)
        rows, panels = each_lane(self._row.value), each_lane(self._panel.value)
        row, panel = rows[0], panels[0]
        lane = row.lift(0)
        for number in range(1, LANES):
            here = lanes[number] == worst
            row = select(here, rows[number], row)
            panel = select(here, panels[number], panel)
            lane = select(here, lane.lift(number), lane)
        return row, panel, lane

    def of_worst(self, name: str, lane: Value) -> Value:
        """The nearly exact value of the worst element, or the bits of its C or D."""
        found = each_lane(self._worst[name].value)
        value = found[0]
        for number in range(1, LANES):
            value = select(lane == number, found[number], value)
        return value
