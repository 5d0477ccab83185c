"""Writes the tables of asynchronous instructions from the table of effects."""

from __future__ import annotations

from fragmenta.ptx.effects import LINES, NOT_RUN, WAYS, Effect
from fragmenta.reference.isa.table import read
from making.markdown import table

HOW = {
    "": "",
    "accumulator": " with the same shape and D",
    "reads": ", which also has read before",
    "unpromised": ", though the manual does not promise it",
}


def effect_table() -> str:
    """Every asynchronous instruction: its effects, and what it is in order after."""
    rows = [
        [
            _name(each),
            each.issuer,
            _spaces(each.reads),
            _spaces(each.writes),
            each.proxy,
            each.done_by or "a hint",
            "; ".join(map(_order, each.after)),
        ]
        for each in LINES
    ]
    head = ["instruction", "issuer", "reads", "writes", "proxy", "done by"]
    return table([*head, "in order after"], rows)


def completion_table() -> str:
    """What tells that work is done, and what waits for it."""
    rows = [
        [
            each.done_by,
            ", ".join(f"`{wait}`" for wait in each.waits),
            "yes" if each.leak else "no",
        ]
        for each in WAYS.values()
    ]
    return table(["done by", "waited for with", "a missing wait is a leak"], rows)


def not_run_table() -> str:
    """Forms that exist and are refused, with the reason."""
    rows = [[_form(each), each["why"]] for each in read(NOT_RUN)]
    return table(["instruction", "why"], rows)


def _name(effect: Effect) -> str:
    return " ".join([f"`{effect.instruction}`", *(f"`.{w}`" for w in effect.words)])


def _spaces(spaces: tuple[str, ...]) -> str:
    return ", ".join(
        f"{each[1:]} (combines)" if each.startswith("+") else each for each in spaces
    )


def _order(after: str) -> str:
    name, _, how = after.partition(":")
    return f"`{name}`{HOW[how]}"


def _form(line: dict[str, str]) -> str:
    form = f"`{line['instruction']}`"
    if line["with"]:
        form += f" with `.{line['with']}`"
    return form + (f" without `.{line['without']}`" if line["without"] else "")
