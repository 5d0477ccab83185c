"""Are safetensors files read and written as the format defines them, or refused?"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.base.arrays.safetensors import TYPES, SafeArrays, to_bytes
from tests.arrays.safetensors_files import ONE, WRONG, entry, file_of


def saved(path: Path, arrays, metadata=None) -> Path:
    path.write_bytes(b"".join(to_bytes(arrays, metadata)))
    return path


def test_a_file_written_by_hand_is_read(tmp_path):
    header = {
        "__metadata__": {"format": "np"},
        "b": entry("I16", [2], 3, 7),  # not aligned
        "a": entry("U8", [3], 0, 3),
        "none": entry("F32", [0, 4], 7, 7),
        "one": entry("BF16", [], 7, 9),
        "small": entry("F8_E4M3", [1, 2], 9, 11),
    }
    data = bytes([1, 2, 255]) + struct.pack("<hh", -2, 300) + b"\x80\x3f" + b"\x38\xb8"
    found = SafeArrays(file_of(tmp_path / "x.safetensors", header, data))
    assert (len(found), found.metadata) == (5, {"format": "np"})
    assert found["a"].tolist() == [1, 2, 255]
    assert found["b"].tolist() == [-2, 300]
    assert found["none"].shape == (0, 4)
    assert (found["one"].item(), found["one"].dtype.name) == (1.0, "bfloat16")
    assert found["small"].astype(float).tolist() == [[1, -1]]
    found["a"][0] = 9  # a copy of its own
    assert SafeArrays(found.path)["a"].tolist() == [1, 2, 255]
    with pytest.raises(fm.Error, match=r"no tensor 'smal' \(did you mean small\?\)"):
        found["smal"]


def test_the_bytes_of_a_file_are_those_of_the_format(tmp_path):
    arrays = {"w": np.array([[1, 2]], np.uint8), "s": np.array([0.5], np.float32)}
    whole = saved(tmp_path / "x", arrays, {"made": "here"}).read_bytes()
    header = (
        b'{"__metadata__":{"made":"here"},'
        b'"s":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
        b'"w":{"dtype":"U8","shape":[1,2],"data_offsets":[4,6]}}'
    )
    padded = header + b" " * (-len(header) % 8)
    assert whole == (
        len(padded).to_bytes(8, "little") + padded + b"\0\0\0\x3f" + b"\1\2"
    )


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_written_and_read(tmp_path, name):
    of = np.dtype(TYPES[name])
    raw = np.arange(24 * of.itemsize, dtype=np.uint8)
    x = (raw % 2 if name == "BOOL" else raw).view(of).reshape(2, 3, 4)
    turned = x.transpose(2, 1, 0)
    path = saved(tmp_path / "x", {"x": x, "turned": turned, "byte": np.ones(3, "u1")})
    found = SafeArrays(path)
    assert found["x"].dtype == of
    assert found["x"].tobytes() == x.tobytes()
    assert found["turned"].tobytes() == turned.tobytes()
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    assert size % 8 == 0
    assert header["x"]["dtype"] == name
    assert header["x"]["data_offsets"][0] % of.itemsize == 0


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_header_is_refused(tmp_path, what):
    header, data, told = WRONG[what]
    with pytest.raises(fm.Error, match=told):
        SafeArrays(file_of(tmp_path / "x.safetensors", header, data))


@pytest.mark.parametrize("length", [0, 1, 3, 1 << 20, (1 << 64) - 1])
def test_a_wrong_length_is_refused(tmp_path, length):
    with pytest.raises(fm.Error, match=r"no whole|not JSON"):
        SafeArrays(file_of(tmp_path / "x", {"a": ONE}, b"1234", length))


def test_every_shorter_file_is_refused(tmp_path):
    path = saved(tmp_path / "x", {"x": np.arange(5), "y": np.ones((2, 2), "f2")})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(fm.Error):
            SafeArrays(path)


def test_damaged_headers_are_read_or_refused(tmp_path):
    """No other exception, and no array that the file does not hold."""
    path = saved(tmp_path / "x", {"x": np.arange(5), "y": np.ones((2, 2), "f2")})
    whole = path.read_bytes()
    length = 8 + int.from_bytes(whole[:8], "little")
    rng = random.Random(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 3))):
            damaged[rng.randrange(length)] = rng.choice(b'09{}[]",:-ex \x00\xff')
        path.write_bytes(damaged)
        try:
            found = SafeArrays(path)
            assert sum(x.nbytes for x in found.values()) == 48
        except fm.Error:
            refused += 1
    assert refused > 200


def test_what_cannot_be_read_or_stored_is_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(fm.Error):
            SafeArrays(path)
    for wrong in (np.ones(2, complex), np.array(["a"])):
        with pytest.raises(fm.Error, match="cannot be stored"):
            list(to_bytes({"x": wrong}))
    with pytest.raises(fm.Error, match="not be called __metadata__"):
        list(to_bytes({"__metadata__": np.ones(2)}))
