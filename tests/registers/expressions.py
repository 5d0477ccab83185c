"""The layouts and fragments on which index expressions are tested."""

from __future__ import annotations

from functools import cache

import fragmenta as fm
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Layout

TENSOR = (
    fm.tcgen05("m64n32k16", a="f16", d="f32"),
    fm.tcgen05("m64n128k16", a="f16", ws=True),
    fm.tcgen05("m32n256k8", a="tf32", ws=True),
    fm.tcgen05("m128n96k16", a="f16", cta_group=2),
    fm.tcgen05("m64n24k32", a="f16", sp=True),
    fm.tcgen05("m128n96k32", a="f16", cta_group=2, sp=True),
    fm.tcgen05("m128n16k32", a="e2m1", d="f32"),
)
WINDOWS = (
    fm.tcgen05("m128n48k64", a="e2m1", kind="mxf4", cta_group=2),
    fm.tcgen05("m256n208k32", a="e4m3", kind="mxf8f6f4", cta_group=2),
    fm.tcgen05("m128n40k32", a="e4m3", kind="mxf8f6f4", scale_a_id=1, scale_b_id=3),
    fm.tcgen05("m128n96k64", a="e2m1", kind="mxf4nvf4", scale_vec="4X"),
    fm.tcgen05("m128n96k64", a="e2m1", kind="mxf4nvf4", scale_vec="2X", scale_a_id=2),
)
OWN = (
    # Sizes that are no powers of two, letters that no instruction has.
    Layout.parse("row = L2 L3 L4 B*  col = R* L0 L1 | copy = E0", B=3, L=32, R=6, E=2),
    Layout.parse("byte = K* G0  word = G1 H*  page = 0", G=4, H=5, K=7),
    Layout.parse("row = T0 T1 T2 T3 T4 T5  col = C* T6", T=128, C=24),
    # Digits that are XORs of bits.
    Layout.parse("row = L0^R1 L1 L2^L0^L4 R2*  col = R0^L3^L4 L3 L4 R1", L=32, R=24),
    Layout.parse("address = A0 A1 A2 A3 A4^A7 A5^A8 A6^A9 A7*", A=2048),
)


@cache
def every_part() -> tuple[Fragment, ...]:
    """Each distinct fragment of the catalogue, by layout and container."""
    found: dict[object, Fragment] = {}
    for op in fm.catalogue():
        for part in op.fragments.values():
            found.setdefault((part.layout, part.container), part)
    return tuple(found.values())


@cache
def tensor_parts() -> tuple[Fragment, ...]:
    """Fragments in tensor memory, some of which have windows."""
    return tuple(part for op in TENSOR + WINDOWS for part in op.fragments.values())


@cache
def every_layout() -> tuple[Layout, ...]:
    """The layouts of all these, some of them tiled and inverted, and our own."""
    parts = every_part() + tensor_parts()
    plain = tuple(dict.fromkeys(part.layout for part in parts))
    small = [each for each in plain if max(each.sizes.values()) <= 64][::3]
    tiled = [
        each.tile(**dict(zip(each.data[-2:], (4, 3), strict=True))) for each in small
    ]
    return (*plain, *OWN, *tiled, *(each.inverse() for each in [*small[::2], *OWN]))
