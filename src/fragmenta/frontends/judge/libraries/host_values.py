"""The values of expressions in host code: numbers, pointers, tensors, grids."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch

from fragmenta.frontends.judge.libraries.host_words import SIZES, TYPES, Words


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


def converted(value: object, kind: str) -> object:
    """A value as a variable of this type holds it."""
    if isinstance(value, torch.Tensor) or not isinstance(value, bool | int | float):
        return value
    words = kind.split()
    if {"float", "double"} & {*words}:
        return float(value)
    if "bool" in words:
        return bool(value)
    if "auto" in words or not {*words} & TYPES:
        return value
    made = int(value)
    small = {"int", "int32_t"} & {*words} and not {"long", "unsigned"} & {*words}
    if small and not -(1 << 31) <= made < 1 << 31:
        raise OverflowError(f"{made} does not fit into an int")
    return made


class Values(Words):
    """Reads and computes expressions."""

    def arguments(self, closing: str) -> list[object]:
        """The values between commas, up to a closing sign."""
        found: list[object] = []
        while not self.accept(closing):
            found.append(self.expression())
            if not self.accept(",") and self.peek() != closing:
                self.refuse(self.peek())
        return found

    def expression(self) -> object:
        """A value, also one of two behind a question mark."""
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
        """A value of operators that bind at least so."""
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
        """A value behind signs and casts."""
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
        if self.peek() == "(" and self.peek(1) in TYPES:
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
        """A number, a text, a name, or what is in parentheses."""
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
            return SIZES.get(found, 4)
        if self.accept("("):
            return self.called(name, kind, self.arguments(")"))
        space, _, short = name.rpartition("::")
        short = f"k{short}" if space.endswith("ScalarType") else short
        if space and short in _KINDS:
            return _KINDS[short]
        return self.look_up(name)

    def look_up(self, name: str) -> object:
        """The value of a variable or a constant."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if not self.active:
            return 0
        if name in self.host.constants:
            return type(self)(self.host, self.host.constants[name], [{}]).expression()
        self.refuse(name)
        return None

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

    def postfix(self, value: object) -> object:
        """A value with what follows it: methods, members, places."""
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
        """What a function returns, or a cast gives."""
        if not self.active:
            return 0
        short = name.rpartition("::")[2]
        if name in _POINTER_CASTS:
            return _pointed(given[0], kind)
        if name == "static_cast":
            return self.cast(given[0], kind)
        if name in ("dim3",):
            return dim3(given)
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
        if name in TYPES:
            return self.cast(given[0], name)
        if short in ("make_tuple", "TensorOptions", "tuple"):
            return given
        self.refuse(f"{name}(...)")
        return None

    def method(
        self, value: object, name: str, kind: str, given: list[object]
    ) -> object:
        """What a method of a value returns."""
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
    return value._replace(size=SIZES.get(name.removesuffix("const"), 1))


def dim3(value: object) -> Dim3:
    """The sizes of a grid that one number, or several, stand for."""
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
