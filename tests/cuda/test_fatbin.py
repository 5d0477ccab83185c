"""PTX is found in all that nvcc writes, packed in every way that it packs."""

import contextlib
import random
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fragmenta.cuda.tools import assembler, fatbin, unpacking
from fragmenta.errors import BadFile
from tests.fuzz import binaries

HEAD = ".version 8.0\n.target {}\n.address_size 64\n"
MODES = ("size", "speed", "balance", "default")


def module(target="sm_90", body=".visible .entry f() { ret; }\n"):
    return HEAD.format(target) + body


def pack(folder: Path, texts: dict[str, str], mode: str, *options: str) -> bytes:
    """A fat binary that NVIDIA's own tool makes of these modules."""
    words = []
    for target, text in texts.items():
        path = folder / f"{target}.ptx"
        path.write_text(text)
        words.append(f"--image3=kind=ptx,sm={target[3:]},file={path}")
    made = folder / "made.fatbin"
    tool = str(assembler.tool("fatbinary"))
    command = [tool, f"--create={made}", "-64", f"--compress-mode={mode}"]
    subprocess.run([*command, *words, *options], check=True, capture_output=True)
    return made.read_bytes()


def bodies():
    """Texts of several kinds: repeated, skewed, many words, long and short."""
    chosen = random.Random(3)
    words = ["mov.u32", "add.s32", "%r", "ld.global", ";\n", " "]
    yield "// x\n"
    yield "a" * 200_000
    for count in (20, 3000, 60_000):
        pick = chosen.choices("abcdefghij", [90, 50, 20, 9, 5, 3, 2, 1, 1, 1], k=count)
        yield "".join(pick)
        yield "".join(
            chosen.choice(words) + str(chosen.randrange(90)) for _ in range(count // 3)
        )


@pytest.mark.parametrize("mode", MODES)
def test_every_packing_has_the_bytes_of_the_unpacked_one(tmp_path, mode):
    """The tool itself says what is right: without compression."""
    for body in bodies():
        texts = {"sm_90": module(body=body)}
        (wanted,) = fatbin.images(pack(tmp_path, texts, "none"))
        (found,) = fatbin.images(pack(tmp_path, texts, mode))
        assert found == wanted
        assert len(found.text) > len(body) // 2


def test_several_modules_in_one_entry(tmp_path):
    texts = {"sm_80": module("sm_80"), "sm_90a": module("sm_90a")}
    packed = pack(tmp_path, texts, "default", "--concat")
    assert [(e.target, e.text) for e in fatbin.ptx_texts(packed)] == [*texts.items()]


def test_cubins_with_and_without_ptx():
    text = module("sm_90a")
    with_ptx = assembler.assemble(text, "sm_90a", "-g")
    (found,) = fatbin.ptx_texts(with_ptx)
    assert found.target == "sm_90a"
    assert [line for line in found.text.splitlines() if line] == text.splitlines()
    without = assembler.assemble(text, "sm_90a")
    assert fatbin.images(without) == [fatbin.Image("sm_90", None)]
    with pytest.raises(BadFile, match="only machine code for sm_90; compile with"):
        fatbin.ptx_texts(without)


@pytest.mark.parametrize("mode", ["size", "speed", "none"])
def test_damaged_files_are_refused_or_read(tmp_path, mode):
    """Each byte in turn is another one: never another exception than an Error."""
    whole = bytearray(pack(tmp_path, {"sm_90": module(body="add mov " * 30)}, mode))
    for at in range(len(whole)):
        for change in (1, 0x80, 0xFF):
            damaged = bytes([*whole[:at], whole[at] ^ change, *whole[at + 1 :]])
            with contextlib.suppress(BadFile):
                fatbin.images(damaged)
    for length in range(4, len(whole), 7):
        with pytest.raises(BadFile, match="damaged"):
            fatbin.images(bytes(whole[:length]))


@given(st.binary(max_size=64), st.integers(0, 300))
def test_hostile_bytes_are_refused(data, size):
    for unpack in (unpacking.lz4, unpacking.zstd):
        with contextlib.suppress(unpacking.Damaged):
            assert len(unpack(data, size)) == size


def fat(*entries):
    whole = b"".join(entries)
    return fatbin.MAGIC + struct.pack("<HHQ", 1, 16, len(whole)) + whole


def overlapping(count):
    """A cubin whose sections all are the whole file."""
    rows = {f".s{number}": b"" for number in range(count)}
    made = bytearray(binaries.elf(rows, 190))
    for number in range(count):
        struct.pack_into("<QQ", made, 64 + 64 * number + 24, 0, 1 << 40)
    return bytes(made)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (fatbin.MAGIC + bytes(12), "header of a fat binary has 0 bytes"),
        (overlapping(500), "its sections overlap"),
        (
            fat(*[binaries.entry(1, b"", 0x8000, unpacking.MOST)] * 2),
            "frame|more than",
        ),
    ],
)
def test_files_that_grow_without_end_are_refused(data, said):
    with pytest.raises(BadFile, match=said):
        fatbin.images(data)


def test_a_file_unpacks_to_a_limited_size(monkeypatch):
    """All its entries together: each of them alone is small."""
    text = b"a" * 1000
    frame = bytes.fromhex("28b52ffd60") + struct.pack("<H", 1000 - 256)
    frame += struct.pack("<I", 1000 << 3 | 1)[:3] + text
    packed = binaries.entry(1, frame, 0x8000, 1000)
    assert len(fatbin.images(fat(*[packed] * 5))) == 5
    monkeypatch.setattr(unpacking, "MOST", 4500)
    with pytest.raises(BadFile, match="more than 4,500 bytes are packed"):
        fatbin.images(fat(*[packed] * 5))


def test_empty_lines_are_read_once():
    """The line of the target was looked for from each of them: it took minutes."""
    (image,) = fatbin.images(fat(binaries.entry(1, b"\n" * 300_000)))
    assert image.target == "sm_90"


def test_other_files_are_named():
    with pytest.raises(BadFile, match=r"it begins b'\.version"):
        fatbin.images(b".version 8.0")
