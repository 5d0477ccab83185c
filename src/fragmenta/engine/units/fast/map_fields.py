"""The fields of a tensor map that ``tensormap.replace`` changes.

The assembler makes loads, masks and stores of ``tensormap.replace``; :data:`REPLACED`
was read from these.
"""

from __future__ import annotations

from fragmenta.reference.isa.table import read

#: The fields of ``tensormap.replace``: the field of the map, how many numbers it has,
#: and what is subtracted from the operand.  The rank is given less 1 already.
FIELDS = """
field             | map             | many | less
global_address    | address         | 1    | 0
rank              | rank            | 1    | 0
box_dim           | box             | 5    | 1
global_dim        | sizes           | 5    | 1
element_stride    | element_strides | 5    | 1
global_stride     | stride_low      | 4    | 0
elemtype          | code            | 1    | 0
interleave_layout | interleave      | 1    | 0
swizzle_mode      | swizzle         | 1    | 0
fill_mode         | fill            | 1    | 0
"""
REPLACED = {line["field"]: line for line in read(FIELDS)}
LIMITS = {"elemtype": 12, "interleave_layout": 2, "swizzle_mode": 3, "fill_mode": 1}
"""The largest constant that sm_90a takes."""
TF32 = {11: 7, 12: 8}
"""Element types that set the bit of tf32, and the code that they store."""
SWIZZLE_96 = 86
"""The bit of the 96-byte swizzle of later targets; ``swizzle_mode`` clears it."""
STRIDE_BITS = 4
"""A stride is stored without its lowest bits, in two fields."""
STRIDE_LOW = 32
"""Bits of the first of these fields."""
