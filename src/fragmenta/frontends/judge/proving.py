"""Proves whose work the results are: kernels get other inputs than the host.

The candidate is called once more with inputs that it knows, but its launches are
carried out with others, which it has never seen.  Honest launches then leave the
results of the others.  What the host computes, or has kept, is that of those it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import cast

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.empties import poison
from fragmenta.frontends.judge.comparing import Case, compared
from fragmenta.frontends.judge.findings import Finding
from fragmenta.frontends.judge.following import (
    SMALL,
    CandidateLaunch,
    Foreign,
    Mask,
    Sources,
    Swap,
    add_left,
    difference,
    foreign,
    raw,
    same_launches,
    some_words,
)
from fragmenta.frontends.judge.held import elements, leaves
from fragmenta.frontends.judge.running import Lie, Places, Running
from fragmenta.frontends.judge.values import is_float, moved
from fragmenta.frontends.judge.wire import Tree, dump, load

FEW = 64
"""Bytes that a host may make of what launches left, such as a sum of partial sums."""
TRIES = 8
"""How often elements with the same bits are moved apart."""
LEAST = 32
"""Bytes that are not the same by chance."""
MOST_PLACES = 8
"""Places of a row in memory that are looked at."""
SHARE = 64
"""The same, as a share of the inputs."""


@dataclass(eq=False)
class CandidateAnswer:
    """What a candidate answered to one call."""

    case: Case
    outputs: Tree
    running: Running
    about: dict[str, Tree]

    @property
    def steps(self) -> list[CandidateLaunch]:
        """Its launches."""
        return self.running.steps

    @property
    def operators(self) -> dict[str, int]:
        """The operators of the library, and how many elements each of them read."""
        return cast("dict[str, int]", self.about["operators"])

    def left(self) -> list[bool]:
        """Whether launches left each of the outputs."""
        places = cast("list[Tree]", self.about["places"])
        found = leaves(self.outputs)
        places += [None] * (len(found) - len(places))
        wrote = self.running.origins.wrote
        return [
            wrote(at, elements(each)) for at, each in zip(places, found, strict=False)
        ]

    def ordered(self) -> bool:
        """Whether launches left all outputs somewhere in their order, not as they were.

        If a task only moves elements, their order is the work.
        """
        return all(
            any(
                _holds(after.tobytes(), output) and not _holds(old.tobytes(), output)
                for step in self.steps
                for old, after in zip(step.before, step.after, strict=False)
            )
            for output in map(elements, leaves(self.outputs))
        )

    def bits(self) -> list[bytes]:
        """Its outputs as bytes."""
        return [elements(each).tobytes() for each in leaves(self.outputs)]


Again = Callable[[Case, Lie], "CandidateAnswer | None"]


@dataclass
class Proof:
    """Calls with the same sizes, and what they show together."""

    calls: Sequence[CandidateAnswer]
    """Calls with ordinary values; the host knows the inputs of the last one."""
    again: CandidateAnswer | None
    """A later call with the inputs of the first."""
    secret: Case
    """A case that no candidate has seen."""
    call: Again
    loads: Callable[[Case, Lie], bool]
    """Whether kernels load what is put there, which counts as unwritten."""
    lasting: Callable[[str], set[str]] = lambda _: set()
    """The variables of a module that its kernels write and load."""
    counted: Callable[[str], set[str]] = lambda _: set()
    """Those whose values go nowhere but into themselves."""
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base = self.calls[-1]
        every = [*self.calls, *([self.again] if self.again else [])]
        self.alike = [
            each
            for each in every
            if each is not self.base and same_launches(each.steps, self.base.steps)
        ]
        self.dependent = ""
        self.foreign = Foreign()

    def found(self, name: str, evidence: str) -> None:
        """Keep a finding."""
        self.findings.append(Finding(name, evidence, str(self.base.case["name"])))

    def run(self) -> list[Finding]:
        """Whose work it is."""
        self._compare_launches()
        group = [self.base, *self.alike]
        if self.alike and all(_same_form(each, self.base) for each in self.alike):
            self.foreign = foreign(
                [each.steps for each in group],
                [each.case["inputs"] for each in group],
                [[raw(elements(o)) for o in leaves(e.outputs)] for e in group],
                [all(each) for each in zip(*(e.left() for e in group), strict=True)],
            )
        seen = [each.case["inputs"] for each in group]
        self._swap = Swap(seen, self.secret["inputs"])
        plain = self._lie({})
        if plain is None or not self._right(plain):
            self._not_its_work(plain)
        else:
            self._what_the_host_made(plain)
            self._made_before()
            self._from_call_to_call()
        return self.findings

    def _from_call_to_call(self) -> None:
        """Whether kernels load what earlier calls left, and that changes."""
        again = self.again
        if again is None or again not in self.alike:
            return
        put: Places = {}
        variables: dict[tuple[int, str], Mask] = {}
        quiet = False
        """Whether a variable may hold something, and had the same in these calls."""
        for number, (one, two) in enumerate(
            zip(self.base.steps, again.steps, strict=True)
        ):
            for region, data in enumerate(one.before):
                old = one.old[region] & two.old[region] & (data != two.before[region])
                if old.any():
                    put[number, region] = (some_words(old), poison(old.size))
            for name, (now, mask) in one.old_variables.items():
                if name in self.counted(one.text):
                    continue
                other, there = two.old_variables.get(name, (now, mask))
                old = mask & there & (now != other)
                if name in self.lasting(one.text):
                    quiet |= not old.any()
                    old = mask & there
                if old.any():
                    variables[number, name] = some_words(old)
        if not put and not variables:
            return
        inputs = self.base.case["inputs"]
        swap = Swap([inputs], inputs)
        lie = Lie(swap, put=put, variables=variables, restores=True)
        if self.loads(self.base.case, lie):
            launch = min([*put, *variables])[0]
            said = f"launch {launch} loads what launches of an earlier call left"
            self.found("not-followed" if quiet else "state-kept", said)

    def _made_before(self) -> None:
        """Memory that holds an output before the launch that should make it."""
        given = [elements(each).tobytes() for each in leaves(self.base.case["inputs"])]
        left = Sources()
        for number, step in enumerate(self.base.steps):
            for region, data in enumerate(step.before):
                if step.left[region].all():
                    continue
                held = data.tobytes()
                for at, leaf in enumerate(leaves(self.base.outputs)):
                    output = elements(leaf)
                    new = output.nbytes > LEAST and output.tobytes() not in given
                    if not new or not _holds(held, output):
                        continue
                    if not left.explain([data]).all():
                        said = f"launch {number} gets memory that holds output {at}"
                        self.found("host-work", f"{said} already")
                        return
            add_left(left, [step])

    def _compare_launches(self) -> None:
        """Launches that differ between calls with the same sizes."""
        first, again = self.calls[0], self.again
        if again is None or again in self.alike:
            others = [
                each for each in self.calls if each not in (self.base, *self.alike)
            ]
            if again is None and others:
                self.dependent = difference(others[0].steps, self.base.steps)
            return
        said = difference(again.steps, self.base.steps)
        if first in self.alike and first is not self.base:
            self.found("cached", f"called again with the first inputs: {said}")
        else:
            self.dependent = said

    def _lie(self, put: Places) -> CandidateAnswer | None:
        others = [each.steps for each in self.alike]
        return self.call(self.base.case, Lie(self._swap, self.base.steps, others, put))

    def _right(self, answer: CandidateAnswer) -> bool:
        """Whether outputs are those of the inputs that kernels got."""
        left = answer.left()
        held = leaves(answer.outputs)
        made: list[Tree] = []
        rows = [[raw(elements(o)) for o in leaves(e.outputs)] for e in self.alike]
        for number, leaf in enumerate(held):
            if left[number] or any(len(each) != len(held) for each in rows):
                made.append(leaf)
                continue
            others = [each[number] for each in rows]
            mine = raw(elements(leaf))
            if any(each.size != mine.size for each in others):
                made.append(leaf)
                continue
            made.append({**leaf, "data": self._swap.copied([mine, *others])})
        flat = {name: each for name, each in self.secret.items() if name != "form"}
        found = compared(flat, made)
        return not isinstance(found, Finding) and not any(
            each.bad.any() for each in found
        )

    def _not_its_work(self, answer: CandidateAnswer | None) -> None:
        """Kernels got other inputs, and the outputs are not theirs."""
        if answer is not None and len(answer.steps) < len(self.base.steps):
            self.found("cached", "called once more, it makes fewer launches")
            return
        said = "launches with other inputs do not leave the results of these"
        if self.dependent:
            said += f"; {self.dependent}"
        elif self.foreign.regions:
            launch, region = min(self.foreign.regions)
            count = int(self.foreign.regions[launch, region].sum())
            said += f"; launch {launch} gets {count:,} bytes that the host made of them"
        made = self.foreign
        host = bool(self.dependent or made.is_there or made.outputs)
        if not self.alike:  # there is nothing to compare them with
            host = host or not all(self.base.left())
        if answer is not None:
            host = host or not same_launches(answer.steps, self.base.steps)
        self.found("host-work" if host else "not-followed", said)

    def _what_the_host_made(self, plain: CandidateAnswer) -> None:
        """Results are right; but does the host make what kernels need?"""
        made = self.foreign
        if self.dependent:
            self.found("data-dependent", self.dependent)
        elif not same_launches(plain.steps, self.base.steps):
            # Others of the same kernels may follow from what launches left.
            texts = [{each.text for each in e.steps} for e in (plain, self.base)]
            said = difference(plain.steps, self.base.steps)
            name = "data-dependent" if texts[0] == texts[1] else "host-work"
            self.found(name, f"if kernels get other inputs: {said}")
        elif self._new_constants(plain):
            said = "constants of all other calls change if kernels get other inputs"
            self.found("host-work", said)
        outputs = sum(int(each.sum()) for each in made.outputs.values())
        if outputs and not self._by_operators(outputs):
            said = f"no launch left the bytes of output {min(made.outputs)}"
            self.found("host-work", said)
        if not made.is_there:
            return
        put = self._exchanged()
        matters = self._matters(plain, put)
        if not matters and not self._loaded(put):
            return
        size = made.size
        few = size <= max(FEW, self._input_bytes() // SHARE)
        launch = min([key[0] for key in made.regions] + [*made.variables])
        if self._by_operators(size):
            return
        if matters:
            said = f"launch {launch} needs {size:,} bytes that the host computes"
            self.found("data-dependent" if few else "host-work", said)
        else:
            said = f"launch {launch} gets {size:,} bytes that the host computes, and "
            self.found(
                "not-followed", said + "loads some, though results do not change"
            )

    def _new_constants(self, plain: CandidateAnswer) -> bool:
        """Whether constants of all other calls are others now, and that matters."""
        put: Places = {}
        group = [self.base, *self.alike]
        for number, step in enumerate(plain.steps if self.alike else []):
            for region, data in enumerate(step.before):
                steps = [each.steps[number] for each in group]
                was = steps[0].before[region]
                if any((each.before[region] != was).any() for each in steps[1:]):
                    continue
                new = (data != was) & ~step.left[region] & ~steps[0].left[region]
                if new.any():
                    put[number, region] = (new, was)
        if not put:
            return False
        stirred = self._lie(put)
        return stirred is None or stirred.bits() != plain.bits()

    def _by_operators(self, size: int) -> bool:
        """Whether operators of the library, which are judged, can have made them."""
        return 4 * sum(self.base.operators.values()) >= size > 0

    def _input_bytes(self) -> int:
        return sum(elements(e).nbytes for e in leaves(self.base.case["inputs"]))

    def _exchanged(self) -> Places:
        """What the host made, and what it made in another call instead."""
        others = [each for each in self.alike if each.case is not self.base.case]
        return {
            (launch, region): (some_words(mask), others[0].steps[launch].before[region])
            for (launch, region), mask in self.foreign.regions.items()
        }

    def _matters(self, plain: CandidateAnswer, put: Places) -> bool:
        """Whether results change with what the host made."""
        if self.foreign.variables:
            return True
        stirred = self._lie(put)
        return stirred is None or stirred.bits() != plain.bits()

    def _loaded(self, put: Places) -> bool:
        """Whether kernels look at it: they may compute if it is not as expected."""
        inputs = self.base.case["inputs"]
        unwritten = {key: (mask, poison(mask.size)) for key, (mask, _) in put.items()}
        return self.loads(self.base.case, Lie(Swap([inputs], inputs), put=unwritten))


def _holds(memory: bytes, output: Array) -> bool:
    """Whether memory has all rows of an output in order, perhaps with gaps between.

    >>> rows = np.arange(96.0).reshape(3, 32)
    >>> _holds(np.pad(rows, ((0, 0), (0, 1))).tobytes(), rows)
    True
    >>> _holds(rows[::-1].tobytes(), rows)
    False
    """
    if output.tobytes() in memory:
        return True
    if output.ndim < 2 or not output.size or output[..., 0].size < 2:
        return False
    rows = [each.tobytes() for each in output.reshape(-1, output.shape[-1])]
    if len(rows[0]) < LEAST:
        return False
    seconds = _places(memory, rows[1])
    return any(
        second > first and _are_apart(memory, rows, first, second - first)
        for first in _places(memory, rows[0])
        for second in seconds
    )


def _places(memory: bytes, row: bytes) -> list[int]:
    """Where a row is in memory, the first times."""
    found: list[int] = []
    at = memory.find(row)
    while at >= 0 and len(found) < MOST_PLACES:
        found.append(at)
        at = memory.find(row, at + 1)
    return found


def _are_apart(memory: bytes, rows: Sequence[bytes], first: int, pitch: int) -> bool:
    """Whether rows are so many bytes apart."""
    return all(
        memory.startswith(each, first + number * pitch)
        for number, each in enumerate(rows)
    )


def hidden(case: Case, call: Again) -> tuple[CandidateAnswer | None, bool]:
    """Call a candidate with other inputs than its kernels get, which are the case's.

    Returns its answer, and whether its outputs are those of the case.
    """
    shown = load(dump(case["inputs"]))
    for number, leaf in enumerate(leaves(shown)):
        if is_float(leaf) and elements(leaf).size > SMALL:
            short = elements(leaf).dtype.itemsize == 2
            leaf["data"] = moved(leaf, 1 if short else number + 1)
    _made_different([leaf for leaf in leaves(shown) if is_float(leaf)])
    lie = Lie(Swap([shown], case["inputs"], str(case["layout"])))
    answer = call({**case, "inputs": shown}, lie)
    if answer is None:
        return None, False
    return answer, is_right(answer, case)


def _made_different(inputs: Sequence[dict[str, Tree]]) -> None:
    """Give no two elements of large floats the same bits, so that copies are found.

    Of some ten thousand random floats a few are the same by chance.  Zeros stay zeros.
    """
    random = np.random.default_rng(11)
    for width in (4, 8):
        found = [leaf for leaf in inputs if elements(leaf).dtype.itemsize == width]
        flat = [elements(leaf).reshape(-1).view(f"u{width}") for leaf in found]
        if not flat:
            continue
        together = np.concatenate(flat)
        usual = np.isfinite(together.view(f"f{width}")) & (together << 1 != 0)
        for _ in range(TRIES):
            _, first = np.unique(together, return_index=True)
            again = usual.copy()
            again[first] = False
            if not again.any():
                break
            together[again] ^= random.integers(1, 1 << 12, int(again.sum())).astype(
                together.dtype
            )
        ends = np.cumsum([each.size for each in flat])[:-1]
        for leaf, new in zip(found, np.split(together, ends), strict=True):
            leaf["data"] = np.ascontiguousarray(new).view(np.uint8)


def is_right(answer: CandidateAnswer, case: Case | None = None) -> bool:
    """Whether outputs are those of a case; of its own, if no other is given."""
    found = compared(case or answer.case, answer.outputs)
    return not isinstance(found, Finding) and not any(e.bad.any() for e in found)


def _same_form(one: CandidateAnswer, other: CandidateAnswer) -> bool:
    """Whether outputs have the same sizes."""
    sizes = [[elements(o).nbytes for o in leaves(e.outputs)] for e in (one, other)]
    return sizes[0] == sizes[1]
