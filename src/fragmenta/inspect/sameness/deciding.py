"""The verdict: whether two programs leave the same bits.

``same``       for every input that takes the same path: the expressions are equal
``same here``  for these inputs and all that were tried; the expressions differ
``different``  for an input that was run: yours, or one that was found
``unknown``    an expression was not followed to its end, or an order is open

Never ``same`` without a proof, never ``different`` without an input that shows it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fragmenta.base.arrays.checks import check_flags, is_whole
from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.errors import BadCall, Error
from fragmenta.inspect.sameness.arriving import followed
from fragmenta.inspect.sameness.calls import Call, Program, one_launch, program
from fragmenta.inspect.sameness.following import (
    CallNote,
    Followed,
    HashedOutput,
    planes_for,
)
from fragmenta.inspect.sameness.naming import (
    Labels,
    Root,
    check_names,
    name_alike,
    name_roots,
    roots,
)
from fragmenta.inspect.sameness.parting import why_parted
from fragmenta.inspect.sameness.proving import MOST, prove
from fragmenta.inspect.sameness.tree import Tree, drawn_apart
from fragmenta.inspect.sameness.trees import tree
from fragmenta.inspect.sameness.witness import (
    Witness,
    given_inputs,
    separates,
    shared_shape,
    tries,
    witnessed,
)
from fragmenta.launch.grid import one_at_a_time
from fragmenta.values.expressions.code.hashing import Hash

TRIES = 20
SAME, HERE, DIFFERENT, UNKNOWN = "same", "same here", "different", "unknown"
_MEANS = {
    SAME: "for every input that takes the same path",
    HERE: "for these inputs and {tries} others; the expressions differ",
    DIFFERENT: "for other inputs than yours, which were found here",
    UNKNOWN: "not all expressions were followed",
}
_CONDITIONS = {
    "compared": "data is compared, and the comparison gives the same result",
    "address": "data is part of an address, which is the same",
    "infinite": "what is multiplied by a constant zero is finite",
    "scales": "block scales are as they are here",
    "met": "threads meet here; all orders of blocks that were tried are the same",
}
_OPEN = {
    "lost": "the expression ends: bits of data are used as something else",
    "atomic": "not deterministic: additions in the order of arrival",
    "order": "not deterministic: results depend on which threads come first here",
    "stuck": "in another order of blocks, it ends with an error: ",
    "race": "not deterministic: ",
    "unwatched": "races were not looked for: ",
}


@dataclass(frozen=True)
class Remark:
    """What a verdict depends on, or what stands against a proof, at one place."""

    kind: str
    why: str
    mnemonic: str
    where: str
    target: str

    def __str__(self) -> str:
        return f"{self.where}, {self.mnemonic}: {self.why}"


@dataclass(frozen=True, eq=False)
class Sameness:
    """Whether two programs leave the same bits; ``str()`` says why."""

    verdict: str
    """``same``, ``same here``, ``different`` or ``unknown``."""
    elements: int
    """Elements of results that were compared."""
    apart: int
    """Those whose expressions differ."""
    conditions: tuple[Remark, ...] = ()
    """What inputs must have in common with these: the path that is proved."""
    open: tuple[Remark, ...] = ()
    """Why there is no proof."""
    by_value: tuple[str, ...] = ()
    """Arrays that were taken as they are."""
    unlike: tuple[str, ...] = ()
    """Parameters whose arrays hold other numbers in the second program: its elements
    are other inputs."""
    witness: Witness | None = None
    tries: int = 0
    reason: str = ""
    """Where the expressions part."""
    cause: str = ""
    """Why they part, in one line."""
    proof: str = ""
    """What proves it for every input, where expressions do not."""
    followed: tuple[Followed, ...] = field(default=(), repr=False)
    trees: tuple[Tree, ...] = field(default=(), repr=False)
    """The expressions of the element where they part; none if all are equal."""

    def to_svg(self) -> str:
        """A picture of both trees where they part.

        >>> Sameness("same", 4, 0).to_svg()
        Traceback (most recent call last):
        fragmenta.errors.BadCall: nothing to draw: all expressions are equal
        """
        if not self.trees:
            raise BadCall("nothing to draw: all expressions are equal")
        one, two = self.trees
        programs = [each.program for each in self.followed]
        return drawn_apart(one, two, titles_of(*programs))

    def __bool__(self) -> bool:
        """Whether it is proved."""
        return self.verdict == SAME

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        witness = None if self.witness is None else self.witness.to_dict()
        if witness is not None:
            witness["yours"] = not self.tries
        return {
            "verdict": self.verdict,
            "elements": self.elements,
            "apart": self.apart,
            "conditions": [vars(each) for each in self.conditions],
            "open": [vars(each) for each in self.open],
            "by_value": list(self.by_value),
            "unlike": list(self.unlike),
            "witness": witness,
            "tries": self.tries,
            "reason": self.reason,
            "cause": self.cause,
            "proof": self.proof,
        }

    def __str__(self) -> str:
        means = _MEANS[self.verdict].format(tries=f"{self.tries:,}")
        if self.proof:
            means = "for every input"
        elif self.verdict == DIFFERENT and not self.tries:
            means = "for the inputs that you gave"
        elif self.verdict == HERE and self.by_value and not self.apart:
            means = f"for these numbers of {', '.join(self.by_value)}; see types="
        lines = [f"{self.verdict}: {means}"]
        count = f"{self.elements:,} element{'s' * (self.elements != 1)}"
        if self.apart:
            lines.append(f"  the expressions of {self.apart:,} of {count} differ")
        else:
            given = " for the numbers given" if self.verdict == DIFFERENT else ""
            lines.append(f"  the expressions of {count} are equal{given}")
        if self.proof:
            but = "but " if self.apart else ""
            lines.append(f"  {but}they leave the same bits: {self.proof}")
        if self.witness is not None:
            lines.append(f"  {self.witness}")
            lines += [f"  {line}" for line in self.witness.given(self.tries > 0)]
        if self.reason:
            lines += [f"  {line}" for line in self.reason.splitlines()]
        for title, remarks in (("if", self.conditions), ("open", self.open)):
            lines += [f"  {title}: {each}" for each in remarks]
        if self.by_value and not self.proof:
            lines.append(f"  taken as they are: {', '.join(self.by_value)}")
        if self.unlike:
            names = ", ".join(self.unlike)
            lines.append(f"  other numbers in the second: {names}; see labels=")
        return "\n".join(lines)


Pairs = list[tuple[HashedOutput, HashedOutput]]


def same(
    a: Call | Sequence[Call],
    b: Call | Sequence[Call],
    *,
    labels: Labels | tuple[Labels | None, Labels | None] | None = None,
    by_value: Collection[str] = (),
    types: Mapping[str, str] | None = None,
    outputs: Sequence[tuple[str, str]] | None = None,
    tries: int = TRIES,
    seed: int = 0,
    most: int = MOST,
    watch: bool = True,
    progress: Progress = ignore_progress,
) -> Sameness:
    """Whether two launches leave the same bits, for all inputs.

    Each of them is a :class:`Call`, or several that are made one after the other.
    Inputs have the same names where the launches share memory, or where arrays of the
    same parameter hold the same numbers; ``labels`` names them otherwise, for both or
    for each: ``({}, {"x": ("x", 64)})`` says that ``x`` of the second launch begins
    with element 64 of that of the first.  Parameters in ``by_value`` are taken as they
    are, and so are whole numbers, unless ``types`` says which floats they are:
    ``types={"x": "bf16"}``.  ``outputs`` are the names of the arrays to compare, in
    pairs.  If the expressions differ, ``tries`` inputs are tried.  If each thread works
    for itself, millions more are, with NaN, infinities, -0 and subnormals; and if an
    element has at most ``most`` inputs, all of them.  With ``watch=False``, races are
    not looked for.  All arrays are as they were afterwards.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> text = '''
    ... .version 8.0 .target sm_80 .address_size 64
    ... .entry sum(.param .u64 x, .param .u64 y) {
    ...     .reg .b64 %rd<3>; .reg .f32 %f<7>;
    ...     ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    ...     ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
    ...     add.f32 %f5, %f1, %f2; add.f32 %f6, OTHER, LAST; add.f32 %f5, %f5, %f6;
    ...     st.global.f32 [%rd2], %f5; ret;
    ... }'''
    >>> x, y = np.ones(4, np.float32), np.zeros(1, np.float32)
    >>> def call(other, last):
    ...     made = text.replace("OTHER", other).replace("LAST", last)
    ...     return ptx.Call(ptx.parse(made).kernels["sum"], 1, 1, [x, y])
    >>> print(same(call("%f3", "%f4"), call("%f4", "%f3")))
    same: for every input that takes the same path
      the expressions of 1 element are equal
    """
    if not is_whole(tries) or tries < 0:
        raise BadCall(f"tries is a whole number from 0; given {tries!r}")
    if not is_whole(most) or most < 0:
        raise BadCall(f"most is a whole number from 0; given {most!r}")
    check_flags(watch=watch)
    given = program(a), program(b)
    question = Question(*given, labels, by_value, types, outputs, watch)
    return question.answer(int(tries), seed, int(most) if tries else 0, progress)


@dataclass(eq=False)
class Question:
    """Two programs that are compared."""

    first: Program
    second: Program
    labels: Labels | tuple[Labels | None, Labels | None] | None = None
    by_value: Collection[str] = ()
    types: Mapping[str, str] | None = None
    outputs: Sequence[tuple[str, str]] | None = None
    watch: bool = True

    def answer(
        self,
        tries: int = TRIES,
        seed: int = 0,
        most: int = MOST,
        progress: Progress = ignore_progress,
    ) -> Sameness:
        """The verdict."""
        every = (*self.first, *self.second)
        check_names(every, self.by_value, "by_value")
        check_names(every, self.types or {}, "types")
        how = self.by_value, self.types
        memory = roots(self.first, *how), roots(self.second, *how)
        both = self.labels if isinstance(self.labels, tuple) else (self.labels,) * 2
        apart = isinstance(self.labels, tuple)
        for calls, names in zip((self.first, self.second), both, strict=True):
            check_names(calls if apart else every, names or {}, "labels")
        name_roots(memory[0], both[0])
        name_alike(memory[0], memory[1], both[1])
        planes = max(map(planes_for, (self.first, self.second), memory))
        one = followed(self.first, memory[0], planes, watch=self.watch)
        two = followed(self.second, memory[1], planes, watch=self.watch)
        asked = tries, seed, most, progress, self.by_value
        return decide(one, two, self.outputs, *asked)


def decide(
    one: Followed,
    two: Followed,
    outputs: Sequence[tuple[str, str]] | None = None,
    tries: int = TRIES,
    seed: int = 0,
    most: int = MOST,
    progress: Progress = ignore_progress,
    agreed: Collection[str] = (),
) -> Sameness:
    """The verdict on two programs that were followed with the same names.

    ``agreed`` are the arrays whose numbers the user wants to be taken as they are.
    """
    pairs = paired(one, two, outputs)
    apart, elements, bits_apart = 0, 0, False
    for x, y in pairs:
        wrong, total, wrong_bits = compared(x, y)
        apart, elements = apart + wrong, elements + total
        bits_apart |= wrong_bits
    conditions = _remarks((one, two), _CONDITIONS)
    against = _remarks((one, two), _OPEN)
    values = tuple(
        dict.fromkeys(r.label for f in (one, two) for r in f.roots if not r.bits)
    )
    labels = {each.label for each in one.roots}
    unlike = tuple(
        each.name for each in two.roots if each.bits and each.label not in labels
    )
    made = Sameness(
        UNKNOWN,
        elements,
        apart,
        conditions,
        against,
        values,
        unlike,
        followed=(one, two),
    )
    if not apart:
        # Arrays with one name may hold other numbers here: then they get the same.
        if bits_apart and not against and _contradicted(one, two, pairs):
            raise Error("equal expressions with different bits: please report this")
        if not against and one_launch(one.program, two.program):
            return _with(made, verdict=SAME, proof="they are one launch")
        taken = _taken(one, agreed) or _taken(two, agreed)
        equal = made if against else _with(made, verdict=HERE if taken else SAME)
        compares = any(each.kind == "compared" for each in conditions)
        if against or taken or compares:  # there may be more to know than a path
            return _settled(equal, pairs, most, seed, progress)
        return equal
    with one_at_a_time(bool(against)):
        found, tried = _search(one, two, pairs, tries, seed)
    verdict = UNKNOWN if against else HERE
    made = _with(made, verdict=verdict if found is None else DIFFERENT)
    made = _with(made, witness=found, tries=tried)
    if found is None:
        made = _settled(made, pairs, most, seed, progress)
    trees = parted(one, two, pairs, made.witness)
    reason, cause = why(trees)
    return _with(made, reason=reason, cause=cause, trees=trees)


def _taken(of: Followed, agreed: Collection[str]) -> bool:
    """Whether numbers that are read were taken as they are, and nobody asked for it."""
    written = {each.name for each in of.outputs}
    known = {*written, *agreed}
    whole = not any(each.bits for each in of.roots)
    return any(not each.bits and (whole or each.name not in known) for each in of.roots)


def _settled(
    made: Sameness, pairs: Pairs, most: int, seed: int, progress: Progress
) -> Sameness:
    """What is known for every input, if each thread works for itself."""
    if not most or any(each.kind != "lost" for each in made.open):
        return made
    one, two = made.followed
    found = prove(one, two, pairs, most, seed, progress)
    if found is None:
        return made
    made = _with(made, tries=made.tries + found.tried)
    if found.witness is not None:
        return _with(made, verdict=DIFFERENT, witness=found.witness)
    if found.proved:  # on all paths, with any numbers
        nothing: dict[str, object] = {"conditions": (), "open": (), "by_value": ()}
        return _with(made, verdict=SAME, proof=found.how, **nothing)
    return made


def parted(
    one: Followed, two: Followed, pairs: Pairs, found: Witness | None = None
) -> tuple[Tree, ...]:
    """Both expressions of an element that has two."""
    for x, y in pairs:
        index = _known(one, two, x, y) or first_apart(x, y)
        if found is not None and found.output == (x.name, y.name):
            index = _known(one, two, x, y) or found.element
        if index is not None:
            return tuple(_tree(*each, index) for each in ((one, x), (two, y)))
    return ()


def why(trees: tuple[Tree, ...]) -> tuple[str, str]:
    """Where two trees part, in words, and the cause in one line."""
    if not trees:
        return "", ""
    one, two = trees
    found = why_parted(one.root, two.root)
    head = f"the expressions of {one.name} part:"
    return "\n".join([head, found.cause, *found.sides]), found.cause


def titles_of(one: Program, two: Program) -> tuple[str, str]:
    """What two programs are called beside one another."""
    names = [each[-1].kernel.function.shown for each in (one, two)]
    on = [each[-1].target for each in (one, two)]
    if on[0] != on[1]:
        names = [f"{name} on {target}" for name, target in zip(names, on, strict=True)]
    if names[0] == names[1]:
        names = ["first", "second"]
    return names[0], names[1]


def _known(
    one: Followed, two: Followed, x: HashedOutput, y: HashedOutput
) -> tuple[int, ...] | None:
    """An element whose expressions differ, and for one of which there is a tree."""
    for name, index in [*one.trees, *two.trees]:
        inside = all(map(operator.lt, index, shared_shape(x.array, y.array)))
        if name == x.name == y.name and inside and _hash(x, index) != _hash(y, index):
            return index
    return None


def _hash(of: HashedOutput, index: tuple[int, ...]) -> Hash:
    place = int(np.ravel_multi_index(index, of.shape))
    return Hash(*(int(word[place]) for word in of.hashes))


def _tree(of: Followed, output: HashedOutput, index: tuple[int, ...]) -> Tree:
    """The expression of an element; made once for all that a program is compared to."""
    key = output.name, index
    if key not in of.trees:
        wanted = _hash(output, index)
        given = of.program, of.roots, output.source, output.name, index
        of.trees[key] = tree(*given, wanted)
    return of.trees[key]


def _with(of: Sameness, **changed: object) -> Sameness:
    return Sameness(**{**vars(of), **changed})


def paired(
    one: Followed, two: Followed, outputs: Sequence[tuple[str, str]] | None
) -> Pairs:
    """The outputs that are compared: of the same names, or in their order."""
    if outputs is not None:
        return [(_named(one, x), _named(two, y)) for x, y in outputs]
    names = [each.name for each in two.outputs]
    if [each.name for each in one.outputs] == names:
        pairs = list(zip(one.outputs, two.outputs, strict=True))
    elif all(each.name in names for each in one.outputs):
        pairs = [(each, _named(two, each.name)) for each in one.outputs]
    elif len(one.outputs) == len(two.outputs):
        pairs = list(zip(one.outputs, two.outputs, strict=True))
    else:
        raise BadCall(
            f"one writes to {_list(one)}, the other to {_list(two)}; say with outputs= "
            "which arrays to compare"
        )
    for x, y in pairs:
        if x.array.dtype != y.array.dtype or x.array.ndim != y.array.ndim:
            raise BadCall(
                f"{x.name} is {x.array.dtype}{list(x.shape)}, {y.name} is "
                f"{y.array.dtype}{list(y.shape)}: they cannot be compared"
            )
    if not pairs:
        raise BadCall("neither launch writes to an array")
    return pairs


def _list(of: Followed) -> str:
    return ", ".join(each.name for each in of.outputs) or "no array"


def _named(of: Followed, name: str) -> HashedOutput:
    for each in of.outputs:
        if each.name == name:
            return each
    raise BadCall(f"no array {name} was written; those are {_list(of)}")


def compared(x: HashedOutput, y: HashedOutput) -> tuple[int, int, bool]:
    """How many expressions differ, of how many; whether any bits do."""
    part = tuple(slice(n) for n in shared_shape(x.array, y.array))
    parts = [
        [word.reshape(each.shape)[part] for word in each.hashes] for each in (x, y)
    ]
    apart = (parts[0][0] != parts[1][0]) | (parts[0][1] != parts[1][1])
    raw = [
        np.ascontiguousarray(each.array[part]).view(f"u{each.array.itemsize}")
        for each in (x, y)
    ]
    return int(apart.sum()), int(apart.size), bool((raw[0] != raw[1]).any())


def first_apart(x: HashedOutput, y: HashedOutput) -> tuple[int, ...] | None:
    """The first element whose expressions differ."""
    part = tuple(slice(n) for n in shared_shape(x.array, y.array))
    u, v = (
        x.hashes[word].reshape(x.shape)[part] != y.hashes[word].reshape(y.shape)[part]
        for word in (0, 1)
    )
    places = np.argwhere(u | v)
    return tuple(map(int, places[0])) if len(places) else None


def _remarks(both: Sequence[Followed], words: dict[str, str]) -> tuple[Remark, ...]:
    found: dict[tuple[str, str, str, str], Remark] = {}
    for each in both:
        for place in each.noted(*words):
            made = _remark(place, words[place.kind])
            found.setdefault((made.kind, made.where, made.mnemonic, made.why), made)
    return tuple(found.values())


def _remark(place: CallNote, why: str) -> Remark:
    mnemonic = place.instruction.mnemonic
    return Remark(place.kind, why + place.why, mnemonic, place.where, place.call.target)


def _contradicted(one: Followed, two: Followed, pairs: Pairs) -> bool:
    """Whether bits differ if all arrays with one name hold the same numbers."""
    given = given_inputs([*one.roots, *two.roots])
    arrays = [((x.name, x.source), (y.name, y.source)) for x, y in pairs]
    both = (one.program, two.program), (one.roots, two.roots)
    return separates(given, *both, arrays) is not None


def _search(
    one: Followed, two: Followed, pairs: Pairs, count: int, seed: int
) -> tuple[Witness | None, int]:
    """An input for which bits differ: these inputs first, which were followed."""
    both: list[Root] = [*one.roots, *two.roots]
    seen = [((x.name, x.array), (y.name, y.array)) for x, y in pairs]
    made = witnessed(given_inputs(both), seen)
    if made is not None:
        return made, 0
    arrays = [((x.name, x.source), (y.name, y.source)) for x, y in pairs]
    programs, memory = (one.program, two.program), (one.roots, two.roots)
    tried = 0
    for given in tries(both, count, seed):
        tried += 1
        made = separates(given, programs, memory, arrays)
        if made is not None:
            return made, tried
    return None, tried
