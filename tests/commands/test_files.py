"""Matrices are written to files and read back unchanged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fragmenta.commands import files
from fragmenta.errors import Error
from fragmenta.reference.registers.dtype import DTYPES, dtype

Folder = Path


def quiet(_: float) -> None:
    """No progress."""


@pytest.mark.parametrize("name", [n for n, of in DTYPES.items() if of.kind != "raw"])
def test_every_type_comes_back_bit_for_bit(name: str, tmp_path: Folder) -> None:
    """Those of ml_dtypes, too, which NumPy saves without their names."""
    of = dtype(name)
    random = np.random.default_rng(0)
    patterns = random.integers(0, of.mask, 256, np.uint64, endpoint=True)
    stored = of.decode(patterns.astype(of.bits_dtype)).reshape(16, 16)
    np.save(tmp_path / "x.npy", stored)
    found = files.load_matrix(str(tmp_path / "x.npy"), of)
    assert (of.encode(found) == of.encode(stored)).all()


@pytest.mark.parametrize("name", ["s4", "u4"])
def test_four_bits_come_as_plain_integers(name: str, tmp_path: Folder) -> None:
    of = dtype(name)
    low, high = of.limits
    values = np.arange(low, high + 1, dtype=np.int8).reshape(4, 4)
    np.save(tmp_path / "x.npy", values)
    found = files.load_matrix(str(tmp_path / "x.npy"), of)
    assert (of.decode(of.encode(found)).astype(int) == values).all()


@pytest.mark.parametrize(
    ("array", "name", "message"),
    [
        (np.zeros((4, 4), np.uint8), "e4m3", "could be values or raw bits of e4m3"),
        (np.zeros((4, 4), np.uint16), "bf16", ".view('V2') for bits"),
        (np.zeros((4, 4), "V2"), "e4m3", "items of 2 bytes, but an element"),
        (np.zeros((4, 4), "V1"), "s8", "s8 is saved as int8"),
        (np.zeros((4, 4), "V4"), "tf32", "tf32 is saved as float32"),
        (np.full((4, 4), 0x38, "u1").view("V1"), "s4", "they use all 8 bits"),
    ],
)
def test_doubtful_items_are_refused(
    array: np.ndarray, name: str, message: str, tmp_path: Folder
) -> None:
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(Error) as error:
        files.load_matrix(str(tmp_path / "x.npy"), dtype(name))
    assert message in str(error.value)
    assert "x.npy" in str(error.value)


def test_four_bits_with_their_sign_in_the_upper_half(tmp_path: Folder) -> None:
    bytes_ = np.array([[0xF8, 0x08, 0xFF, 0x07]], np.uint8).view("V1")
    np.save(tmp_path / "x.npy", bytes_)
    found = files.load_matrix(str(tmp_path / "x.npy"), dtype("s4"))
    assert dtype("s4").encode(found).tolist() == [[8, 8, 15, 7]]


def test_files_that_are_none(tmp_path: Folder) -> None:
    whole = tmp_path / "whole.npy"
    np.save(whole, np.ones((8, 8)))
    none, short = r"is not a \.npy or \.npz file", "is cut short or damaged"
    contents = {
        "empty": (b"", "is empty"),
        "text": (b"1 2 3\n", none),
        "short": (whole.read_bytes()[:-8], short),
        "head": (whole.read_bytes()[:20], short),
        "cut": (whole.read_bytes()[:150].replace(b"<f8", b"<f1"), short),
        "zip": (b"PK\x03\x04 and no more", short),
    }
    for name, (content, said) in contents.items():
        path = tmp_path / f"{name}.npy"
        path.write_bytes(content)
        with pytest.raises(Error, match=said):
            files.load(str(path))
    with pytest.raises(Error, match="'-' is not a file"):
        files.load("-")
    with pytest.raises(Error, match="No such file or directory"):
        files.load(str(tmp_path / "absent.npy"))
    with pytest.raises(Error, match="directory"):
        files.load(str(tmp_path))


def test_pickles_are_not_opened(tmp_path: Folder) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(Error):
        files.load(str(tmp_path / "x.npy"))


def test_arrays_of_an_archive(tmp_path: Folder) -> None:
    path = str(tmp_path / "x.npz")
    values = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    files.save_arrays(path, {"values": values, "width": np.array(3)}, False, quiet)
    found = files.load(path)
    assert isinstance(found, Mapping)
    assert found["values"].tobytes() == values.tobytes()
    assert int(found["width"]) == 3
    with pytest.raises(Error, match="archive of values and width"):
        files.load_matrix(path, dtype("bf16"))


def test_numpy_reads_what_is_written(tmp_path: Folder) -> None:
    """As it is, it could not read the name that it gives e5m2."""
    values = np.arange(8).reshape(2, 4).astype(ml_dtypes.float8_e5m2)
    files.save_array(str(tmp_path / "x.npy"), values, False, quiet)
    files.save_arrays(str(tmp_path / "x.npz"), {"x": values}, False, quiet)
    assert np.load(tmp_path / "x.npy").tobytes() == values.tobytes()
    with np.load(tmp_path / "x.npz") as archive:
        assert archive["x"].tobytes() == values.tobytes()


def test_nothing_is_overwritten_unless_forced(tmp_path: Folder) -> None:
    path = tmp_path / "x.npy"
    path.write_text("precious")
    with pytest.raises(Error, match="--force overwrites it"):
        files.save_array(str(path), np.ones(3), False, quiet)
    assert path.read_text() == "precious"
    files.save_array(str(path), np.ones(3), True, quiet)
    assert np.load(path).tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_failure_leaves_the_old_file(tmp_path: Folder) -> None:
    """The new one is complete, or there is none; nothing is left lying about."""
    path = tmp_path / "x.npy"
    path.write_text("precious")

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.save_array(str(path), np.ones(3), True, stop)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["x.npy"]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Folder) -> None:
    path = tmp_path / "x.npy"

    def meanwhile(share: float) -> None:
        path.write_text("precious")

    with pytest.raises(Error, match="already exists"):
        files.save_array(str(path), np.ones(3), False, meanwhile)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["x.npy"]


@pytest.mark.skipif(os.name != "posix", reason="links and devices of POSIX")
def test_links_stay_links_and_devices_devices(tmp_path: Folder) -> None:
    real, link = tmp_path / "real.npy", tmp_path / "link.npy"
    real.write_text("old")
    link.symlink_to(real)
    files.save_array(str(link), np.ones(3), True, quiet)
    assert link.is_symlink()
    assert np.load(real).tolist() == [1, 1, 1]
    with pytest.raises(Error, match="cannot be written: it is not a regular file"):
        files.check_output(os.devnull, force=True)


def test_folders_must_exist(tmp_path: Folder) -> None:
    with pytest.raises(Error, match="there is no folder '"):
        files.check_output(str(tmp_path / "no" / "x.npy"), force=False)
    with pytest.raises(Error, match="not a regular file"):
        files.check_output(str(tmp_path), force=True)


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_progress_ends_at_all_of_it(names: tuple[str, ...], tmp_path: Folder) -> None:
    told: list[float] = []
    arrays = {name: np.ones((1 << 20, 5)) for name in names}
    files.save_arrays(str(tmp_path / "x.npz"), arrays, False, told.append)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1)
    assert len(told) > 2


def test_files_are_completed(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.npy").touch()
    (tmp_path / "four.npy").touch()
    assert files.complete_file("fo") == ["folder/", "four.npy"]
    assert files.complete_file("folder/") == [os.path.join("folder", "a.npy")]
    assert files.complete_file("nowhere/") == []
