"""Mutants: kernels with one small mistake in their synchronisation.

A :class:`Mutant` is a PTX text in which ONE instruction that synchronises is removed or
weakened.  A checker that is worth its name sees every one of them, unless the mutant
is as good as the original: ``equivalent.toml`` says which are, and why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fragmenta.ptx.module import Instruction
from fragmenta.ptx.reading import parse


@dataclass(frozen=True)
class Mutant:
    """A text with one mistake."""

    change: str
    """What was done: ``remove wgmma.fence``."""
    line: int
    """Where in the PTX."""
    calls: tuple[tuple[int, str], ...]
    """Its statement in the CUDA source and the line, then the call of that function,
    and so on; nothing if the PTX has no lines."""
    copy: int
    """How many mutants before it are the same change at the same calls.

    A compiler that unrolls a loop makes several instructions of one statement."""
    start: int
    stop: int
    new: str
    original: str
    trap: str = "trap;"

    @property
    def where(self) -> str:
        """All these statements, the innermost first."""
        return " < ".join(statement for _, statement in self.calls)

    @property
    def source_line(self) -> int:
        """The line of the call of a small function that is the instruction."""
        return self.calls[:2][-1][0] if self.calls else 0

    @property
    def name(self) -> str:
        """A name that no other mutant of the text has."""
        return f"{self.change} in line {self.line}"

    @property
    def text(self) -> str:
        """The PTX."""
        return self._with(self.new)

    @property
    def trapped(self) -> str:
        """A text that ends with a trap if the change makes a difference at all."""
        return self._with(self.trap)

    def _with(self, new: str) -> str:
        return self.original[: self.start] + new + self.original[self.stop :]


class Change(NamedTuple):
    """Another instruction for one, and what that changes."""

    name: str
    new: str
    trap: str = "trap;"
    """What ends the kernel if the instruction would do something else."""


class Statement(NamedTuple):
    """An instruction as it is written."""

    guard: str
    """With a space after it, or nothing."""
    mnemonic: str
    operands: str

    def __str__(self) -> str:
        return f"{self.guard}{self.mnemonic} {self.operands}".rstrip() + ";"


# ── changes ─────────────────────────────────────────────────────────────────

ORDERED = {"acquire", "release", "acq_rel"}
SCOPES = {"cta", "cluster", "gpu", "gl", "sys"}
LAST = re.compile(r"(.*[,\s])\s*(\S+)$", re.DOTALL)
"""The operands before the last, and the last."""
ADDRESS = re.compile(r"\[([^\]+]+)(?:\+(-?\d+))?\]")
"""A register or a name, and the number that is added to it."""


def remove(name: str) -> Callable[[Statement], Iterator[Change]]:
    """Leave it out."""

    def changed(_: Statement) -> Iterator[Change]:
        yield Change(f"remove {name}", "")

    return changed


def other_number(statement: Statement, calculation: str) -> str:
    """The last operand is another number."""
    before, last = LAST.fullmatch(" " + statement.operands).groups()  # type: ignore[union-attr]
    changed = statement._replace(operands=f"{before.strip()} %mutant")
    return (
        f"{{ .reg .b32 %mutant; mov.b32 %mutant, {last}; "
        f"{calculation.format('%mutant')} {changed} }}"
    )


def next_mbarrier(name: str, statement: Statement) -> Change:
    """The mbarrier behind the right one in memory: another stage, or another use."""
    moved = ADDRESS.sub(
        lambda found: f"[{found[1]}+{int(found[2] or 0) + 8}]", statement.operands, 1
    )
    changed = statement._replace(operands=moved)
    return Change(f"the next mbarrier at {name}", str(changed))


def not_waiting(statement: Statement) -> Iterator[Change]:
    """The wait answers yes at once, or is for the other phase."""
    done = statement.operands.partition(",")[0]
    yield Change(
        "do not wait at try_wait", f"{statement.guard}setp.eq.u32 {done}, 0, 0;"
    )
    if ".parity" in statement.mnemonic:
        flipped = other_number(statement, "xor.b32 {0}, {0}, 1;")
        yield Change("flip parity of try_wait", flipped)
    yield next_mbarrier("try_wait", statement)
    words = [w for w in statement.mnemonic.split(".") if w not in ORDERED | SCOPES]
    if "relaxed" not in words:
        first = 2 + ("parity" in words)
        relaxed = ".".join([*words[:first], "relaxed", "cta", *words[first:]])
        yield Change("relax try_wait", str(statement._replace(mnemonic=relaxed)))


def arrival(statement: Statement) -> Iterator[Change]:
    """No arrival, or one that publishes nothing, or that expects other bytes."""
    plain = statement.mnemonic.replace(".expect_tx", "")
    if plain == statement.mnemonic:
        yield Change("remove mbarrier.arrive", "")
        yield next_mbarrier("mbarrier.arrive", statement)
        words = [w for w in plain.split(".") if w not in ORDERED | SCOPES]
        if not {"relaxed", "noComplete"} & set(words):
            scope = "cluster" if "shared::cluster" in words else "cta"
            for name, sem, to in (
                ("relax mbarrier.arrive", "relaxed", scope),
                ("narrow mbarrier.arrive", "release", "cta"),
            ):
                if name.startswith("narrow") and scope == "cta":
                    continue
                other = ".".join([*words[:2], sem, to, *words[2:]])
                yield Change(name, str(statement._replace(mnemonic=other)))
        return
    yield Change("remove mbarrier.arrive.expect_tx", "")
    yield next_mbarrier("mbarrier.arrive.expect_tx", statement)
    less = LAST.fullmatch(statement.operands)
    if less:
        operands = less[1].rstrip().rstrip(",")
        unexpected = statement._replace(mnemonic=plain, operands=operands)
        yield Change("do not expect bytes", str(unexpected))
    for step in ("16", "-16"):
        changed = other_number(statement, f"add.s32 {{0}}, {{0}}, {step};")
        yield Change(f"expect {step} bytes more", changed)


def narrower(statement: Statement) -> Iterator[Change]:
    """The scope is the block instead of more."""
    opcode, *words = statement.mnemonic.split(".")
    wide = [each for each in words if each in SCOPES and each != "cta"]
    if "volatile" in words or any(each.startswith("shared") for each in words):
        return
    if wide:
        new = ".".join([opcode, *("cta" if each in wide else each for each in words)])
    elif opcode in ("atom", "red") and "cta" not in words:
        new = ".".join([opcode, "relaxed", "cta", *words])
    else:
        return
    yield Change(f"narrow {opcode}", str(statement._replace(mnemonic=new)))


def relaxed(statement: Statement) -> Iterator[Change]:
    """Relaxed instead of an acquire or a release."""
    opcode, *words = statement.mnemonic.split(".")
    if ORDERED & set(words):
        weak = ["relaxed" if each in ORDERED else each for each in words]
        new = statement._replace(mnemonic=".".join([opcode, *weak]))
        yield Change(f"relax {opcode}", str(new))


def initial_count(statement: Statement) -> Iterator[Change]:
    """One arrival more or less."""
    for step in ("1", "-1"):
        new = other_number(statement, f"add.s32 {{0}}, {{0}}, {step};")
        yield Change(f"count {step} more at mbarrier.init", new)


def group_wait(statement: Statement) -> Iterator[Change]:
    """No wait, one for fewer groups, or one that does not wait for the writes."""
    short = statement.mnemonic.replace(".sync.aligned", "")
    yield Change(f"remove {short}", "")
    number = int(statement.operands)
    weaker = statement._replace(operands=str(number + 1))
    yield Change(f"wait for one group less at {short}", str(weaker))
    if short == "cp.async.bulk.wait_group":
        read = statement._replace(mnemonic=f"{statement.mnemonic}.read")
        yield Change(f"wait for the reads only at {short}", str(read))


def named_barrier(name: str) -> Callable[[Statement], Iterator[Change]]:
    """None, one of the other role, one for all roles, or for other numbers of threads."""

    def changed(statement: Statement) -> Iterator[Change]:
        yield Change(f"remove {name}", "")
        barrier, _, threads = statement.operands.partition(",")
        if barrier.strip() != "0":
            for what, calculation in (
                ("the other role's", "xor.b32 %mutant, %mutant, 3;"),
                ("one for all at", "mov.b32 %mutant, 1;"),
            ):
                other = statement._replace(operands=f"%mutant,{threads}".rstrip(","))
                new = (
                    f"{{ .reg .b32 %mutant; mov.b32 %mutant, {barrier}; "
                    f"{calculation} {other} }}"
                )
                yield Change(f"{what} {name}", new)
        if threads.strip().isdecimal():
            for step in (32, -32):
                number = f"{barrier}, {int(threads) + step}"
                other = statement._replace(operands=number)
                yield Change(f"{step} threads more at {name}", str(other))

    return changed


def cluster_arrival(statement: Statement) -> Iterator[Change]:
    """No arrival, or one that publishes nothing."""
    yield Change("remove barrier.cluster.arrive", "")
    if ".relaxed" not in statement.mnemonic:
        bare = statement.mnemonic.replace(".release", "")
        words = bare.replace(".arrive", ".arrive.relaxed")
        new = statement._replace(mnemonic=words)
        yield Change("relax barrier.cluster.arrive", str(new))


CHANGES: list[tuple[str, Callable[[Statement], Iterator[Change]]]] = [
    (r"mbarrier\.(try_wait|test_wait)\b.*", not_waiting),
    (r"mbarrier\.arrive\b.*", arrival),
    (r"mbarrier\.init\b.*", initial_count),
    (r"fence\.proxy\.async\b.*", remove("fence.proxy.async")),
    (r"fence\.mbarrier_init\b.*", remove("fence.mbarrier_init")),
    (r"(fence\.(sc|acq_rel)|membar)\b.*", remove("fence")),
    (r"(fence\.(sc|acq_rel)|membar|atom|red|ld|st)\b.*", narrower),
    (r"(atom|red|ld|st)\b.*", relaxed),
    (r"wgmma\.fence\b.*", remove("wgmma.fence")),
    (r"wgmma\.commit_group\b.*", remove("wgmma.commit_group")),
    (r"wgmma\.wait_group\b.*", group_wait),
    (r"cp\.async(\.bulk)?\.wait_group\b.*", group_wait),
    (r"cp\.async\.wait_all", remove("cp.async.wait_all")),
    (r"cp\.async\.mbarrier\.arrive\b.*", remove("cp.async.mbarrier.arrive")),
    (r"cp\.async\.commit_group", remove("cp.async.commit_group")),
    (r"cp\.async\.bulk\.commit_group", remove("cp.async.bulk.commit_group")),
    (r"(bar|barrier(\.cta)?)\.sync\b.*", named_barrier("bar.sync")),
    (r"(bar|barrier(\.cta)?)\.arrive\b.*", named_barrier("bar.arrive")),
    (r"bar\.warp\.sync", remove("bar.warp.sync")),
    (r"barrier\.cluster\.arrive\b.*", cluster_arrival),
    (r"barrier\.cluster\.wait\b.*", remove("barrier.cluster.wait")),
]


def ring_changes(statement: Statement, ring: int) -> Iterator[Change]:
    """One side goes round the ring of stages too early or too late."""
    before, _, last = statement.operands.rpartition(",")
    if last.strip() == str(ring):
        _, _, counted = before.partition(",")
        for number in (ring - 1, ring + 1):
            new = statement._replace(operands=f"{before}, {number}")
            trap = (
                "{ .reg .pred %mutant; "
                f"setp.eq.s32 %mutant, {counted}, {ring}; @%mutant trap; "
                f"setp.eq.s32 %mutant, {counted}, {number}; @%mutant trap; {statement} }}"
            )
            yield Change(f"{number} stages instead of {ring}", str(new), trap)


# ── mutants of a text ───────────────────────────────────────────────────────


_parsed = lru_cache(4)(parse)
_LOCATION = re.compile(r"\.loc\s+\d+ (\d+)(?:[^\n]*inlined_at \d+ (\d+))?")


def mutants(
    text: str, entry: str, ring: int | None = None, source: str = ""
) -> Iterator[Mutant]:
    """Every mutant of a kernel.

    ``ring`` is the number of stages of its ring, whose comparisons are changed, too.
    ``source`` is the CUDA source, from which a statement is named.
    """
    function = _parsed(text).functions[entry]
    before: Counter[object] = Counter()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for each in function.instructions:
        start = starts[each.line - 1] + each.column - 1
        stop = text.index(";", start) + 1
        found = list(changes(each, _statement(text[start : stop - 1]), ring))
        calls = _calls(text, start, source) if found else ()
        for change in found:
            yield Mutant(
                change.name,
                each.line,
                calls,
                before[change.name, calls],
                start,
                stop,
                change.new,
                text,
                change.trap,
            )
            before[change.name, calls] += 1


def changes(
    instruction: Instruction, statement: Statement, ring: int | None
) -> Iterator[Change]:
    """Everything that is done to one instruction."""
    for pattern, change in CHANGES:
        if re.fullmatch(pattern, instruction.mnemonic):
            yield from change(statement)
    if ring and re.fullmatch(r"setp\.(eq|ne)\.[sub]32", instruction.mnemonic):
        yield from ring_changes(statement, ring)


def _statement(raw: str) -> Statement:
    """An instruction in its parts."""
    guard, mnemonic, operands = re.fullmatch(  # type: ignore[union-attr]
        r"(@\S+\s+)?(\S+)\s*(.*)", raw, re.DOTALL
    ).groups()
    return Statement(guard or "", mnemonic, operands.strip())


def _calls(text: str, start: int, source: str) -> tuple[tuple[int, str], ...]:
    """The statement of an instruction, the call of the function it is in, and so on.

    A line of an inlined function says which line calls it.  That line was written
    before, with the line that calls its own function.
    """
    lines = source.splitlines()
    known = list(_LOCATION.finditer(text, 0, start)) if lines else []
    found = []
    while known:
        number, caller = known[-1].groups()
        found.append(int(number))
        while known and known[-1][1] != caller:
            known.pop()
        if not known and caller:
            found.append(int(caller))
    return tuple((x, lines[x - 1].strip()) for x in found if x <= len(lines))
