"""The report of a launch with numerics: 80 columns, worst first."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf, isnan
from typing import TYPE_CHECKING

from fragmenta.engine.simt.naming import array
from fragmenta.ptx.checking.problem import wrapped
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.findings import source_of, unmissed
from fragmenta.values.numerics.product_text import product_lines
from fragmenta.values.numerics.words import COUNTED, formula, number

if TYPE_CHECKING:
    from fragmenta.values.numerics.report import (
        Moment,
        NonFinitePath,
        Numerics,
        OutputErrors,
        Site,
    )

WIDTH = 80
MOST_LINES = 12
"""Instructions in a report."""
MOST_WAYS = 6
MOST_MOMENTS = 8
"""Places on a way."""
UNWATCHED = "races were not looked for: the launch was not watched"


def report(found: Numerics) -> str:
    """The whole report."""
    parts = [f"numerics of {found.kernel}"]
    parts += ["\n".join(_way(found, each)) for each in found.births[:MOST_WAYS]]
    if len(found.births) > MOST_WAYS:
        parts.append(f"and {len(found.births) - MOST_WAYS} more births")
    if found.outputs:
        parts.append("\n".join(_outputs(found)))
    lines = list(_lines(found))
    if lines:
        parts.append("\n".join(lines))
    if found.promotion is not None:
        parts.append(wrapped(f"measured: {found.promotion}", WIDTH, "  "))
    others = list(_decisions(found))
    if others:
        parts.append("\n".join(others))
    notes = list(_notes(found))
    if notes:
        parts.append("\n".join(notes))
    if not found.watched:
        parts.append(UNWATCHED)
    return "\n\n".join(parts)


def _quoted(text: str, indent: int) -> str:
    room = WIDTH - indent
    short = text if len(text) <= room else f"{text[: room - 2]} …"
    return " " * indent + short


def _way(found: Numerics, way: NonFinitePath) -> Iterator[str]:
    """One birth: what became of it, where it was born, and its way."""
    what = "NaN" if way.nan else "infinite"
    for name, (count, first) in way.outputs.items():
        output = found.outputs[name]
        yield wrapped(
            f"{output.shown}: {count:,} of {output.held.size:,} elements are {what}, "
            f"the first {first}",
            WIDTH,
            "  ",
        )
    start, rest = way.moments[0], _without_repeats(way)
    if start.kind == Birth.GIVEN:
        yield from _inputs(found, start)
    left = len(rest) - MOST_MOMENTS
    for place, each in enumerate(rest):
        if left > 0 and MOST_MOMENTS // 2 <= place < len(rest) - MOST_MOMENTS // 2:
            if place == MOST_MOMENTS // 2:
                yield f"  ...   {left} more"
            if each is not way.born:
                continue
        yield from _moment("born" if each is way.born else "then", each)


def _without_repeats(way: NonFinitePath) -> list[Moment]:
    """The moments of a way; of some at one line that are alike, the first."""
    kept: list[Moment] = []
    for each in way.moments:
        last = kept[-1] if kept else None
        alike = (
            last is not None
            and each is not way.born
            and (last.place, last.instruction.opcode)
            == (each.place, each.instruction.opcode)
        )
        if not alike or each.kind != Birth.PASSED:
            kept.append(each)
    return kept


def _moment(word: str, moment: Moment) -> Iterator[str]:
    yield wrapped(f"  {word}  {moment.place}: {moment.words}", WIDTH, "      ")
    yield _quoted(moment.text, 8)
    if word == "born":
        yield _quoted(f"{moment.thread}", 8)


def _inputs(found: Numerics, moment: Moment) -> Iterator[str]:
    """The arrays that a given NaN or infinity may come from."""
    value = moment.operands[moment.operand]
    kind = "nan" if isnan(value) else "infinite"
    word = "NaN" if kind == "nan" else "infinite"
    for name, before in found.inputs.items():
        if kind in before:
            first = found.first_input(name, kind)
            yield wrapped(
                f"  from  {array(name)} had {before[kind]:,} {word} before the launch, "
                f"the first {first}",
                WIDTH,
                "      ",
            )
        if moment.unwritten and before.get("unwritten"):
            count = f"{before['unwritten']:,} words"
            yield f"  from  {count} of {array(name)} were not written"


def _outputs(found: Numerics) -> Iterator[str]:
    yield "errors of outputs, against exact arithmetic"
    for name, each in found.outputs.items():
        yield from _output(found, name, each)


def _output(found: Numerics, name: str, output: OutputErrors) -> Iterator[str]:
    index, worst = output.worst
    shape = "x".join(f"{each:,}" for each in output.shape)
    most, bits = output.summary.ulp, output.summary.bits
    place = f"[{', '.join(map(str, index))}]" if index else ""
    yield f"  {output.shown}, {output.format} {shape}"
    size, bad = output.held.size, output.nan + output.infinite
    if bad:
        yield wrapped(f"      {_special(found, name, output)}", WIDTH, "  ")
    if bad == size:
        return
    others = f"of the {size - bad:,} others: " if bad else ""
    yield wrapped(
        f"      {others}relative {worst:.3g} at {place or 'no element'}, in all "
        f"{output.total:.3g}; at most {most:.3g} ulp, {bits:.3g} bits lost",
        WIDTH,
        "  ",
    )
    lost = found.losses[name]
    severity = lost.severity(found.limits)
    if severity:
        limit = found.limits.warning
        why = f"{lost.by} explains {lost.explained:.2g}"
        why = why if limit is None else f"the limit is {limit:.2g}"
        site = source_of(found, lost)
        where = "" if site is None else f", mostly from {site.place}"
        yield wrapped(
            f"      {severity}: {output.at(lost.place)} {lost.words}; {why}{where}",
            WIDTH,
            "  ",
        )


def _special(found: Numerics, name: str, output: OutputErrors) -> str:
    """How many elements are NaN or infinite, and where most of them were born."""
    size = output.held.size
    counts = [(output.nan, "NaN"), (output.infinite, "infinite")]
    said = [f"{count:,} of {size:,} are {word}" for count, word in counts if count]
    born = [each.born.place for each in found.births if name in each.outputs]
    where = f", born at {born[0]}" if born else ""
    return f"{' and '.join(said)}{where}"


def _lines(found: Numerics) -> Iterator[str]:
    """The instructions where errors begin."""
    every = [each for each in found.instructions if each.worst_relative > 0]
    shown = [each for each in every if not unmissed(found, each)]
    if not every:
        return
    yield "where the errors come from, worst first"
    groups: dict[tuple[str, str], list[Site]] = {}
    for each in shown:  # a loop that was unrolled has several for one line
        groups.setdefault((each.place, each.mnemonic), []).append(each)
    order = sorted(groups.values(), key=lambda few: -sum(each.share for each in few))
    for few in order[:MOST_LINES]:
        yield from _site(found, few)
    if len(groups) > MOST_LINES:
        yield f"  and {len(groups) - MOST_LINES} more instructions"
    if len(shown) < len(every):
        count = len(every) - len(shown)
        yield f"  and {count} where bits are lost that no output misses"


def _named(site: Site, count: int, multiplies: bool) -> Iterator[str]:
    """Where instructions are, and what is written there."""
    quoted = [site.text]
    if multiplies:  # the line may be the beginning of an instruction of several lines
        begins = site.ptx.startswith(site.text)
        quoted = [site.ptx] if begins else [site.text, site.ptx]
    # PTX begins with the mnemonic, so that it need not be said before.
    told = any(each.startswith(site.mnemonic) for each in quoted)
    name = "" if told else f", {site.mnemonic}"
    times = f" ({count} times)" if count > 1 else ""
    fused = ", fused from a product and a sum" if site.fused else ""
    yield wrapped(f"  {site.place}{name}{times}{fused}", WIDTH, "    ")
    for text in quoted:
        yield _quoted(text, 6)


def _site(found: Numerics, alike: list[Site]) -> Iterator[str]:
    """Instructions of one line that are alike; the first is the worst."""
    site, total = alike[0], sum(each.share for each in alike)
    numbers = {each.number for each in alike}
    products = [each for each in found.products if each.number in numbers]
    yield from _named(site, len(alike), bool(products))
    share = f"{total:.0%} of an output's error; " if total > 0.005 else ""
    growth = f", {site.amplification:.3g} times that of operands"
    error = f"relative error {site.worst_relative:.3g}"
    if isinf(site.worst_relative):
        error = "no digit is right"
    yield wrapped(
        f"      {share}{error}{growth if site.amplification > 1.5 else ''}; adds up to "
        f"{site.worst_ulp:.3g} ulp",
        WIDTH,
        "  ",
    )
    if products:
        for line in product_lines(products):
            yield wrapped(f"      {line}", WIDTH, "  ")
        return
    worst = site.worst
    yield wrapped(
        f"      {formula(site.instruction, worst.operands, worst.value)}, exactly "
        f"{number(worst.exact)}; {worst.thread}",
        WIDTH,
        "  ",
    )
    said = [
        f"{count:,} of {site.elements:,} {COUNTED[name]}"
        for name, count in site.counts.items()
        if name not in ("passed", "contracted")
    ]
    if site.contraction_ulp:
        count = site.counts["contracted"]
        said.append(
            f"{count:,} of {site.elements:,} {COUNTED['contracted']}, by up to "
            f"{site.contraction_ulp:.3g} ulp"
        )
    if site.cancelled_bits >= 10:
        said.append(f"{site.cancelled_bits:.0f} bits cancel at most")
    if said:
        yield wrapped(f"      {'; '.join(said)}", WIDTH, "  ")


def _decisions(found: Numerics) -> Iterator[str]:
    if found.branches:
        yield "where exact values decide otherwise"
    for each in found.branches[:MOST_LINES]:
        assert each.other is not None
        yield wrapped(
            f"  {each.place}, {each.mnemonic}: {each.counts['other_way']:,} times",
            WIDTH,
            "    ",
        )
        yield _quoted(each.text, 6)
        pair = " and ".join(map(number, each.other.operands))
        exact = " and ".join(f"{e:.9g}" for e in each.other.exact_operands)
        yield wrapped(
            f"      {pair}, exactly {exact}; {each.other.thread}", WIDTH, "  "
        )


def _notes(found: Numerics) -> Iterator[str]:
    if found.notes:
        yield "born, but in no output"
    for each in found.notes[:MOST_WAYS]:
        yield wrapped(f"  {each.born.place}: {each.born.words}", WIDTH, "    ")
    if len(found.notes) > MOST_WAYS:
        yield f"  and {len(found.notes) - MOST_WAYS} more"
    if found.restarts:
        yield "where exact values were lost, and began anew with the value"
    for site in found.restarts[:MOST_WAYS]:
        count = site.counts["restarted"]
        yield wrapped(
            f"  {site.place}, {site.mnemonic}: {count:,} times", WIDTH, "    "
        )
    if found.integers:
        yield "where floats become integers, from which exact values begin anew"
    for site in found.integers[:MOST_WAYS]:
        yield wrapped(f"  {site.place}, {site.mnemonic}", WIDTH, "    ")
    if found.lost_nodes:
        yield f"{found.lost_nodes:,} births had no room, and are not listed"
