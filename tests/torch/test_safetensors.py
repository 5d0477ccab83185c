"""Files of tensors are read and written as the format defines them, or refused."""

import json
import os
import random
import struct

import pytest
import torch

import fragmenta as fm
from fragmenta.torch.safetensors import DTYPES, SafeTensors, write


def file_of(path, header, data=b"", length=None):
    """A file by hand: the length, the header, the bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + text + data)
    return path


def entry(kind, shape, begin, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def test_a_file_written_by_hand_is_read(tmp_path):
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("I16", [2], 3, 7),  # not aligned
        "a": entry("U8", [3], 0, 3),
        "none": entry("F32", [0, 4], 7, 7),
        "one": entry("BF16", [], 7, 9),
        "small": entry("F8_E4M3", [1, 2], 9, 11),
    }
    data = bytes([1, 2, 255]) + struct.pack("<hh", -2, 300) + b"\x80\x3f" + b"\x38\xb8"
    found = SafeTensors(file_of(tmp_path / "x.safetensors", header, data))
    assert list(found) == ["b", "a", "none", "one", "small"]
    assert len(found) == 5
    assert found.metadata == {"format": "pt"}
    assert found["a"].tolist() == [1, 2, 255]
    assert found["b"].tolist() == [-2, 300]
    assert found["none"].shape == (0, 4)
    assert found["one"].item() == 1.0
    assert found["one"].dtype == torch.bfloat16
    assert found["small"].float().tolist() == [[1, -1]]
    found["a"][0] = 9  # a copy of its own
    assert SafeTensors(found.path)["a"].tolist() == [1, 2, 255]
    with pytest.raises(fm.Error, match=r"no tensor 'smal' \(did you mean small\?\)"):
        found["smal"]


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_is_written_and_read(tmp_path, name):
    kind = DTYPES[name]
    raw = bytes(range(256))[: 24 * kind.itemsize]
    if kind == torch.bool:
        raw = bytes([0, 1] * 12)
    x = torch.frombuffer(bytearray(raw), dtype=kind).reshape(2, 3, 4)
    path = tmp_path / "x.safetensors"
    write(path, {"x": x, "turned": x.transpose(0, 2), "byte": torch.ones(3).byte()})
    found = SafeTensors(path)
    assert found["x"].dtype == kind
    whole = [each.contiguous().view(torch.uint8) for each in (x, found["x"])]
    assert torch.equal(*whole)
    turned = [x.transpose(0, 2).contiguous(), found["turned"]]
    assert torch.equal(*[each.view(torch.uint8) for each in turned])
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + size])
    assert size % 8 == 0
    assert header["x"]["dtype"] == name
    assert header["x"]["data_offsets"][0] % kind.itemsize == 0


ONE = entry("U8", [4], 0, 4)
WRONG = {
    "an overlap": ({"a": ONE, "b": entry("U8", [2], 3, 5)}, b"12345", "overlap"),
    "the same bytes": ({"a": ONE, "b": ONE}, b"1234", "overlap"),
    "a gap": ({"a": ONE, "b": entry("U8", [1], 5, 6)}, b"123456", "leave a gap"),
    "no beginning": ({"a": entry("U8", [1], 1, 2)}, b"12", "leave a gap"),
    "too many bytes": ({"a": ONE}, b"12345", "4 bytes, and 5 follow"),
    "too few bytes": ({"a": ONE}, b"123", "4 bytes, and 3 follow"),
    "a wrong size": ({"a": entry("F32", [2], 0, 4)}, b"1234", "takes 8 bytes"),
    "backwards": ({"a": entry("U8", [0], 4, 0)}, b"1234", "takes 0 bytes"),
    "a negative size": ({"a": entry("U8", [-1], 0, 4)}, b"1234", "at least 0"),
    "two negative sizes": ({"a": entry("U8", [-2, -2], 0, 4)}, b"1234", "at least 0"),
    "a size that is true": ({"a": entry("U8", [True], 0, 1)}, b"1", "whole numbers"),
    "half a size": ({"a": entry("U8", [4.0], 0, 4)}, b"1234", "whole numbers"),
    "three places": (
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4, 4]}},
        b"1234",
        "data_offsets",
    ),
    "an unknown type": ({"a": entry("F8_E4M4", [4], 0, 4)}, b"1234", "F8_E4M3"),
    "a type that is no text": ({"a": entry([], [4], 0, 4)}, b"1234", "the type"),
    "no shape": ({"a": {"dtype": "U8"}}, b"", "must have data_offsets, dtype and"),
    "one thing more": ({"a": {**ONE, "more": 1}}, b"1234", "must have"),
    "no object": ({"a": 5}, b"", "must have"),
    "no JSON": (b"{'a': 5}", b"", "not JSON"),
    "no UTF-8": (b'{"\xff": 5}', b"", "not JSON"),
    "deep JSON": (b'{"a":' + b"[" * 100_000, b"", "not JSON"),
    "long numbers": (b'{"a":' + b"9" * 5000 + b"}", b"", "not JSON"),
    "a list": ([1, 2], b"", "not a JSON object"),
    "a name twice": (
        b'{"a": %s, "a": %s}' % ((json.dumps(ONE).encode(),) * 2),
        b"1234",
        "'a' twice",
    ),
    "numbers about it": ({"__metadata__": {"a": 1}}, b"", "texts only"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_header_is_refused(tmp_path, what):
    header, data, told = WRONG[what]
    with pytest.raises(fm.Error, match=told):
        SafeTensors(file_of(tmp_path / "x.safetensors", header, data))


@pytest.mark.parametrize("length", [0, 1, 3, 1 << 20, (1 << 64) - 1])
def test_a_wrong_length_is_refused(tmp_path, length):
    with pytest.raises(fm.Error, match=r"no whole|not JSON"):
        SafeTensors(file_of(tmp_path / "x", {"a": ONE}, b"1234", length))


def test_every_shorter_file_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write(path, {"x": torch.arange(5), "y": torch.ones(2, 2).bfloat16()})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(fm.Error):
            SafeTensors(path)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(fm.Error, match="cannot be read"):
        SafeTensors(tmp_path / "none")
    with pytest.raises(fm.Error, match="cannot be read"):
        SafeTensors(tmp_path)


def test_a_file_is_not_lost(tmp_path):
    path = tmp_path / "x.safetensors"
    write(path, {"x": torch.zeros(3)})
    before = path.read_bytes()
    with pytest.raises(fm.Error, match="exists already; overwrite=True"):
        write(path, {"x": torch.ones(3)})
    for wrong in (
        torch.ones(2, device="meta"),
        torch.ones(2, dtype=torch.complex64),
        torch.eye(2).to_sparse(),
    ):
        with pytest.raises(fm.Error):
            write(path, {"x": wrong}, overwrite=True)
    assert path.read_bytes() == before
    write(path, {"x": torch.ones(3)}, overwrite=True)
    assert SafeTensors(path)["x"].tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["x.safetensors"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(fm.Error, match="not a regular file"):
        write(tmp_path / "folder", {}, overwrite=True)
    with pytest.raises(fm.Error, match="cannot be written"):
        write(tmp_path / "no" / "x.safetensors", {})


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write(path, {"x": torch.zeros(3)})

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(fm.Error, match="No space left"):
        write(path, {"x": torch.ones(3)}, overwrite=True)
    assert SafeTensors(path)["x"].tolist() == [0, 0, 0]
    assert os.listdir(tmp_path) == ["x.safetensors"]


def test_a_file_may_be_written_while_it_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    write(path, {"x": torch.arange(4)})
    found = SafeTensors(path)["x"]
    write(path, {"x": found + 1}, overwrite=True)
    assert found.tolist() == [0, 1, 2, 3]
    assert SafeTensors(path)["x"].tolist() == [1, 2, 3, 4]


def test_damaged_headers_are_read_or_refused(tmp_path):
    """No other exception, and no tensor that the file does not hold."""
    path = tmp_path / "x.safetensors"
    write(path, {"x": torch.arange(5), "y": torch.ones(2, 2).bfloat16()})
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
            found = SafeTensors(path)
            assert (
                sum(x.numel() * x.itemsize for x in map(found.__getitem__, found)) == 48
            )
        except fm.Error:
            refused += 1
    assert refused > 200
