"""What of a candidate never ran: what did not run was not judged.

Of the host's Python, every expression must have run in some call, and every condition
must have gone both ways.  Of kernels, every comparison must have been true for some
lane and false for another: so each way was gone.  What only refuses (``raise``,
``assert``) is left out.  So are comparisons of places and sizes, with which loops and
threads end, and those that a compiler adds.
"""

from __future__ import annotations

import ast
import dis
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field
from types import CodeType

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.frontends.api.kernels import Loaded
from fragmenta.frontends.judge.choosing import of_bits, unseen
from fragmenta.frontends.judge.exempt import Exempt, Place, is_kernel, place_of, within
from fragmenta.frontends.judge.marking import marked, never_changed
from fragmenta.frontends.judge.mattering import Mattering, asks_for_high_words
from fragmenta.frontends.judge.roots import (
    CLOCK,
    ENDS,
    MEMORY,
    PARAMETER,
    SMALL,
    Argument,
    Parameters,
    Roots,
    registers,
    where,
)
from fragmenta.frontends.judge.tracer import codes
from fragmenta.frontends.judge.unrolling import is_unrolled
from fragmenta.ptx import flow
from fragmenta.ptx.module import (
    INSTALLED,
    Function,
    Immediate,
    Instruction,
    Module,
    Not,
)
from fragmenta.values.counters.code.layout import VALUES
from fragmenta.values.counters.report import Counters

# ── Python ──────────────────────────────────────────────────────────────────


def not_run(
    text: str,
    pairs: Sequence[Sequence[int]],
    seen: Sequence[Sequence[object]] = (),
) -> list[str]:
    r"""What of a file never ran, or only went one way, in words.

    ``pairs`` are those of :class:`~fragmenta.frontends.judge.tracer.Tracer`, and
    ``seen`` is what :class:`~fragmenta.frontends.judge.marking.Seen` tells.

    >>> text = "def candidate(x):\n    return x\n"
    >>> not_run(text, [[-1, 0, 0, 2, 2, 4, 4, 6], []])
    ['line 1: candidate was never called']
    """
    tree, other = ast.parse(text), ast.parse(text)
    marks = marked(other)
    module = compile(other, "candidate.py", "exec", dont_inherit=True)
    ran: set[Place] = set()
    every: dict[Place, None] = {}
    one_way: dict[Place, bool] = {}
    for code, flat in zip(codes(module), pairs, strict=True):
        _look_through(code, flat, ran, every, one_way)
    left_out = Exempt(tree)
    tests = {
        place_of(n): place_of(n.test) for n in ast.walk(tree) if isinstance(n, _TESTS)
    }
    one_way = {tests.get(at, at): way for at, way in one_way.items()}
    dead = [at for at in every if at not in ran and not left_out.holds(at)]
    said = []
    for at, way in one_way.items():
        inside = any(within(at, each) for each in dead)
        if not inside and not left_out.holds(at) and not left_out.forgives(at):
            said.append(f"line {at[0]}: `{_shown(text, at)}` was always {way}")
    for at, why in never_changed(marks, seen):
        if not left_out.holds(at) and not left_out.counts_blocks(at):
            said.append(f"line {at[0]}: `{_shown(text, at)}` {why}")
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        whole = place_of(node)
        own = {at for at in every if within(at, whole) and at[0] > whole[0]}
        if own & {*dead} and not own & ran:
            said.append(f"line {node.lineno}: {node.name} was never called")
            dead = [at for at in dead if at not in own]
    said += [f"line {at[0]}: `{_shown(text, at)}` did not run" for at in _outer(dead)]
    return said


def ran_unread(text: str, pairs: Sequence[Sequence[int]]) -> list[str]:
    """Functions that ran as Python, though nothing in the file seems to call them."""
    tree, marked_tree = ast.parse(text), ast.parse(text)
    marked(marked_tree)
    module = compile(marked_tree, "candidate.py", "exec", dont_inherit=True)
    ran: set[Place] = set()
    for code, flat in zip(codes(module), pairs, strict=True):
        _look_through(code, flat, ran, {}, {})
    return [
        f"line {body[0]}: `{_shown(text, body)}` ran, though nothing seems to call it"
        for body in Exempt(tree).idle
        if any(within(at, body) for at in ran)
    ]


_TESTS = (ast.If, ast.While, ast.IfExp)


def _look_through(
    code: CodeType,
    flat: Sequence[int],
    ran: set[Place],
    every: dict[Place, None],
    one_way: dict[Place, bool],
) -> None:
    """Add what ran of one code object, and conditions that went one way."""
    after: dict[int, set[int]] = {}
    for before, at in zip(flat[::2], flat[1::2], strict=True):
        after.setdefault(before, set()).add(at)
    seen = {at for each in after.values() for at in each}
    for each in dis.get_instructions(code):
        place = _place(each)
        if place is None or each.opname in ("RESUME", "NOP", "CACHE", "COPY_FREE_VARS"):
            continue
        every[place] = None
        if each.offset not in seen:
            continue
        ran.add(place)
        if _is_condition(each) and len(after.get(each.offset, ())) == 1:
            jumped = each.argval in after[each.offset]
            one_way[place] = jumped == ("IF_TRUE" in each.opname)


def _place(instruction: dis.Instruction) -> Place | None:
    at = instruction.positions
    if at is None or None in (at.lineno, at.end_lineno, at.col_offset):
        return None
    return at.lineno, at.end_lineno, at.col_offset, at.end_col_offset  # type: ignore[return-value]


def _is_condition(instruction: dis.Instruction) -> bool:
    name = instruction.opname
    return "JUMP" in name and "IF" in name


def _outer(places: Iterable[Place]) -> list[Place]:
    """Those that are within no other, one for each line."""
    every = sorted(places, key=lambda at: (at[0], at[2], -at[1], -at[3]))
    kept: list[Place] = []
    for at in every:
        if not kept or not (within(at, kept[-1]) or at[0] == kept[-1][0]):
            kept.append(at)
    return kept


def _shown(text: str, at: Place) -> str:
    line = text.splitlines()[at[0] - 1].encode()
    stop = at[3] if at[0] == at[1] else len(line)
    said = line[at[2] : stop].decode(errors="replace").strip()
    return said if len(said) <= 60 else f"{said[:57]}..."


# ── kernels ─────────────────────────────────────────────────────────────────


_Key = tuple[str, int]


def _key(function: Function) -> _Key:
    """What all versions of a kernel have in common that a compiler made of one text.

    Triton compiles anew for sizes that 16 divides: each version sees some of the sizes
    only, and a size is no constant because one version had a single one.
    """
    return function.name, len(function.parameters)


@dataclass
class Kernels:
    """What launches have executed, of all kernels."""

    _counts: dict[tuple[str, str], Counter[tuple[int, str]]] = field(
        default_factory=dict
    )
    _modules: dict[str, Module] = field(default_factory=dict)
    _entries: dict[str, set[str]] = field(default_factory=dict)
    _arguments: dict[_Key, list[set[Argument]]] = field(default_factory=dict)
    """What each parameter of a kernel was in all launches."""
    _labels: dict[_Key, set[str]] = field(default_factory=dict)
    """The sizes that a kernel was launched with."""

    def add(
        self,
        digest: str,
        loaded: Loaded,
        name: str,
        counted: Counters,
        arguments: Sequence[Argument] = (),
        label: str = "",
    ) -> None:
        """A launch was carried out, with these arguments and sizes."""
        self._modules[digest] = loaded.changed(contract=True)
        key = _key(self._modules[digest].functions[name])
        row_of = self._arguments.setdefault(key, [])
        for at, each in enumerate(arguments):
            row_of += [set()] * (at + 1 - len(row_of))
            row_of[at] = row_of[at] | {each}
        self._labels.setdefault(key, set()).add(label)
        self._entries.setdefault(digest, set()).add(name)
        for found in counted.reached:
            row = self._counts.setdefault((digest, found.function), Counter())
            row[found.number, "lanes"] += found.lanes
            row[found.number, "on"] += found.on
            row[found.number, "off"] += found.off
            for value in VALUES:
                row[found.number, value] += getattr(found, value)

    @property
    def modules(self) -> list[Module]:
        """The modules of all kernels that were launched."""
        return [*self._modules.values()]

    def one_way(
        self, minor: bool = False, floats: bool = False, text: str = ""
    ) -> list[str]:
        """What never ran, only went one way, or chooses unseen, in words.

        ``minor``: instead, what compilers and libraries make, and tests for zero and
        infinity.  ``floats``: all inputs are float32, so that bits say nothing.
        ``text``: the candidate's; Triton may have made several versions of its kernels.
        """
        said: dict[str, None] = {}
        chooses = can_choose(text)
        for own, others in self._versions():
            both = {
                at
                for at, each in enumerate(own.function.instructions)
                if each.is_comparison
                and any(v.went_both(own, at, chooses) for v in others)
            }
            for each, small in _of_kernel(own.function, own.counts, own.roots, both):
                if small == minor:
                    said[each] = None
            if minor:
                continue
            told = [*unseen(own.function, own.roots), *own.told(others, chooses)]
            told += of_bits(own.function) if floats else ()
            said |= dict.fromkeys(told)
        return [*said]

    def _versions(self) -> Iterator[tuple[Mattering, Sequence[Mattering]]]:
        """What each function gave in all launches, with all versions of its kernel."""
        rows: dict[_Key, list[Mattering]] = {}
        for (digest, name), counts in self._counts.items():
            function = self._modules[digest].functions[name]
            roots = Roots(function, self._given(function))
            made = Mattering(function, counts, roots)
            rows.setdefault(_key(function), []).append(made)
        for alike in rows.values():
            for own in alike:
                yield own, alike

    def _given(self, function: Function) -> Parameters:
        """What is known of the parameters of a kernel."""
        rows = self._arguments.get(_key(function), [])
        labels = self._labels.get(_key(function), set())
        fixed, pointers, scalars = dict[str, int](), set[str](), set[str]()
        for parameter, seen in zip(function.parameters, rows, strict=False):
            if any(each.pointer for each in seen):
                pointers.add(parameter.name)
            elif all(each.given for each in seen):
                scalars.add(parameter.name)
            elif len({each.value for each in seen}) == 1 < len(labels):
                whole = parameter.type[0] in "sub"
                fixed[parameter.name] = next(iter(seen)).value if whole else 0
        return Parameters(fixed, frozenset(pointers), frozenset(scalars))

    def not_launched(self) -> list[str]:
        """Kernels of the modules that were never launched, in words."""
        said: dict[str, None] = {}
        names = {name for launched in self._entries.values() for name in launched}
        for module in self._modules.values():
            for function in module.functions.values():
                if function.kernel and function.name not in names:
                    said[f"the kernel {function.shown} was never launched"] = None
        return [*said]

    def not_compiled(self, text: str, sizes: bool) -> list[str]:
        """Ways of conditions in Triton's functions that no launch was compiled with.

        ``sizes``: of those that may ask for a size; else, of those that ask for a flag.
        """
        lines = {line for file, line in self._lines() if file.endswith("candidate.py")}
        said = []
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef) or not is_kernel(function):
                continue
            for node in ast.walk(function):
                test = getattr(node, "test", None)
                asks_size = test is not None and not _is_flag(test)
                for way in _ways(node) if asks_size == sizes else ():
                    if way and not any(_lines_of(each) & lines for each in way):
                        first = way[0].lineno
                        said.append(f"line {first}: no launch was compiled with it")
        return said

    def _lines(self) -> set[tuple[str, int]]:
        """The lines of sources that kernels were compiled from: file and line."""
        found = set()
        for module in self._modules.values():
            for function in module.functions.values():
                for each in function.instructions:
                    if each.source is not None:
                        frames = each.source.frames
                        found |= {(frame.file, frame.line) for frame in frames}
        return found


def can_choose(text: str) -> bool:
    r"""Whether kernels of Triton can choose when they are compiled; of others, always.

    >>> head = "@triton.jit\ndef kernel(x, FLAG: tl.constexpr):\n    "
    >>> can_choose(head + "tl.store(x, 1)"), can_choose(head + "if FLAG: pass")
    (False, True)
    """
    tree = ast.parse(text)
    kernels = [e for e in ast.walk(tree) if isinstance(e, ast.FunctionDef)]
    made = [each for one in filter(is_kernel, kernels) for each in ast.walk(one)]
    return not made or any(
        isinstance(each, ast.If | ast.IfExp)
        or getattr(each, "attr", getattr(each, "id", "")) == "static_range"
        for each in made
    )


def _is_flag(test: ast.expr) -> bool:
    """Whether a condition of Triton asks for a flag, a type or a small number.

    >>> [_is_flag(ast.parse(each).body[0].value) for each in ("a", "a == 2048")]
    [True, False]
    """
    if isinstance(test, ast.BoolOp):
        return all(map(_is_flag, test.values))
    if isinstance(test, ast.UnaryOp):
        return _is_flag(test.operand)
    if isinstance(test, ast.Compare):
        if all(isinstance(each, ast.Is | ast.IsNot) for each in test.ops):
            return True
        return all(map(_is_flag, [test.left, *test.comparators])) and any(
            isinstance(each, ast.Constant | ast.Attribute)
            for each in (test.left, *test.comparators)
        )
    if isinstance(test, ast.Constant):
        return not isinstance(test.value, int | float) or abs(test.value) < SMALL
    if isinstance(test, ast.Call):
        return not test.args or getattr(test.func, "attr", "") == "constexpr"
    return isinstance(test, ast.Name | ast.Attribute)


def _ways(node: ast.AST) -> list[list[ast.stmt]]:
    """The ways that a statement of Triton can go."""
    if isinstance(node, ast.If):
        return [node.body, node.orelse]
    if isinstance(node, ast.FunctionDef):
        return [node.body]
    return []


def _lines_of(node: ast.stmt) -> set[int]:
    return {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _of_kernel(
    function: Function,
    counts: Counter[tuple[int, str]],
    roots: Roots,
    both: Collection[int] = (),
) -> Iterator[tuple[str, bool]]:
    """The conditions of one function that only went one way, and which are minor.

    What is behind a condition that never went there did not run.  Another version of
    the kernel went both ways at comparisons of ``both``.
    """
    possible = _possible(function)
    minor = _Minor(function, roots, counts, possible, both)
    told: dict[str, bool] = {}
    for index, each in enumerate(function.instructions):
        on, off = counts[index, "on"], counts[index, "off"]
        if not on + off or (on and off):
            continue
        way, place = "true" if on else "false", where(function, each)
        small = minor.is_library(each)
        asks = each.is_comparison
        if asks and (roots.asks_for_end(each) or not roots.is_bound(each)):
            said = f"the condition of `{each.mnemonic}` was always {way}"
            small = small or minor.is_so(index)
        elif each.opcode == "bra" and not roots.is_bounded(each):
            goals = [index + 1] if on else flow.destinations(function, each)
            if place in told or not {*goals} & possible:
                continue
            said = f"the condition of `{each.mnemonic}` was always {way}"
            small = small or minor.is_guard(each)
        elif _is_guarded(each) and off and not roots.is_bounded(each):
            said = f"`{each.mnemonic}` did not run"
            small = small or minor.is_guard(each)
        else:
            continue
        told[place] = small
        yield f"{place}: {said}", small


FURTHEST = 1 << 14
"""Numbers below this one are strides and steps of loops."""


class _Minor:
    """Conditions that say little if they go one way."""

    def __init__(
        self,
        function: Function,
        roots: Roots,
        counts: Counter[tuple[int, str]],
        possible: set[int],
        elsewhere: Collection[int],
    ) -> None:
        self._function, self._roots, self._counts = function, roots, counts
        self._elsewhere = elsewhere
        self._refusing = self._only_refusing(possible)
        self._writes: dict[int, list[Instruction]] = {}
        for each in function.instructions:
            for register in registers(each.operands[0]) if each.operands else ():
                self._writes.setdefault(register, []).append(each)
        self._loops = {
            where(function, each)
            for at, each in enumerate(function.instructions)
            if each.opcode == "bra"
            and any(to <= at for to in flow.destinations(function, each))
        }
        self._both = {
            self._form(at)
            for at, each in enumerate(function.instructions)
            if each.is_comparison and counts[at, "on"] and counts[at, "off"]
        }
        self._minor = {
            register
            for at, each in enumerate(function.instructions)
            if each.is_comparison and self.is_so(at)
            for register in registers(each.operands[0])
        }

    def is_library(self, instruction: Instruction) -> bool:
        """Whether an instruction is of a header or of a library of CUDA."""
        if self._function.name.startswith(("__internal_", "__nv_")):
            return True
        if self._roots.is_inlined(instruction):
            return True
        source = instruction.source
        return source is not None and INSTALLED.search(source.file) is not None

    def is_so(self, at: int) -> bool:
        """Whether a comparison is one of these."""
        setp = self._function.instructions[at]
        given = [each for each in setp.operands if isinstance(each, Immediate)]
        if setp.qualifiers[-1][0] != "f" and self._of_loop(setp, given):
            return True
        seen = at in self._elsewhere or self._form(at) in self._both
        kept = self._keeps_from_infinity(at) or self._keeps_zero(setp)
        return seen or kept or self._is_refusal(setp) or self._is_of_division(setp)

    def is_guard(self, guarded: Instruction) -> bool:
        """Whether the guard of an instruction comes from such a comparison."""
        guard = guarded.guard
        register = guard.of if isinstance(guard, Not) else guard
        return bool(registers(register) & self._minor)

    def _of_loop(self, setp: Instruction, given: Sequence[Immediate]) -> bool:
        """Whether a compiler asks how many steps a loop has."""
        values = [each.value for each in given if isinstance(each.value, int)]
        sizes = self._roots.kinds_of(setp)
        return (
            self._roots.largest_of(setp) < FURTHEST
            and all(is_unrolled(self._function, abs(each)) for each in values)
            and PARAMETER in sizes
            and not sizes & {MEMORY, CLOCK}
            and where(self._function, setp) in self._loops
        )

    def _is_of_division(self, setp: Instruction) -> bool:
        """Whether a compiler asks if places are too large for a division of 32 bits."""
        made = [m for n in registers(setp.operands[1]) for m in self._writes.get(n, ())]
        high = bool(made) and all(map(asks_for_high_words, made))
        return high and MEMORY not in self._roots.kinds_of(setp)

    def _form(self, at: int) -> tuple[object, ...]:
        """What copies of one comparison of the source have in common."""
        setp = self._function.instructions[at]
        given = [e.value for e in setp.operands if isinstance(e, Immediate)]
        kinds = frozenset(self._roots.kinds_of(setp))
        own = frozenset(self._constants(setp)) if setp.qualifiers[-1][0] == "f" else ""
        return where(self._function, setp), setp.mnemonic, repr(given), kinds, own

    def _constants(self, of: Instruction, depth: int = 4) -> set[int]:
        """The bits of float constants that operands were computed with."""
        found = {each.bits for o in of.operands[1:] for each in self._fixed(o)}
        for number in {n for each in of.operands[1:] for n in registers(each)}:
            for made in self._writes.get(number, ()) if depth else ():
                if not made.is_load and made.qualifiers[-1:] == ("f32",):
                    found |= self._constants(made, depth - 1)
        return found - {*ENDS}

    def _fixed(self, operand: object) -> list[Immediate]:
        """A constant, also if a register has it."""
        made = [m for n in registers(operand) for m in self._writes.get(n, ())]
        moved = len(made) == 1 and made[0].is_move
        given = made[0].operands[1] if moved else operand
        return [given] if isinstance(given, Immediate) else []

    def _keeps_zero(self, setp: Instruction) -> bool:
        """Whether a comparison with zero only chooses infinity, or a negative zero.

        Logarithms of CUDA do so, also if their argument cannot be zero.
        """
        given = [e.bits for o in setp.operands[1:] for e in self._fixed(o)]
        if not {*given} & {*ENDS[:2]}:
            return False
        own = registers(setp.operands[0])
        return all(
            each.opcode == "selp"
            and {e.bits for e in self._fixed(each.operands[1])} & {*ENDS[1:]}
            for each in self._function.instructions
            if any(registers(o) & own for o in (*each.operands[1:], each.guard))
        )

    def _keeps_from_infinity(self, at: int) -> bool:
        """Whether a comparison that was never true only skips infinity or NaN.

        Functions of CUDA ask so whether an argument is outside of their range.  Had it
        been true, the result would have been the ordinary one, which is looked at.
        """
        made = self._function.instructions
        own = registers(made[at].operands[0])
        users = [n for n, each in enumerate(made) if registers(each.guard) & own]
        read = any(registers(o) & own for e in made for o in e.operands[1:])
        if self._counts[at, "on"] or len(users) != 1 or read:
            return False
        goals = flow.destinations(self._function, made[users[0]])
        if (
            len(goals) != 1
            or not users[0] < goals[0]
            or isinstance(made[users[0]].guard, Not)
        ):
            return False
        return all(map(self._is_infinite, made[users[0] + 1 : goals[0]]))

    def _is_infinite(self, each: Instruction) -> bool:
        """Whether an instruction can only give infinity or NaN."""
        if each.is_move:
            return [one.bits for one in self._fixed(each.operands[1])] == [ENDS[2]]
        if not each.is_fused or each.qualifiers[-1] != "f32":
            return False
        given = [self._fixed(operand) for operand in each.operands[2:]]
        return all([one.bits for one in own] == [ENDS[2]] for own in given)

    def _is_refusal(self, setp: Instruction) -> bool:
        return bool(registers(setp.operands[0]) & self._refusing)

    def _only_refusing(self, possible: set[int]) -> set[int]:
        """Predicates that only branches to a trap ask for."""
        leads: dict[int, set[bool]] = {}
        for at, each in enumerate(self._function.instructions):
            guard = each.guard
            register = guard.of if isinstance(guard, Not) else guard
            goals = flow.destinations(self._function, each)
            refuses = each.opcode == "bra" and (
                not {*goals} & possible or at + 1 not in possible
            )
            for number in registers(register):
                leads.setdefault(number, set()).add(refuses)
        for each in reversed(self._function.instructions):
            if each.opcode in ("and", "or", "not") and "pred" in each.qualifiers:
                ways = {
                    w for n in registers(each.operands[0]) for w in leads.get(n, ())
                }
                for number in {n for o in each.operands[1:] for n in registers(o)}:
                    leads.setdefault(number, set()).update(ways)
        return {number for number, ways in leads.items() if ways == {True}}


def _is_guarded(instruction: Instruction) -> bool:
    """Whether a guard may keep it from running; a branch is seen by its goal."""
    return instruction.guard is not None and instruction.opcode not in flow.BRANCHES


def _possible(function: Function) -> set[int]:
    """The instructions that lead to the end of a function, not to a trap."""
    after = flow.successors(function)
    found: set[int] = set()
    left = [0] if function.instructions else []
    while left:
        at = left.pop()
        if at not in found and at < len(after):
            found.add(at)
            left += after[at]
    return found - _refusing(function, after)


def _refusing(function: Function, after: Sequence[Sequence[int]]) -> set[int]:
    """The instructions from which all ways lead to a trap or a failed assertion."""
    bad = {at for at, each in enumerate(function.instructions) if _stops(each)}
    changed = bool(bad)
    while changed:
        changed = False
        for at in range(len(after) - 1, -1, -1):
            if at not in bad and after[at] and all(to in bad for to in after[at]):
                bad.add(at)
                changed = True
    return bad


def _stops(instruction: Instruction) -> bool:
    if instruction.opcode == "trap":
        return True
    named = [getattr(each, "name", "") for each in instruction.operands]
    return instruction.opcode == "call" and "__assertfail" in named
