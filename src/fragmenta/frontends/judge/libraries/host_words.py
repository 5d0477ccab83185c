"""The words of C++ in host code, and the types that they name."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

import torch

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import Error

if TYPE_CHECKING:
    from fragmenta.frontends.judge.libraries.host_code import Host


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


TYPES = frozenset(
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
SPACES = ("torch", "at", "std", "c10", "cuda")
SCALARS = {
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
SIZES = {
    **{name: kind.itemsize for name, kind in SCALARS.items()},
    **{f"{name}{n}": n * 4 for name in ("float", "int", "uint") for n in (2, 3, 4)},
    **dict.fromkeys(("half2", "__half2", "__nv_bfloat162", "unsigned", "uint32_t"), 4),
    **dict.fromkeys(("double2", "longlong2", "ulonglong2"), 16),
    **dict.fromkeys(("char", "unsigned char", "int8_t", "signed char"), 1),
    **dict.fromkeys(("short", "uint16_t", "int16_t"), 2),
    **dict.fromkeys(("size_t", "uint64_t", "long long"), 8),
}


@dataclass
class Words:
    """The words of a function, and where it is in them."""

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

    def peek(self, ahead: int = 0) -> str:
        """The next word, or one behind it; nothing at the end."""
        place = self.at + ahead
        return self.words[place].text if place < len(self.words) else ""

    def take(self, wanted: str = "") -> str:
        """The next word, which may have to be a certain one."""
        found = self.peek()
        if (wanted and found != wanted) or not found:
            self.refuse(f"{found or 'the end'} where {wanted or 'more'} is expected")
        self.step()
        return found

    def accept(self, text: str) -> bool:
        """Whether this word follows; then it is taken."""
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
        """Say with its line what is not understood."""
        place = min(self.at, len(self.words) - 1)
        line = self.words[place].line if self.words else 0
        raise NotRun(
            f"host code, line {line}: {what} is not understood here; declarations, "
            "arithmetic, if, for, tensors and launches are. ptx.RawKernel launches a "
            "kernel from Python"
        )

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
        if self.peek() in SPACES and self.peek(1) == "::":
            while self.peek(1) == "::":
                words.append(self.take() + self.take())
            words.append(self.take())
            if self.peek() == "<":
                words.append(self.angles())
            made = "".join(words)
        else:
            while self.peek() in TYPES | SIZES.keys() | self.types.keys():
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
