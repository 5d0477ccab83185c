"""Where tcgen05.mma reads and writes, typed in as formulas.

A second opinion on the layouts: nothing here comes from the package.  A memory is an
array of single bits, and every formula gives the number of an element's first bit.
"""

import numpy as np

LANES, COLUMNS, WORD = 128, 512, 32


def put(memory, first, values, width):
    """Write elements of some width, each at its first bit."""
    first, values = np.broadcast_arrays(first, np.asarray(values).astype(np.uint64))
    for bit in range(width):
        memory[first + bit] = values >> np.uint64(bit) & np.uint64(1)


def get(memory, first, width):
    """Read elements of some width."""
    bits = (
        memory[first + bit].astype(np.uint64) << np.uint64(bit) for bit in range(width)
    )
    return sum(bits)


def to_bits(image):
    """The bits of one image, the lowest first."""
    flat = np.ascontiguousarray(image).view(np.uint8).ravel()
    return np.unpackbits(flat, bitorder="little")


def to_bytes(bits):
    return np.packbits(bits, bitorder="little")


# -- tensor memory ------------------------------------------------------------


def cell(lane, column):
    """The first bit of a cell of 32 bits."""
    return (lane * COLUMNS + column) * WORD


def d_place(letter, row, n, width, base=0):
    """The CTA of an element of D, its lane and its column."""
    lane, column, cta = row, n, row * 0
    if letter == "A":
        cta, lane = row // 128, row % 128
    if letter in "FC":
        cta, row = row // 64, row % 64
        lane = 32 * (row // 16) + row % 16 + base
    if letter == "B":
        cta = row // 64
        lane, column = row % 64 + 64 * (n // (width // 2)), n % (width // 2)
    if letter == "E":
        lane, column = row + 64 * (n // (width // 2)), n % (width // 2)
    if letter == "G":
        lane, column = row + 32 * (n // (width // 4)), n % (width // 4)
    return cta, lane, column


def a_copies(letter):
    """How many lanes further each copy of a row of A is."""
    return {"B": (0, 64), "E": (0, 64), "G": (0, 32, 64, 96)}.get(letter, (0,))


def element_in_a(k, bits, packed):
    """The first bit of an element of a row of A, within eight columns.

    Elements of less than eight bits are in bytes, e2m1 in bits 5 to 2, unless the
    kind packs them.
    """
    if packed or bits >= 8:
        return k * bits
    return k * 8 + (2 if bits == 4 else 0)


def scale_place(row, factor, rows):
    """The lane of a scale, its column and its byte; the lane is repeated every 32."""
    blocks = -(-rows // 128)
    return row % 32, row // 32 + 4 * blocks * (factor // 4), factor % 4


def metadata_place(row, chunk, wide):
    """The lane, the column and the bit of a metadata code; 128 rows in a CTA."""
    if wide:
        return row, chunk // 8, 4 * (chunk % 8)
    lane = 16 * (row // 16) + row % 8 + 8 * (chunk // 4)
    return lane, chunk * 0, 16 * (row // 8 % 2) + 4 * (chunk % 4)


# -- shared memory ------------------------------------------------------------

SWIZZLES = {  # the mode: bytes of a row, lines of an atom, lowest bit, bits, distance
    0: (16, 8, 0, 0, 0),
    6: (32, 8, 4, 1, 3),
    4: (64, 8, 4, 2, 3),
    2: (128, 8, 4, 3, 3),
    1: (128, 4, 5, 2, 2),
}


def element_in_row(k, bits, packed):
    """The first bit of an element of a row: 16 small elements fill 16 bytes."""
    if packed or bits >= 8:
        return k * bits
    return k // 16 * 128 + k % 16 * bits


def shared_place(along, across, mode, major, start, leading, stride):
    """The address of the bit ``along`` a row, in the row ``across``.

    K-major rows run along k, the others along m or n.
    """
    span, lines, low, bits, distance = SWIZZLES[mode]
    byte, bit = along // 8, along % 8
    if mode == 0:
        to_unit, to_lines = (leading, stride) if major == "k" else (stride, leading)
    else:
        to_unit, to_lines = leading, stride
    address = start + byte % span + byte // span * to_unit
    address = address + across % lines * span + across // lines * to_lines
    if bits:
        taken = address >> (low + distance) & ((1 << bits) - 1)
        address = address ^ (taken << low)
    return address * 8 + bit
