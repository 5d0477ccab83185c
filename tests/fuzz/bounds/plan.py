"""Which bundles are run, how often, and in which settings.

A :class:`Job` is one bundle with one seed.  All jobs follow from the seed of the run
and the number of accesses that are wanted, so that each can be repeated alone.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import fragmenta as fm
from fragmenta import ptx
from fragmenta.engine.simt import accessing, emitter
from tests.fuzz.bounds import texts
from tests.fuzz.bounds.arena import Arena
from tests.fuzz.bounds.forms import Form, catalogue_forms, fate, table_forms
from tests.fuzz.bounds.harness import Outcome, Setting, play

BUNDLE = 32
"""Instructions of a bundle."""
BLOCKS = 8192
"""Blocks of a job that runs as machine code."""
TEXTS = 3_000
"""Texts with a change, at most."""
EVENTS = 256
"""Blocks of a job that Python carries out."""
PER_BLOCK = 12
"""About so many accesses does a block make before it ends or fails."""
NATIVE = (Setting(), Setting(low=True), Setting(), Setting(watch=True, low=True))
ASYNCHRONOUS = (
    Setting(),
    Setting(cluster=2),
    Setting(schedule="lazy"),
    Setting(watch=True),
    Setting(cluster=2, watch=True, schedule="lazy"),
)
CLUSTERED = (Setting(cluster=2), Setting(cluster=2, low=True, watch=True))


class Job(NamedTuple):
    """A bundle, how it is run, and its seed."""

    name: str
    forms: tuple[Form, ...]
    setting: Setting
    blocks: int
    seed: int

    def run(self) -> Outcome:
        """Run it in this process; what does nothing is not counted as an access."""
        found = play(self.forms, self.setting, self.blocks, self.seed)
        return found._replace(accesses=0) if _silent(self.forms[0]) else found


def _silent(form: Form) -> bool:
    """Whether the engine does nothing for an instruction, as for ``prefetch``."""
    quiet = (accessing.nothing, accessing.fence, accessing.createpolicy)
    return emitter.HANDLERS.get(form.family) in quiet


class Bundles(NamedTuple):
    """All instructions, in bundles: those of machine code, and those of Python."""

    native: list[tuple[str, tuple[Form, ...]]]
    events: list[tuple[str, tuple[Form, ...]]]


def bundles(seed: int, forms: Iterable[Form] | None = None) -> Bundles:
    """Every instruction that is compiled, with its kin.

    Instructions that become the same machine code, as with another hint for the cache,
    are run once.
    """
    every = [*table_forms(seed), *catalogue_forms()] if forms is None else forms
    native: dict[str, list[Form]] = defaultdict(list)
    events: dict[str, list[Form]] = defaultdict(list)
    known: set[object] = set()
    for form in every:
        said = fate(form.text)
        offset = form.touch is not None and form.touch.offset
        key = form.text if said.event else (form.family, offset, said.code)
        if said.supported and not said.refused and key not in known:
            known.add(key)
            (events if said.event else native)[form.family].append(form)
    draw = random.Random(seed)
    return Bundles(list(_cut(native, draw)), list(_cut(events, draw)))


def _cut(
    families: dict[str, list[Form]], draw: random.Random
) -> Iterator[tuple[str, tuple[Form, ...]]]:
    for family, some in families.items():
        draw.shuffle(some)
        for start in range(0, len(some), BUNDLE):
            yield f"{family} {start // BUNDLE}", tuple(some[start : start + BUNDLE])


class Texts(NamedTuple):
    """Instructions with one change each."""

    name: str
    count: int
    seed: int

    def run(self) -> Outcome:
        """Refuse them, or run them."""
        kept, findings = [], []
        for form in texts.hurt(self.count, self.seed):
            try:
                said = fate(form.text)
            except fm.Error:
                continue
            except Exception as error:
                findings.append(f"{type(error).__name__}: {error}\n    {form.text}")
                continue
            if said.supported and not said.refused:
                kept.append(form)
        total = Outcome(0, 0, findings, self.count, self.count - len(kept))
        for start in range(0, len(kept), BUNDLE):
            some = kept[start : start + BUNDLE]
            watched = Setting(watch=bool(start // BUNDLE % 2), low=self.seed % 2 == 0)
            found = play(some, watched, 4 * BUNDLE, self.seed + start)
            total = total._replace(
                accesses=total.accesses + found.accesses,
                faults=total.faults + found.faults,
                findings=total.findings + found.findings,
            )
        return total


class Modules(NamedTuple):
    """Every so many-th of the texts with parameters and calls."""

    name: str
    first: int
    step: int

    def run(self) -> Outcome:
        """Launch each, without a check and with one."""
        chosen = list(texts.modules())[self.first :: self.step]
        refused: list[str] = []
        findings = []
        for number, text in enumerate(chosen):
            findings += launched(
                text, low=number % 2 == 0, watch=number % 3 == 0, refused=refused
            )
        return Outcome(0, 0, findings, len(chosen), len(refused))


def launched(
    text: str,
    *,
    low: bool,
    watch: bool,
    refused: list[str] | None = None,
    wrong: bool = False,
) -> list[str]:
    """What is found when the kernel of a module is launched.

    That it runs to its end is a finding, too, if the module is known to be ``wrong``.
    """
    arena, found = Arena(low=low), []
    data = arena.take(256)
    try:
        with arena.standing_in():
            kernel = ptx.parse(text).kernels["k"]
            kernel.launch(
                1,
                32,
                [data][: len(kernel.parameters)],
                watch=watch and "report",
                limits=ptx.Limits(instructions=100_000, stack=1 << 12),
            )
        if wrong:
            found.append(f"ran to its end\n{text}")
    except fm.errors.KernelError:
        pass
    except fm.Error as error:
        if refused is not None:
            refused.append(str(error))
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}\n{text}")
    return [*found, *(f"{each}\n{text}" for each in arena.spoiled())]


Work: TypeAlias = Job | Texts | Modules


def text_jobs(count: int, seed: int) -> list[Work]:
    """So many texts, and all modules."""
    each = 500
    found: list[Work] = [
        Texts(f"texts {i}", min(each, count), seed + i)
        for i in range(-(-count // each))
    ]
    return found + [Modules(f"modules {i}", i, 20) for i in range(20)]


def jobs(count: int, seed: int, of: Bundles | None = None) -> list[Work]:
    """Jobs for so many accesses; each bundle at least once."""
    of = bundles(seed) if of is None else of
    found = [*_events(of.events, seed), *_clusters(of.native, seed)]
    # Silent forms access nothing; some accesses of the others come to nothing.
    loud = sum(not _silent(forms[0]) for _, forms in of.native)
    rounds = max(1, -(-count // (loud * BLOCKS * (PER_BLOCK - 1))))
    for number in range(rounds):
        for place, (name, forms) in enumerate(of.native):
            if number and _silent(forms[0]):
                continue
            setting = NATIVE[(number + place) % len(NATIVE)]
            setting = setting._replace(threads=forms[0].threads)
            blocks = min(BLOCKS, max(64, count // len(of.native) // PER_BLOCK))
            found.append(Job(name, forms, setting, blocks, _seed(seed, found)))
    return [*text_jobs(min(TEXTS, count // 100), seed), *found]


def _events(of: Sequence[tuple[str, tuple[Form, ...]]], seed: int) -> Iterator[Job]:
    for place, (name, forms) in enumerate(of):
        setting = ASYNCHRONOUS[place % len(ASYNCHRONOUS)]
        catalogued = forms[0].uniform
        threads = forms[0].threads if catalogued else 1
        blocks = EVENTS // 2 if catalogued else EVENTS
        yield Job(name, forms, setting._replace(threads=threads), blocks, seed + place)


def _clusters(of: Sequence[tuple[str, tuple[Form, ...]]], seed: int) -> Iterator[Job]:
    """Machine code that reaches other blocks."""
    for place, (name, forms) in enumerate(of):
        setting = CLUSTERED[place % len(CLUSTERED)]._replace(threads=forms[0].threads)
        yield Job(f"{name} of a cluster", forms, setting, EVENTS, seed + 7000 + place)


def _seed(seed: int, found: list[Job]) -> int:
    return seed * 100_003 + len(found)
