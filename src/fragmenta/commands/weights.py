"""The command ``shuffle``: orders of quantised weights, and code that loads them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

import typer

from fragmenta.base.arrays.checks import Array
from fragmenta.base.progress import bar
from fragmenta.commands.app import command
from fragmenta.commands.arguments import complete_instruction, find
from fragmenta.commands.files import (
    Force,
    Output,
    check_output,
    complete_file,
    load_one,
    save_array,
    save_text,
    size_text,
)
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json, printable, width, write
from fragmenta.errors import BadCall, ShapeError, one_of
from fragmenta.reference.isa.searching import search
from fragmenta.reference.weights.orders import KNOWN, Nibbles
from fragmenta.reference.weights.shuffling import Shuffle
from fragmenta.reference.weights.shuffling import shuffle as library

_SHAPE = (4096, 4096)
"""The default size of a weight."""
_NAMES = ", ".join(KNOWN)


def _complete_order(incomplete: str) -> list[str]:
    names = [name for name in KNOWN if name.startswith(incomplete)]
    return names or complete_instruction(incomplete)


def _file(name: str, what: str) -> object:
    return typer.Option(name, metavar="FILE", help=what, autocompletion=complete_file)


@command(
    "shuffle",
    "fragmenta shuffle marlin",
    "fragmenta shuffle mma.m16n8k16.f32.f16 B --size 4096x4096 --k-steps 4",
    "fragmenta shuffle marlin --pack codes.npy -o words.npy",
    "fragmenta shuffle marlin --size 64x128 --unpack words.npy -o again.npy",
    "fragmenta shuffle marlin --size 4096x11008 --function repack --source awq",
    "fragmenta shuffle marlin --size 4096x11008 --function fragments -o load.cuh",
)
def shuffle(
    order: Annotated[
        str | None,
        typer.Argument(
            metavar="ORDER",
            help=f"An instruction, or a name: {_NAMES}.",
            autocompletion=_complete_order,
            show_default=False,
        ),
    ] = None,
    operand: Annotated[
        str | None,
        typer.Argument(
            metavar="OPERAND",
            help="The operand that is the weight: A or B of an instruction.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="KxN",
            help="Rows and columns of the weight: K x N, or N x K if it is A.  By "
            "default those of the file, or 4096 x 4096 to describe an order.",
            show_default=False,
        ),
    ] = None,
    bits: Annotated[int, typer.Option(help="The bits of an element.")] = 4,
    load_bytes: Annotated[
        int | None, typer.Option(help="The bytes that a lane loads at once.")
    ] = None,
    k_steps: Annotated[
        int | None, typer.Option(help="The steps along k in one load.")
    ] = None,
    n_steps: Annotated[
        int | None, typer.Option(help="The tiles along n in one load.")
    ] = None,
    inner: Annotated[
        Literal["k", "n"] | None, typer.Option(help="Where the next block is.")
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(metavar="LINE", help="Any other order, such as 'E* R* L* Y* X*'."),
    ] = None,
    nibbles: Annotated[
        str | None,
        typer.Option(metavar="ORDER", help="fast, plain, or such as 0,2,4,6,1,3,5,7."),
    ] = None,
    pack: Annotated[
        str | None, _file("--pack", "Pack the codes in this .npy file into words.")
    ] = None,
    unpack: Annotated[
        str | None, _file("--unpack", "Unpack the words in this .npy file.")
    ] = None,
    scales: Annotated[
        str | None, _file("--scales", "Reorder scales, a .npy file, groups x N.")
    ] = None,
    zeros: Annotated[
        str | None, _file("--zeros", "Pack zero points, a .npy file, groups x N.")
    ] = None,
    function: Annotated[
        Literal["repack", "load", "dequantize", "fragments"] | None,
        typer.Option(help="Print this function, in CUDA C++."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="With --function repack: the order that is repacked."
        ),
    ] = None,
    to: Annotated[
        Literal["f16", "bf16", "s8", "u8"] | None,
        typer.Option(help="With --function: the type of the registers."),
    ] = None,
    zero: Annotated[
        int | None, typer.Option(help="With --function: the zero point of all codes.")
    ] = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Without ORDER, the known orders are listed.

    Codes are whole numbers, 0 to 15 for 4 bits; words are uint32.  --function writes a
    kernel that repacks a weight, a function by which a lane loads its words, one that
    converts a word into registers, or, as 'fragments', both and one that calls them.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    given = {name: value for name, value in given.items() if value is not False}
    if order is None:
        _list(as_json, sorted({*given} - {"bits", "as_json"}))
        return
    files = ("pack", "unpack", "scales", "zeros", "function")
    asked = [f"--{name}" for name in files if name in given]
    _check_request(asked, output, force)
    if function is None:
        only = [f"--{name}" for name in ("source", "to", "zero") if name in given]
        if only:
            raise BadCall(f"{one_of(only, 'and')} cannot be given without --function")
    codes = _load(pack) if pack is not None else None
    steps = {
        "operand": operand,
        "load_bytes": load_bytes,
        "k_steps": k_steps,
        "n_steps": n_steps,
        "inner": inner,
        "memory": layout,
        "nibbles": _nibbles(nibbles),
    }
    shape = _shape(size, codes, bool(asked))
    means = order not in KNOWN and ({".", " "} & {*order} or search(order))
    named = find(order) if means else order
    made = library(named, shape=shape, bits=bits, **steps)  # type: ignore[arg-type]
    about = _about(made)
    if function is not None:
        text = made.to_cuda(function, source=source, to=to, zero=zero)
        _write_cuda(text, about, output, force, as_json)
        return
    array = _array(made, codes, unpack, scales, zeros)
    if array is not None and output is not None:
        with bar("writing") as progress:
            save_array(output, array, force, progress)
        about["written"] = output
        about["result"], about["type"] = array.shape, str(array.dtype)
    if as_json:
        emit_json(about)
    else:
        emit(_text(about))


def _check_request(asked: list[str], output: str | None, force: bool) -> None:
    """Refuse options that contradict each other."""
    if len(asked) > 1:
        raise BadCall(f"one thing at a time; given {one_of(asked, 'and')}")
    text = asked == ["--function"]
    if output is None and asked and not text:
        raise BadCall(f"{asked[0]} writes a file; name it with -o FILE")
    if output is not None:
        if not asked:
            raise BadCall("-o needs --pack, --unpack, --scales, --zeros or --function")
        check_output(output, force, *([] if text else [".npy"]))


def _list(as_json: bool, given: list[str]) -> None:
    if given:
        options = one_of((f"--{name.replace('_', '-')}" for name in given), "and")
        raise BadCall(f"{options} cannot be given without an ORDER")
    if as_json:
        emit_json(
            {
                name: {"about": known.about, "bits": list(known.memory)}
                for name, known in KNOWN.items()
            }
        )
        return
    label = max(map(len, KNOWN)) + 2
    lines = [
        textwrap.fill(
            f"{name:<{label}}{known.about}", width(), subsequent_indent=" " * label
        )
        for name, known in KNOWN.items()
    ]
    emit("\n".join(lines))


def _nibbles(text: str | None) -> Nibbles | None:
    if text is None or text in ("fast", "plain"):
        return text
    if not re.fullmatch(r"\d{1,2}([,\s]+\d{1,2})*", text, re.ASCII):
        raise BadCall(
            f"--nibbles is fast, plain, or numbers and commas; given {text!r}"
        )
    return [int(each) for each in re.findall(r"\d+", text)]


def _load(path: str) -> Array:
    found = load_one(path)
    if found.dtype.kind == "V" and found.itemsize in (1, 2, 4):
        return found.view(f"u{found.itemsize}")  # a type of ml_dtypes, as its bits
    return found


def _shape(text: str | None, codes: Array | None, needed: bool) -> tuple[int, int]:
    if text is None:
        if codes is not None and codes.ndim >= 2:
            return codes.shape[-2], codes.shape[-1]
        if needed and codes is None:
            raise BadCall("the shape of the weight is needed: --size KxN")
        return _SHAPE
    found = re.fullmatch(r"\s*(\d{1,9})\s*[xX,*]\s*(\d{1,9})\s*", text, re.ASCII)
    if found is None:
        raise ShapeError(f"--size is two numbers, such as 4096x11008; given {text!r}")
    return int(found[1]), int(found[2])


def _array(
    made: Shuffle,
    codes: Array | None,
    unpack: str | None,
    scales: str | None,
    zeros: str | None,
) -> Array | None:
    """The result for the file of an option."""
    if codes is not None:
        return made.pack(codes)
    if unpack is not None:
        return made.unpack(_load(unpack))
    if scales is not None:
        return made.pack_scales(load_one(scales))
    if zeros is not None:
        return made.pack_zeros(_load(zeros))
    return None


def _write_cuda(
    text: str, about: _About, output: str | None, force: bool, as_json: bool
) -> None:
    if output is not None:
        save_text(output, text + "\n", force)
        about["written"] = output
    if as_json:
        emit_json({**about, "cuda": text})
    elif output is None:
        write(text)
    else:
        lines = len(text.splitlines())
        write(printable(f"{lines} lines of CUDA to {output}"))


class _About(TypedDict, total=False):
    """Everything about an order, and what was written."""

    order: str
    shape: dict[str, int]
    bits: int
    words: tuple[int, ...]
    instruction: str
    operand: str
    fragment: str
    load_bytes: int
    k_steps: int
    n_steps: int
    memory: str
    nibbles: Sequence[int]
    stored: str
    scales: str
    channel: str
    written: str
    result: tuple[int, ...]
    type: str


def _about(made: Shuffle) -> _About:
    """Everything about an order."""
    found: _About = {
        "order": made.name,
        "shape": dict(zip(made.layout.data, made.shape, strict=True)),
        "bits": made.bits,
        "words": made.word_shape,
    }
    if made.fragment is not None:
        found["instruction"] = str(made.op)
        found["operand"] = made.operand
        found["fragment"] = str(made.fragment.layout)
        found["load_bytes"] = made.load_bytes
        found["k_steps"], found["n_steps"] = made.k_steps, made.n_steps
    found["memory"] = str(made.natural)
    found["nibbles"] = made.nibbles
    found["stored"] = str(made.layout.inverse())
    found["scales"] = str(made.scale_order().inverse())
    if made.channel:
        found["channel"] = str(made.scale_order(channel=True).inverse())
    return found


def _text(about: _About) -> str:
    """Labelled lines; long ones are wrapped."""
    names = " x ".join(about["shape"])
    size = size_text(tuple(about["shape"].values()))
    rows = {
        "order": about["order"],
        "weight": f"{size} ({names}), {about['bits']} bits",
        "words": f"{size_text(about['words'])} uint32",
    }
    if "operand" in about:
        rows["instruction"] = about["instruction"]
        rows["operand"] = f"{about['operand']}: {about['fragment']}"
        steps = f"k_steps {about['k_steps']}, n_steps {about['n_steps']}"
        rows["load"] = f"{about['load_bytes']} bytes: {steps}"
    rows["memory"] = about["memory"]
    rows["nibbles"] = " ".join(map(str, about["nibbles"]))
    rows |= {"stored": about["stored"], "scales": about["scales"]}
    if "channel" in about:
        rows["channel"] = about["channel"]
    if "written" in about:
        made = f"{size_text(about['result'])} {about['type']}"
        rows["written"] = f"{made} to {about['written']}"
    lines = []
    for label, text in rows.items():
        wrapper = textwrap.TextWrapper(
            width(),
            initial_indent=f"{label:<13}",
            subsequent_indent=" " * 13,
            break_long_words=False,
        )
        lines += wrapper.wrap(text)
    return "\n".join(lines)
