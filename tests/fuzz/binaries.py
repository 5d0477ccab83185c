"""What compilers and strangers give: fat binaries, cubins, texts to link, recordings.

Files that are right are changed a little.  Each is read, or refused in words, and
quickly.  A recording that is read also gets the memory that its kernel would be
launched with; no kernel is run.
"""

from __future__ import annotations

import copy
import json
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fragmenta.base.arrays import npy
from fragmenta.cuda.tools import fatbin, line_tables, unpacking
from fragmenta.engine.simt.arguments import Received
from fragmenta.inspect.evidence import launches
from fragmenta.inspect.evidence.card_memory import Addresses
from fragmenta.inspect.evidence.launches import Launches, RecordedLaunch, Started
from fragmenta.launch.kernel import Loaded, parse
from fragmenta.launch.limits import Limits
from fragmenta.ptx import linking
from tests.fuzz.engine import NUMBERS, Ask, expect
from tests.fuzz.files import archived, put

GOLDEN = Path(__file__).parents[1] / "golden" / "programs"
TEXT = """.version 8.0
.target sm_90
.address_size 64
.extern .func other(.param .b32 given);
.visible .global .align 4 .u32 held[4] = {1, 2, 3};
.weak .func shared_one() { ret; }
/* a comment */ // and another
.visible .entry f(.param .u64 x)
{

\t.loc 1 5 3
\tld.param.u64 %rd1, [x];

\t.loc 1 6 3, function_name $L__info_string0, inlined_at 1 5 3
\tret;
}
.file 1 "first.cu"
.section .debug_str
{
$L__info_string0:
.b8 109, 97, 105, 110, 0
}
"""
WORDS = (
    *(".version", ".target", ".file", ".extern", ".visible", ".weak", ".func"),
    *(".entry", ".section", ".global", ".loc", "{", "}", "(", ")", ";", '"', "/*"),
    *("*/", "//", "\n" * 3000, " " * 3000, "9" * 5000, "sm_80", "held", "f", "é", "\0"),
)


def spoiled(content: bytes, rng: random.Random, words: bool = False) -> bytes:
    """The same with a few numbers changed, parts cut out, put in or repeated."""
    made = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(made)) if made else 0
        kind = rng.randrange(6)
        if kind == 0 and made:
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice((*NUMBERS, len(content), len(content) - at))
            made[at : at + size] = (number % 256**size).to_bytes(size, "little")
        elif kind == 2 and rng.random() < 0.3:
            del made[at:]
        elif kind == 3:
            del made[at : at + rng.choice((1, 8, 64))]
        elif kind == 4:
            part = made[at : at + rng.choice((1, 16, 200))]
            made[at:at] = part * rng.choice((1, 2, 300))
        else:
            put = rng.choice(WORDS).encode() if words else rng.randbytes(8)
            made[at:at] = put
    return bytes(made)


# ── files of compilers ──────────────────────────────────────────────────────


def line_table(program: bytes) -> bytes:
    """A part of a line table, in the format of DWARF."""
    counts = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1))
    head = struct.pack("<BBbBB", 1, 1, -5, 14, 10) + counts
    head += b"folder\0\0" + b"first.cu\0\1\0\0" + b"second.cu\0\0\0\0" + b"\0"
    body = struct.pack("<HI", 2, len(head)) + head + program
    return struct.pack("<I", len(body)) + body


@cache
def tables() -> dict[str, bytes]:
    """Two line tables that belong together, and which functions they are about."""
    start = b"\0\x09\x02" + bytes(8)
    source = start + b"\x03\x04\x01" + b"\0\x02\x90\x01" + b"\x04\x02\x20\x40\x01"
    lines = b"\x03\x09\x01\x21\x21\x21\x21"
    made = {
        ".debug_line": line_table(source + b"\0\x01\x01"),
        ".nv_debug_line_sass": line_table(start + lines + b"\0\x01\x01"),
    }
    for name, data in list(made.items()):
        place = data.index(start) + 3
        made[f".rel{name}"] = struct.pack("<QQ", place, 7 << 32 | 2)
    return made


def elf(sections: dict[str, bytes], machine: int) -> bytes:
    """A 64-bit ELF file."""
    names = b"\0" + b"".join(each.encode() + b"\0" for each in [*sections, ".names"])
    every = {**sections, ".names": names}
    rows, body, at = b"", b"", 64 + 64 * len(every)
    for name, data in every.items():
        place = names.index(b"\0" + name.encode() + b"\0") + 1
        rows += struct.pack("<IIQQQQIIQQ", place, 1, 0, 0, at, len(data), 0, 0, 1, 0)
        body, at = body + data, at + len(data)
    head = struct.pack("<4sBB10xHHIQQQI", fatbin.ELF, 2, 1, 1, machine, 1, 0, 0, 64, 0)
    head += struct.pack("<HHHHHH", 64, 0, 0, 64, len(every), len(every) - 1)
    return head + rows + body


def entry(kind: int, payload: bytes, flags: int = 0, whole: int = 0) -> bytes:
    """A module of a fat binary."""
    size = len(payload)
    head = struct.pack("<HHIQII", kind, 0x101, 64, size, size, 0)
    head += struct.pack("<IIIIQQQ", 0, 90, 64, 0, flags, 0, whole)
    return head + payload


@cache
def compiled() -> list[bytes]:
    """Right files: a cubin with PTX, a fat binary of it and of packed texts, a program."""
    text = TEXT.encode()
    cubin = elf({".nv_debug_ptx_txt": text.replace(b"\n", b"\0"), **tables()}, 190)
    packed = bytes((0xF0,)) + _lz4_length(len(text) - 15) + text
    frame = bytes.fromhex("28b52ffd60") + struct.pack("<H", len(text) - 256)
    frame += struct.pack("<I", len(text) << 3 | 1)[:3] + text
    entries = entry(1, text) + entry(2, cubin)
    entries += entry(1, packed, 0x2000, len(text)) + entry(1, frame, 0x8000, len(text))
    fat = fatbin.MAGIC + struct.pack("<HHQ", 1, 16, len(entries)) + entries
    strings = b"\0libcudart.so.13\0"
    dynamic = struct.pack("<QQQQ", 1, 1, 0, 0)
    parts = {".nv_fatbin": fat, ".dynamic": dynamic, ".dynstr": strings}
    return [cubin, fat, elf(parts, 62)]


def _lz4_length(rest: int) -> bytes:
    return b"\xff" * (rest // 255) + bytes((rest % 255,))


def compiled_files(ask: Ask) -> None:
    """The PTX of a damaged file, or a refusal."""
    rng = ask.rng
    whole = rng.choice(compiled())
    for image in ask.accepted(fatbin.images, whole):
        expect(image.text is not None, "a module lost its PTX")
    data = spoiled(whole, rng)
    ask(fatbin.sections, data) if rng.random() < 0.2 else ask(fatbin.images, data)


def packed_texts(ask: Ask) -> None:
    """Packed bytes unpack to as many as were said, or are refused."""
    rng = ask.rng
    data = bytes.fromhex("28b52ffd20") + rng.randbytes(rng.randrange(1, 40))
    if rng.random() < 0.7:  # a compressed block of random content
        block = rng.randbytes(rng.randrange(1, 60))
        size = struct.pack("<I", len(block) << 3 | 2 << 1 | 1)[:3]
        data = bytes.fromhex("28b52ffd20ff") + size + block
    count = rng.choice((0, 3, 255, 2**31, 2**63))
    unpack = rng.choice((unpacking.zstd, unpacking.zstd, unpacking.lz4))
    expect(len(ask(unpack, data, count)) == count, "another size")


def line_tables_(ask: Ask) -> None:
    """No line of PTX moves, whatever the line tables say."""
    rng = ask.rng
    sections = {
        name: spoiled(data, rng) if rng.random() < 0.6 else data
        for name, data in tables().items()
    }
    made = ask.accepted(line_tables.with_lines, TEXT, sections)
    for old, new in zip(TEXT.split("\n"), made.split("\n"), strict=False):
        expect(not old or old == new, f"{old} became {new}")
        expect(bool(old) or not new or new.startswith((".loc", ".file")), new)


def linked_texts(ask: Ask) -> None:
    """Texts are linked, or refused."""
    rng = ask.rng
    texts = [TEXT, TEXT.replace(".visible", rng.choice((".visible", ".weak", "")))]
    at = rng.randrange(2)
    changed = spoiled(texts[at].encode(), rng, words=True)
    texts[at] = changed.decode("utf-8", "replace")
    ask(linking.link, texts)


# ── recordings of programs ──────────────────────────────────────────────────


@cache
def recorded() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The index of each recording, and its other parts."""
    found = []
    for path in sorted(GOLDEN.glob("*.npz")):
        parts = {name: np.array(part) for name, part in npy.read(path).items()}
        found.append((json.loads(parts["index"].tobytes()), parts))
    return found


ANYTHING = (
    *(
        None,
        True,
        -1,
        0,
        1,
        3,
        64,
        2**31,
        2**62,
        2**63 - 1,
        2**64,
        2**70,
        1e9,
        "",
        "00",
    ),
    *("_Z4rows4Sums", "\x1b[2J", [], [1, 1, 1], [2**40, 1, 1], {}, [[0, 0, 0]]),
    {"kind": "full", "type": "u8", "shape": [2**32], "value": 1},
    {"kind": "bits", "type": "u8", "shape": [64]},
    {"kind": "stored", "type": "u8", "shape": [4], "start": 2**62},
    {"kind": "struct", "bytes": ""},
    {"kind": "pointer", "argument": 0, "offset": -8},
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """All lists and dictionaries in a value, each with a name or number in it."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, each in inside:
        found.append((value, key))
        if isinstance(each, dict | list):
            found += _places(each)
    return found


def recorded_programs(ask: Ask) -> None:
    """A launch that is read gets memory and parameters that fit its kernel."""
    rng = ask.rng
    index, parts = rng.choice(recorded())
    changed = copy.deepcopy(index)
    for _ in range(rng.randrange(1, 4)):
        where, key = rng.choice(_places(changed))
        if rng.random() < 0.2:
            del where[key]
        else:
            where[key] = copy.deepcopy(rng.choice(ANYTHING))
    text = np.frombuffer(json.dumps(changed).encode(), np.uint8)
    path = put(archived({**parts, "index": text}, False), "p.npz")
    found = ask(launches.load, Path(path))
    for launch in found.launches:
        ask(_prepared, found, launch)


@cache
def _module(text: str) -> Loaded:
    return parse(text)


def _prepared(found: Launches, launch: RecordedLaunch) -> None:
    """What comes before a launch."""
    kernel = _module(found.texts[launch.text][1]).kernels[launch.entry]
    launches.check_room(launch, Limits(memory=1 << 28))
    given = Started(found, launch, kernel).given
    if isinstance(given, Received):
        given.check(kernel.function)
        sizes = {name: len(data) for name, data in kernel.loaded.kept.items()}
        known = kernel.loaded.module.variables
        expect(set(sizes) <= set(known), f"variables {sizes}")


def moved_words(ask: Ask) -> None:
    """Words that point into memory move with it; others stay."""
    rng = ask.rng
    starts = rng.sample((0, 8, 4096, 2**40, 2**63 - 1), rng.randrange(6))
    parts = [
        (start, rng.choice((0, 1, 8, 2**32 if start > 4096 else 8))) for start in starts
    ]
    here = [(number + 1) << 36 for number in range(len(parts))]
    choices = [0, 1, 2**64 - 1, rng.getrandbits(64)]
    for start, size in parts:
        choices += [start, start + size, start + size + 1, start - 1]
    words = [rng.choice(choices) % 2**64 for _ in range(rng.randrange(9))]
    data = np.array(words, np.uint64).view(np.uint8)
    moved = ask.accepted(Addresses(parts, here).moved, data).view(np.uint64)
    for old, new in zip(words, moved.tolist(), strict=True):
        goals = [
            old - start + to
            for (start, size), to in zip(parts, here, strict=True)
            if size and start <= old <= start + size
        ]
        expect(new in (goals or [old]), f"{old:#x} became {new:#x}")


GAMES = {
    compiled_files: 3,
    packed_texts: 3,
    line_tables_: 3,
    linked_texts: 3,
    recorded_programs: 1,
    moved_words: 1,
}
