"""Runs the functions in C++ that launch kernels, as extensions of PyTorch have them.

Only a part of C++ is understood: declarations, arithmetic, ``if`` and ``for``, tensors
of ``torch::``, and launches with ``<<<...>>>``.  Everything else is refused with its
line, so what runs means what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import cast

import torch

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.frontends.judge.libraries.host_values import (
    Dim3,
    Values,
    converted,
    dim3,
)
from fragmenta.frontends.judge.libraries.host_words import (
    Function,
    Token,
)

Launch = Callable[[str, object, object, int, Sequence[object]], None]
"""Launches a kernel: its name, grid, block, bytes of shared memory, and arguments."""
MOST_STEPS = 100_000
"""The most steps of a ``while``."""
MOST_SHARED = 48 * 1024
"""The most bytes of dynamic shared memory if nobody allows more."""
_DISPATCH = re.compile(r"AT_DISPATCH_\w+")
_NAMES = {torch.float32: "float", torch.float64: "double", torch.float16: "__half"}


class _Return(Exception):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


@dataclass
class Host:
    """The functions of an extension, and what launches its kernels."""

    functions: dict[str, Function]
    launch: Launch
    constants: dict[str, list[Token]] = field(default_factory=dict)
    """What names of macros and constants outside of functions stand for."""
    ran: dict[str, set[int]] = field(default_factory=dict)
    """The words of each function that ran, by their number."""
    ways: dict[tuple[str, int], set[bool]] = field(default_factory=dict)
    """The values that each condition had."""
    steps: dict[tuple[str, int], tuple[set[object], set[object]]] = field(
        default_factory=dict
    )
    """What quotients, remainders, ``min`` and ``max`` got, and what they gave."""
    shared: dict[str, int] = field(default_factory=dict)
    """The bytes of dynamic shared memory that kernels may have, if it was set."""

    def not_run(self) -> list[str]:
        """What of the functions never ran, or only went one way."""
        said = []
        for name, function in self.functions.items():
            ran, words = self.ran.get(name, set()), function.body
            empty = _of_empty(words)
            dead = [i for i in _meaningful(words) if i not in ran | empty]
            lines = dict.fromkeys(words[i].line for i in dead)
            said += [
                f"{name}, line {line} of the host code: did not run" for line in lines
            ]
            for (of, at), values in self.ways.items():
                asks = of == name and at not in empty
                if asks and len(values) == 1 and words[at].line not in lines:
                    always = str(True in values).lower()
                    said.append(
                        f"{name}, line {words[at].line} of the host code: the "
                        f"condition at `{words[at].text}` was always {always}"
                    )
            for (of, at), (given, made) in self.steps.items():
                if of == name and len(given) > 1 and len(made) == 1:
                    said.append(
                        f"{name}, line {words[at].line} of the host code: "
                        f"`{words[at].text}` was the same for all sizes"
                    )
        return said

    def call(self, name: str, given: Sequence[object]) -> object:
        """Call a function as Python does."""
        function = self.functions[name]
        if len(given) != len(function.parameters):
            wanted = len(function.parameters)
            raise TypeError(f"{name} takes {wanted} arguments; given {len(given)}")
        names: dict[str, object] = {}
        for (kind, parameter), value in zip(function.parameters, given, strict=True):
            names[parameter] = converted(value, kind)
        runner = _Runner(self, function.body, [names], name=name)
        try:
            runner.block()
        except _Return as returned:
            return returned.value
        return None


_EXTENT = r"\w+ \. (?:numel \( \)|size \( -? ?\d+ \))"


def _of_empty(words: Sequence[Token]) -> set[int]:
    """The words of ``if (x.numel() == 0) return x;``, and those of other sizes."""
    texts = [each.text for each in words]
    whole = " ".join(texts)
    sizes = re.findall(rf"\b(\w+) = {_EXTENT} [,;]", whole)
    plain = [e for e in sizes if len(re.findall(rf"\b{e} [-+*/%]?=(?!=)", whole)) == 1]
    atom = "|".join([_EXTENT, *plain])
    asks = re.compile(
        rf"if \( (?:{atom}) == 0(?: \|\| (?:{atom}) == 0)* \) return [^;]*;"
    )
    found: set[int] = set()
    for at, word in enumerate(texts):
        match = asks.match(" ".join(texts[at:])) if word == "if" else None
        if match:
            found |= {*range(at, at + len(match[0].split(" ")))}
    return found


def _meaningful(words: Sequence[Token]) -> Iterator[int]:
    """The words that must run: not those that refuse, and no punctuation."""
    refuses = False
    for number, word in enumerate(words):
        if word.text.startswith(("TORCH_CHECK", "AT_ASSERT", "throw")):
            refuses = True
        if not refuses and word.text not in _PUNCTUATION:
            yield number
        if word.text == ";":
            refuses = False


_PUNCTUATION = frozenset([*"{}();,:", "else", "return", "const", "auto"])


class _Runner(Values):
    """Reads and runs the words of a function."""

    def block(self) -> None:
        self.take("{")
        self.scopes.append({})
        while not self.accept("}"):
            self.statement()
        self.scopes.pop()

    def statement(self) -> None:
        word = self.peek()
        if word == "{":
            self.block()
        elif word == ";":
            self.take()
        elif word == "return":
            self.take()
            value = None if self.peek() == ";" else self.expression()
            self.take(";")
            if self.active:
                raise _Return(value)
        elif word == "if":
            self.branch()
        elif word == "for":
            self.loop()
        elif word == "while":
            self.repeat()
        elif word.startswith(("TORCH_CHECK", "AT_ASSERT")):
            self.check()
        elif _DISPATCH.fullmatch(word):
            self.dispatch()
        elif word == "using":
            self.alias()
        elif self.is_declaration():
            self.declaration()
        else:
            self.simple()
            self.take(";")

    def branch(self) -> None:
        self.take("if")
        self.take("(")
        start = self.at
        chosen = bool(self.expression())
        self.went(start, chosen)
        self.take(")")
        before = self.active
        self.active = before and chosen
        self.statement()
        self.active = before and not chosen
        if self.accept("else"):
            self.statement()
        self.active = before

    def loop(self) -> None:
        self.take("for")
        self.take("(")
        self.scopes.append({})
        if self.is_declaration():
            self.declaration()
        else:
            self.simple()
            self.take(";")
        condition = self.at
        before = self.active
        while True:
            self.at = condition
            goes_on = before and bool(self.expression())
            self.take(";")
            step = self.at
            self.active = False
            self.simple()
            self.take(")")
            self.active = goes_on
            self.statement()
            end = self.at
            if not goes_on:
                break
            self.at = step
            self.simple()
        self.at, self.active = end, before
        self.scopes.pop()

    def repeat(self) -> None:
        """``while (...) ...``."""
        self.take("while")
        self.take("(")
        condition, before = self.at, self.active
        for _ in range(MOST_STEPS):
            self.at = condition
            goes_on = before and bool(self.expression())
            self.went(condition, goes_on)
            self.take(")")
            self.active = goes_on
            self.statement()
            self.active = before
            if not goes_on:
                return
        self.refuse(f"a loop of more than {MOST_STEPS:,} steps")

    def check(self) -> None:
        self.take()
        self.take("(")
        self.checks = True
        holds = self.expression()
        self.checks = False
        said = []
        while self.accept(","):
            said.append(str(self.expression()))
        self.take(")")
        self.take(";")
        if self.active and not holds:
            raise RuntimeError("".join(said) or "a check failed")

    def dispatch(self) -> None:
        """``AT_DISPATCH_...(type, "name", [&] { ... });``."""
        self.take()
        self.take("(")
        kind = self.expression()
        self.take(",")
        self.expression()
        self.take(",")
        inner = self.accept("(")
        for each in ("[", "&", "]"):
            self.take(each)
        if self.accept("("):
            self.take(")")
        if self.active and kind not in _NAMES:
            self.refuse(f"a dispatch on {kind}")
        self.types["scalar_t"] = _NAMES.get(cast("torch.dtype", kind), "float")
        self.block()
        if inner:
            self.take(")")
        self.take(")")
        self.take(";")

    def alias(self) -> None:
        self.take("using")
        name = self.take()
        self.take("=")
        self.types[name] = self.type_name()
        self.take(";")

    def declaration(self) -> None:
        kind = self.type_name()
        while True:
            name = self.take()
            value: object = Dim3() if kind == "dim3" else 0
            if self.accept("="):
                value = self.expression()
            elif self.peek() in ("(", "{"):
                value = self.constructed(kind)
            if self.active:
                made = dim3(value) if kind == "dim3" else converted(value, kind)
                self.scopes[-1][name] = made
            if not self.accept(","):
                break
        self.take(";")

    def constructed(self, kind: str) -> object:
        closing = {"(": ")", "{": "}"}[self.take()]
        given = self.arguments(closing)
        if kind == "dim3":
            return dim3(given)
        if len(given) != 1:
            self.refuse(f"a {kind} of {len(given)} values")
        return given[0]

    def simple(self) -> None:
        """An assignment, a launch, or a call."""
        kernel = self.kernel_name()
        if kernel is not None:
            self.launch(kernel)
            return
        name, following = self.peek(), self.peek(1)
        if following in ("=", "+=", "-=", "*=", "/=", "%="):
            self.step()
            self.step()
            value = self.expression()
            if following != "=":
                value = self.computed(following[0], self.look_up(name), value)
            self.store(name, value)
        elif following in ("++", "--"):
            self.step()
            self.step()
            self.store(name, self.computed(following[0], self.look_up(name), 1))
        elif name in ("++", "--"):
            self.take()
            self.store(following, self.computed(name[0], self.look_up(following), 1))
            self.take()
        else:
            self.expression()

    def store(self, name: str, value: object) -> None:
        if not self.active:
            return
        for scope in reversed(self.scopes):
            if name in scope:
                scope[name] = value
                return
        self.refuse(name)

    def launch(self, kernel: str) -> None:
        self.take("<<<")
        sizes = self.arguments(">>>")
        self.take("(")
        given = self.arguments(")")
        if not 2 <= len(sizes) <= 4:
            self.refuse(f"a launch with {len(sizes)} sizes")
        if self.active:
            grid, block = (dim3(each) for each in sizes[:2])
            shared = int(cast("int", sizes[2])) if len(sizes) > 2 else 0
            most = self.host.shared.get(kernel, MOST_SHARED)
            if shared > most:
                raise RuntimeError(
                    f"a GPU refuses {kernel} with {shared:,} bytes of dynamic "
                    f"shared memory: the most are {most:,}; cudaFuncSetAttribute can "
                    "allow more"
                )
            self.host.launch(kernel, grid, block, shared, given)
