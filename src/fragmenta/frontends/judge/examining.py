"""Examines a candidate: calls it with all cases, and says what was found."""

from __future__ import annotations

import ast
import socket
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import clock
from fragmenta.engine.simt.empties import count_as_empty, poison
from fragmenta.engine.units.schedule import EAGER, Given
from fragmenta.errors import Error, KernelError, LimitReached
from fragmenta.frontends.api.kernels import Loaded, parse
from fragmenta.frontends.judge.choosing import only_counted, strange, written_and_loaded
from fragmenta.frontends.judge.comparing import Case, CompletedCall, compared, diagnose
from fragmenta.frontends.judge.constants import constants
from fragmenta.frontends.judge.cost import Cost
from fragmenta.frontends.judge.exempt import unused
from fragmenta.frontends.judge.findings import KINDS, Finding
from fragmenta.frontends.judge.following import Mask, ProcessMemory, same_launches
from fragmenta.frontends.judge.held import PLAIN as CONTIGUOUS
from fragmenta.frontends.judge.held import elements, leaves
from fragmenta.frontends.judge.messages import Gone, receive, send
from fragmenta.frontends.judge.proving import CandidateAnswer, Proof, hidden, is_right
from fragmenta.frontends.judge.reaching import Kernels, not_run, ran_unread
from fragmenta.frontends.judge.running import Lie, Running
from fragmenta.frontends.judge.settings import Settings
from fragmenta.frontends.judge.situations import EXACT, MOST, NO_REPROACH
from fragmenta.frontends.judge.sizes import ABOVE, GIVEN, MAIN, OTHER, SECRET
from fragmenta.frontends.judge.sources import suspicions
from fragmenta.frontends.judge.understanding import not_understood
from fragmenta.frontends.judge.values import EQUAL, EXTREME, PLAIN, STATE, WHOLE
from fragmenta.frontends.judge.wire import Json, Tree, arguments_of
from fragmenta.frontends.judge.work import WORK, least_cost, suspected
from fragmenta.frontends.pool.answers import error_json, result_json
from fragmenta.frontends.pool.packing import PackedArguments, mark_empty, unpack
from fragmenta.launch.grid import shuffled
from fragmenta.launch.instruments import Watch
from fragmenta.launch.limits import Limits
from fragmenta.launch.request import Extent
from fragmenta.launch.result import Result
from fragmenta.ptx import rules
from fragmenta.ptx.languages import Words
from fragmenta.ptx.rules import ERROR
from fragmenta.values.counters.asking import with_results

SHOWN = 3
"""Hazards of one kernel that are listed."""
SHOWN_LINES = 6
"""Lines that were not reached, of which a finding tells."""
RESERVE = 0.5
"""Seconds before the end in which no call is begun."""
HANGS = 20
"""A call that takes so many times as long as any before it is told of."""
LATE = (GIVEN, ABOVE)
"""Sets of cases that are tried once, at the end."""
CLOCKS = ("%globaltimer", "%clock")
"""Registers of PTX that have the time."""
NOT_RUN = "NotRun"
"""The error of what cannot be run here."""
OTHER_ORDERS: tuple[Given, ...] = (EAGER, "lazy", 3)


class Stopped(Exception):
    """Nothing more can be asked."""


@dataclass
class Channel:
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
    longest: float = 0.0
    """The seconds of the longest call that ended."""
    sizes: list[str] = field(default_factory=list)
    """The sizes of calls that came to their end."""
    _modules: dict[str, Loaded] = field(default_factory=dict)
    _schedule: Sequence[Given] = (EAGER,)
    _hazards: set[tuple[str, str, int]] = field(default_factory=set)
    _memories: dict[int, ProcessMemory] = field(default_factory=dict)
    _quiet: bool = False
    """Whether what happens now says nothing about the candidate."""
    _used: bool = False
    """Whether a launch has loaded memory that counts as unwritten."""
    _kernels: Kernels = field(default_factory=Kernels)
    """What launches executed."""
    _loads: set[tuple[str, int]] = field(default_factory=set)
    """Where kernels load what is unwritten by itself, without an effect."""

    def found(self, name: str, evidence: str, case: str = "") -> None:
        """Keep a finding, once for each name."""
        if self._quiet:
            return
        if name in KINDS and name not in [each.name for each in self.findings]:
            self.findings.append(Finding(name, evidence, case))

    def run(self, lines: Sequence[Channel], cases: Sequence[Case]) -> None:
        """Call the candidate with all cases, in one process and in a fresh one."""
        calls: list[CompletedCall] = []
        answers: list[CandidateAnswer] = []
        again: CandidateAnswer | None = None
        self._read_source()
        ordinary = [each for each in cases if each["set"] in (MAIN, OTHER)]
        try:
            self._load(lines[0], cases[0])
            for case in ordinary:
                answer = self._try(lines[0], case, calls)
                if answer is not None:
                    answers.append(answer)
                if len(answers) == 2:
                    again = self._again(lines[0], answers[0])
                    self._last_block_first(lines[0], answers[0])
            if answers:
                self._fresh(lines[1], _doubtful(calls, answers))
            self._prove(lines[0], calls, answers, again, cases)
            kernels = {step.text for each in answers[1:2] for step in each.steps}
            self._prove_others(lines[0], calls, answers, kernels)
            self._understood(cases[0], calls, answers)
            self._given_sizes(lines[0], calls, cases, kernels)
            more = self._of_constants(lines[2], calls, cases[0])
            self._given_sizes(lines[0], calls, more, kernels)
            self._not_reached(lines[0], calls)
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
            self.cost = least_cost(answers)
            for name, said in suspected(answers, cases[0], self.cost):
                self.found(name, said, str(answers[0].case["name"]))

    def _understood(
        self, first: Case, calls: list[CompletedCall], answers: list[CandidateAnswer]
    ) -> None:
        """Whether all of the host's code is known to be harmless."""
        if not calls or any(each.wrong for each in calls):
            return
        given = first["inputs"]
        rows = given if isinstance(given, list) else [given]
        arrays = [not isinstance(each, bool | int | float | str) for each in rows]
        said = not_understood(self.text, arrays)
        if _only_moves(first) and answers and not answers[0].ordered():
            said.append("elements are moved, and no launch leaves them in their order")
        early = WORK & {*cast("dict[str, int]", answers[0].about["earlier"])}
        said += [f"{each} of the library works for the constructor" for each in early]
        self._tell("not-understood", said)

    def _tell(self, name: str, found: Sequence[str]) -> None:
        """Keep a finding that has several lines of evidence."""
        if found:
            more = max(0, len(found) - SHOWN_LINES)
            told = [*found[:SHOWN_LINES], *[f"and {more} more"] * bool(more)]
            self.found(name, "; ".join(told))

    def _not_reached(self, line: Channel, calls: list[CompletedCall]) -> None:
        """What never ran was not judged."""
        if not calls or any(each.wrong for each in calls):
            return
        answer = self._ask(line, {"do": "reached"}, None)
        if "error" in answer:
            return
        pairs = cast("list[list[int]]", answer["pairs"])
        seen = cast("list[list[object]]", answer["seen"])
        said = not_run(self.text, pairs, seen)
        said += [str(each) for each in cast("list[Tree]", answer["said"])]
        nobody = unused(ast.parse(self.text))
        for name, own in cast("list[tuple[str, list[str]]]", answer["idle"]):
            if not own or not {*own} <= nobody:
                said.append(f"the kernel {name} was never launched")
        types = {str(each["type"]) for each in leaves(calls[0].case["inputs"])}
        floats = types <= {"float32", "float64"}
        said += self._kernels.not_launched()
        said += self._kernels.one_way(floats=floats, text=self.text)
        # Compilers make conditions of their own: these are a remark.
        remarks = self._kernels.one_way(minor=True, text=self.text)
        remarks += self._kernels.not_compiled(self.text, sizes=False)
        said += self._kernels.not_compiled(self.text, sizes=True)
        self._tell("not-understood", ran_unread(self.text, pairs))
        said += map(str, cast("list[Tree]", calls[0].case.get("fixed", [])))
        self._tell("not-reached", said)
        self._tell("one-way", remarks)

    def _read_source(self) -> None:
        """What the source says by itself."""
        for name, evidence in suspicions(self.text):
            self.found(name, evidence)

    def _prove(
        self,
        line: Channel,
        calls: list[CompletedCall],
        answers: list[CandidateAnswer],
        again: CandidateAnswer | None,
        cases: Sequence[Case],
    ) -> None:
        """Whose work it is, if it is right."""
        secret = [each for each in cases if each["set"] == SECRET]
        plain = [
            each
            for each in answers
            if each.case["set"] == MAIN and each.case["values"] == PLAIN
        ]
        right = [call.case for call in calls if not call.wrong]
        if not secret or not plain or not all(_is_in(e.case, right) for e in plain):
            return

        if clock.now() > self.until - RESERVE:
            raise TimeoutError
        told = Proof(
            plain,
            again,
            secret[0],
            self._liar(line),
            self._loader(line),
            cache(lambda digest: written_and_loaded(self._modules[digest].module)),
            cache(lambda digest: only_counted(self._modules[digest].module)),
        ).run()
        self.findings += told

    def _prove_others(
        self,
        line: Channel,
        calls: list[CompletedCall],
        answers: list[CandidateAnswer],
        kernels: set[str],
    ) -> None:
        """The same for other sizes, strides and values, as far as they are right."""
        right = [call.case for call in calls if not call.wrong]
        for each in answers:
            case = each.case
            if not _is_in(case, right):
                continue
            if not each.steps:
                self.found("no-launch", "no kernel was launched", str(case["name"]))
            plain = case["set"] == MAIN and case["values"] == PLAIN
            if plain or case["values"] in EQUAL or not is_right(each):
                continue
            if clock.now() > self.until - RESERVE:
                raise TimeoutError
            answer, same = hidden(case, self._liar(line))
            if answer is not None and not same:
                self._not_by_kernels(each, kernels)

    def _not_by_kernels(self, answer: CandidateAnswer, kernels: set[str]) -> None:
        """Kernels got other inputs than the host, and the outputs are not theirs."""
        new = {each.text for each in answer.steps} != kernels
        said = "launches with other inputs do not leave the results of these"
        host = new or not all(answer.left())
        name = "host-work" if host else "not-followed"
        self.found(name, said, str(answer.case["name"]))

    def _liar(self, line: Channel) -> Callable[[Case, Lie], CandidateAnswer | None]:
        """Calls the candidate, and gives its kernels other inputs."""

        def call(case: Case, lie: Lie) -> CandidateAnswer | None:
            self._quiet = True
            try:
                return self._call(line, case, lie)
            finally:
                self._quiet = False

        return call

    def _loader(self, line: Channel) -> Callable[[Case, Lie], bool]:
        """Calls the candidate: do its kernels load what a lie puts there?"""

        def call(case: Case, lie: Lie) -> bool:
            self._quiet, self._used = True, False
            try:
                self._call(line, case, lie)
            finally:
                self._quiet = False
            return self._used

        return call

    def _given_sizes(
        self,
        line: Channel,
        calls: list[CompletedCall],
        cases: Sequence[Case],
        kernels: set[str],
    ) -> None:
        """Call it with the given sizes, or with the largest that can be tried.

        If the host does the work, large sizes take long, and show nothing new.
        """
        if any(each.name == "host-work" for each in self.findings):
            return
        untried = str(cases[0].get("untried", "")) if cases else ""
        for case in cases:
            if case["set"] not in LATE or any(each.wrong for each in calls):
                continue
            before, self.until = self.until, (clock.now() + self.until) / 2
            told, start = len(self.findings), clock.now()
            try:
                self._late(line, case, calls, kernels)
            except TimeoutError:
                spent = clock.now() - start
                if case["set"] == GIVEN:
                    untried = untried or str(case["name"])
                elif spent > HANGS * max(1.0, self.longest):
                    said = f"a call had not ended after {spent:.0f} s"
                    self.found("out-of-time", said, str(case["name"]))
            finally:
                self.until = before
            if case["set"] == ABOVE:
                self._above(calls, told, case)
        if untried:
            self.found("size-not-tried", f"not tried: {untried}")

    def _of_constants(
        self, line: Channel, calls: list[CompletedCall], first: Case
    ) -> Sequence[Case]:
        """Cases with the constants that the kernels ask for."""
        floats, whole = constants(self._kernels.modules)
        asks = EXTREME in self.settings.values and "task" in first
        if not asks or not floats + whole or any(each.wrong for each in calls):
            return []
        seconds = max(1.0, self.until - clock.now())
        folder = str(self.folder / str(line.process))
        order: dict[str, Tree] = {"do": "more"}
        order |= {"floats": floats[:MOST], "whole": whole[:MOST]}
        order |= {"folder": folder, "seconds": seconds, "memory": self.settings.memory}
        task = cast("dict[str, Tree]", first["task"])
        try:
            answer = self._ask(line, {**order, **task}, None)
        except TimeoutError:
            return []
        return cast("list[Case]", answer.get("cases", []))

    def _late(
        self, line: Channel, case: Case, calls: list[CompletedCall], kernels: set[str]
    ) -> None:
        """Call it once with large inputs."""
        brief = case["values"] in NO_REPROACH or case.get("brief")
        right = brief or hidden(case, self._liar(line))[1]
        answer = self._try(line, case, calls)
        weights = case["values"] in (STATE, EXACT) and leaves(case["state"])
        if answer is not None and weights and not answer.about["fits"]:
            calls.pop()  # its weights have other names
            needed = sum(elements(each).size for each in leaves(case["state"]))
            if (
                case["values"] == STATE
                and cast("int", answer.about["weights"]) < needed
            ):
                self.found("state-fixed", "not all weights of the reference are there")
            return
        if answer is None or calls[-1].wrong:
            return
        if not answer.steps:
            self.found("no-launch", "no kernel was launched", str(case["name"]))
        follows = {each.text for each in answer.steps} == kernels
        unclear = case["set"] == ABOVE and follows and all(answer.left())
        if not right and not unclear:
            self._not_by_kernels(answer, kernels)

    def _above(self, calls: list[CompletedCall], told: int, case: Case) -> None:
        """What sizes or whole numbers show that nobody asked for.

        Other whole numbers may be no indices: then a kernel may leave its memory.
        """
        indices = case["values"] in WHOLE
        said = [
            each.evidence
            for each in self.findings[told:]
            if not (indices and each.name == "fault")
        ]
        del self.findings[told:]
        if calls and calls[-1].case is case and calls[-1].wrong:
            said.append(calls.pop().wrong[0].place())
        if said:
            extreme = case["values"] in NO_REPROACH
            name = "extreme-values" if extreme else "size-limited"
            name = "state-fixed" if case["values"] == STATE else name
            self.found(name, said[0], str(case["name"]))

    # ── calls ───────────────────────────────────────────────────────────────

    def _load(self, line: Channel, case: Case) -> None:
        self._memories[line.process] = ProcessMemory()
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

    def _try(
        self, line: Channel, case: Case, calls: list[CompletedCall]
    ) -> CandidateAnswer | None:
        """Call it with a case, and compare; None if it fails."""
        if clock.now() > self.until - RESERVE:
            raise TimeoutError
        start = clock.now()
        answer = self._call(line, case)
        self.longest = max(self.longest, clock.now() - start)
        self.tried.append(str(case["name"]))
        if answer is None:
            if len(self.tried) == 1:  # nothing else can be expected of it
                raise Stopped
            return None
        found = compared(case, answer.outputs)
        if isinstance(found, Finding):
            self.findings.append(found)
            return None
        calls.append(CompletedCall(case, found))
        label = str(case["label"])
        if label not in self.sizes:
            self.sizes.append(label)
        self._note(answer)
        return answer

    def _call(
        self, line: Channel, case: Case, lie: Lie | None = None
    ) -> CandidateAnswer | None:
        running = Running(case, self._memories[line.process], lie)
        order = {
            "do": "call",
            "model": f"{case['set']} {case.get('model', case['label'])}",
            "evaluates": case.get("evaluates", False),
            "seed": 0,
            "init": case["init"],
            "state": case["state"],
            "inputs": case["inputs"],
            "layout": case["layout"],
            "written": case["written"],
        }
        answer = self._ask(line, order, running)
        if "error" in answer:
            self._failed(answer, case)
            self._patches(answer, str(case["name"]))
            return None
        return CandidateAnswer(case, answer["outputs"], running, answer)

    def _failed(self, answer: dict[str, Tree], case: Case) -> None:
        """A call raised an exception."""
        name = {"memory": "out-of-memory", NOT_RUN: "not-run"}.get(
            str(answer["error"]), "failed"
        )
        if self.tried and name == "failed":
            if case["layout"] != "contiguous":
                name = "stride-refused"
            elif case["set"] == ABOVE:
                return  # the verdict says which sizes it covers
            elif case["set"] != "main":
                name = "shape-refused"
        if any(each.name == "fault" for each in self.findings):
            return  # that is why
        self.found(name, str(answer["text"]), str(case["name"]))

    def _again(self, line: Channel, first: CandidateAnswer) -> CandidateAnswer | None:
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
            return None
        return answer

    def _last_block_first(self, line: Channel, first: CandidateAnswer) -> None:
        """Call it again, and let blocks begin in the other order.

        Sums may have other bits then; they must be right.
        """
        if not self.settings.schedules or not is_right(first):
            return
        with shuffled(0):
            answer = self._call(line, first.case)
        if answer is not None and not is_right(answer):
            said = "if the last block begins first, the results are wrong"
            self.found("schedule", said, str(first.case["name"]))

    def _fresh(self, line: Channel, second: CandidateAnswer) -> None:
        """Call it in a process of its own with the inputs of a later call."""
        self._load(line, second.case)
        answer = self._call(line, second.case)
        if answer is None or self._chose_otherwise(answer, second):
            return
        if not _same(answer.outputs, second.outputs):
            self.found(
                "state-kept",
                f"{_difference(answer.outputs, second.outputs)} as the first call of a "
                "process",
                str(second.case["name"]),
            )

    def _chose_otherwise(self, one: CandidateAnswer, other: CandidateAnswer) -> bool:
        """Whether it measured variants, and chose another one that is right, too."""
        if "uses-the-clock" not in [each.name for each in self.findings]:
            return False
        return is_right(one) and not same_launches(one.steps, other.steps)

    def _note(self, answer: CandidateAnswer) -> None:
        """What a call did beside its work."""
        name, about = str(answer.case["name"]), answer.about
        if about["late"]:
            self.found(
                "late-write", "a thread writes after the call has returned", name
            )
        if about["reused"]:
            said = "a later call overwrites an output of an earlier one"
            self.found("late-write", said, name)
        changed = {*cast("list[int]", about["changed"])}
        changed |= answer.running.origins.inputs_changed
        changed -= {*cast("list[int]", answer.case["written"])}
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

    def _ask(self, line: Channel, order: Tree, call: Running | None) -> dict[str, Tree]:
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
            elif heard.get("do") == "begins":
                if call is not None:
                    call.begin(heard["inputs"])
            elif heard.get("do") == "launch":
                send(line.socket, self._launch(heard, call))
            else:
                return heard

    def _launch(self, asked: dict[str, Tree], call: Running | None) -> Tree:
        """Carry out a launch; what the candidate gets back."""
        try:
            packed = arguments_of(cast("Json", asked["arguments"]))
            memory = [_aligned(each) for each in cast("list[Array]", asked["memory"])]
            if [each.size for each in memory] != packed.sizes:
                raise ValueError("the memory of a launch has another size")
            if call is not None:
                call.ask(asked, memory)
            marked = [memory[each][:] for each in call.unwritten] if call else []
            for part in marked:
                count_as_empty(part)
            hidden = call.unwritten_variables() if call else {}
            result = self._carry_out(asked, packed, memory, hidden)
            del marked
        except KernelError as error:
            self._fault(error, call)
            if call is not None:
                call.refused()
            return {"error": error_json(error)}
        except Error as error:
            if call is not None:
                call.refused()
            return {"error": error_json(error)}
        if call is not None:
            loaded = self._modules[str(asked["digest"])]
            back = call.restored(dict(loaded.kept))
            if back:
                loaded.renew({**loaded.kept, **back})
            kept = loaded.kept
            call.done(str(asked["digest"]), memory, kept)
            call.cost.add(str(asked["name"]), result.counters)
            self._note_launch(asked, result, call)
            self._report(str(asked["name"]), result, str(call.case["name"]))
        if not result.complete:
            stopped = KernelErrors.stopped(str(asked["name"]))
            return {"error": error_json(stopped)}
        return {
            "kept": dict(self._modules[str(asked["digest"])].kept),
            "memory": [memory[each] for each in packed.returned],
            "result": _short(result),
        }

    def _note_launch(
        self, asked: dict[str, Tree], result: Result, call: Running
    ) -> None:
        """What a launch executed, and whether it wrote into inputs."""
        if result.counters is None or self._quiet:
            return
        digest = str(asked["digest"])
        loaded = self._modules[digest]
        self._kernels.add(
            digest,
            loaded,
            str(asked["name"]),
            result.counters,
            call.arguments(),
            str(call.case["label"]),
        )
        for each in result.counters.footprints:
            if each.written and call.case["layout"] == CONTIGUOUS:
                call.wrote(each.name)

    def _carry_out(
        self,
        asked: dict[str, Tree],
        packed: PackedArguments,
        memory: list[Array],
        unwritten: dict[str, Mask],
    ) -> Result:
        digest = str(asked["digest"])
        if digest not in self._modules:
            text = str(asked["text"])
            self._modules[digest] = parse(text, str(asked["file"]))
            for each in CLOCKS:
                if each in text:
                    self.found("uses-the-clock", f"a kernel reads {each}")
            self._tell("not-understood", strange(text))
        loaded = self._modules[digest]
        loaded.renew(cast("dict[str, bytes]", asked["kept"]))
        hidden = [(loaded.variables[name], mask) for name, mask in unwritten.items()]
        before = [data.copy() for data, _ in hidden]
        for data, mask in hidden:
            data[mask] = poison(data.size)[mask]
            count_as_empty(data)
        names = tuple(str(each) for each in cast("list[Tree]", asked["names"]))
        kernel = replace(
            loaded.kernels[str(asked["name"])],
            names=names,
            language=Words(*map(str, cast("list[Tree]", asked["language"]))),
        )
        arguments = unpack(packed, memory)
        marked = mark_empty(packed, memory)
        options = cast("dict[str, object]", asked["options"])
        limits = Limits(
            seconds=max(0.1, self.until - clock.now()), memory=self.settings.memory
        )
        with with_results():
            result = kernel.launch(
                cast(Extent, asked["grid"]),
                cast(Extent, asked["block"]),
                arguments,
                watch=Watch("report"),
                schedule=list(self._schedule),
                counters=True,
                limits=limits,
                **options,  # type: ignore[arg-type]
            )
        del marked
        for (data, mask), was in zip(hidden, before, strict=True):
            data[mask] = was[mask]
        return result

    def _report(self, kernel: str, result: Result, case: str) -> None:
        """The hazards of a launch."""
        if self._quiet:
            self._used = self._used or bool(_unwritten(kernel, result) - self._loads)
            return
        self._loads |= _unwritten(kernel, result)
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

    def _fault(self, error: KernelError, call: Running | None) -> None:
        case = str(call.case["name"]) if call else ""
        if isinstance(error, LimitReached):
            if self._quiet or (call is not None and call.case["set"] in LATE):
                raise TimeoutError
            self.found("out-of-time", str(error).splitlines()[0], case)
        else:
            self.found("fault", f"{error.kind}: {error}", case)


class KernelErrors:
    """Errors that a candidate gets for its launches."""

    @staticmethod
    def stopped(kernel: str) -> KernelError:
        """The error for a launch that was stopped."""
        from fragmenta.errors import KernelFault

        return KernelFault(f"the launch of {kernel} was stopped", "fault")


def _doubtful(
    calls: list[CompletedCall], answers: list[CandidateAnswer]
) -> CandidateAnswer:
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
    from fragmenta.engine.simt.compiled import aligned

    made = aligned(data.size)
    made[:] = data.view(np.uint8)
    return made


def _short(result: Result) -> dict[str, object]:
    """A result without problems and counts: a candidate does not need to know them."""
    made = result_json(replace(result, counters=None))
    made["hazards"] = made["problems"] = []
    return made


def _unwritten(kernel: str, result: Result) -> set[tuple[str, int]]:
    """Where a launch loads what is unwritten, also if that has no effect."""
    rule = rules.UNINITIALISED.name
    return {(kernel, each.line) for each in result.problems if each.rule == rule}


def _only_moves(case: Case) -> bool:
    """Whether results are elements of an input in another order."""
    given = [np.sort(elements(each).reshape(-1)) for each in leaves(case["inputs"])]
    rows = cast("list[dict[str, Array]]", case["expected"])
    sorts = [np.sort(each["value"].reshape(-1)) for each in rows]
    return any(
        one.size > 1 and one.size == other.size and bool((one == other).all())
        for one in given
        for other in sorts
    )


def _is_in(case: Case, cases: Sequence[Case]) -> bool:
    return any(each is case for each in cases)


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
