"""Files of tensors are read and written as the format defines them, or refused."""

import json
import os
import random
import struct

import pytest
import torch

import fragmenta as fm
from fragmenta.hopper.torch.safetensors import DTYPES, SafeTensors, write
from tests.arrays.safetensors_files import ONE, WRONG, entry, file_of


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


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_header_is_refused(tmp_path, what):
    header, data, told = WRONG[what]
    with pytest.raises(fm.errors.BadFile, match=told):
        SafeTensors(file_of(tmp_path / "x.safetensors", header, data))


@pytest.mark.parametrize("length", [0, 1, 3, 1 << 20, (1 << 64) - 1])
def test_a_wrong_length_is_refused(tmp_path, length):
    with pytest.raises(fm.errors.BadFile, match=r"no whole|not JSON"):
        SafeTensors(file_of(tmp_path / "x", {"a": ONE}, b"1234", length))


def test_every_shorter_file_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write(path, {"x": torch.arange(5), "y": torch.ones(2, 2).bfloat16()})
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(fm.errors.BadFile):
            SafeTensors(path)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(fm.errors.BadFile, match="cannot be read"):
        SafeTensors(tmp_path / "none")
    with pytest.raises(fm.errors.BadFile, match="cannot be read"):
        SafeTensors(tmp_path)


def test_a_file_is_not_lost(tmp_path):
    path = tmp_path / "x.safetensors"
    write(path, {"x": torch.zeros(3)})
    before = path.read_bytes()
    with pytest.raises(fm.errors.BadFile, match="exists already; overwrite=True"):
        write(path, {"x": torch.ones(3)})
    for wrong in (
        torch.ones(2, device="meta"),
        torch.ones(2, dtype=torch.complex64),
        torch.eye(2).to_sparse(),
    ):
        with pytest.raises(fm.errors.BadCall):
            write(path, {"x": wrong}, overwrite=True)
    assert path.read_bytes() == before
    write(path, {"x": torch.ones(3)}, overwrite=True)
    assert SafeTensors(path)["x"].tolist() == [1, 1, 1]
    assert os.listdir(tmp_path) == ["x.safetensors"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(fm.Error, match="not a regular file"):
        write(tmp_path / "folder", {}, overwrite=True)
    with pytest.raises(fm.errors.BadFile, match="cannot be written"):
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
