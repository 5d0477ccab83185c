"""Launches recorded kernels on a GPU, and writes a hash of what each leaves in memory.

    python launch.py launches.npz.xz RESULTS.json

Every kernel is launched twice, each time on fresh copies.  This file is copied to the
machine with the GPU, so it needs NumPy and the driver's library only.
"""

from __future__ import annotations

import base64
import ctypes
import hashlib
import io
import json
import lzma
import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

MOST_SHOWN = 1 << 16
"""Buffers up to this size come back as a whole if they are not as expected."""
SLACK = 4096
"""Bytes after each buffer, so that a small read past its end is harmless."""


class Cuda:
    """The few functions of the driver's library that a launch needs."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)
        device = ctypes.c_int()
        self("cuDeviceGet", ctypes.byref(device), 0)
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        name, version = ctypes.create_string_buffer(100), ctypes.c_int()
        self("cuDeviceGetName", name, 100, device)
        self("cuDriverGetVersion", ctypes.byref(version))
        self.made = {"gpu": name.value.decode(), "cuda_driver": version.value}

    def __call__(self, name: str, *arguments: Any) -> None:
        """Call a function; an error is raised with its name."""
        code = getattr(self.library, name)(*arguments)
        if code:
            said = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(said))
            raise RuntimeError(f"{name}: {(said.value or b'?').decode()}")

    def upload(self, data: Any) -> ctypes.c_uint64:
        """A copy of bytes on the GPU."""
        place = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(data.size + SLACK))
        self(
            "cuMemsetD8_v2",
            place,
            ctypes.c_ubyte(0),
            ctypes.c_size_t(data.size + SLACK),
        )
        if data.size:
            self(
                "cuMemcpyHtoD_v2",
                place,
                ctypes.c_void_p(data.ctypes.data),
                ctypes.c_size_t(data.size),
            )
        return place

    def download(self, place: ctypes.c_uint64, size: int) -> bytes:
        """The bytes at a place."""
        data = np.empty(size, np.uint8)
        if size:
            self(
                "cuMemcpyDtoH_v2",
                ctypes.c_void_p(data.ctypes.data),
                place,
                ctypes.c_size_t(size),
            )
        return data.tobytes()


class Attribute(ctypes.Structure):
    """``CUlaunchAttribute``: its number, and 64 bytes of value."""

    _fields_ = [
        ("id", ctypes.c_int),
        ("pad", ctypes.c_int),
        ("value", ctypes.c_uint32 * 16),
    ]


class Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = [
        *(
            (name, ctypes.c_uint)
            for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")
        ),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    ]


def parameter(cuda_addresses: list[int], given: list[Any]) -> bytes:
    """The bytes of a parameter."""
    kind, first, *rest = given
    if kind == "bytes":
        return bytes.fromhex(first)
    if kind == "pointer":
        return (cuda_addresses[first] + rest[0]).to_bytes(8, "little")
    data = bytearray.fromhex(first)
    for at, (number, offset) in rest[0]:
        data[at : at + 8] = (cuda_addresses[number] + offset).to_bytes(8, "little")
    return bytes(data)


def launched(
    cuda: Cuda, row: dict[str, Any], code: bytes, buffers: list[Any]
) -> list[bytes]:
    """All buffers after one launch."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuModuleLoadData", ctypes.byref(module), code)
    places: list[ctypes.c_uint64] = []
    try:
        cuda(
            "cuModuleGetFunction", ctypes.byref(function), module, row["entry"].encode()
        )
        cuda("cuFuncSetAttribute", function, 8, row["shared"])
        places += [cuda.upload(each) for each in buffers]
        cells = [
            parameter([p.value for p in places], each) for each in row["parameters"]
        ]
        kept = [np.frombuffer(each + bytes(64), np.uint8) for each in cells]
        aligned = []
        for each, cell in zip(kept, cells, strict=True):  # tensor maps want 64 bytes
            room = np.zeros(len(cell) + 64, np.uint8)
            start = -room.ctypes.data % 64
            room[start : start + len(cell)] = each[: len(cell)]
            aligned.append((room, room.ctypes.data + start))
        pointers = (ctypes.c_void_p * max(1, len(cells)))(*(at for _, at in aligned))
        attribute = Attribute(4)  # the cluster's size
        attribute.value[0], attribute.value[1], attribute.value[2] = row["cluster"]
        many = int(np.prod(row["cluster"])) > 1
        config = Config(
            *row["grid"],
            *row["block"],
            row["shared"],
            None,
            ctypes.addressof(attribute),
            int(many),
        )
        cuda("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
        cuda("cuCtxSynchronize")
        left = [cuda.download(p, b.size) for p, b in zip(places, buffers, strict=True)]
    finally:
        for place in places:
            cuda.library.cuMemFree_v2(place)
        cuda.library.cuModuleUnload(module)
    return left


def report(
    row: dict[str, Any], first: list[bytes], second: list[bytes]
) -> dict[str, Any]:
    """The hashes of two launches; what is in small buffers that are not as expected."""
    both = [
        [hashlib.sha256(each).hexdigest()[:16] for each in left]
        for left in (first, second)
    ]
    found: dict[str, Any] = {"first": both[0], "second": both[1]}
    for i, (seen, wanted) in enumerate(zip(both[0], row["after"], strict=True)):
        if seen != wanted and len(first[i]) <= MOST_SHOWN:
            packed = base64.b64encode(zlib.compress(first[i])).decode()
            found.setdefault("left", {})[i] = packed
    return found


def main(archive: Path, results: Path) -> None:
    """Launch what has no result yet; what is done is written as it goes.

    After a fault nothing can be launched in a process any more: then this program
    starts itself again.
    """
    start = time.time()
    read = np.load(io.BytesIO(lzma.decompress(archive.read_bytes())))
    cuda = Cuda()
    found = json.loads(results.read_text())["launches"] if results.exists() else {}
    for row in json.loads(read["index"].tobytes()):
        number = row["number"]
        if str(number) in found:
            continue
        code = read[f"{number}/code"].tobytes()
        buffers = [read[f"{number}/{i}"] for i in range(row["buffers"])]
        lost = False
        try:
            both = [launched(cuda, row, code, buffers) for _ in range(2)]
            found[str(number)] = report(row, *both)
        except RuntimeError as why:
            found[str(number)] = {"error": str(why)}
            print(row["case"], row["entry"], why, flush=True)
            lost = "cuCtxSynchronize" in str(why)
        if number % 20 == 0 or lost:
            results.write_text(json.dumps({"made": cuda.made, "launches": found}))
        if lost:
            os.execv(sys.executable, [sys.executable, *sys.argv])
    results.write_text(json.dumps({"made": cuda.made, "launches": found}))
    print(f"{len(found)} launches in {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
