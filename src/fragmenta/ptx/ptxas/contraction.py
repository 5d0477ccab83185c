"""Fuses products and sums as the assembler does.

``mul`` and ``add`` or ``sub`` without a rounding modifier may be fused: ptxas then
writes one ``fma``, and the product is not rounded.  The rule was read from the machine
code that ptxas 13.0 writes for sm_90a, and its results were seen on an H200:

- Only f32, f64, f16, f16x2, bf16 and bf16x2; ``.ftz`` must be the same in both; the sum
  may have ``.sat``, the product may not.
- The product has no guard; the sum may have one.
- Every use of the product must be such a sum in the same straight piece of code, once
  in each sum.  ``mov`` and ``neg`` in between do not matter (for bf16x2, ``neg`` does).
  Instructions whose results are not used do not count.
- If both operands of a sum are such products, one that has no other use is fused, else
  the first one whose rounded value no fused sum needs.

A piece of code ends at a branch, a label that is jumped to, a call, and at what ptxas
makes a call or several blocks of: IEEE division and square root, 64-bit integer
division, memory fences.

A product from an earlier turn of a loop is fused where ptxas unrolls the loop: this is
not followed, unless the loop is written unrolled.  ptxas 13.0 and 13.4 unroll a loop
whose number of turns is known when it begins, which has no exit in the middle, no call
and no ``.pragma "nounroll"``, and is small: by four while four turns are left, then by
two.  If the number of turns is a constant, they take other factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.module import Function, Instruction, Operand, Register
from fragmenta.ptx.ptxas.pieces import Pieces, Uses, is_calculation

_TYPES = ("f32", "f64", "f16", "f16x2", "bf16", "bf16x2")
_BITS = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16"}


class ContractionType(NamedTuple):
    """What a product and a sum must share."""

    type: str
    ftz: bool


class Use(NamedTuple):
    """A sum that has a product as an operand."""

    place: int
    """The index of the instruction."""
    position: int
    """1 or 2: which operand it is."""
    negative: bool


@dataclass(eq=False)
class Fusable:
    """A ``mul`` that may be fused."""

    place: int
    kind: ContractionType
    versions: tuple[int, ...]
    """How often each factor had been written before."""
    uses: list[Use] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    """Where a ``mov`` or ``neg`` of it stands."""
    possible: bool = True


@dataclass
class Fusion:
    """A sum that becomes an ``fma``."""

    product: Fusable
    use: Use
    stale: tuple[bool, ...]
    """Whether each factor was written again before the sum."""


def contract(function: Function) -> Function:
    """The function with each fused product and sum written as ``fma``.

    >>> from fragmenta.ptx import parse
    >>> kernel = parse('''
    ... .version 9.0 .target sm_90a .address_size 64
    ... .entry k(.param .u64 x) {
    ...     .reg .b64 %rd<2>; .reg .f32 %f<5>;
    ...     ld.param.u64 %rd1, [x];
    ...     ld.global.v2.f32 {%f1, %f2}, [%rd1];
    ...     mul.f32 %f3, %f1, %f2;
    ...     add.f32 %f4, %f3, %f1;
    ...     st.global.f32 [%rd1], %f4;
    ... }''').functions["k"]
    >>> [each.mnemonic for each in contract(kernel).instructions][2:]
    ['fma.rn.f32', 'st.global.f32']
    """
    if not any(_product(each) for each in function.instructions):
        return function
    cut = Pieces(function)
    fusions: dict[int, Fusion] = {}
    products: list[Fusable] = []
    for piece, live in zip(cut.pieces, cut.live, strict=True):
        found = _Piece(function.instructions, cut.uses, cut.needed)
        found.walk(piece, live)
        fusions.update(found.chosen())
        products += found.products
    if not fusions:
        return function
    dropped = {*_dropped(fusions, products), *cut.dead()}
    return _rewritten(function, fusions, dropped)


# ── which instructions ──────────────────────────────────────────────────────


def _kind(instruction: Instruction, allowed: Sequence[str]) -> ContractionType | None:
    """The kind of an instruction, if it has no other qualifiers than those allowed."""
    words = instruction.qualifiers
    if not words or words[-1] not in _TYPES or words[-1] in words[:-1]:
        return None
    if not set(words[:-1]) <= {"ftz", *allowed}:
        return None
    return ContractionType(words[-1], "ftz" in words)


def _product(instruction: Instruction) -> ContractionType | None:
    if not instruction.is_product or instruction.guard is not None:
        return None
    return _kind(instruction, ()) if is_calculation(instruction, 2) else None


def _sum(instruction: Instruction) -> ContractionType | None:
    if not instruction.is_sum or not is_calculation(instruction, 2):
        return None
    return _kind(instruction, ("sat",))


class _Piece:
    """A straight piece of code: its products, and what uses them."""

    def __init__(
        self,
        code: Sequence[Instruction],
        uses: Sequence[Uses],
        needed: Sequence[bool],
    ) -> None:
        self.code, self.uses = code, uses
        self.needed = needed
        self.products: list[Fusable] = []
        self.sums: dict[int, dict[int, tuple[Fusable, bool]]] = {}
        """For each sum, its operands that are products; whether they are negated."""
        self.stale: dict[tuple[int, Fusable], tuple[bool, ...]] = {}
        self._held: dict[int, tuple[Fusable, bool]] = {}
        self._versions: dict[int, int] = {}

    def walk(self, piece: Sequence[int], live: int) -> None:
        """Look at all instructions; ``live`` has a bit for each register used later."""
        for place in piece:
            if self.needed[place]:
                self._look(place)
        for register, (product, _) in self._held.items():
            if live >> register & 1:
                product.possible = False

    def _look(self, place: int) -> None:
        instruction, used = self.code[place], self.uses[place]
        copied = self._copied(instruction)
        if copied is not None:
            copied[0].copies.append(place)
        elif (kind := _sum(instruction)) is not None:
            self._use(place, kind)
        else:
            for register in used.reads:
                self._spoil(register)
        factors = self._factor_versions(instruction)
        for register in used.writes:
            if not used.whole:
                self._spoil(register)
            self._held.pop(register, None)
            self._versions[register] = self._versions.get(register, 0) + 1
        if copied is not None:
            self._held[_number(instruction.operands[0])] = copied
        elif (kind := _product(instruction)) is not None:
            product = Fusable(place, kind, factors)
            self.products.append(product)
            self._held[_number(instruction.operands[0])] = product, False

    def _spoil(self, register: int) -> None:
        """The rounded product in a register is needed."""
        if register in self._held:
            self._held[register][0].possible = False

    def _copied(self, instruction: Instruction) -> tuple[Fusable, bool] | None:
        """The product that an instruction copies, and whether it is negated."""
        if instruction.guard is not None or len(instruction.operands) != 2:
            return None
        to, source = instruction.operands
        if not isinstance(source, Register) or not isinstance(to, Register):
            return None
        held = self._held.get(source.number)
        if held is None or instruction.is_move:
            return held
        if instruction.opcode != "neg":
            return None
        product, negative = held
        kind = _kind(instruction, ())
        same = kind is not None and kind.type == product.kind.type != "bf16x2"
        if not same or (kind and kind.ftz and not product.kind.ftz):
            return None
        return product, not negative

    def _use(self, place: int, kind: ContractionType) -> None:
        """Note the products among the operands of a sum."""
        found: dict[int, tuple[Fusable, bool]] = {}
        for position in (1, 2):
            operand = self.code[place].operands[position]
            held = self._held.get(_number(operand))
            if held is None:
                continue
            if held[0].kind != kind:
                held[0].possible = False
            found[position] = held
        if len(found) == 2 and found[1][0] is found[2][0]:
            found[1][0].possible = False
        for position, (product, negative) in found.items():
            product.uses.append(Use(place, position, negative))
            factors = self._factor_versions(self.code[product.place])
            pairs = zip(factors, product.versions, strict=True)
            self.stale[place, product] = tuple(now != then for now, then in pairs)
        self.sums[place] = found

    def _factor_versions(self, instruction: Instruction) -> tuple[int, ...]:
        numbers = (_number(operand) for operand in instruction.operands[1:3])
        return tuple(self._versions.get(number, 0) for number in numbers)

    def chosen(self) -> dict[int, Fusion]:
        """The sums that are fused, by their places."""
        fusions: dict[int, Fusion] = {}
        rounded: set[int] = set()
        """The products whose rounded values fused sums need."""
        for alone in (True, False):
            for place in self.sums:
                pair = alone and self.code[place].qualifiers[-1].endswith("x2")
                use = self._first(place, rounded, alone)
                if use is None and pair:
                    use = self._first(place, rounded, False)
                if use is None or place in fusions:
                    continue
                product = self.sums[place][use.position][0]
                fusions[place] = Fusion(product, use, self.stale[place, product])
                others = {id(each) for each, _ in self.sums[place].values()}
                rounded |= others - {id(product)}
        return fusions

    def _first(self, place: int, rounded: set[int], alone: bool) -> Use | None:
        """The operand of a sum to be fused; ``alone``: only if it has no other use."""
        found: list[tuple[int, Use]] = []
        for position, (product, negative) in self.sums[place].items():
            if product.possible and id(product) not in rounded:
                found.append((len(product.uses), Use(place, position, negative)))
        fewest, use = min(found, default=(0, None), key=lambda each: each[0])
        return use if not alone or fewest == 1 else None


def _number(operand: Operand) -> int:
    """The number of a register; -1 for anything else."""
    return operand.number if isinstance(operand, Register) else -1


# ── the new instructions ────────────────────────────────────────────────────


class _Writer:
    """Writes the new instructions, and makes the registers they need."""

    def __init__(self, registers: Sequence[Register]) -> None:
        self.registers = list(registers)

    def fresh(self, kind: str) -> Register:
        """A new register."""
        number = len(self.registers)
        made = Register(f"%contracted{number}", kind, number)
        self.registers.append(made)
        return made

    def negated(
        self, operand: Operand, kind: ContractionType, like: Instruction
    ) -> tuple[Operand, Instruction]:
        """The negated operand, and the instruction that computes it."""
        made = self.fresh(_bits(kind.type))
        neg = replace(
            like,
            opcode="neg",
            qualifiers=(kind.type,),
            operands=(made, operand),
            guard=None,
        )
        return made, neg


def _bits(kind: str) -> str:
    return _BITS.get(kind, "b32")


def _rewritten(
    function: Function, fusions: dict[int, Fusion], dropped: set[int]
) -> Function:
    writer = _Writer(function.registers)
    code = function.instructions
    copies = _copies(code, fusions, writer)
    made: list[Instruction] = []
    begins = []
    for place, instruction in enumerate(code):
        begins.append(len(made))
        made += [copy for copy, _ in copies.get(place, {}).values()]
        if place in fusions:
            made += _fused(instruction, fusions[place], code, copies, writer)
        elif place not in dropped:
            made.append(instruction)
    begins.append(len(made))
    labels = {name: begins[place] for name, place in function.labels.items()}
    return replace(
        function,
        instructions=tuple(made),
        labels=labels,
        registers=tuple(writer.registers),
    )


def _copies(
    code: Sequence[Instruction], fusions: dict[int, Fusion], writer: _Writer
) -> dict[int, dict[int, tuple[Instruction, Register]]]:
    """Copies of factors that are written again before the sum, where the product is."""
    copies: dict[int, dict[int, tuple[Instruction, Register]]] = {}
    for fusion in fusions.values():
        place = fusion.product.place
        here = copies.setdefault(place, {})
        for position, stale in enumerate(fusion.stale, 1):
            if stale and position not in here:
                kind = _bits(fusion.product.kind.type)
                made = writer.fresh(kind)
                operands = (made, code[place].operands[position])
                mov = replace(
                    code[place], opcode="mov", qualifiers=(kind,), operands=operands
                )
                here[position] = mov, made
    return copies


def _dropped(fusions: dict[int, Fusion], products: Sequence[Fusable]) -> Iterator[int]:
    """The products that nothing needs any more, and their copies."""
    for product in products:
        fused = [
            use.place in fusions and fusions[use.place].product is product
            for use in product.uses
        ]
        if product.possible and fused and all(fused):
            yield product.place
            yield from product.copies


def _fused(
    instruction: Instruction,
    fusion: Fusion,
    code: Sequence[Instruction],
    copies: dict[int, dict[int, tuple[Instruction, Register]]],
    writer: _Writer,
) -> list[Instruction]:
    """The ``fma`` for a sum, and a ``neg`` where a sign changes."""
    product, use = fusion.product, fusion.use
    a, b = (
        copies[product.place][position][1] if stale else factor
        for position, (factor, stale) in enumerate(
            zip(code[product.place].operands[1:3], fusion.stale, strict=True), 1
        )
    )
    c = instruction.operands[3 - use.position]
    subtracts = instruction.opcode == "sub"
    before = []
    if use.negative != (subtracts and use.position == 2):
        a, neg = writer.negated(a, product.kind, instruction)
        before.append(neg)
    if subtracts and use.position == 1:
        c, neg = writer.negated(c, product.kind, instruction)
        before.append(neg)
    operands = (instruction.operands[0], a, b, c)
    words = ("rn", *instruction.qualifiers)
    return [
        *before,
        replace(instruction, opcode="fma", qualifiers=words, operands=operands),
    ]
