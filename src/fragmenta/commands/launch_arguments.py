"""Files and arguments of ``launch`` and ``record --launch``.

An argument is a file, a few words that describe an array, or a number with its type.
Described arrays are made as recordings make them, from integer arithmetic alone: every
machine makes the same bytes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.commands.files import load
from fragmenta.commands.launch_options import sides
from fragmenta.commands.output import complain
from fragmenta.cuda.tools import files
from fragmenta.cuda.tools.files import File
from fragmenta.errors import (
    BadCall,
    BadFile,
    Error,
    ShapeError,
    UnknownType,
    ValueRangeError,
    nearest,
    one_of,
    shortened,
)
from fragmenta.inspect.evidence import arguments as made
from fragmenta.inspect.evidence.arguments import MOST_BYTES, TYPES, Argument, Into, Spec
from fragmenta.launch.kernel import Kernel
from fragmenta.reference.registers.dtype import nearest_type


def block_of(kernel: Kernel, text: str | None) -> tuple[int, ...]:
    """The threads of a block: as given, or as the kernel needs them."""
    if text is not None:
        return sides(text, "--block")
    needed = kernel.function.directives.get("reqntid")
    if needed is None:
        raise BadCall(
            "--block is missing: how many threads does a block of "
            f"{kernel.function.shown} have?"
        )
    return tuple(int(each) for each in needed)


class KernelSelection(NamedTuple):
    """Files with kernels, and the kernel that is meant."""

    files: tuple[File, ...]
    name: str | None

    def all(self, target: str | None) -> list[tuple[str, Kernel]]:
        """Every kernel that may be meant, with its file."""
        return [
            (file.path, kernel)
            for file in self.files
            for kernel in self._kernels(file, target)
        ]

    def _kernels(self, file: File, target: str | None) -> list[Kernel]:
        found = file.kernels(target)
        if self.name is None:
            return list(found.values())
        return [found[each] for each in found.meant(self.name)]

    def one(self, target: str | None) -> tuple[str, Kernel]:
        """The kernel, and its file."""
        found = self.all(target)
        if len(found) == 1:
            return found[0]
        if not found:  # the error of the one file, or of the last, lists its kernels
            return self.files[-1].path, self.files[-1].kernel(self.name, target)
        if len(self.files) == 1:
            return self.files[0].path, self.files[0].kernel(self.name, target)
        have = one_of((f"{k.function.shown} in {path}" for path, k in found), "and")
        raise BadCall(f"the files have {len(found)} such kernels, name one: {have}")


_SUFFIXES = (".ptx", ".cu", ".cuh", ".cubin", ".fatbin", ".o", ".so")


def read_files(
    words: Sequence[str], target: str | None = None, options: Sequence[str] = ()
) -> KernelSelection:
    """The files of a command line, and the kernel behind them.

    The last word is a kernel if it is no file.
    """
    *first, last = words
    is_file = os.path.exists(last) or last.endswith(_SUFFIXES) or not first
    paths, name = (words, None) if is_file else (first, last)
    names = () if name is None else (name,)
    found = tuple(files.read(path, target, options, names) for path in paths)
    for file in found:
        for note in file.notes:
            complain(f"{file.path}: note: {note}")
    return KernelSelection(found, name)


def find_kernel(file: str, name: str | None) -> Kernel:
    """A kernel of a file; the name may be left out if there is one only."""
    return read_files([file] if name is None else [file, name]).one(None)[1]


# ── arguments ───────────────────────────────────────────────────────────────

_ALIASES = {
    **{f"s{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}
_FLOATS = ("f16", "bf16", "f32", "f64", "e4m3", "e5m2")
_FORMS = {
    "zeros": "zeros:TYPE:SHAPE",
    "ones": "ones:TYPE:SHAPE",
    "full": "full:TYPE:SHAPE:VALUE",
    "arange": "arange:TYPE:SHAPE",
    "random": "random:TYPE:SHAPE[:SEED]",
    "bytes": "bytes:HEX",
    "pointer": "pointer:INDEX[+OFFSET]",
}


class LaunchArgument(NamedTuple):
    """An argument: as written, as a recording describes it, and as it is."""

    text: str
    spec: Spec
    value: Argument

    @property
    def elements(self) -> Array | None:
        """The elements of an array, in their own type."""
        if not isinstance(self.value, np.ndarray):
            return None
        return made.elements(self.value, self.spec["type"])


def read_arguments(texts: Sequence[str]) -> list[LaunchArgument]:
    """Parse the texts of ``--arg``.

    >>> [given.value for given in read_arguments(["i32:64", "arange:f16:3"])]
    [np.int32(64), array([0., 1., 2.], dtype=float16)]
    """
    found = []
    for index, text in enumerate(texts):
        try:
            found.append(_read(text, index))
        except MemoryError:
            raise Error(f"--arg {shortened(text)}: it does not fit in memory") from None
        except Error as why:
            raise BadCall(f"--arg {shortened(text)}: {why}") from None
    for each in found:
        if isinstance(each.value, Into):
            try:
                check_goal(each.value, [one.value for one in found])
            except Error as why:
                raise BadCall(f"--arg {each.text}: {why}") from None
    return found


def check_goal(given: Into, every: Sequence[object]) -> None:
    """Refuse a pointer into an argument that is no array."""
    goal = given.argument
    arrays = [i for i, one in enumerate(every) if isinstance(one, np.ndarray)]
    if goal not in arrays:
        have = f"arrays are {one_of(arrays, 'and')}" if arrays else "there is none"
        raise BadCall(f"argument {goal} is no array; {have}")


def _read(text: str, index: int) -> LaunchArgument:
    kind = text.partition(":")[0]
    archive = re.fullmatch(r"(.+\.npz):([^:]+)", text)
    if archive is not None:
        return from_file(archive[1], name=archive[2])
    if text.endswith(".npy") or (kind not in _FORMS and os.path.isfile(text)):
        return from_file(text)
    return described(text, index)


def described(text: str, index: int, most: int = MOST_BYTES) -> LaunchArgument:
    """An argument that a few words describe, of at most so many bytes.

    >>> described("full:f32:3:0.5", 0).value
    array([0.5, 0.5, 0.5], dtype=float32)
    """
    kind, _, rest = text.partition(":")
    reader = _READERS.get(kind)
    if reader is not None:
        spec = reader(kind, rest.split(":"), index)
    elif kind in TYPES or kind in _ALIASES:
        spec = made.scalar(_type(kind), _value(rest, _type(kind)))
    else:
        allowed = [*_FORMS, *TYPES]
        raise BadCall(
            f"neither a .npy file nor an argument{nearest(kind, allowed)}; an argument "
            f"is FILE.npy, TYPE:VALUE, {one_of(_FORMS.values())}; a TYPE is "
            f"{one_of(TYPES)}"
        )
    if "shape" in spec:
        check_shape(spec["shape"], np.dtype(TYPES[spec["type"]]).itemsize, most)
    return LaunchArgument(text, spec, made.make(spec, 0))


def check_shape(shape: Sequence[int], itemsize: int, most: int) -> int:
    """The bytes of an array; an error if NumPy has none of that shape, or too large."""
    if len(shape) > 32:
        raise ShapeError(f"an array has at most 32 dimensions; given {len(shape)}")
    size = prod(shape) * itemsize
    check_size(size, most)
    # An empty array has no bytes, but NumPy multiplies its other dimensions.
    if prod(n or 1 for n in shape) * itemsize > np.iinfo(np.intp).max:
        raise ShapeError(
            "the dimensions of an array that are not 0 have a product below 2^63, in "
            f"bytes; given {list(shape)} of {itemsize} bytes each"
        )
    return size


def check_size(size: int, most: int) -> None:
    """Refuse an array that is too large."""
    if size > most:
        raise ValueRangeError(f"an array has at most {most:,} bytes; given {size:,}")


def from_file(path: str, most: int = MOST_BYTES, name: str = "") -> LaunchArgument:
    """The array of a file, row by row, its bytes in the order of the GPU.

    ``name`` is that of an array in an archive, a ``.npz`` file.
    """
    found = load(path)
    if isinstance(found, Mapping):
        have = one_of(found, "and") or "nothing"
        if name not in found:
            raise BadFile(
                f"an archive of {have}; one array is needed, such as "
                f"{path}:{next(iter(found), 'x')}"
            )
        found = found[name]
        path = f"{path}:{name}"
    elif name:
        raise BadFile(f"{path} is one array, no archive")
    check_size(found.nbytes, most)
    little = found.dtype.newbyteorder("<") if sys.byteorder == "little" else found.dtype
    array = np.array(found, little, order="C", copy=True)
    spec = made.stored(array)
    if list(array.shape) != spec["shape"]:  # of a type without a name
        array = array.reshape(-1).view(np.uint8)
    return LaunchArgument(path, spec, array)


def _zeros(kind: str, words: list[str], index: int) -> Spec:
    del index
    name, shape = _array(kind, words, 2)
    return made.full(name, *shape, value=0 if kind == "zeros" else 1)


def _full(kind: str, words: list[str], index: int) -> Spec:
    del index
    name, shape = _array(kind, words, 3)
    return made.full(name, *shape, value=_value(words[2], name))


def _arange(kind: str, words: list[str], index: int) -> Spec:
    del index
    name, shape = _array(kind, words, 2)
    return made.arange(name, *shape)


def _random(kind: str, words: list[str], index: int) -> Spec:
    """Floats around zero, integers of all bits; without a seed no two are equal."""
    name, shape = _array(kind, words, 2, 3)
    seed = _whole(words[2], "SEED") if len(words) > 2 else index
    spec = made.normal if name in _FLOATS else made.bits
    return {**spec(name, *shape), "seed": seed}


def _bytes(kind: str, words: list[str], index: int) -> Spec:
    del kind, index
    try:
        return made.struct(bytes.fromhex(":".join(words).removeprefix("0x")))
    except ValueError:
        raise ValueRangeError("HEX is two hexadecimal digits for each byte") from None


def _pointer(kind: str, words: list[str], index: int) -> Spec:
    del kind, index
    goal = re.fullmatch(r"(\d+)(?:\+?(-?\w+))?", ":".join(words), re.ASCII)
    if goal is None:
        raise ValueRangeError(f"a pointer is {_FORMS['pointer']}, such as pointer:0+64")
    return made.into(int(goal[1]), _whole(goal[2] or "0", "OFFSET"))


_READERS: dict[str, Callable[[str, list[str], int], Spec]] = {
    "zeros": _zeros,
    "ones": _zeros,
    "full": _full,
    "arange": _arange,
    "random": _random,
    "bytes": _bytes,
    "pointer": _pointer,
}


def _array(
    kind: str, words: list[str], least: int, most: int | None = None
) -> tuple[str, tuple[int, ...]]:
    if not least <= len(words) <= (most or least):
        raise BadCall(f"it is written {_FORMS[kind]}")
    name = _type(words[0])
    if not re.fullmatch(r"\d+(x\d+)*", words[1], re.ASCII):
        raise ShapeError(
            "SHAPE is numbers with x between them, such as 128x64; given "
            f"{shortened(words[1])}"
        )
    return name, tuple(int(each[:20]) for each in words[1].split("x"))


def _type(word: str) -> str:
    name = _ALIASES.get(word, word)
    if name not in TYPES:
        allowed = [*TYPES, *_ALIASES]
        raise UnknownType(
            f"no type {word:.40}{nearest_type(word, allowed)}; there are "
            f"{one_of(TYPES, 'and')}"
        )
    return name


def _whole(text: str, what: str) -> int:
    try:
        return int(text[:40], 0)
    except ValueError:
        raise ValueRangeError(
            f"{what} is a whole number; given {shortened(text)}"
        ) from None


def _value(text: str, name: str) -> float:
    """A number of a type."""
    if name not in _FLOATS:
        return _whole(text, f"the VALUE of {name}")
    try:
        return float.fromhex(text) if "0x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        raise ValueRangeError(
            f"the VALUE of {name} is a number; given {shortened(text)}"
        ) from None


def check_parameters(kernel: Kernel, given: Sequence[LaunchArgument]) -> None:
    """Refuse a number whose type is not that of the parameter."""
    for index, (each, parameter) in enumerate(
        zip(given, kernel.parameters, strict=False)
    ):
        if each.spec["kind"] != "scalar":
            continue
        name = each.spec["type"]
        size = np.dtype(TYPES[name]).itemsize
        fits = size == parameter.size
        if fits and parameter.type[0] in "fsu":
            fits = (parameter.type[0] == "f") == (name in _FLOATS)
        if not fits:
            wanted = _ALIASES.get(parameter.type, parameter.type)
            shown = each.text.partition(":")[2]
            write = f"; write {wanted}:{shown}" if wanted in TYPES else ""
            raise BadCall(
                f"--arg {each.text}: argument {index} ({parameter.name}) is a "
                f".{parameter.type} of {parameter.size} bytes, {name} has {size}{write}"
            )
