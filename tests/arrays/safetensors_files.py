"""Files of the safetensors format by hand, right ones and wrong ones."""

from __future__ import annotations

import json
import struct


def file_of(path, header, data=b"", length=None):
    """A file by hand: the length, the header, the bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", size) + text + data)
    return path


def entry(kind, shape, begin, end):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


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
