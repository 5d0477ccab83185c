"""What a candidate did not do, though the problem needs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from fragmenta.frontends.judge.comparing import Case
from fragmenta.frontends.judge.cost import Cost
from fragmenta.frontends.judge.held import elements, leaves
from fragmenta.frontends.judge.proving import CandidateAnswer

FEWER = 0.75
"""The share of the products that a kernel must do; Strassen saves an eighth."""
LIBRARY = 0.25
"""The share of the input's elements from which on operators do the work."""
WORK = frozenset(
    [
        "addmm",
        "baddbmm",
        "bmm",
        "convolution",
        "mm",
        "mv",
        "dot",
        "linear",
        "matmul",
        "einsum",
        "addmv",
        "_scaled_dot_product_flash_attention_for_cpu",
        "scaled_dot_product_attention",
        "native_layer_norm",
        "native_batch_norm",
        "native_group_norm",
        "_softmax",
        "_log_softmax",
    ]
)
"""Operators that are work at any size of the problem."""


def least_cost(answers: Sequence[CandidateAnswer]) -> Cost:
    """The cost of the call that did the least; the first one may try variants."""
    first = answers[0]
    alike = [
        each
        for each in answers
        if each.case["set"] == first.case["set"] and each.running.cost.metrics
    ]
    return min(
        (each.running.cost for each in alike),
        key=lambda each: (each.all_products, each.read),
        default=first.running.cost,
    )


def suspected(
    answers: Sequence[CandidateAnswer], first: Case, cost: Cost
) -> Iterator[tuple[str, str]]:
    """What is missing in the work: the names of findings, and evidence."""
    answer = answers[0]
    if not answer.running.cost.launches:
        yield "no-launch", "no kernel was launched"
    for each in answers:
        yield from _library_work(each)
    if not answer.steps and not answer.operators:
        yield "host-work", "no launch left the bytes of output 0"
    matter, products = cast("int", first["matter"]), cast("int", first["products"])
    if cost.metrics and cost.read < matter // 2:
        said = (
            f"kernels load {cost.read:,} bytes; the results depend on "
            f"{matter:,} bytes of the inputs"
        )
        yield "reads-too-little", said
    if cost.metrics and cost.all_products < FEWER * products:
        said = (
            f"kernels multiply {cost.all_products:,} times; the problem "
            f"has {products:,} products"
        )
        yield "too-few-products", said


def _library_work(answer: CandidateAnswer) -> Iterator[tuple[str, str]]:
    operators = cast("dict[str, int]", answer.about["operators"])
    elements_in = sum(elements(e).size for e in leaves(answer.case["inputs"]))
    most = {
        name: count
        for name, count in operators.items()
        if name in WORK or count > LIBRARY * elements_in
    }
    if most:
        name = max(most, key=lambda each: most[each])
        yield "library-work", f"{name} of the library reads {most[name]:,} elements"
