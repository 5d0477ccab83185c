"""Runs the functions in C++ that launch kernels, as extensions of PyTorch have them.

Only a part of C++ is understood: declarations, arithmetic, ``if`` and ``for``, tensors
of ``torch::``, and launches with ``<<<...>>>``.  Everything else is refused with its
line, so what runs means what it says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple, NoReturn, cast

import torch

from fragmenta.arrays.lazy_dataclass import dataclass
from fragmenta.errors import Error


class NotRun(Error):
    """A part of a candidate that cannot be run here."""


class Token(NamedTuple):
    """A word of C++."""

    kind: str
    text: str
    line: int


_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)"
    r"(?:[eE][-+]?\d+)?[fFuUlL]*)|(?P<name>[A-Za-z_]\w*)|(?P<text>\"(?:\\.|[^\"\\])*\")"
    r"|(?P<sign><<<|>>>|::|->|\+\+|--|&&|\|\||[-+*/%&|^<>=!]=|[-+*/%&|^<>=!~?:;,.(){}\[\]])"
)


def tokens(text: str, line: int = 1) -> list[Token]:
    """The words of a text without comments."""
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotRun(f"line {line}: {text[at : at + 20]!r} is not understood")
        kind, word = match.lastgroup or "", match[0]
        if kind != "space":
            found.append(Token(kind, word, line))
        line += word.count("\n")
        at = match.end()
    return found


@dataclass
class Function:
    """A function of the host."""

    name: str
    parameters: list[tuple[str, str]]
    """The type and the name of each."""
    body: list[Token]


class Dim3(NamedTuple):
    """The sizes of a grid or a block."""

    x: int = 1
    y: int = 1
    z: int = 1


class Data(NamedTuple):
    """What ``tensor.data_ptr<T>()`` returns, and pointers that are made of it."""

    tensor: torch.Tensor
    size: int
    """Bytes of an element, as the pointer sees it."""
    offset: int = 0
    """Bytes from the first element of the tensor."""


class TensorOptions(NamedTuple):
    """What ``tensor.options()`` returns."""

    dtype: torch.dtype


Launch = Callable[[str, object, object, int, Sequence[object]], None]
"""Launches a kernel: its name, grid, block, bytes of shared memory, and arguments."""

MOST_STEPS = 100_000
"""The most steps of a ``while``."""
MOST_SHARED = 48 * 1024
"""The most bytes of dynamic shared memory if nobody allows more."""

_TYPES = frozenset(
    [
        "auto",
        "int",
        "long",
        "unsigned",
        "size_t",
        "int64_t",
        "int32_t",
        "uint32_t",
        "uint64_t",
        "float",
        "double",
        "bool",
        "dim3",
        "const",
        "constexpr",
        "static",
        "char",
        "short",
        "signed",
        "cudaStream_t",
        "cudaError_t",
        "half",
    ]
)
_SPACES = ("torch", "at", "std", "c10", "cuda")
_SCALARS = {
    "float": torch.float32,
    "double": torch.float64,
    "at::Half": torch.float16,
    "c10::Half": torch.float16,
    "__half": torch.float16,
    "half": torch.float16,
    "at::BFloat16": torch.bfloat16,
    "__nv_bfloat16": torch.bfloat16,
    "int": torch.int32,
    "int32_t": torch.int32,
    "int64_t": torch.int64,
    "long": torch.int64,
    "bool": torch.bool,
    "uint8_t": torch.uint8,
}
_SIZES = {
    **{name: kind.itemsize for name, kind in _SCALARS.items()},
    **{f"{name}{n}": n * 4 for name in ("float", "int", "uint") for n in (2, 3, 4)},
    **dict.fromkeys(("half2", "__half2", "__nv_bfloat162", "unsigned", "uint32_t"), 4),
    **dict.fromkeys(("double2", "longlong2", "ulonglong2"), 16),
    **dict.fromkeys(("char", "unsigned char", "int8_t", "signed char"), 1),
    **dict.fromkeys(("short", "uint16_t", "int16_t"), 2),
    **dict.fromkeys(("size_t", "uint64_t", "long long"), 8),
}
_STEPS = ("/", "%", "&", "|", "^", ">>")
"""Operators of whole numbers that give the same for many."""
_POINTER_CASTS = ("reinterpret_cast", "const_cast")
_KINDS = {
    "kFloat32": torch.float32,
    "kFloat": torch.float32,
    "kFloat64": torch.float64,
    "kDouble": torch.float64,
    "kFloat16": torch.float16,
    "kHalf": torch.float16,
    "kBFloat16": torch.bfloat16,
    "kInt32": torch.int32,
    "kInt": torch.int32,
    "kInt64": torch.int64,
    "kLong": torch.int64,
    "kBool": torch.bool,
    "kShort": torch.int16,
    "kByte": torch.uint8,
    "kCUDA": "cuda",
}
_DISPATCH = re.compile(r"AT_DISPATCH_\w+")
_NAMES = {torch.float32: "float", torch.float64: "double", torch.float16: "__half"}
_PRECEDENCE = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)


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
            names[parameter] = _converted(value, kind)
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


def _converted(value: object, kind: str) -> object:
    """A value as a variable of this type holds it."""
    if isinstance(value, torch.Tensor) or not isinstance(value, bool | int | float):
        return value
    words = kind.split()
    if {"float", "double"} & {*words}:
        return float(value)
    if "bool" in words:
        return bool(value)
    if "auto" in words or not {*words} & _TYPES:
        return value
    made = int(value)
    small = {"int", "int32_t"} & {*words} and not {"long", "unsigned"} & {*words}
    if small and not -(1 << 31) <= made < 1 << 31:
        raise OverflowError(f"{made} does not fit into an int")
    return made


@dataclass
class _Runner:
    """Reads and runs the words of a function."""

    host: Host
    words: list[Token]
    scopes: list[dict[str, object]]
    at: int = 0
    active: bool = True
    types: dict[str, str] = field(default_factory=dict)
    """Types with a name, such as ``scalar_t``."""
    name: str = ""
    """The function; nothing for constants outside of functions."""
    checks: bool = False
    """Whether it is in a check, which only refuses."""

    # ── words ───────────────────────────────────────────────────────────────

    def peek(self, ahead: int = 0) -> str:
        place = self.at + ahead
        return self.words[place].text if place < len(self.words) else ""

    def take(self, wanted: str = "") -> str:
        found = self.peek()
        if (wanted and found != wanted) or not found:
            self.refuse(f"{found or 'the end'} where {wanted or 'more'} is expected")
        self.step()
        return found

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.step()
            return True
        return False

    def step(self) -> None:
        """Go on by a word."""
        if self.active:
            self.host.ran.setdefault(self.name, set()).add(self.at)
        self.at += 1

    def went(self, at: int, value: object) -> None:
        """A condition has a value."""
        if self.active:
            self.host.ways.setdefault((self.name, at), set()).add(bool(value))

    def stepped(self, at: int, given: tuple[object, ...], made: object) -> None:
        """A step has a value."""
        if self.active and self.name:
            row = self.host.steps.setdefault((self.name, at), (set(), set()))
            row[0].add(given)
            row[1].add(made)

    def refuse(self, what: str) -> NoReturn:
        place = min(self.at, len(self.words) - 1)
        line = self.words[place].line if self.words else 0
        raise NotRun(
            f"host code, line {line}: {what} is not understood here; declarations, "
            "arithmetic, if, for, tensors and launches are. ptx.RawKernel launches a "
            "kernel from Python"
        )

    # ── statements ──────────────────────────────────────────────────────────

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

    def is_declaration(self) -> bool:
        """Whether a type and a name follow."""
        before = self.at
        try:
            found = self.type_name()
            name = (
                self.words[self.at].kind == "name"
                if self.at < len(self.words)
                else False
            )
            after = self.peek(1)
            return bool(found) and name and after in ("=", ";", "(", ",", "{", "[")
        except NotRun:
            return False
        finally:
            self.at = before

    def type_name(self) -> str:
        """A type: its words, without references."""
        words: list[str] = []
        before: set[str] = set()
        while self.peek() in ("const", "constexpr", "static"):
            before.add(self.take())
        if before == {"static"}:
            self.refuse("a variable that lasts over calls")
        if self.peek() in _SPACES and self.peek(1) == "::":
            while self.peek(1) == "::":
                words.append(self.take() + self.take())
            words.append(self.take())
            if self.peek() == "<":
                words.append(self.angles())
            made = "".join(words)
        else:
            while self.peek() in _TYPES | _SIZES.keys() | self.types.keys():
                words.append(self.types.get(self.peek(), self.peek()))
                self.take()
            made = " ".join(words)
        if not made:
            self.refuse(self.peek())
        while self.peek() in ("const", "&", "*"):
            made += "*" if self.take() == "*" else ""
        return made

    def angles(self) -> str:
        """What is between angle brackets."""
        depth, made = 0, ""
        while True:
            word = self.take()
            depth += {"<": 1, ">": -1, "<<<": 3, ">>>": -3}.get(word, 0)
            made += self.types.get(word) or self._constant(word)
            if depth <= 0:
                return made

    def _constant(self, word: str) -> str:
        """A word; the number of a variable, which is a template's argument."""
        for scope in reversed(self.scopes):
            if isinstance(scope.get(word), int):
                return str(int(cast("int", scope[word])))
        return word

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
                made = _dim3(value) if kind == "dim3" else _converted(value, kind)
                self.scopes[-1][name] = made
            if not self.accept(","):
                break
        self.take(";")

    def constructed(self, kind: str) -> object:
        closing = {"(": ")", "{": "}"}[self.take()]
        given = self.arguments(closing)
        if kind == "dim3":
            return _dim3(given)
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

    def kernel_name(self) -> str | None:
        """The name of a kernel, if a launch follows."""
        before = self.at
        if not self.peek().isidentifier():
            return None
        name = self.take()
        try:
            if self.peek() == "<":
                name += self.angles()
        except NotRun:
            self.at = before
            return None
        if self.peek() == "<<<":
            return name
        self.at = before
        return None

    def launch(self, kernel: str) -> None:
        self.take("<<<")
        sizes = self.arguments(">>>")
        self.take("(")
        given = self.arguments(")")
        if not 2 <= len(sizes) <= 4:
            self.refuse(f"a launch with {len(sizes)} sizes")
        if self.active:
            grid, block = (_dim3(each) for each in sizes[:2])
            shared = int(cast("int", sizes[2])) if len(sizes) > 2 else 0
            most = self.host.shared.get(kernel, MOST_SHARED)
            if shared > most:
                raise RuntimeError(
                    f"a GPU refuses {kernel} with {shared:,} bytes of dynamic "
                    f"shared memory: the most are {most:,}; cudaFuncSetAttribute can "
                    "allow more"
                )
            self.host.launch(kernel, grid, block, shared, given)

    def attribute(self) -> object:
        """``cudaFuncSetAttribute(kernel, attribute, value)``."""
        self.take("(")
        self.pointer_cast()  # (const void *)kernel
        kernel = self.take()
        if self.peek() == "<":
            kernel += self.angles()
        self.take(",")
        attribute = self.take()
        while self.accept("::"):
            attribute = self.take()
        self.take(",")
        value = cast("int", self.expression())
        self.take(")")
        if self.active and attribute.endswith("MaxDynamicSharedMemorySize"):
            self.host.shared[kernel] = int(value)
        return 0

    # ── expressions ─────────────────────────────────────────────────────────

    def arguments(self, closing: str) -> list[object]:
        found: list[object] = []
        while not self.accept(closing):
            found.append(self.expression())
            if not self.accept(",") and self.peek() != closing:
                self.refuse(self.peek())
        return found

    def expression(self) -> object:
        start = self.at
        chosen = self.binary(0)
        if not self.accept("?"):
            return chosen
        self.went(start, chosen)
        before = self.active
        self.active = before and bool(chosen)
        one = self.expression()
        self.take(":")
        self.active = before and not chosen
        other = self.expression()
        self.active = before
        return one if chosen else other

    def binary(self, level: int) -> object:
        if level == len(_PRECEDENCE):
            return self.unary()
        start = self.at
        value = self.binary(level + 1)
        while self.sign() in _PRECEDENCE[level]:
            at, sign = self.at, self.sign()
            for _ in range(1 + (sign in ("<<", ">>"))):
                self.take()
            before = self.active
            if sign in ("&&", "||"):
                self.went(start, value)
                self.active = before and bool(value) == (sign == "&&")
            other = self.binary(level + 1)
            self.active = before
            given = value, other
            value = self.computed(sign, value, other)
            if sign in ("<", ">", "<=", ">=", "==", "!=") and not self.checks:
                self.went(at, value)
            if sign in _STEPS and all(isinstance(e, int) for e in given):
                self.stepped(at, given, value)
        return value

    def sign(self) -> str:
        """The operator that follows; that of a shift is two signs."""
        one, two = self.peek(), self.peek(1)
        return one + two if one == two and one in ("<", ">") else one

    def computed(self, sign: str, a: object, b: object) -> object:
        """Two numbers computed as C++ does it."""
        if not self.active:
            return 0
        if sign == "&&":
            return bool(a) and bool(b)
        if sign == "||":
            return bool(a) or bool(b)
        if sign in ("==", "!="):
            return (a == b) == (sign == "==")
        if isinstance(b, Data) and sign == "+":
            a, b = b, a
        if isinstance(a, Data) and isinstance(b, int) and sign in ("+", "-"):
            step = b * a.size if sign == "+" else -b * a.size
            return a._replace(offset=a.offset + step)
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            self.refuse(f"{type(a).__name__} {sign} {type(b).__name__}")
        whole = isinstance(a, int) and isinstance(b, int)
        if sign in ("/", "%") and whole:
            if b == 0:
                raise ZeroDivisionError("a division by zero in host code")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if sign == "/" else a - b * quotient
        if sign in ("&", "|", "^") and whole:
            x, y = int(a), int(b)
            return {"&": x & y, "|": x | y, "^": x ^ y}[sign]
        if sign in ("<<", ">>") and whole and 0 <= b < 64:
            return int(a) << int(b) if sign == "<<" else int(a) >> int(b)
        table: dict[str, Callable[[], object]] = {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "/": lambda: a / b,
            "<": lambda: a < b,
            ">": lambda: a > b,
            "<=": lambda: a <= b,
            ">=": lambda: a >= b,
        }
        if sign not in table:
            self.refuse(sign)
        return table[sign]()

    def unary(self) -> object:
        if self.accept("-"):
            return self.computed("-", 0, self.unary())
        if self.accept("+"):
            return self.unary()
        if self.accept("!"):
            at = self.at
            value = not self.unary()
            if not self.checks:
                self.went(at, value)
            return value
        pointer = self.pointer_cast()
        if pointer:
            return _pointed(self.unary(), pointer)
        if self.peek() == "(" and self.peek(1) in _TYPES:
            self.take("(")
            kind = self.type_name()
            self.take(")")
            return self.cast(self.unary(), kind)
        return self.postfix(self.primary())

    def cast(self, value: object, kind: str) -> object:
        """A number in another type; what rounds it is a step."""
        made = _cast(value, kind)
        if isinstance(value, float) and not isinstance(made, float):
            self.stepped(self.at, (value,), made)
        return made

    def pointer_cast(self) -> str:
        """The type of a cast such as ``(float4 *)``, which is read; else nothing."""
        at = self.at + 1
        while self.peek(at - self.at).isidentifier() or self.peek(at - self.at) == "::":
            at += 1
        if self.peek() != "(" or self.peek(at - self.at) != "*":
            return ""
        made = "".join(word.text for word in self.words[self.at + 1 : at])
        while self.peek(at - self.at) == "*":
            at += 1
        if self.peek(at - self.at) != ")" or made == "":
            return ""
        while self.at <= at:
            self.step()
        return made + "*"

    def primary(self) -> object:
        token = self.words[self.at] if self.at < len(self.words) else None
        if token is None:
            self.refuse("the end")
        if token.kind == "number":
            return _number(self.take())
        if token.kind == "text":
            return self.take()[1:-1]
        if self.accept("("):
            value = self.expression()
            self.take(")")
            return value
        if self.accept("{"):
            return self.arguments("}")
        if token.kind != "name":
            self.refuse(token.text)
        return self.named()

    def named(self) -> object:
        """A variable, a constant, or a call of a function."""
        name = self.take()
        while self.accept("::"):
            name += "::" + self.take()
        if name in ("true", "false"):
            return name == "true"
        if name == "cudaFuncSetAttribute":
            return self.attribute()
        if name == "nullptr":
            return 0
        kind = ""
        casts = ("static_cast", "sizeof", *_POINTER_CASTS)
        if self.peek() == "<" and (name in casts or "::" in name):
            kind = self.angles()[1:-1]
        if name == "sizeof":
            self.take("(")
            found = self.type_name()
            self.take(")")
            return _SIZES.get(found, 4)
        if self.accept("("):
            return self.called(name, kind, self.arguments(")"))
        space, _, short = name.rpartition("::")
        short = f"k{short}" if space.endswith("ScalarType") else short
        if space and short in _KINDS:
            return _KINDS[short]
        return self.look_up(name)

    def look_up(self, name: str) -> object:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if not self.active:
            return 0
        if name in self.host.constants:
            return _Runner(self.host, self.host.constants[name], [{}]).expression()
        self.refuse(name)
        return None

    def postfix(self, value: object) -> object:
        while True:
            if self.accept("."):
                name = self.take()
                kind = (
                    self.angles() if self.peek() == "<" and name in _WITH_TYPE else ""
                )
                if self.peek() != "(" and isinstance(value, Dim3) and name in "xyz":
                    value = getattr(value, name)
                    continue
                self.take("(")
                value = self.method(value, name, kind, self.arguments(")"))
            elif self.accept("["):
                place = self.expression()
                self.take("]")
                if self.active:
                    value = cast("list[object]", value)[cast("int", place)]
            else:
                return value

    def called(self, name: str, kind: str, given: list[object]) -> object:
        if not self.active:
            return 0
        short = name.rpartition("::")[2]
        if name in _POINTER_CASTS:
            return _pointed(given[0], kind)
        if name == "static_cast":
            return self.cast(given[0], kind)
        if name in ("dim3",):
            return _dim3(given)
        if name in self.host.functions:
            return self.host.call(name, given)
        if short in _QUIET:
            return 0
        space = name.rpartition("::")[0]
        if space in ("torch", "at") and short in _MAKES:
            return _made(short, given)
        if short in _NUMBERS and space in ("", "std"):
            made = _NUMBERS[short](*given)
            chosen = tuple(i for i, each in enumerate(given) if each == made)
            self.stepped(self.at, (*given,), chosen if short in "min max" else made)
            return made
        if name in _TYPES:
            return self.cast(given[0], name)
        if short in ("make_tuple", "TensorOptions", "tuple"):
            return given
        self.refuse(f"{name}(...)")
        return None

    def method(
        self, value: object, name: str, kind: str, given: list[object]
    ) -> object:
        if not self.active:
            return 0
        if isinstance(value, torch.Tensor):
            found = _of_tensor(value, name, given)
            if found is not None:
                return found
        if isinstance(value, TensorOptions) and name in (
            "dtype",
            "device",
            "requires_grad",
        ):
            changed = name == "dtype" and isinstance(given[0], torch.dtype)
            return TensorOptions(cast("torch.dtype", given[0])) if changed else value
        if isinstance(value, list | torch.Size) and name == "size":
            return len(value)
        if isinstance(value, torch.device) and name in ("is_cuda", "index"):
            return name == "is_cuda" or 0
        if isinstance(value, int) and name in ("stream", "synchronize"):
            return 0  # of the current stream
        self.refuse(f".{name}(...)")
        return None


_WITH_TYPE = ("data_ptr", "item", "mutable_data_ptr", "const_data_ptr", "to")
_QUIET = frozenset(
    [
        "cudaDeviceSynchronize",
        "cudaGetLastError",
        "cudaPeekAtLastError",
        "C10_CUDA_CHECK",
        "AT_CUDA_CHECK",
        "C10_CUDA_KERNEL_LAUNCH_CHECK",
        "CUDA_CHECK",
        "getCurrentCUDAStream",
        "device_of",
        "cudaStreamSynchronize",
    ]
)
"""Calls that have nothing to do: all launches are in order, and failures are raised."""
_MAKES = ("empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like")
_NUMBERS: dict[str, Callable[..., object]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "sqrt": math.sqrt,
    "sqrtf": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "abs": abs,
}


def _number(word: str) -> int | float:
    if word[:2] in ("0x", "0X"):
        return int(word.rstrip("uUlL"), 16)
    plain = word.rstrip("fFuUlL")
    return float(plain) if {"f", "F", ".", "e", "E"} & {*word} else int(plain)


def _cast(value: object, kind: str) -> object:
    number = cast("float", value)
    if kind in ("float", "double"):
        return float(number)
    return bool(number) if kind == "bool" else int(number)


def _pointed(value: object, kind: str) -> object:
    """A pointer that is seen as one to another type, or as the number that it is."""
    if not isinstance(value, Data):
        return value
    if kind.rpartition("::")[2] in ("uintptr_t", "intptr_t"):
        return value.tensor.data_ptr() + value.offset
    name = kind.removeprefix("const").rstrip("*& ")
    return value._replace(size=_SIZES.get(name.removesuffix("const"), 1))


def _dim3(value: object) -> Dim3:
    if isinstance(value, Dim3):
        return value
    numbers = value if isinstance(value, list) else [value]
    return Dim3(*(int(cast("int", each)) for each in numbers))


def _made(name: str, given: list[object]) -> torch.Tensor:
    """A new tensor."""
    if name.endswith("_like"):
        like = cast("torch.Tensor", given[0])
        made: torch.Tensor = getattr(torch, name)(like.contiguous())
        return made
    options = next(
        (each for each in given[1:] if isinstance(each, TensorOptions)), None
    )
    dtype = options.dtype if options else torch.float32
    dtype = next((each for each in given[1:] if isinstance(each, torch.dtype)), dtype)
    shape = [int(each) for each in cast("list[int]", given[0])]
    if name == "full":
        return torch.full(shape, cast("float", given[1]), dtype=dtype)
    created: torch.Tensor = getattr(torch, name)(shape, dtype=dtype)
    return created


def _of_tensor(tensor: torch.Tensor, name: str, given: list[object]) -> object:
    """A method of a tensor; None if it is not known."""
    numbers = [int(each) for each in given if isinstance(each, int)]
    if name in ("data_ptr", "mutable_data_ptr", "const_data_ptr"):
        return Data(tensor, tensor.element_size())
    if name in ("numel", "dim", "is_contiguous", "element_size", "nbytes"):
        return getattr(tensor, name)() if name != "nbytes" else tensor.nbytes
    if name in ("size", "stride"):
        return int(getattr(tensor, name)(numbers[0]))
    if name in ("contiguous", "clone", "zero_", "t", "detach"):
        return getattr(tensor, name)()
    if name in ("view", "reshape"):
        shape = given[0] if isinstance(given[0], list) else given
        return tensor.reshape(cast("list[int]", shape))
    if name in ("transpose", "unsqueeze", "squeeze", "permute", "flatten"):
        inner = given[0] if given and isinstance(given[0], list) else given
        return getattr(tensor, name)(*cast("list[int]", inner))
    if name in ("is_cuda", "defined"):
        return True
    if name == "sizes":
        return [*tensor.shape]
    if name in ("dtype", "scalar_type"):
        return tensor.dtype
    if name == "options":
        return TensorOptions(tensor.dtype)
    return tensor.device if name == "device" else None
