"""Where the log of a launch is, and what its rows have.

A block has a record of its own: it points to the log, and has its place among the
blocks that are recorded, and the number of its first warp.  Other blocks have none.
"""

from __future__ import annotations

OWN_LOG = 0  #: pointer to the log
OWN_WARP = 8  #: i32: the number of the first warp of the block
OWN_PLACE = 12  #: i32: the place of the block among those that are recorded
OWN_BYTES = 64

BASE = 0  #: i64: steps before those that the log has now
STEPS = 8  #: i64: steps in the log
STEP_ROOM = 16  #: i64: how many may be there
WORDS = 24  #: i64: words of registers
WORD_ROOM = 32
ACCESSES = 40  #: i64: rows of accesses
ACCESS_ROOM = 48
DATA = 56  #: i64: words that accesses have: addresses and bytes
DATA_ROOM = 64
STEPS_AT = 72  #: pointer to the steps
WORDS_AT = 80
ACCESSES_AT = 88
DATA_AT = 96
FULL = 104  #: pointer to a function of the host, which empties the log
NOTES = 112  #: i64: notes of what units did
NOTE_ROOM = 120
NOTES_AT = 128
PAYLOAD = 136  #: i64: words that notes have: records, and bytes that were written
PAYLOAD_ROOM = 144
PAYLOAD_AT = 152
PENDING = 192  #: i64 each: 1 + the row of an access whose bytes are not there yet
MOST_PENDING = 64
"""Accesses of one instruction."""
LOG_BYTES = PENDING + 8 * MOST_PENDING

STEP_WORDS = 4
"""A step: site, warp, lanes, and where its registers begin among the words."""
ROW_WORDS = 8
"""An access: step, form, lanes, warp, where its addresses begin in the data; of a copy,
the lanes that read."""
ADDRESS_WORDS = 64
"""The addresses of all lanes, of 64 bits each; the bytes follow."""

NOTE_WORDS = 16
"""A note: kind, step, site, the place of its block, rank, warp, lanes, flags of the
event; then of 64 bits: time, number, where its payload begins, and how many words."""
LEAST_PAYLOAD = 1 << 20
"""Words of payload that one note has at most."""

LEAST_WORDS = 1 << 16
"""Words that one instruction needs at most, of registers and of data."""
LEAST_ROWS = 2 * MOST_PENDING
