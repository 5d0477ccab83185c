"""Unpacks what nvcc compresses in fat binaries: LZ4 blocks and Zstandard frames.

nvcc 13 writes Zstandard (RFC 8878), earlier ones LZ4.  Python has neither before 3.14,
so both are read here.  Dictionaries and checksums, which nvcc does not write, are not
used: a frame that names a dictionary is refused, a checksum is skipped.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.errors import Error

MOST = 1 << 30
"""The most bytes that anything is unpacked to."""


class Damaged(Error):
    """Packed bytes that cannot be unpacked."""


def lz4(data: bytes, size: int) -> bytes:
    r"""Unpack an LZ4 block to so many bytes.

    >>> lz4(b"\x14a\x01\x00\x50bcdef", 14)
    b'aaaaaaaaabcdef'
    """
    _check_size(size)
    made, at = bytearray(), 0
    try:
        while len(made) < size:
            token, at = data[at], at + 1
            count, at = _lz4_length(data, at, token >> 4)
            made += data[at : at + count]
            at += count
            if len(made) >= size or at >= len(data):
                break
            offset = data[at] | data[at + 1] << 8
            count, at = _lz4_length(data, at + 2, token & 15)
            _copy(made, offset, count + 4, size)
    except IndexError:
        pass
    if len(made) != size:
        raise Damaged(f"an LZ4 block of {size:,} bytes ends after {len(made):,}")
    return bytes(made)


def _lz4_length(data: bytes, at: int, count: int) -> tuple[int, int]:
    """A length whose first 4 bits are given; where the next byte is."""
    more = 255 if count == 15 else 0
    while more == 255:
        more, at = data[at], at + 1
        count += more
    return count, at


def _check_size(size: int) -> None:
    if not 0 <= size <= MOST:
        raise Damaged(f"{size:,} bytes are said to be packed; the most is {MOST:,}")


def _copy(made: bytearray, offset: int, count: int, size: int) -> None:
    """Repeat bytes that were unpacked before."""
    begin = len(made) - offset
    if offset < 1 or begin < 0 or len(made) + count > size:
        raise Damaged("packed bytes refer to bytes that do not exist")
    if offset >= count:
        made += made[begin : begin + count]
    else:
        made += (made[begin:] * (count // offset + 1))[:count]


# ── Zstandard ───────────────────────────────────────────────────────────────

_MAGIC = 0xFD2FB528


def zstd(data: bytes, size: int) -> bytes:
    r"""Unpack a Zstandard frame to so many bytes.

    >>> zstd(bytes.fromhex("28b52ffd200319000061 6263".replace(" ", "")), 3)
    b'abc'
    """
    _check_size(size)
    try:
        made = _Frame(data, size).made
    except (IndexError, KeyError, ValueError) as why:  # such as a negative shift
        raise Damaged("a Zstandard frame is damaged") from why
    if len(made) != size:
        raise Damaged(f"a Zstandard frame of {size:,} bytes has {len(made):,}")
    return bytes(made)


class _Cell(NamedTuple):
    """An entry of a table of states: FSE, section 4.1 of the RFC."""

    symbol: int
    bits: int
    base: int


_Table = list[_Cell]

# The bits and the base of each code of a length: section 3.1.1.3.2.1.1.
_EXTRA_LITERALS = [0] * 16 + [1] * 4 + [2, 2, 3, 3, 4, 6, *range(7, 17)]
_EXTRA_MATCH = [0] * 32 + [1] * 4 + [2, 2, 3, 3, 4, 4, 5, *range(7, 17)]


def _bases(extra: list[int], first: int) -> list[int]:
    found = []
    for bits in extra:
        found.append(first)
        first += 1 << bits
    return found


_LITERALS_FROM = _bases(_EXTRA_LITERALS, 0)
_MATCH_FROM = _bases(_EXTRA_MATCH, 3)

# The distributions that need not be written: section 3.1.1.3.2.2.
_USUAL_LITERALS = [
    *(4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2),
    *(2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1),
]
_USUAL_MATCH = [
    *(1, 4, 3, 2, 2, 2, 2, 2, 2, *[1] * 37, -1, -1, -1, -1, -1, -1, -1),
]
_USUAL_OFFSETS = [
    *(1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    *(-1, -1, -1, -1, -1),
]


class _Kind(NamedTuple):
    """One of the three codes of a sequence: its usual table, and its bounds."""

    usual: list[int]
    log: int
    most_log: int
    most: int


_KINDS = (
    _Kind(_USUAL_LITERALS, 6, 9, 35),
    _Kind(_USUAL_OFFSETS, 5, 8, 31),
    _Kind(_USUAL_MATCH, 6, 9, 52),
)


class _Frame:
    """A frame while it is unpacked."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size, self.made = data, size, bytearray()
        self.recent = [1, 4, 8]
        """The last offsets."""
        self.huffman: tuple[int, list[tuple[int, int]]] | None = None
        self.tables: list[_Table | None] = [None, None, None]
        at, last = self._header(), False
        while not last:
            word = int.from_bytes(data[at : at + 3], "little")
            last, kind, count = bool(word & 1), word >> 1 & 3, word >> 3
            at += 3
            if at > len(data):
                raise IndexError
            at += self._block(kind, at, count)

    def _header(self) -> int:
        """Where the first block is."""
        data = self.data
        if int.from_bytes(data[:4], "little") != _MAGIC:
            raise Damaged("no Zstandard frame begins here")
        flags = data[4]
        if flags & 3:
            raise Damaged("the Zstandard frame needs a dictionary, which nvcc has not")
        single = flags >> 5 & 1
        return 5 + (not single) + ((flags >> 6 and 1 << (flags >> 6)) or single)

    def _block(self, kind: int, at: int, count: int) -> int:
        """Unpack a block; how many bytes it has."""
        if kind == 0:
            self._literal(self.data[at : at + count])
            return count
        if kind == 1:
            self._literal(self.data[at : at + 1] * count)
            return 1
        if kind == 3 or at + count > len(self.data):
            raise IndexError
        self._compressed(self.data[at : at + count])
        return count

    def _literal(self, data: bytes) -> None:
        if len(self.made) + len(data) > self.size:
            raise Damaged(f"a Zstandard frame has more than {self.size:,} bytes")
        self.made += data

    def _compressed(self, block: bytes) -> None:
        literals, at = self._literals(block)
        count, at = _number_of_sequences(block, at)
        if not count:
            self._literal(literals)
            return
        modes, at = block[at], at + 1
        tables = []
        for index, kind in enumerate(_KINDS):
            table, at = self._table(
                kind, index, modes >> (6 - 2 * index) & 3, block, at
            )
            tables.append(table)
        self._sequences(block[at:], count, literals, tables)

    # ── literals: section 3.1.1.3.1 ────────────────────────────────────────

    def _literals(self, block: bytes) -> tuple[bytes, int]:
        kind, form = block[0] & 3, block[0] >> 2 & 3
        if kind < 2:
            bytes_, shift = {0: (1, 3), 2: (1, 3), 1: (2, 4), 3: (3, 4)}[form]
            count = int.from_bytes(block[:bytes_], "little") >> shift
            if count > self.size:
                raise IndexError
            if kind == 0:
                return block[bytes_ : bytes_ + count], bytes_ + count
            return block[bytes_ : bytes_ + 1] * count, bytes_ + 1
        bytes_, width = {0: (3, 10), 1: (3, 10), 2: (4, 14), 3: (5, 18)}[form]
        word = int.from_bytes(block[:bytes_], "little") >> 4
        count, packed = word & (1 << width) - 1, word >> width
        if count > self.size or bytes_ + packed > len(block):
            raise IndexError
        data = block[bytes_ : bytes_ + packed]
        if kind == 2:
            self.huffman, used = _huffman(data)
            data = data[used:]
        if self.huffman is None:
            raise IndexError
        return self._streams(data, count, 1 if form == 0 else 4), bytes_ + packed

    def _streams(self, data: bytes, count: int, streams: int) -> bytes:
        assert self.huffman is not None
        if streams == 1:
            return bytes(_decoded(data, count, *self.huffman))
        sizes = [int.from_bytes(data[i : i + 2], "little") for i in (0, 2, 4)]
        each, at, made = (count + 3) // 4, 6, bytearray()
        for size in (*sizes, len(data) - 6 - sum(sizes)):
            wanted = min(each, count - len(made))
            made += _decoded(data[at : at + size], wanted, *self.huffman)
            at += size
        return bytes(made)

    # ── sequences: section 3.1.1.3.2 ───────────────────────────────────────

    def _table(
        self, kind: _Kind, index: int, mode: int, block: bytes, at: int
    ) -> tuple[_Table, int]:
        if mode == 0:
            made = _states(kind.usual, kind.log)
        elif mode == 1:
            made, at = [_Cell(block[at], 0, 0)], at + 1
        elif mode == 2:
            counts, log, used = _distribution(block[at:], kind.most_log, kind.most)
            made, at = _states(counts, log), at + used
        else:
            kept = self.tables[index]
            if kept is None:
                raise IndexError
            made = kept
        self.tables[index] = made
        return made, at

    def _sequences(
        self, data: bytes, count: int, literals: bytes, tables: list[_Table]
    ) -> None:
        # 24 bytes of zeros before the stream: bits beyond its start are 0.
        stream, at = b"\0" * 24 + data, 192 + _top(data)
        states = []
        for table in tables:
            log = len(table).bit_length() - 1
            at -= log
            states.append(_bits(stream, at, log))
        literal, offset, match = states
        of_literal, of_offset, of_match = tables
        made, size, used = self.made, self.size, 0
        for left in range(count, 0, -1):
            if at < 192:
                raise IndexError
            # All bits of a sequence are in these 16 bytes: at most 63 + 26.
            begin = (at >> 3) - 15
            window = int.from_bytes(stream[begin : begin + 16], "little")
            top = at - 8 * begin
            cell_o, cell_m, cell_l = (
                of_offset[offset],
                of_match[match],
                of_literal[literal],
            )
            top -= cell_o.symbol
            wanted = (1 << cell_o.symbol) + (window >> top & (1 << cell_o.symbol) - 1)
            bits = _EXTRA_MATCH[cell_m.symbol]
            top -= bits
            length = _MATCH_FROM[cell_m.symbol] + (window >> top & (1 << bits) - 1)
            bits = _EXTRA_LITERALS[cell_l.symbol]
            top -= bits
            plain = _LITERALS_FROM[cell_l.symbol] + (window >> top & (1 << bits) - 1)
            if left > 1:
                top -= cell_l.bits
                literal = cell_l.base + (window >> top & (1 << cell_l.bits) - 1)
                top -= cell_m.bits
                match = cell_m.base + (window >> top & (1 << cell_m.bits) - 1)
                top -= cell_o.bits
                offset = cell_o.base + (window >> top & (1 << cell_o.bits) - 1)
            at = 8 * begin + top
            if used + plain > len(literals) or len(made) + plain > size:
                raise IndexError
            made += literals[used : used + plain]
            used += plain
            _copy(made, self._offset(wanted, plain), length, size)
        if at != 192:
            raise Damaged("a Zstandard block has bits that belong to nothing")
        self._literal(literals[used:])

    def _offset(self, wanted: int, plain: int) -> int:
        """The offset of a match: a new one, or one of the last three."""
        recent = self.recent
        if wanted > 3:
            found = wanted - 3
            self.recent = [found, recent[0], recent[1]]
            return found
        index = wanted - 1 + (plain == 0)
        found = recent[0] - 1 if index == 3 else recent[index]
        if index:
            rest = [recent[0], recent[1] if index != 1 else recent[2]]
            self.recent = [found, *rest]
        return found


def _number_of_sequences(block: bytes, at: int) -> tuple[int, int]:
    first = block[at]
    if first < 128:
        return first, at + 1
    if first < 255:
        return (first - 128 << 8) + block[at + 1], at + 2
    return block[at + 1] + (block[at + 2] << 8) + 0x7F00, at + 3


def _top(data: bytes) -> int:
    """How many bits a stream has below its highest one, which marks its end."""
    if not data or not data[-1]:
        raise IndexError
    return 8 * (len(data) - 1) + data[-1].bit_length() - 1


def _bits(data: bytes, at: int, count: int) -> int:
    begin = at >> 3
    word = int.from_bytes(data[begin : begin + 4], "little")
    return word >> (at & 7) & (1 << count) - 1


# ── FSE: section 4.1 ────────────────────────────────────────────────────────


def _distribution(data: bytes, most_log: int, most: int) -> tuple[list[int], int, int]:
    """The probabilities that a block has: -1 is less than 1; bytes that were read."""
    # A description is short; what is behind it counts as 0.
    word, at = int.from_bytes(data[:512], "little"), 4
    log = (word & 15) + 5
    if log > most_log:
        raise IndexError
    left, found = (1 << log) + 1, list[int]()
    while left > 1 and len(found) <= most:
        bits = left.bit_length()
        value = word >> at & (1 << bits) - 1
        low = (1 << bits - 1) - 1
        less = (1 << bits) - 1 - left
        if value & low < less:
            at, value = at + bits - 1, value & low
        else:
            at += bits
            value -= less if value > low else 0
        count = value - 1
        left -= abs(count)
        found.append(count)
        while not count:
            more = word >> at & 3
            at += 2
            found += [0] * more
            if more < 3:
                break
    if left != 1 or len(found) > most + 1 or at > 8 * len(data):
        raise IndexError
    return found, log, (at + 7) // 8


def _states(counts: list[int], log: int) -> _Table:
    """The table of states of a distribution."""
    size = 1 << log
    symbols, high = [0] * size, size - 1
    for symbol, count in enumerate(counts):
        if count == -1:
            symbols[high] = symbol
            high -= 1
    step, at = (size >> 1) + (size >> 3) + 3, 0
    for symbol, count in enumerate(counts):
        for _ in range(max(count, 0)):
            symbols[at] = symbol
            at = at + step & size - 1
            while at > high:
                at = at + step & size - 1
    following = [abs(count) for count in counts]
    made = []
    for symbol in symbols:
        state = following[symbol]
        following[symbol] += 1
        bits = log - state.bit_length() + 1
        made.append(_Cell(symbol, bits, (state << bits) - size))
    return made


# ── Huffman: section 4.2 ────────────────────────────────────────────────────


def _huffman(data: bytes) -> tuple[tuple[int, list[tuple[int, int]]], int]:
    """The table of a tree, by the next bits: symbol and bits; bytes that were read."""
    first = data[0]
    if first >= 128:
        count = first - 127
        used = 1 + (count + 1) // 2
        halves = [half for byte in data[1:used] for half in (byte >> 4, byte & 15)]
        weights = halves[:count]
    else:
        used = 1 + first
        weights = _weights(data[1:used])
    total = sum(1 << weight - 1 for weight in weights if weight)
    if not total or used > len(data) or max(weights) > 12:
        raise IndexError
    log = total.bit_length()
    rest = (1 << log) - total
    if log > 11 or rest & rest - 1:
        raise IndexError
    weights.append(rest.bit_length())
    table = [
        (symbol, log + 1 - weight)
        for weight in range(1, log + 1)
        for symbol, each in enumerate(weights)
        if each == weight
        for _ in range(1 << weight - 1)
    ]
    return (log, table), used


def _weights(data: bytes) -> list[int]:
    """Weights that are coded by FSE, with two states in turns."""
    counts, log, used = _distribution(data, 6, 255)
    table = _states(counts, log)
    stream = b"\0" * 8 + data[used:]
    at = 64 + _top(data[used:])
    states, found = [], list[int]()
    for _ in range(2):
        at -= log
        states.append(_bits(stream, at, log))
    turn = 0
    while True:
        cell = table[states[turn]]
        found.append(cell.symbol)
        if at - cell.bits < 64:
            found.append(table[states[1 - turn]].symbol)
            return found
        at -= cell.bits
        states[turn] = cell.base + _bits(stream, at, cell.bits)
        turn = 1 - turn
        if len(found) > 255:
            raise IndexError


def _decoded(
    data: bytes, count: int, log: int, table: list[tuple[int, int]]
) -> bytearray:
    """The symbols of one stream."""
    stream, at = b"\0" * 8 + data, 64 + _top(data)
    made, mask = bytearray(), (1 << log) - 1
    while len(made) < count:
        # Seven bytes have five symbols, or more.
        begin = (at >> 3) - 6
        window = int.from_bytes(stream[begin : begin + 7], "little")
        top = at - 8 * begin
        for _ in range(min(4, count - len(made))):
            symbol, bits = table[(window << log >> top) & mask]
            made.append(symbol)
            top -= bits
        at = 8 * begin + top
        if at < 64:
            raise IndexError
    if at != 64:
        raise Damaged("a Zstandard stream has bits that belong to nothing")
    return made
