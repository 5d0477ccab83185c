"""Instructions that several tests ask about."""

from __future__ import annotations

S4 = "mma.m16n8k64.s4.s4"
S4_FULL = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
SPARSE = "mma.sp::ordered_metadata.m16n8k64.s4.s4"
WGMMA = "wgmma.m64n8k16.f32.f16"
