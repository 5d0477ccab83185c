"""Mistakes in what synchronises: what a launch alone reports, and what its orders show.

    python -m tests.orders.mutated                 # the kernels of tests/launch/orders
    python -m tests.orders.mutated --own --jobs 16 # the project's own kernels, too

A parity is flipped, the count of an mbarrier is one more or less, an arrival is left
out, or one barrier has the number of another.  Each mutant is launched once alone and
once with all of its orders; ``docs/verification/mutated_orders.json`` keeps what was
reported.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fragmenta import ptx
from fragmenta.errors import KernelFault
from tests.launch.orders.cases import ROWS, text
from tests.ptx.hopper.mutants import mutants

OUTPUT = Path(__file__).parents[2] / "docs" / "verification" / "mutated_orders.json"
STATES = 20_000
INSTRUCTIONS = 2_000_000
KINDS = {
    "flip parity of try_wait": "parity flipped",
    "count 1 more at mbarrier.init": "count off by one",
    "count -1 more at mbarrier.init": "count off by one",
    "remove mbarrier.arrive": "arrival dropped",
    "remove mbarrier.arrive.expect_tx": "arrival dropped",
    "remove bar.arrive": "arrival dropped",
    "remove barrier.cluster.arrive": "arrival dropped",
}
SWAPPED = "barrier ids swapped"
_BARRIER = re.compile(
    r"\b(bar(?:rier)?(?:\.cta)?\.(?:sync|arrive)\S*)\s+([%\w]+)([^;]*);"
)


class Mutated(NamedTuple):
    """A kernel with one mistake."""

    subject: str
    kind: str
    line: int
    text: str
    trapped: str
    """A text that ends with a trap if the instruction runs at all."""


def of_text(subject: str, whole: str, entry: str) -> Iterator[Mutated]:
    """The mutants of one kernel."""
    for each in mutants(whole, entry):
        if each.change in KINDS:
            kind = KINDS[each.change]
            yield Mutated(subject, kind, each.line, each.text, each.trapped)
    yield from swapped(subject, whole, entry)


def swapped(subject: str, whole: str, entry: str) -> Iterator[Mutated]:
    """One barrier has the number of another: 1 and 2, 5 and 6, 0 and 3."""
    start = re.search(rf"\.entry {entry}\s*\(", whole)
    assert start is not None
    stop = whole.index("\n}", start.end())
    for each in _BARRIER.finditer(whole, start.end(), stop):
        opcode, number, more = each.groups()
        new = (
            f"{{ .reg .b32 %other; mov.b32 %other, {number}; "
            f"xor.b32 %other, %other, 3; {opcode} %other{more}; }}"
        )
        changed, trapped = (
            whole[: each.start()] + made + whole[each.end() :]
            for made in (new, "trap;")
        )
        line = whole.count("\n", 0, each.start()) + 1
        yield Mutated(subject, SWAPPED, line, changed, trapped)


# ── launches ────────────────────────────────────────────────────────────────

Launch = Callable[..., Any]


def small(name: str, changed: str, **options: Any) -> Any:
    """Launch a kernel of tests/launch/orders."""
    row = ROWS[name]
    given = [e.copy() if isinstance(e, np.ndarray) else e for e in row.arguments]
    kernel = ptx.parse(changed).kernels[name]
    return kernel.launch(row.grid, row.block, given, cluster=row.cluster, **options)


def own(number: int, changed: str, **options: Any) -> Any:
    """Launch one of the project's own kernels."""
    from tests.ptx.hopper.launching import ENTRY
    from tests.ptx.hopper.subjects import KERNELS, of_kernel

    subject = of_kernel(KERNELS[number])
    return subject.launches[0].run(ptx.parse(changed).kernels[ENTRY], **options)[0]


def chosen(with_own: bool, subjects: list[str]) -> Iterator[tuple[Mutated, Launch]]:
    """All mutants, and how each is launched."""
    for name in subjects or ROWS:
        for each in of_text(name, text(0), name):
            yield each, partial(small, name)
    if with_own:
        from tests.ptx.hopper.launching import ENTRY
        from tests.ptx.hopper.subjects import KERNELS, of_kernel

        for number, kernel in enumerate(KERNELS):
            subject = of_kernel(kernel)
            for each in of_text(subject.name, subject.text, ENTRY):
                yield each, partial(own, number)


def judged(mutant: Mutated, launch: Launch) -> dict[str, Any]:
    """What is reported about a mutant."""
    how = {"watch": "report", "limits": ptx.Limits(instructions=INSTRUCTIONS)}
    made: dict[str, Any] = {
        "subject": mutant.subject,
        "kind": mutant.kind,
        "line": mutant.line,
        "launch": errors(lambda: launch(mutant.text, **how)),
    }
    seen: list[Any] = []

    def run() -> Any:
        seen.append(launch(mutant.text, orders=STATES, **how))
        return seen[0]

    made["orders"] = errors(run)
    if seen:
        orders = seen[0].orders
        made |= {
            "verdict": orders.verdict,
            "hangs": orders.hangs,
            "states": orders.states,
        }
    if not made["launch"] and not made["orders"]:
        made["runs"] = bool(errors(lambda: launch(mutant.trapped, **how)))
    return made


def errors(run: Callable[[], Any]) -> list[str]:
    """The rules of the errors of a launch."""
    try:
        result = run()
    except KernelFault as fault:
        return [fault.kind]
    return sorted({each.rule for each in result.problems if each.severity != "info"})


def table(rows: list[dict[str, Any]]) -> list[tuple[str, int, int, int, int, int]]:
    """Of each kind: mutants, reported by the launch, only by orders, and by neither.

    The last number is of those by neither whose instruction never runs.

    >>> table([{"kind": "k", "launch": [], "orders": ["deadlock"]}])
    [('k', 1, 0, 1, 0, 0)]
    """
    found = []
    for kind in dict.fromkeys(each["kind"] for each in rows):
        some = [each for each in rows if each["kind"] == kind]
        alone = sum(bool(each["launch"]) for each in some)
        orders = sum(bool(e["orders"]) and not e["launch"] for e in some)
        silent = [e for e in some if not e["launch"] and not e["orders"]]
        dead = sum(not each["runs"] for each in silent)
        found.append((kind, len(some), alone, orders, len(silent), dead))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--subjects", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    pairs = list(chosen(given.own, given.subjects))
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for each in as_completed([pool.submit(judged, *pair) for pair in pairs]):
            rows.append(each.result())
            print(json.dumps(rows[-1]), flush=True)
    rows.sort(key=lambda each: (each["subject"], each["kind"], each["line"]))
    made = {"date": date.today().isoformat(), "states": STATES, "mutants": rows}
    given.output.write_text(json.dumps(made, indent=1) + "\n")
    for row in table(rows):
        print(*row)


if __name__ == "__main__":
    main()
