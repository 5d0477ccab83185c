"""Reading matrices from files, and writing results to files.

A ``.npy`` file of numbers holds values.  NumPy saves the types of ml_dtypes
(bf16, fp8, int4 …) as items of so many bytes and forgets which type they were;
such items are taken as raw bits of the type that the instruction wants.  What
could be read both ways is refused.

A ``.safetensors`` file has types.  ``model.safetensors:NAME`` is one tensor of it.

A file is written beside its place and moved there when it is complete, so that an error
or Ctrl-C does not destroy the file that was there before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol, cast
from zipfile import ZipFile

import numpy as np
import typer
from numpy.lib.format import write_array

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.npy import read
from fragmenta.base.arrays.safetensors import SafeArrays, to_bytes
from fragmenta.base.progress import Progress
from fragmenta.errors import BadCall, BadFile, Error, one_of
from fragmenta.reference.registers.dtype import DType

if TYPE_CHECKING:
    from fragmenta.reference.sparse.compression import Compressed

# ── arguments ───────────────────────────────────────────────────────────────


def complete_file(incomplete: str) -> list[str]:
    """Files and folders whose path begins so."""
    folder, name = os.path.split(incomplete)
    try:
        found = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    return [
        os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")
        for entry in found
        if entry.name.startswith(name)
    ]


def matrix_argument(metavar: str, text: str) -> object:
    """An argument that is the file of a matrix."""
    return typer.Argument(
        metavar=metavar, help=text, autocompletion=complete_file, show_default=False
    )


Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the result to this file.",
        autocompletion=complete_file,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite the file if it exists.")
]
SarifFile = Annotated[
    str | None,
    typer.Option(
        "--sarif",
        metavar="FILE",
        help="Write the problems as SARIF 2.1.0, for editors and CI; - prints them "
        "instead of text.",
        autocompletion=complete_file,
        show_default=False,
    ),
]


# ── reading ─────────────────────────────────────────────────────────────────


_SAFE = ".safetensors"


def is_matrix_file(text: str) -> bool:
    """Whether an argument is the name of a file of matrices."""
    return text.endswith((".npy", ".npz", _SAFE)) or f"{_SAFE}:" in text


def load(path: str) -> Array | Mapping[str, Array]:
    """The array of a ``.npy`` file, or those of an archive by name.

    ``x.safetensors:NAME`` is one tensor of a file, and a file of one tensor is that
    tensor.  Arrays are mapped from disk: a large matrix is not in memory twice.
    """
    if path == "-":
        raise BadCall(
            "'-' is not a file; matrices are read from .npy, .npz or .safetensors files"
        )
    file, inside, name = path.partition(f"{_SAFE}:")
    if inside and not os.path.exists(path):
        return SafeArrays(f"{file}{_SAFE}")[name]
    if not path.endswith(_SAFE):
        return read(path)
    found = SafeArrays(path)
    return found[next(iter(found))] if len(found) == 1 else found


def load_matrix(path: str, of: DType) -> Array:
    """The one matrix of a file, in a type that ``of`` can take."""
    return as_elements(load_one(path), of, path)


def load_one(path: str) -> Array:
    """The one array of a file."""
    found = load(path)
    if isinstance(found, Mapping):
        raise not_one(found, path)
    return found


def not_one(found: Mapping[str, Array], path: str) -> Error:
    """The error where one matrix is needed, and a file has several."""
    names = list(found)
    have = one_of(
        names if len(names) < 9 else [*names[:7], f"{len(names) - 7} more"], "and"
    )
    how = (
        f"name one, such as {path}:{names[0]}"
        if isinstance(found, SafeArrays) and names
        else "a .npy file"
    )
    return BadFile(
        f"{path} is an archive of {have or 'nothing'}; one matrix is needed, {how}"
    )


def as_elements(array: Array, of: DType, path: str) -> Array:
    """The array, with raw bits taken as elements, and doubts as errors."""
    given, size = array.dtype, of.storage.itemsize
    if given.type.__module__ == "ml_dtypes":  # a safetensors file has types
        return array
    if given.kind == "V" and given.names is None:
        if of.storage.type.__module__ == "numpy":
            raise BadFile(
                f"{path} holds items of {given.itemsize} bytes without a type, but "
                f"{of} is saved as {of.storage.name}"
            )
        if given.itemsize != size:
            raise BadFile(
                f"{path} holds items of {given.itemsize} bytes, but an element of "
                f"{of} has {size}"
            )
        return _raw(array, of, path)
    if given.kind == "u" and given.itemsize == size and not of.is_integer:
        raise BadFile(
            f"{path} is {given.name}, which could be values or raw bits of {of}; "
            f"save .astype(np.float64) for values, or .view('V{size}') for bits"
        )
    return array


def _raw(array: Array, of: DType, path: str) -> Array:
    if of.is_integer and array.size:
        # A 4-bit integer has nothing or its sign in the upper half of its byte.
        # Anything else was never one.
        whole = array.view(np.int8)
        if whole.min() < -8 or whole.max() > 15:
            raise BadFile(f"{path} holds bytes that are not {of}: they use all 8 bits")
    return array.view(of.storage)


def described(array: Array | Compressed, of: DType) -> str:
    """Such as ``64 x 32 e4m3``."""
    return f"{size_text(array.shape)} {of}"


def size_text(shape: tuple[int, ...]) -> str:
    """A shape as people write it."""
    return " x ".join(map(str, shape))


# ── writing ─────────────────────────────────────────────────────────────────


class _Sink(Protocol):
    def write(self, data: bytes | memoryview, /) -> int: ...


def check_output(path: str, force: bool, *suffixes: str, option: str = "-o") -> None:
    """Refuse a file that is not to be overwritten, before anything is computed."""
    where = Path(path)
    if path == "-":
        raise BadCall(f"'-' is not a file name; {option} takes the name of a file")
    if suffixes and where.suffix not in suffixes:
        raise BadCall(
            f"{option} must name a {one_of(suffixes)} file; did you mean "
            f"{path}{suffixes[0]}?"
        )
    if where.is_dir() or (where.exists() and not where.is_file()):
        raise BadFile(f"{path} cannot be written: it is not a regular file")
    if where.is_symlink() and not where.exists():
        raise BadFile(
            f"{path} is a link to {where.readlink()}, which does not exist; name the "
            "file itself, or remove the link"
        )
    if where.exists() and not force:
        raise BadFile(f"{path} already exists; --force overwrites it")
    if not where.parent.is_dir():
        raise BadFile(f"{path}: there is no folder {str(where.parent)!r}")


def picture_format(path: str) -> str:
    """The format of a picture, by the ending of its name.

    >>> picture_format("ring.svg")
    'svg'
    """
    # Pictures take a while to import.
    from fragmenta.inspect.view.svg import FORMATS

    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in FORMATS:
        endings = one_of(f".{each}" for each in FORMATS)
        raise BadCall(f"{path}: the name of a picture must end in {endings}")
    return ending


def save_bytes(path: str, content: bytes, force: bool) -> None:
    """Write a file of any kind."""
    with _replacing(path, force) as file:
        file.write(content)


def save_text(path: str, text: str, force: bool) -> None:
    """Write a text file."""
    save_bytes(path, text.encode(), force)


def save_array(path: str, array: Array, force: bool, progress: Progress) -> None:
    """Write a ``.npy`` file."""
    with _replacing(path, force) as file:
        sink = _Counting(file, array.nbytes, progress)
        write_array(sink, _nameless(array), allow_pickle=False)


def save_arrays(
    path: str, arrays: Mapping[str, Array], force: bool, progress: Progress
) -> None:
    """Write a ``.npz`` file."""
    total = sum(array.nbytes for array in arrays.values())
    with _replacing(path, force) as file, ZipFile(file, "w") as archive:
        done = 0
        for name, array in arrays.items():

            def part(share: float, done: int = done, size: int = array.nbytes) -> None:
                progress((done + share * size) / max(1, total))

            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                sink = _Counting(cast(_Sink, entry), array.nbytes, part)
                write_array(sink, _nameless(array), allow_pickle=False)
            done += array.nbytes


def save_tensors(
    path: str,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, str],
    force: bool,
    progress: Progress,
) -> None:
    """Write a ``.safetensors`` file."""
    total = max(1, sum(array.nbytes for array in arrays.values()))
    with _replacing(path, force) as file:
        done = 0
        for number, part in enumerate(to_bytes(arrays, metadata)):
            file.write(part)
            done += len(part) if number else 0  # the header does not count
            progress(min(1.0, done / total))


def _nameless(array: Array) -> Array:
    """The array; those of ml_dtypes as bare items, which NumPy reads everywhere."""
    if array.dtype.type.__module__ != "ml_dtypes":
        return array
    return np.ascontiguousarray(array).view(f"V{array.itemsize}")


class _Counting:
    """A file that reports how much of an array was written."""

    def __init__(self, file: _Sink, total: int, progress: Callable[[float], object]):
        self._file, self._total, self._progress = file, max(1, total), progress
        self._done = 0

    def write(self, data: bytes | memoryview) -> int:
        written = self._file.write(data)
        self._done += memoryview(data).nbytes
        self._progress(min(1.0, self._done / self._total))
        return written


@contextmanager
def _replacing(path: str, force: bool) -> Iterator[BinaryIO]:
    """A file that takes its place when it is complete, or never."""
    check_output(path, force)
    where = Path(path).resolve()  # what a link points to, not the link
    beside = where.with_name(f".{where.name}.{os.getpid()}")
    try:
        with open(beside, "xb") as file:
            yield file
        if force:
            os.replace(beside, where)
        else:
            _move_without_overwriting(beside, where)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}") from None
    finally:
        beside.unlink(missing_ok=True)


def _move_without_overwriting(beside: Path, where: Path) -> None:
    """Whoever made the file in the meantime keeps it."""
    try:
        os.link(beside, where)
    except FileExistsError:
        raise BadFile(f"{where} already exists; --force overwrites it") from None
    except OSError:  # a file system without links
        check_output(str(where), force=False)
        os.replace(beside, where)
