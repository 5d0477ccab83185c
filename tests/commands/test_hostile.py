"""Files, pipes and terminals that nobody hoped for: a message, never a traceback."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.base.arrays import npy
from fragmenta.commands import files
from fragmenta.commands.compute import load_a
from fragmenta.errors import Error
from tests.asking import ask, complaint
from tests.clock import HANG

OP = "mma.m16n8k16.f32.f16"
SPARSE = fm.mma("m16n8k32", a="f16", d="f32", sp="sp")
posix = pytest.mark.skipif(os.name != "posix", reason="pipes and links of POSIX")


def run(*words: object, **options: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fragmenta", *map(str, words)]
    options = {"capture_output": True, "timeout": HANG, **options}
    return subprocess.run(command, check=False, **options)


# ── what is no file on disk ─────────────────────────────────────────────────


@posix
def test_devices_and_pipes_are_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.npy"
    os.mkfifo(fifo)
    np.save(tmp_path / "b.npy", np.ones((16, 8)))
    b = tmp_path / "b.npy"
    assert "/dev/zero is a device" in complaint("matmul", OP, "/dev/zero", b)
    assert "is a pipe; matrices are read from files on disk" in complaint(
        "matmul", OP, fifo, b
    )
    assert "save it to a file first" in complaint("sparsity", fifo, str(SPARSE))


@posix
def test_process_substitution_is_a_pipe(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.ones((16, 8)))
    said = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m fragmenta matmul {OP} <(cat b.npy) b.npy"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert said.returncode == 2
    assert "is a pipe" in said.stderr
    assert "empty" not in said.stderr


def test_a_large_file_that_is_none_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        file.truncate(1 << 32)  # a hole, on every file system that counts
    tracemalloc.start()
    with pytest.raises(fm.Error, match=r"is not a \.npy or \.npz file"):
        files.load(str(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_names_that_no_file_has() -> None:
    with pytest.raises(fm.Error, match="is not a file name"):
        files.load("a\0b")


# ── headers ─────────────────────────────────────────────────────────────────


def headed(text: str | bytes, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    text = text if isinstance(text, bytes) else text.encode()
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(text))
    return npy.MAGIC + version + length + text + content


def about(descr: str = "'<f4'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


DAMAGED = {
    "no end": headed("{'descr': '<f4', 'shape': ("),
    "indented": headed(" \n  {\n 'descr'"),
    "deep": headed("(" * 9000),
    "minus": headed("-" * 9000 + "1"),
    "list": headed("[1]"),
    "keys": headed("{1: 2, 'a': 3}"),
    "shape": headed(about(shape="[2]"), bytes(8)),
    "float": headed(about(shape="(2.0,)"), bytes(8)),
    "padding": headed(about() + "   \x0b", bytes(8)),
    "order": headed(about(order="None"), bytes(8)),
    "bool": headed(about(shape="(True,)"), bytes(4)),
    "negative": headed(about(shape="(-2,)"), bytes(8)),
    "huge": headed(about(shape=f"({1 << 70},)"), bytes(8)),
    "huge and none": headed(about(shape=f"(0, {1 << 70})")),
    "digits": headed(about(shape="(" + "9" * 5000 + ",)")),
    "type": headed(about("'nonsense'"), bytes(8)),
    "type of no text": headed(about("3"), bytes(8)),
    "type of parts": headed(about("('<f4', (2,))", "(1,)"), bytes(8)),
    "nothing": headed(about("'|V0'", "(1000000000,)")),
    "short": headed(about(), bytes(7)),
    "long": headed(about(), bytes(9)),
    "version": headed(about(), bytes(8), b"\7\0"),
    "length": npy.MAGIC + b"\2\0" + b"\xff" * 4 + b"{}",
    "latin": headed(b"\xff\xfe{}"),
    "only magic": npy.MAGIC,
    "axes": headed(about(shape="(1,)" + " + (1,)" * 70), bytes(4)),
    "many axes": headed(about(shape="(" + "1, " * 80 + ")"), bytes(4)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_headers_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(fm.Error, match=r"x\.npy is cut short or damaged: ."):
        files.load(str(path))
    archive = tmp_path / "x.npz"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("a.npy", DAMAGED[name])
    with pytest.raises(fm.Error, match=r"x\.npz is cut short or damaged: ."):
        dict(files.load(str(archive)))


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i2", "|u1", "|b1"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4), (3, 2, 1)])
def test_what_numpy_writes_is_read_as_numpy_reads_it(
    kind: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    for number, each in enumerate((array, np.asfortranarray(array))):
        np.save(tmp_path / f"{number}.npy", each)
        np.savez(tmp_path / f"{number}.npz", x=each)
        np.savez_compressed(tmp_path / f"{number}c.npz", x=each)
        found = [npy.read(tmp_path / f"{number}.npy")]
        found += [npy.read(tmp_path / f"{number}{c}.npz")["x"] for c in ("", "c")]
        for one in found:
            assert (one.dtype, one.shape) == (each.dtype, each.shape)
            assert (one == each).all()


@pytest.mark.parametrize("kind", ["<m8[s]", ">m8", "<M8[D]"])
def test_times_are_no_numbers(kind: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, kind))
    with pytest.raises(Error, match=r"x\.npy holds times, not numbers"):
        npy.read(tmp_path / "x.npy")


# ── archives ────────────────────────────────────────────────────────────────


def archive_of(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def test_every_byte_of_an_archive_may_be_wrong(tmp_path: Path) -> None:
    """Flags of encryption and of other methods among them."""
    whole = archive_of(values=np.ones((4, 4), np.float16), width=np.array(8))
    path = tmp_path / "x.npz"
    refused = 0
    for place in range(len(whole)):
        for bit in (0, 3, 7):
            spoiled = bytearray(whole)
            spoiled[place] ^= 1 << bit
            path.write_bytes(spoiled)
            try:
                found = dict(files.load(str(path)))
            except fm.Error:
                refused += 1
            else:
                assert all(isinstance(each, np.ndarray) for each in found.values())
    assert refused > len(whole)


def test_encrypted_archives_are_called_so(tmp_path: Path) -> None:
    whole = bytearray(archive_of(values=np.ones(4)))
    whole[6] |= 1
    whole[whole.index(b"PK\1\2") + 8] |= 1
    path = tmp_path / "x.npz"
    path.write_bytes(whole)
    with pytest.raises(fm.Error, match=r"x\.npz is encrypted; save it without"):
        dict(files.load(str(path)))


def test_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("a", b"1")
        made.writestr("a.npy", b"2")
    with pytest.raises(fm.Error, match="names must differ"):
        files.load(str(path))


@pytest.mark.parametrize(
    "width", ["15", [16], np.nan, 15.9, 16.0, True, 2**40, -3, b"16", [[16]], 12]
)
def test_the_width_of_an_archive_is_one_whole_number(
    width: object, tmp_path: Path
) -> None:
    sp = fm.sparse.compress(SPARSE, np.zeros((16, 16)))
    path = tmp_path / "x.npz"
    path.write_bytes(archive_of(values=sp.values, indices=sp.indices, width=width))
    with pytest.raises(fm.Error, match=r"x\.npz"):
        load_a(str(path), SPARSE)
    path.write_bytes(archive_of(values=sp.values, indices=sp.indices, width=16))
    assert load_a(str(path), SPARSE).shape == (16, 16)


@pytest.mark.parametrize("written", [3, ["e4m3"], b"e4m3", "nothing"])
def test_the_type_of_an_archive_is_a_word(written: object, tmp_path: Path) -> None:
    op = fm.mma("m16n8k32", a="e4m3", d="f32")
    path = tmp_path / "x.npz"
    path.write_bytes(archive_of(pruned=np.zeros((16, 32), "V1"), type=written))
    with pytest.raises(fm.Error, match=r"x\.npz|no element type"):
        load_a(str(path), op)


# ── output ──────────────────────────────────────────────────────────────────


@posix
def test_a_dangling_link_is_not_followed(tmp_path: Path) -> None:
    link, aim = tmp_path / "link.npy", tmp_path / "aim.npy"
    link.symlink_to(aim)
    for force in (False, True):
        with pytest.raises(fm.Error, match=r"is a link to .*aim\.npy, which does not"):
            files.save_array(str(link), np.ones(3), force, lambda _: None)
    assert not aim.exists()
    assert os.listdir(tmp_path) == ["link.npy"]


@pytest.mark.parametrize("columns", ["1", "0", "2", "11", "-5", "x", "100000"])
def test_terminals_of_any_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words in (
        ("show", "mma.m16n8k64.s4.s4"),
        ("table", "mma.m16n8k16.f32.f16", "A"),
        ("draw", "mma.m16n8k16.f32.f16", "A"),
        ("shared", "wgmma.m64n8k16.f32.f16", "A"),
        ("formula", "mma.m16n8k16.f32.f16"),
        ("metadata", "mma.sp.m16n8k32.s8.s8", "0"),
    ):
        result = ask(*words)
        assert result.exit_code in (0, 1), result.output


@pytest.mark.long
@posix
def test_a_closed_output_is_named() -> None:
    program = f"{sys.executable} -m fragmenta"
    for words in ("list", "show mma.m16n8k16.f32.f16 --json", "--version"):
        said = subprocess.run(
            ["bash", "-c", f"{program} {words} >&-"],
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        assert said.returncode == 2, said.stderr
        assert "the standard output is closed" in said.stderr
        assert "Traceback" not in said.stderr
    both = subprocess.run(
        ["bash", "-c", f"{program} show nothing >&- 2>&-"], timeout=HANG, check=False
    )
    assert both.returncode == 2


@pytest.mark.long
@posix
def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"\xff\xfe\x1b[2J.npy")
    with open(name, "wb") as file:
        np.save(file, np.ones((16, 16)))
    np.save(tmp_path / "b.npy", np.ones((16, 8)))
    said = run("matmul", OP, os.fsdecode(name), tmp_path / "b.npy")
    assert said.returncode == 0, said.stderr
    assert b"\\udcff\\udcfe\\x1b[2J.npy" in said.stdout
    said = run("matmul", OP, os.fsdecode(name), tmp_path / "b.npy", "--json")
    assert json.loads(said.stdout)["A"]["file"] == os.fsdecode(name)


def test_json_has_no_infinity(tmp_path: Path) -> None:
    a, b = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(a, np.full((16, 8), 1e-45, np.float32))
    np.save(b, np.full((8, 8), 1e30, np.float32))
    c = tmp_path / "c.npy"
    np.save(c, np.full((16, 8), -3e38, np.float32))

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    for words in (("--compare", "float64"), ()):
        result = ask("matmul", "mma.m16n8k8.tf32", a, b, c, *words, "--json")
        assert result.exit_code == 0, result.output
        json.loads(result.stdout, parse_constant=refuse)
    from fragmenta.commands.output import _finite

    told = _finite({"a": [np.inf, -np.inf, (np.nan,)], "b": 1.5})
    assert told == {"a": ["inf", "-inf", ["nan"]], "b": 1.5}
