"""Fuses quotients with sums as the assembler does.

``div.approx`` and ``div.full`` of f32 end with a multiplication.  If that product is
used by a sum, ptxas fuses the two by the same rule as ``mul`` and ``add``.  So a
quotient is written as its two factors and a ``mul``, where that ``mul`` is fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fragmenta.ptx.module import Function, Instruction, Register
from fragmenta.ptx.ptxas.contraction import contract
from fragmenta.ptx.ptxas.pieces import is_calculation


def contract_all(function: Function) -> Function:
    """The function with fused products, those of quotients among them.

    >>> from fragmenta.ptx import parse
    >>> kernel = parse('''
    ... .version 9.0 .target sm_90a .address_size 64
    ... .entry k(.param .u64 x) {
    ...     .reg .b64 %rd<2>; .reg .f32 %f<5>;
    ...     ld.param.u64 %rd1, [x];
    ...     ld.global.v2.f32 {%f1, %f2}, [%rd1];
    ...     div.approx.ftz.f32 %f3, %f1, %f2;
    ...     add.ftz.f32 %f4, %f3, %f1;
    ...     st.global.f32 [%rd1], %f4;
    ... }''').functions["k"]
    >>> [each.mnemonic for each in contract_all(kernel).instructions][2:]
    ['_factors.approx.ftz.f32', 'fma.rn.ftz.f32', 'st.global.f32']
    """
    places = [i for i, each in enumerate(function.instructions) if _quotient(each)]
    if not places:
        return contract(function)
    expanded, products = _expanded(function, places)
    kept = {id(each) for each in contract(expanded).instructions}
    fused = [
        place
        for place, product in zip(places, products, strict=True)
        if id(product) not in kept
    ]
    return contract(_expanded(function, fused)[0])


def _quotient(instruction: Instruction) -> bool:
    words = instruction.qualifiers
    return (
        instruction.opcode == "div"
        and words[:1] in (("approx",), ("full",))
        and words[-1] == "f32"
        and instruction.guard is None
        and is_calculation(instruction, 2)
    )


def _expanded(
    function: Function, places: Sequence[int]
) -> tuple[Function, list[Instruction]]:
    """Some quotients as factors and a product; the products."""
    registers, made = list(function.registers), list[Instruction]()
    products, begins = list[Instruction](), list[int]()
    wanted = set(places)
    for place, each in enumerate(function.instructions):
        begins.append(len(made))
        if place not in wanted:
            made.append(each)
            continue
        d, a, b = each.operands
        numbers = (len(registers), len(registers) + 1)
        pair = [Register(f"%factor{number}", "f32", number) for number in numbers]
        registers += pair
        made.append(replace(each, opcode="_factors", operands=(*pair, a, b)))
        words = tuple(word for word in each.qualifiers if word in ("ftz", "f32"))
        product = replace(each, opcode="mul", qualifiers=words, operands=(d, *pair))
        made.append(product)
        products.append(product)
    begins.append(len(made))
    labels = {name: begins[place] for name, place in function.labels.items()}
    changed = replace(
        function,
        instructions=tuple(made),
        labels=labels,
        registers=tuple(registers),
    )
    return changed, products
