"""Classes of programs that leave the same bits: sizes, configurations, targets."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from inspect import signature
from textwrap import wrap
from typing import Any, TypeVar

from fragmenta.base.arrays.checks import check_flags
from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.errors import BadCall, shortened
from fragmenta.inspect.sameness.arriving import followed
from fragmenta.inspect.sameness.calls import Call, Program, items, on_target, program
from fragmenta.inspect.sameness.deciding import (
    DIFFERENT,
    HERE,
    SAME,
    TRIES,
    Sameness,
    compared,
    decide,
    paired,
)
from fragmenta.inspect.sameness.following import Followed, Known, planes_for
from fragmenta.inspect.sameness.naming import (
    Labels,
    Root,
    check_names,
    name_alike,
    name_roots,
    roots,
)
from fragmenta.inspect.sameness.parting import how
from fragmenta.reference.isa.target import check_target

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Classes:
    """Programs in classes: those of one class have equal expressions.

    >>> found = Classes((("a", "b"), ("c",)))
    >>> len(found.members), found.invariant, bool(found)
    (2, False, False)
    """

    members: tuple[tuple[str, ...], ...]
    """The names of the programs of each class."""
    between: dict[tuple[int, int], Sameness] = field(default_factory=dict)
    """What separates two classes."""
    within: dict[int, Sameness] = field(default_factory=dict)
    """The proof, or what is open, in each class."""
    parameters: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """What each program was made with, such as the tile of a configuration."""
    ways: Mapping[int, str] = field(default_factory=dict)
    """How an element of each class is computed, in few words."""

    def parting(self, x: int, y: int) -> dict[str, tuple[str, str]]:
        """The parameters that have no value in common in two classes, with the values.

        >>> made = {"a": {"split": 1}, "b": {"split": 2}, "c": {"split": 4}}
        >>> Classes((("a",), ("b", "c")), parameters=made).parting(0, 1)
        {'split': ('1', '2, 4')}
        """
        one, two = (self._values(each) for each in (x, y))
        return {
            name: (_listed(values), _listed(two[name]))
            for name, values in one.items()
            if name in two and not set(values) & set(two[name])
        }

    def _values(self, number: int) -> dict[str, dict[object, None]]:
        """The values that each parameter has in a class, in their order."""
        found: dict[str, dict[object, None]] = {}
        for each in self.members[number]:
            for name, value in self.parameters.get(each, {}).items():
                found.setdefault(name, {})[_hashable(value)] = None
        return found

    def _about(self, number: int) -> str:
        """The parameters that all of a class share, and some of the others have not."""
        every = [self._values(n) for n in range(len(self.members))]
        return ", ".join(
            f"{name} {_listed(values)}"
            for name, values in every[number].items()
            if len(values) == 1 and any(each.get(name) != values for each in every)
        )

    @property
    def invariant(self) -> bool:
        """Whether it is proved that all programs leave the same bits."""
        proved = all(each.verdict == SAME for each in self.within.values())
        return len(self.members) == 1 and proved

    def __bool__(self) -> bool:
        return self.invariant

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        return {
            "invariant": self.invariant,
            "classes": [list(each) for each in self.members],
            "ways": {str(n): each for n, each in self.ways.items()},
            "parameters": {name: dict(each) for name, each in self.parameters.items()},
            "within": {str(n): each.to_dict() for n, each in self.within.items()},
            "between": [
                {"classes": [x, y], **each.to_dict()}
                for (x, y), each in self.between.items()
            ],
        }

    def __str__(self) -> str:
        count = len(self.members)
        lines = [f"{count} class{'es' * (count != 1)}"]
        if self.invariant:
            lines[0] = "1 class: the same bits for every input that takes the same path"
        for number, names in enumerate(self.members):
            lines += self._class_lines(number, names)
        for (x, y), each in self.between.items():
            lines += self._pair_lines(x, y, each)
        return "\n".join(lines)

    def _class_lines(self, number: int, names: Sequence[str]) -> Iterator[str]:
        about, of = self._about(number), f"{len(names)} programs"
        if about and len(names) > 1:
            yield from _wrapped(f"  {number}: {about} ({of})")
            yield from _wrapped(f"       {', '.join(names)}")
        else:
            yield from _wrapped(f"  {number}: {', '.join(names)}")
        if len(self.between) > FEW and number in self.ways:
            yield from _wrapped(f"       {self.ways[number]}")
        made = self.within.get(number)
        if made is not None:
            for title, remarks in (("open", made.open), ("if", made.conditions)):
                for each in remarks:
                    yield from _wrapped(f"       {title}: {each}")

    def _pair_lines(self, x: int, y: int, made: Sameness) -> Iterator[str]:
        """What separates two classes; of many classes, in few lines."""
        word = {DIFFERENT: "differ", HERE: "are the same here"}
        apart = self.parting(x, y)
        with_them = "; ".join(f"{n} {a} and {b}" for n, (a, b) in apart.items())
        head = f"  {x} and {y} {word.get(made.verdict, made.verdict)}"
        yield from _wrapped(f"{head}: {with_them}" if with_them else head)
        if len(self.between) > FEW and made.cause:
            yield from _wrapped(f"       {made.cause}")
        else:
            for line in made.reason.splitlines():
                yield from _wrapped(f"       {line}")
        if made.witness is not None:
            yield from _wrapped(f"       {made.witness}")


WIDTH = 80
FEW = 3
"""With more pairs of classes than these, each has one line of its reason."""


def _wrapped(line: str) -> list[str]:
    """A line as several of at most 80 columns; the others are indented further."""
    words = line.lstrip()
    pad = line[: len(line) - len(words)]
    deeper = pad if len(pad) > 2 else f"{pad}     "
    return wrap(
        words,
        WIDTH,
        initial_indent=pad,
        subsequent_indent=deeper,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _hashable(value: object) -> object:
    return value if isinstance(value, Hashable) else str(value)


def classes(
    programs: Mapping[str, Call | Sequence[Call]],
    *,
    labels: Labels | None = None,
    by_value: Collection[str] = (),
    types: Mapping[str, str] | None = None,
    outputs: Sequence[tuple[str, str]] | None = None,
    tries: int = TRIES,
    seed: int = 0,
    watch: bool = False,
    progress: Progress = ignore_progress,
) -> Classes:
    """Which programs leave the same bits, for all inputs.

    Of arrays of different lengths, the part that both have is compared.  Races are
    looked for with ``watch=True``, which takes longer.  The other arguments are
    those of :func:`fragmenta.inspect.sameness.deciding.same`.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> text = ".version 8.0 .target sm_80 .address_size 64 .entry k(.param .u64 x)"
    >>> text += "{.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [x]; ld.global.f32 %f,"
    >>> text += "[%a]; add.f32 %f, %f, %f; st.global.f32 [%a], %f; ret; }"
    >>> kernel = ptx.parse(text).kernels["k"]
    >>> x = np.ones(4, np.float32)
    >>> call = ptx.Call(kernel, 1, 1, [x])
    >>> ptx.classes({"one": call, "other": call}).members
    (('one', 'other'),)
    """
    check_flags(watch=watch)
    if not isinstance(programs, Mapping):
        said = shortened(str(programs))
        raise BadCall(f"programs are launches by name, in a dictionary; given {said}")
    listed = {str(name): program(each) for name, each in programs.items()}
    if not listed:
        raise BadCall("there are no launches to compare")
    named = _named(listed, labels, by_value, types)
    planes = max(planes_for(each, named[name]) for name, each in listed.items())
    found: list[list[tuple[str, Followed]]] = []
    known: Known = {}
    for number, (name, each) in enumerate(listed.items()):
        made = followed(each, named[name], planes, known, watch=watch)
        for some in found:
            if all(_equal(made, other, outputs) for _, other in some):
                some.append((name, made))
                break
        else:
            found.append([(name, made)])
        progress((number + 1) / len(listed))
    between = {
        (x, y): decide(
            found[x][0][1], found[y][0][1], outputs, tries, seed, agreed=by_value
        )
        for y in range(len(found))
        for x in range(y)
    }
    within = {
        n: decide(some[0][1], some[-1][1], outputs, 0, agreed=by_value)
        for n, some in enumerate(found)
    }
    members = tuple(tuple(name for name, _ in some) for some in found)
    firsts = enumerate(some[0][1] for some in found)
    ways = {n: _way(each) for n, each in firsts if each.trees}
    return Classes(members, between, within, ways=ways)


def _way(of: Followed) -> str:
    """How an element is computed whose tree is known."""
    (name, index), known = next(iter(of.trees.items()))
    return f"{name}[{', '.join(map(str, index))}]: {how(known.root)}"


def _named(
    listed: Mapping[str, Program],
    labels: Labels | None,
    by_value: Collection[str],
    types: Mapping[str, str] | None,
) -> dict[str, list[Root]]:
    """The memory of all programs, with names that they share."""
    every = tuple(call for each in listed.values() for call in each)
    for what, names in (("labels", labels), ("by_value", by_value), ("types", types)):
        check_names(every, names or (), what)
    known: list[Root] = []
    found = {}
    for name, each in listed.items():
        own = roots(each, by_value, types)
        if known:
            name_alike(known, own, labels)
        else:
            name_roots(own, labels)
        known += own
        found[name] = own
    return found


def _equal(
    one: Followed, two: Followed, outputs: Sequence[tuple[str, str]] | None
) -> bool:
    return not any(compared(x, y)[0] for x, y in paired(one, two, outputs))


def invariant(
    make: Callable[[Item], Call | Sequence[Call]],
    over: Iterable[Item],
    **options: Any,
) -> Classes:
    """Whether a kernel leaves the same bits for every size, configuration or split.

    ``make(x)`` makes the launch for each ``x`` of ``over``; options are those of
    :func:`classes`.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> text = ".version 8.0 .target sm_80 .address_size 64 .entry k(.param .u64 x)"
    >>> text += "{.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [x]; ld.global.f32 %f,"
    >>> text += "[%a]; add.f32 %f, %f, %f; st.global.f32 [%a], %f; ret; }"
    >>> kernel = ptx.parse(text).kernels["k"]
    >>> x = np.ones(4, np.float32)
    >>> make = lambda threads: ptx.Call(kernel, 1, threads, [x])
    >>> ptx.invariant(make, [1, 2]).members
    (('1', '2'),)
    """
    if not _takes_one(make):
        said = shortened(str(make))
        raise BadCall(f"make(x) makes a ptx.Call for each x of over; given {said}")
    return classes({str(each): make(each) for each in items(over)}, **options)


def _takes_one(make: object) -> bool:
    """Whether something can be called with one argument, as far as it says so."""
    if not callable(make):
        return False
    try:
        signature(make).bind(None)
    except TypeError:
        return False
    except ValueError:  # it does not say
        return True
    return True


def targets(
    given: Call | Sequence[Call], names: Iterable[str], **options: Any
) -> Classes:
    """Which targets compute a launch with the same bits.

    A target without one of its instructions is an error.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> text = ".version 8.0 .target sm_80 .address_size 64 .entry k(.param .u64 x)"
    >>> text += "{.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [x]; ld.global.f32 %f,"
    >>> text += "[%a]; add.f32 %f, %f, %f; st.global.f32 [%a], %f; ret; }"
    >>> kernel = ptx.parse(text).kernels["k"]
    >>> x = np.ones(4, np.float32)
    >>> ptx.targets(ptx.Call(kernel, 1, 1, [x]), ["sm_80", "sm_90a"]).members
    (('sm_80', 'sm_90a'),)
    """
    calls = program(given)
    return classes(
        {name: on_target(calls, check_target(name)) for name in items(names)},
        **options,
    )
