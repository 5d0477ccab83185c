"""Where tensor memory, and the products of ``tcgen05.mma``, are in memory.

A *form* is an instruction with its instruction descriptor.  Python makes it at its
first use.  An operand is gathered by a *table*: for each unit of some bytes, in the
order in which the arithmetic wants them, where it is.  Of a pair of blocks, a unit of
the second one has the bit ``SECOND``.  For an operand in tensor memory, the form has
the table of its cells from column 0 on.  For one in shared memory, each descriptor has
a *source* with its table.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

# ── the tensor memory of a block ────────────────────────────────────────────

TENSOR_IMAGE: Final = 0  #: pointer to u32 (128 lanes, 512 columns)
TENSOR_STORES: Final = 8  #: pointer to u16 for each cell: stores in flight
TENSOR_QUEUED: Final = 16  #: pointer to u16 for each cell: products and copies
TENSOR_ALLOCATED: Final = 24  #: pointer to u8 for each column: whether it is allocated
TENSOR_STORING: Final = 32  #: i32: how many parts of stores are in flight
TENSOR_LATE: Final = 36  #: i32: whether work may be in flight
TENSOR_SCRATCH: Final = 40  #: pointer to memory for operands of products
TENSOR_BYTES: Final = 64

LANES, COLUMNS = 128, 512
ADDRESS_BITS: Final = 32
SCALE_ADDRESS_BITS: Final = 30
"""Of the address of scales; CUTLASS keeps the id of the descriptor in those above."""
SCRATCH: Final = 1 << 20

# ── a form ──────────────────────────────────────────────────────────────────

FORM_FUNCTION: Final = 0  #: pointer to the machine code of the steps; 0: none
FORM_NUMBERS: Final = 8  #: pointer to i64: its arguments that are numbers
FORM_BLOCKS: Final = 16  #: i64: how many blocks it computes
FORM_HALF: Final = 24  #: i32: whether D is f16
FORM_PAIR: Final = 28  #: i32: whether two blocks take part
FORM_D_BYTES: Final = 32  #: i64: bytes of D as float32
FORM_ROOM: Final = 40  #: 6 x i64: where parts are in the scratch memory
FORM_IDESC: Final = 88  #: i32: the instruction descriptor
FORM_SCALED: Final = 92  #: i32: whether there are scales
FORM_SOURCES: Final = 96  #: 2 pointers to KNOWN pointers: sources of A and B; 0: none
FORM_SHAPE: Final = 112  #: 2 x i32: M and N
FORM_KIND: Final = 120  #: i32: which steps compute it: FUSED, GROUPED or INTEGERS
FORM_PARTS: Final = 128  #: A, B, D, the scales of A and of B
FORM_BYTES: Final = 512

FUSED, GROUPED, INTEGERS = range(3)
"""Steps; GROUPED and INTEGERS take B, D and the scales of B in panels of 8 columns."""


class Grouped(IntEnum):
    """The numbers of a form whose products are added in groups.

    First the addresses of functions, then those of tables; what follows are sizes, and
    places in the memory for work.
    """

    STEPS = 0
    ROWS = 1
    COLUMNS = 2
    SCALES = 3
    VALUES = 4
    POWERS = 5
    OFFSETS = 6
    COUNT_A = 7
    COUNT_B = 8
    SCALE_COUNT_A = 9
    SCALE_COUNT_B = 10
    A = 11
    B = 12
    SOME_A = 13
    SOME_B = 14
    SCALES_A = 15
    SCALES_B = 16
    POWERS_A = 17
    POWERS_B = 18
    UNUSED = 19
    """The bits of a scale that must be 0."""
    SIZES = 20


class Integers(IntEnum):
    """The numbers of a form of integers."""

    STEPS = 0
    OFFSETS = 1
    SIZES = 2


ROOM_A, ROOM_B, ROOM_D, ROOM_SCALE_A, ROOM_SCALE_B, ROOM_WORK = range(6)

PART_TABLE: Final = 0  #: pointer to i32; 0 if it is in shared memory
PART_UNIT: Final = 8  #: i32: bytes of a unit
PART_COUNT: Final = 12  #: i32: how many units
PART_COPIES: Final = 16  #: i32: how often it is in tensor memory
PART_LANE: Final = 20  #: i32: the lane of its address
PART_REGIONS: Final = 24  #: 2 regions: the cells that it touches in each block
PART_BYTES: Final = 72
A, B, D, SCALE_A, SCALE_B = range(5)

REGION_LANES: Final = 0  #: 2 x i64: the lanes, a bit for each
REGION_FIRST: Final = 16  #: i32: the first column, from the address on
REGION_COLUMNS: Final = 20  #: i32: how many columns
REGION_BYTES: Final = 24

SECOND: Final = 1 << 24
"""In a table: the unit is in the second block of a pair."""

SOURCE_WORD: Final = 0  #: i64: the descriptor
SOURCE_TABLE: Final = 8  #: pointer to i32
SOURCE_START: Final = 16  #: i64: added to each place
SOURCE_UNIT: Final = 24  #: i32: bytes of a unit; negative: bits, places are in bits
SOURCE_COUNT: Final = 28  #: i32: how many units
SOURCE_READS: Final = 32  #: pointer to ranges of bytes that it reads
SOURCE_READS_COUNT: Final = 40  #: i64: how many these are
SOURCE_BYTES: Final = 64

RANGE_STARTS: Final = 0  #: pointer to u32: where pieces of the same size begin
RANGE_COUNT: Final = 8  #: i64: how many these are
RANGE_SIZE: Final = 16  #: i64: bytes of a piece
RANGE_BYTES: Final = 24

# ── a product ───────────────────────────────────────────────────────────────

PRODUCT_FORM: Final = 0  #: pointer
PRODUCT_PLACES: Final = 8  #: A, B: pointer to the source, or the column; D, scales
PRODUCT_ENABLE: Final = 48  #: i64: whether the old D is added
PRODUCT_TENSORS: Final = 56  #: 2 pointers to tensor memories
PRODUCT_SHARED: Final = 72  #: 2 pointers to shared memories
PRODUCT_BYTES: Final = 88

# ── a load or a store ───────────────────────────────────────────────────────
#
# Each event has a record.  Each quarter of a warpgroup has an entry in it, once Python
# has looked at the address that it gives.

MOVE_REGISTERS: Final = 0  #: pointer to i64: the places of the registers in a warp
MOVE_COUNT: Final = 8  #: i32: how many these are
MOVE_PACKED: Final = 12  #: i32: whether two columns share a register
MOVE_REGIONS: Final = 16  #: i32: how many regions it touches: 1 or 2
MOVE_ENTRIES: Final = 64  #: 4 entries

ENTRY_TABLE: Final = 0  #: pointer to i32: the number of each cell; 0: not known yet
ENTRY_LANE: Final = 8  #: i32: the lane of the address
ENTRY_REACH: Final = 12  #: i32: columns from the address to the last one
ENTRY_REGIONS: Final = 16  #: 2 regions
ENTRY_BYTES: Final = 64
MOVE_BYTES: Final = MOVE_ENTRIES + 4 * ENTRY_BYTES

# In the record of a task (``task_layout``):
STORE_MOVE: Final = 0  #: pointer to the record of the event
STORE_ENTRY: Final = 8  #: pointer to the entry
STORE_COLUMN: Final = 16  #: i64: the column of the address
STORE_TENSOR: Final = 24  #: pointer to tensor memory

DONE, PYTHON = 0, 1
"""What a product returns: it is done, or nothing is changed and Python does it."""
