"""Examines a candidate: calls it with all cases, and says what was found."""

from __future__ import annotations

import ast
import socket
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import cast

import numpy as np

from fragmenta.api.kernels import Loaded, parse
from fragmenta.arrays.checks import Array
from fragmenta.arrays.lazy_dataclass import dataclass
from fragmenta.errors import Error, KernelError, LimitReached
from fragmenta.judge.comparing import Call, Case, compared, diagnose
from fragmenta.judge.cost import Cost
from fragmenta.judge.findings import KINDS, Finding
from fragmenta.judge.held import elements, leaves
from fragmenta.judge.messages import Gone, receive, send
from fragmenta.judge.origins import Origins
from fragmenta.judge.settings import Settings
from fragmenta.judge.values import PLAIN
from fragmenta.judge.wire import Json, Tree, arguments_of
from fragmenta.launch.limits import Limits
from fragmenta.launch.options import Watch
from fragmenta.launch.result import Result
from fragmenta.pool.answers import error_json, result_json
from fragmenta.pool.packing import mark_empty, unpack
from fragmenta.progress import clock
from fragmenta.ptx import rules
from fragmenta.ptx.languages import Words
from fragmenta.ptx.rules import ERROR
from fragmenta.units.schedule import EAGER, Given

SHOWN = 3
"""Hazards of one kernel that are listed."""
RESERVE = 0.5
"""Seconds before the end in which no call is begun."""
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
NOT_RUN = "NotRun"
"""The error of what cannot be run here."""
OTHER_ORDERS: tuple[Given, ...] = (EAGER, "lazy", 3)


@dataclass
class Answer:
    """What a candidate answered to one call."""

    case: Case
    outputs: Tree
    origins: Origins
    about: dict[str, Tree]
    cost: Cost


class Stopped(Exception):
    """Nothing more can be asked."""


@dataclass
class Line:
    """The way to the process of a candidate."""

    socket: socket.socket
    process: int


@dataclass
class Examination:
    """All that is known about one candidate."""

    text: str
    settings: Settings
    folder: Path
    until: float
    findings: list[Finding] = field(default_factory=list)
    confined: list[str] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    tried: list[str] = field(default_factory=list)
    _modules: dict[str, Loaded] = field(default_factory=dict)
    _schedule: Sequence[Given] = (EAGER,)
    _watched: bool = True
    _hazards: set[tuple[str, str, int]] = field(default_factory=set)

    def found(self, name: str, evidence: str, case: str = "") -> None:
        """Keep a finding, once for each name."""
        if name in KINDS and name not in [each.name for each in self.findings]:
            self.findings.append(Finding(name, evidence, case))

    def run(self, lines: Sequence[Line], cases: Sequence[Case]) -> None:
        """Call the candidate with all cases, in one process and in a fresh one."""
        calls: list[Call] = []
        answers: list[Answer] = []
        clocks = clocks_in(self.text)
        if clocks:
            self.found("uses-the-clock", f"its source has {clocks[0]}")
        if asks_for_main(self.text):
            self.found("looks-around", "its source asks for the module __main__")
        try:
            self._load(lines[0], cases[0])
            for case in cases:
                answer = self._try(lines[0], case, calls)
                if answer is not None:
                    answers.append(answer)
                if len(answers) == 2:
                    self._again(lines[0], answers[0])
            if answers:
                self._fresh(lines[1], _doubtful(calls, answers))
        except Stopped:
            pass
        except (Gone, ValueError) as why:
            said = "it ended without an answer" if isinstance(why, Gone) else str(why)
            self.found("crashed", said)
        except TimeoutError:
            self.found("out-of-time", f"after {len(self.tried)} of {len(cases)} cases")
        for each in diagnose(calls):
            self.findings.append(each)
        if answers:
            self._suspect(answers, cases[0])

    # ── calls ───────────────────────────────────────────────────────────────

    def _load(self, line: Line, case: Case) -> None:
        answer = self._ask(
            line,
            {
                "do": "load",
                "text": self.text,
                "folder": str(self.folder / str(line.process)),
                "convention": case["convention"],
                "target": self.settings.target,
                "seconds": max(1.0, self.until - clock.now()),
                "memory": self.settings.memory,
            },
            None,
        )
        if "error" in answer:
            name = "not-run" if answer["error"] == NOT_RUN else "not-loaded"
            self.found(name, str(answer["text"]))
            raise Stopped
        self.confined = [str(each) for each in cast("list[Tree]", answer["confined"])]

    def _try(self, line: Line, case: Case, calls: list[Call]) -> Answer | None:
        """Call it with a case, and compare; None if it fails."""
        if clock.now() > self.until - RESERVE:
            raise TimeoutError
        self._watched = case["values"] == PLAIN
        answer = self._call(line, case)
        self.tried.append(str(case["name"]))
        if answer is None:
            if len(self.tried) == 1:  # nothing else can be expected of it
                raise Stopped
            return None
        found = compared(case, answer.outputs)
        if isinstance(found, Finding):
            self.findings.append(found)
            return None
        calls.append(Call(case, found))
        self._note(answer)
        return answer

    def _call(self, line: Line, case: Case) -> Answer | None:
        origins = Origins(case["inputs"], case["state"])
        cost = Cost()
        order = {
            "do": "call",
            "model": case["set"],
            "seed": 0,
            "init": case["init"],
            "state": case["state"],
            "inputs": case["inputs"],
            "layout": case["layout"],
        }
        answer = self._ask(line, order, (origins, cost, case))
        if "error" in answer:
            self._failed(answer, case)
            self._patches(answer, str(case["name"]))
            return None
        return Answer(case, answer["outputs"], origins, answer, cost)

    def _failed(self, answer: dict[str, Tree], case: Case) -> None:
        """A call raised an exception."""
        name = {"memory": "out-of-memory", NOT_RUN: "not-run"}.get(
            str(answer["error"]), "failed"
        )
        if self.tried and name == "failed":
            if case["layout"] != "contiguous":
                name = "stride-refused"
            elif case["set"] != "main":
                name = "shape-refused"
        if any(each.name == "fault" for each in self.findings):
            return  # that is why
        self.found(name, str(answer["text"]), str(case["name"]))

    def _again(self, line: Line, first: Answer) -> None:
        """Call it again with the first inputs: the bits are the same, in any order."""
        self._schedule = OTHER_ORDERS if self.settings.schedules else (EAGER,)
        answer = self._call(line, first.case)
        self._schedule = (EAGER,)
        if answer is not None and not _same(answer.outputs, first.outputs):
            self.found(
                "not-repeatable",
                f"{_difference(answer.outputs, first.outputs)} after another call",
                str(first.case["name"]),
            )

    def _fresh(self, line: Line, second: Answer) -> None:
        """Call it in a process of its own with the inputs of a later call."""
        self._load(line, second.case)
        self._watched = False
        answer = self._call(line, second.case)
        if answer is not None and not _same(answer.outputs, second.outputs):
            self.found(
                "state-kept",
                f"{_difference(answer.outputs, second.outputs)} as the first call of a "
                "process",
                str(second.case["name"]),
            )

    def _note(self, answer: Answer) -> None:
        """What a call did beside its work."""
        name, about = str(answer.case["name"]), answer.about
        if about["late"]:
            self.found(
                "late-write", "a thread writes after the call has returned", name
            )
        if about["reused"]:
            said = "a later call overwrites an output of an earlier one"
            self.found("late-write", said, name)
        changed = {*cast("list[int]", about["changed"]), *answer.origins.inputs_changed}
        if changed:
            self.found("input-changed", f"input {min(changed)} was changed", name)
        if about["aliased"]:
            which = cast("list[int]", about["aliased"])[0]
            said = f"output {which} shares memory with an input"
            self.found("input-aliased", said, name)
        if about["streams"]:
            said = "the current stream does not wait for another that has launches"
            self.found("side-stream", said, name)
        self._patches(about, name)

    def _patches(self, about: dict[str, Tree], name: str) -> None:
        patched = cast("list[Tree]", about["patched"])
        if patched:
            self.found("patched", f"{', '.join(map(str, patched[:3]))} changed", name)

    # ── messages of the candidate's process ─────────────────────────────────

    def _ask(
        self, line: Line, order: Tree, call: tuple[Origins, Cost, Case] | None
    ) -> dict[str, Tree]:
        """Give an order; carry out launches until it is answered."""
        send(line.socket, order)
        while True:
            left = self.until - clock.now()
            if left <= 0:
                raise TimeoutError
            line.socket.settimeout(left)
            heard = receive(line.socket)
            if not isinstance(heard, dict):
                raise ValueError("it gave no answer that can be read")
            if heard.get("do") == "saw":
                self.found(str(heard["name"]), str(heard["evidence"])[:200])
            elif heard.get("do") == "launch":
                send(line.socket, self._launch(heard, call))
            else:
                return heard

    def _launch(
        self, asked: dict[str, Tree], call: tuple[Origins, Cost, Case] | None
    ) -> Tree:
        """Carry out a launch; what the candidate gets back."""
        try:
            packed = arguments_of(cast("Json", asked["arguments"]))
            memory = [_aligned(each) for each in cast("list[Array]", asked["memory"])]
            if [each.size for each in memory] != packed.sizes:
                raise ValueError("the memory of a launch has another size")
            before = [each.copy() for each in memory]
            result = self._carry_out(asked, packed, memory)
        except KernelError as error:
            self._fault(error, call)
            return {"error": error_json(error)}
        except Error as error:
            return {"error": error_json(error)}
        if call is not None:
            origins, cost, case = call
            origins.add(before, memory)
            cost.add(str(asked["name"]), result.counters)
            self._report(str(asked["name"]), result, str(case["name"]))
        if not result.complete:
            stopped = KernelErrors.stopped(str(asked["name"]))
            return {"error": error_json(stopped)}
        return {
            "kept": dict(self._modules[str(asked["digest"])].kept),
            "memory": [memory[each] for each in packed.returned],
            "result": result_json(result) if not self._watched else _short(result),
        }

    def _carry_out(
        self, asked: dict[str, Tree], packed: object, memory: list[Array]
    ) -> Result:
        from fragmenta.pool.packing import Packed

        assert isinstance(packed, Packed)
        digest = str(asked["digest"])
        if digest not in self._modules:
            self._modules[digest] = parse(str(asked["text"]), str(asked["file"]))
        loaded = self._modules[digest]
        loaded.renew(cast("dict[str, bytes]", asked["kept"]))
        from dataclasses import replace

        names = tuple(str(each) for each in cast("list[Tree]", asked["names"]))
        kernel = replace(
            loaded.kernels[str(asked["name"])],
            names=names,
            language=Words(*map(str, cast("list[Tree]", asked["language"]))),
        )
        arguments = unpack(packed, memory)
        marked = mark_empty(packed, memory)
        options = cast("dict[str, object]", asked["options"])
        result = kernel.launch(
            asked["grid"],
            asked["block"],
            arguments,
            watch=Watch("report") if self._watched else False,
            schedule=list(self._schedule),
            counters=self._watched,
            limits=Limits(
                seconds=max(0.1, self.until - clock.now()),
                memory=self.settings.memory,
            ),
            **options,  # type: ignore[arg-type]
        )
        del marked
        return result

    def _report(self, kernel: str, result: Result, case: str) -> None:
        """The hazards of a launch."""
        for each in result.problems:
            key = (kernel, each.rule, each.line)
            if each.severity != ERROR or key in self._hazards:
                continue
            self._hazards.add(key)
            if each.rule == rules.SCHEDULE.name:
                self.found("schedule", each.message, case)
                continue
            faults = each.rule == rules.FAULT.name or not result.complete
            name = "fault" if faults else "hazard"
            where = f"{each.source.words}: " if each.source else ""
            said = f"{kernel}, {where}{each.rule}: {each.message}"
            if sum(f.name == name for f in self.findings) < SHOWN:
                self.findings.append(Finding(name, said, case))

    def _fault(
        self, error: KernelError, call: tuple[Origins, Cost, Case] | None
    ) -> None:
        case = str(call[2]["name"]) if call else ""
        if isinstance(error, LimitReached):
            self.found("out-of-time", str(error).splitlines()[0], case)
        else:
            self.found("fault", f"{error.kind}: {error}", case)

    # ── suspicions ──────────────────────────────────────────────────────────

    def _suspect(self, answers: list[Answer], first: Case) -> None:
        """What a candidate did not do, though the problem needs it."""
        answer = answers[0]
        # Others of the same sizes are looked at, too: the first call may try variants.
        alike = [
            each
            for each in answers
            if each.case["set"] == answer.case["set"] and each.cost.metrics
        ]
        cost = min(
            (each.cost for each in alike),
            key=lambda each: (each.all_products, each.read),
            default=answer.cost,
        )
        self.cost = cost
        name = str(answer.case["name"])
        if not answer.cost.launches:
            self.found("no-launch", "no kernel was launched", name)
        self._library_work(answer)
        self._host_work(answers)
        matter, products = cast("int", first["matter"]), cast("int", first["products"])
        if cost.metrics and cost.read < matter // 2:
            said = (
                f"kernels load {cost.read:,} bytes; the results depend on "
                f"{matter:,} bytes of the inputs"
            )
            self.found("reads-too-little", said, name)
        if cost.metrics and cost.all_products < FEWER * products:
            said = (
                f"kernels multiply {cost.all_products:,} times; the problem "
                f"has {products:,} products"
            )
            self.found("too-few-products", said, name)

    def _library_work(self, answer: Answer) -> None:
        operators = cast("dict[str, int]", answer.about["operators"])
        elements_in = sum(elements(each).size for each in leaves(answer.case["inputs"]))
        most = {
            name: count
            for name, count in operators.items()
            if name in WORK or count > LIBRARY * elements_in
        }
        if most:
            name = max(most, key=lambda each: most[each])
            said = f"{name} of the library reads {most[name]:,} elements"
            self.found("library-work", said, str(answer.case["name"]))

    def _host_work(self, answers: list[Answer]) -> None:
        """Outputs, or memory that kernels read, which the host made of the inputs."""
        answer = answers[0]
        name, places = (
            str(answer.case["name"]),
            cast("list[Tree]", answer.about["places"]),
        )
        operators = cast("dict[str, int]", answer.about["operators"])
        inputs = sum(elements(e).size for e in leaves(answer.case["inputs"]))
        for number, leaf in enumerate(leaves(answer.outputs)):
            output = elements(leaf)
            place = places[number] if number < len(places) else None
            small = output.size <= max(1, inputs // 64) and operators
            if not answer.origins.wrote(place, output) and not small:
                if operators:
                    continue  # operators of the library, which were judged above
                if _copied(output, answer):
                    continue
                said = f"no launch left the bytes of output {number}"
                self.found("host-work", said, name)
        others = [o.origins.foreign for o in answers[1:2]]
        for key, digest in answer.origins.foreign.items():
            if others and others[0].get(key, "") != digest:
                said = (
                    f"launch {key[0]} gets memory that depends on the inputs and was "
                    "not made by a launch"
                )
                self.found("host-work", said, name)


class KernelErrors:
    """Errors that a candidate gets for its launches."""

    @staticmethod
    def stopped(kernel: str) -> KernelError:
        """The error for a launch that was stopped."""
        from fragmenta.errors import KernelFault

        return KernelFault(f"the launch of {kernel} was stopped", "fault")


_CLOCKS = frozenset(
    [
        *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic"),
        *("monotonic_ns", "process_time", "thread_time", "sleep"),
    ]
)


def clocks_in(text: str) -> list[str]:
    r"""The functions of a clock that a source asks for.

    >>> clocks_in("import time as t\nfrom time import sleep\nt.perf_counter()")
    ['time.perf_counter', 'time.sleep']
    """
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "time"
    }
    found = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
    }
    found |= {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }
    return sorted(f"time.{each}" for each in found & _CLOCKS)


def asks_for_main(text: str) -> bool:
    r"""Whether a source asks for the module that was started, which is the judge's.

    >>> asks_for_main("import __main__ as m"), asks_for_main("sys.modules['__main__']")
    (True, True)
    >>> asks_for_main("if __name__ == '__main__':\n    pass")
    False
    """
    main = "__main__"
    try:
        nodes = [*ast.walk(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    compared = {
        id(each)
        for node in nodes
        if isinstance(node, ast.Compare)
        for each in (node.left, *node.comparators)
    }
    return any(
        (isinstance(node, ast.Import) and any(n.name == main for n in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == main)
        or (
            isinstance(node, ast.Constant)
            and node.value == main
            and id(node) not in compared
        )
        for node in nodes
    )


def _doubtful(calls: list[Call], answers: list[Answer]) -> Answer:
    """The call that is made again in a fresh process: the first that is wrong.

    If it is right there, the candidate keeps something.  If none is wrong, or only the
    very first, it is the second.
    """
    wrong = [call.case for call in calls if call.wrong]
    for each in answers[1:]:
        if any(each.case is case for case in wrong):
            return each
    return answers[min(1, len(answers) - 1)]


def _aligned(data: Array) -> Array:
    from fragmenta.simt.compiled import aligned

    made = aligned(data.size)
    made[:] = data.view(np.uint8)
    return made


def _short(result: Result) -> dict[str, object]:
    """A result without its problems: the candidate does not need to know them."""
    made = result_json(result)
    made["hazards"] = made["problems"] = []
    return made


def _same(one: Tree, other: Tree) -> bool:
    a, b = leaves(one), leaves(other)
    return len(a) == len(b) and all(
        elements(x).tobytes() == elements(y).tobytes()
        for x, y in zip(a, b, strict=True)
    )


def _difference(one: Tree, other: Tree) -> str:
    """Where two results differ first."""
    for number, pair in enumerate(zip(leaves(one), leaves(other), strict=False)):
        a, b = (elements(each) for each in pair)
        if a.shape != b.shape:
            return f"output {number} has another shape"
        apart = np.argwhere(
            a.reshape(-1).view(f"V{a.itemsize}") != b.reshape(-1).view(f"V{b.itemsize}")
        )
        if len(apart):
            at = [int(i) for i in np.unravel_index(int(apart[0][0]), a.shape)]
            x, y = a[tuple(at)], b[tuple(at)]
            return f"output {number}{at} is {float(x):.9g}, not {float(y):.9g},"
    return "the number of outputs differs"


def _copied(output: Array, answer: Answer) -> bool:
    """Whether an output has only values that launches left, moved or in other types."""
    if not answer.origins.launches:
        return False
    return not answer.origins.is_strange(output)
