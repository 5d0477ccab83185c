"""The functions that the host carries out for a kernel while it runs.

``printf`` gathers text, a failed ``assert`` is an error, ``malloc`` is refused.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct

import numpy as np

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.compiled import callback_address
from fragmenta.engine.simt.context import HOST, LaunchMemory
from fragmenta.engine.simt.layout import LANES
from fragmenta.errors import Error, KernelFault, shortened
from fragmenta.ptx.host_functions import HOST_FUNCTIONS

_FORMAT = re.compile(
    r"%[-+ #0]*(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|j|t|L)?([a-zA-Z%])"
)


MOST_WIDTH = 1 << 16
"""Characters of one conversion of printf; C promises 4,095."""


class Host:
    """The functions that a kernel can call."""

    def __init__(self, launch: LaunchMemory) -> None:
        self._launch = launch
        self._lines: list[str] = []
        self.errors: dict[int, BaseException] = {}
        """What went wrong, by the address of the block."""
        self._function = HOST(self._call)
        self.address = callback_address(self._function)

    def close(self) -> None:
        """Release the launch; what was printed is kept."""
        self._launch = self._function = None  # type: ignore[assignment]
        self.errors.clear()

    @property
    def text(self) -> str:
        """What was printed."""
        return "".join(self._lines)

    def _call(self, warp: int, block: int, number: int, table: int, lanes: int) -> int:
        try:
            name = list(HOST_FUNCTIONS)[number]
            lanes &= 0xFFFFFFFF
            for lane in range(LANES):
                if lanes >> lane & 1:
                    getattr(self, "_" + name.strip("_"))(warp, block, table, lane)
        except BaseException as error:  # an interrupt, too: machine code would lose it
            self.errors[block] = error
            return 1
        return 0

    # ── memory ──────────────────────────────────────────────────────────────

    def _word(self, warp: int, place: int, lane: int, words: int) -> int:
        """A parameter of so many words."""
        parts = [
            int.from_bytes(
                ctypes.string_at(warp + place + 4 * LANES * i + 4 * lane, 4), "little"
            )
            for i in range(words)
        ]
        return sum(part << (32 * i) for i, part in enumerate(parts))

    def _place(self, table: int, number: int) -> int:
        return int.from_bytes(ctypes.string_at(table + 8 * number, 8), "little")

    def _read(self, warp: int, block: int, lane: int, address: int, size: int) -> bytes:
        """Bytes at a generic address; fewer at the end of the memory."""
        slot = address >> layout.SLOT_BITS
        offset = address & (1 << layout.SLOT_BITS) - 1
        if slot == layout.LOCAL_SLOT:
            base = _i64(warp + layout.LOCAL_BASE)
            whole = _i64(block + layout.BLOCK_LOCAL_SIZE)
            base += lane * whole
        else:
            table = _i64(block + layout.BLOCK_SEGMENTS)
            # No address is above all slots, and nothing is in slot 0.
            known = slot if slot < layout.SLOTS else 0
            entry = table + layout.SEGMENT_BYTES * known
            base, whole = _i64(entry), _i64(entry + 8)
            if slot == layout.SHARED_SLOT:
                offset -= layout.SHARED_START + _i64(block + layout.BLOCK_RANK)
        if not 0 <= offset < whole:
            raise Error(f"printf or assert was given {address:#x}, where nothing is")
        size = min(size, whole - offset)
        return ctypes.string_at(base + offset, size)

    def _string(self, warp: int, block: int, lane: int, address: int) -> str:
        data = self._read(warp, block, lane, address, 1 << 16)
        return data.split(b"\0")[0].decode("utf-8", "replace")

    # ── functions ───────────────────────────────────────────────────────────

    def _vprintf(self, warp: int, block: int, table: int, lane: int) -> None:
        answer, text_at, values_at = (self._place(table, i) for i in range(3))
        text = self._string(warp, block, lane, self._word(warp, text_at, lane, 2))
        where = self._word(warp, values_at, lane, 2)
        data = self._read(warp, block, lane, where, 4096) if where else b""
        shown, count = self._format(text, data, warp, block, lane)
        self._launch.meter.print(len(shown))
        self._lines.append(shown)
        ctypes.memmove(warp + answer + 4 * lane, struct.pack("<i", count), 4)

    def _format(
        self, text: str, data: bytes, warp: int, block: int, lane: int
    ) -> tuple[str, int]:
        place = count = 0

        def take(size: int) -> bytes:
            nonlocal place
            place = -(-place // size) * size
            part = data[place : place + size]
            place += size
            return part.ljust(size, b"\0")

        def value(match: re.Match[str]) -> str:
            nonlocal count
            whole, kind, length = match[0], match[4], match[3] or ""
            if kind not in "diouxXfFeEgGaAcsp":
                return "%" if kind == "%" else whole
            for written in filter(None, (match[1], match[2])):
                digits = written
                if written == "*":
                    digits = str(struct.unpack("<i", take(4))[0])
                    whole = whole.replace("*", digits, 1)
                self._check_width(digits, whole)
            count += 1
            plain = whole[: -1 - len(length)]
            if kind in "fFeEgGaA":
                return _float(plain, kind, struct.unpack("<d", take(8))[0])
            if kind == "s":
                address = struct.unpack("<Q", take(8))[0]
                text = self._string(warp, block, lane, address)
                return str((plain + "s") % text)
            if kind == "p":
                address = struct.unpack("<Q", take(8))[0]
                return str((plain + "s") % f"{address:#x}")
            if kind == "c":
                return str((plain + "c") % chr(take(4)[0]))
            return _integer(plain, kind, take(8 if length in _WIDE else 4), length)

        return _FORMAT.sub(value, text), count

    def _check_width(self, digits: str, conversion: str) -> None:
        """Refuse a width or a precision that is more than a kernel may print."""
        most = self._launch.meter.most_output
        most = MOST_WIDTH if most is None else min(most, MOST_WIDTH)
        if len(digits) > 10 or abs(int(digits)) > most:
            raise Error(
                f"printf has the conversion {shortened(conversion)}; a width or a "
                f"precision is at most {most:,}"
            )

    def _assertfail(self, warp: int, block: int, table: int, lane: int) -> None:
        places = [self._place(table, i) for i in range(4)]
        message, file = (
            self._string(warp, block, lane, self._word(warp, p, lane, 2))
            for p in places[:2]
        )
        line = self._word(warp, places[2], lane, 1)
        function = self._string(warp, block, lane, self._word(warp, places[3], lane, 2))
        number = _i32(warp + layout.WARP_NUMBER)
        shape = self._launch.shape
        thread = shape.thread_at(number * LANES + lane)
        where = shape.block_at(_i64(block + layout.BLOCK_INDEX))
        raise KernelFault(
            f"{file}:{line}: {function}: block {where}, thread {thread}: assertion "
            f"`{message}` failed",
            "assert",
            0,
            f"{file}:{line}",
            where,
            thread,
        )

    def _malloc(self, warp: int, block: int, table: int, lane: int) -> None:
        raise Error("malloc in a kernel is not supported; give an array instead")

    def _free(self, warp: int, block: int, table: int, lane: int) -> None:
        raise Error("free in a kernel is not supported")


_WIDE = ("ll", "l", "z", "j", "t")


def _integer(flags: str, kind: str, data: bytes, length: str) -> str:
    """A whole number as C prints it; hh and h take a part of it."""
    data = data[: {"hh": 1, "h": 2}.get(length, 8)]
    number = int.from_bytes(data, "little", signed=kind in "di")
    if kind == "o" and "#" in flags:  # Python writes 0o17
        return str((flags.replace("#", "") + "s") % f"0{number:o}" if number else "0")
    return str((flags + ("d" if kind in "iu" else kind)) % number)


def _float(flags: str, kind: str, number: float) -> str:
    """A float as C prints it."""
    if kind not in "aA" or not math.isfinite(number):
        return str((flags + ("f" if kind in "aA" else kind)) % number)
    digits, _, exponent = number.hex().partition("p")
    shown = f"{digits.rstrip('0').rstrip('.')}p{exponent}"
    if number == 0:
        shown = "-0x0p+0" if math.copysign(1, number) < 0 else "0x0p+0"
    shown = shown.upper() if kind == "A" else shown
    return str((flags.partition(".")[0] + "s") % shown)


def _i64(address: int) -> int:
    return int(np.frombuffer(ctypes.string_at(address, 8), np.int64)[0])


def _i32(address: int) -> int:
    return int(np.frombuffer(ctypes.string_at(address, 4), np.int32)[0])
