"""Shared memory is laid out as ptxas lays it out."""

from __future__ import annotations

import random
import re
import struct

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.errors import Error
from fragmenta.ptx.placement import place_shared
from fragmenta.ptx.reading import parse
from tests.disassembly import disassemble
from tests.ptx.checking.kernels import errors

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
KERNELS = 24
LINKAGES = ("", "", "", ".visible ", ".weak ")


def section_sizes(cubin: bytes) -> dict[str, int]:
    """The size of each section of an ELF file, by its name."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    rows = [
        struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)
    ]
    texts = cubin[rows[names][4] :]
    return {
        texts[n : texts.index(b"\0", n)].decode(): row[5]
        for n, *row in ((row[0], *row) for row in rows)
    }


def stored(assembly: str) -> dict[str, dict[int, int]]:
    """For each kernel, what is stored at each place: see :func:`kernel`."""
    found: dict[str, dict[int, int]] = {}
    for part in re.split(r"\.section\s+\.text\.", assembly)[1:]:
        name = re.match(r"\w+", part)[0]
        held: dict[str, int] = {}
        for line in part.splitlines():
            made = re.search(r"LOP3\.LUT (R\d+), R\d+(?:\.reuse)?, (0x\w+),", line)
            put = re.search(r"STG\S* \[R\d+\.64(?:\+(0x\w+))?\], (R\d+)", line)
            if made:
                held[made[1]] = int(made[2], 16)
            if put:  # an address of 0 is the number itself
                place = int(put[1] or "0", 16) // 4
                found.setdefault(name, {}).setdefault(place, held.get(put[2], 0))
    return found


def kernel(name: str, own: str, uses: list[str], calls: list[str]) -> str:
    """A kernel that stores addresses, XORed with a number that nobody knows."""
    lines = [
        f"mov.u32 %r1, {each}; xor.b32 %r1, %r1, %y;"
        f"st.volatile.global.b32 [%d+{4 * number}], %r1;"
        for number, each in enumerate(uses)
    ]
    lines += [
        f"call (%r2), {each}, (%y); xor.b32 %r2, %r2, %y;"
        f"st.volatile.global.b32 [%d+{4 * (len(uses) + number)}], %r2;"
        for number, each in enumerate(calls)
    ]
    return (
        f".visible .entry {name}(.param .u64 x) {{ .reg .b32 %r<3>, %y; .reg .b64 %d;"
        f"{own} ld.param.u64 %d, [x]; ld.volatile.global.b32 %y, [%d];"
        + "\n".join(lines)
        + " ret; }\n"
    )


def drawn(seed: int) -> tuple[str, dict[str, list[tuple[str, str]]]]:
    """A module, and for each kernel the variables that it stores, with their owner."""
    draw = random.Random(seed)

    def declared(name: str, linkage: str = "") -> str:
        align, size = draw.choice((1, 4, 8, 16, 32, 128)), draw.randrange(1, 200)
        return f"{linkage}.shared .align {align} .b8 {name}[{size}];"

    outer = [f"v{i}" for i in range(8)]
    functions = {f"f{i}": f"own_f{i}" for i in range(3)}
    lines = [declared(name, draw.choice(LINKAGES)) for name in outer]
    lines += [
        f".extern .shared .align {draw.choice((1, 16, 64, 256))} .b8 dyn{i}[];"
        for i in range(2)
    ]
    draw.shuffle(lines)
    for name, own in functions.items():
        also = draw.choice(outer)
        lines.append(
            f".func (.reg .b32 r) {name}(.reg .b32 z) {{ {declared(own)}"
            f"{declared('spare')} st.shared.b8 [{also}], z; mov.u32 r, {own}; ret; }}"
        )
    wanted = {}
    for number in range(KERNELS):
        name = f"k{number}"
        own = [f"own{i}" for i in range(3)]
        uses = draw.sample([*outer, *own, "dyn0", "dyn1"], draw.randrange(1, 8))
        calls = draw.sample([*functions], draw.randrange(3))
        lines.append(kernel(name, " ".join(map(declared, own)), uses, calls))
        wanted[name] = [(name if each in own else "", each) for each in uses]
        wanted[name] += [(each, functions[each]) for each in calls]
    return HEAD + "\n".join(lines), wanted


@pytest.mark.parametrize("seed", range(2))
def test_ptxas_has_the_same_addresses_and_sizes(seed: int) -> None:
    text, wanted = drawn(seed)
    cubin, module = assembler.assemble(text, "sm_80"), parse(text)
    sizes, found = section_sizes(cubin), stored(disassemble(cubin))
    for name, variables in wanted.items():
        placed = place_shared(module, module.functions[name])
        places = [
            placed.inner[owner, each] if owner else placed.module[each]
            for owner, each in variables
        ]
        assert places == [found[name][i] for i in range(len(places))], name
        assert placed.end == sizes[f".nv.shared.{name}"], name


# ── in a launch ─────────────────────────────────────────────────────────────

TWO = """.version 8.0
.target sm_90a
.address_size 64
.shared .align 16 .b8 big[32768];
.extern .shared .align 16 .b8 first[];
.extern .shared .align 16 .b8 second[];
.visible .entry uses(.param .u64 x) { .reg .b32 %r<2>; .reg .b64 %d; mov.u32 %r1, first;
    ld.param.u64 %d, [x]; st.shared.u32 [big], 1; st.global.u32 [%d], %r1; ret; }
.visible .entry lacks(.param .u64 x) { .reg .b32 %r<3>; .reg .b64 %d;
    ld.param.u64 %d, [x]; mov.u32 %r1, second; mov.u32 %r2, %total_smem_size;
    st.global.v2.u32 [%d], {%r1, %r2}; ret; }
.visible .entry races(.param .u64 x) { .reg .b32 %r<2>; mov.u32 %r1, %tid.x;
    st.shared.u32 [second+8], %r1; ret; }
.visible .entry both(.param .u64 x) { .reg .b32 %r<3>; mov.u32 %r1, %tid.x;
    mov.u32 %r2, first; st.shared.u32 [second+8], %r1; ret; }
"""


def test_a_kernel_has_what_it_names() -> None:
    module, x = ptx.parse(TWO), np.zeros(2, np.uint32)
    module.kernels["lacks"].launch(1, 1, [x], shared=220_000)
    assert x.tolist() == [1024, 1024 + 220_000]
    module.kernels["uses"].launch(1, 1, [x], shared=64)
    assert x[0] == 1024 + 32768
    with pytest.raises(Error, match="32,768"):
        module.kernels["uses"].launch(1, 1, [x], shared=220_000)


@pytest.mark.parametrize(
    "name, said",
    [
        ("races", "second+0x8"),
        ("both", "first or second+0x8"),
    ],
)
def test_reports_name_the_variable_that_the_kernel_names(name: str, said: str) -> None:
    made = ptx.parse(TWO).kernels[name]
    found = made.launch(1, 64, [np.zeros(1)], shared=64, watch="report").problems
    assert any(f"{said} (shared 0x408" in each.message for each in found)


def test_the_check_counts_what_a_kernel_names() -> None:
    text = TWO.replace("sm_90a", "sm_80").replace("32768", "60000")
    assert [each.line for each in errors(text)] == [7]
