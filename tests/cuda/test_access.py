"""The functions that load and store fragments follow the layouts."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.cuda.source import access
from fragmenta.cuda.source.access import FragmentAccess
from fragmenta.cuda.source.fragments import fragment_piece, metadata_pieces
from fragmenta.cuda.source.helpers import helpers
from fragmenta.reference.shared.descriptor import Descriptor
from tests.cuda.instructions import OPS, WIDTHS, memory_type

# ── the index expressions, evaluated ────────────────────────────────────────


def every_fragment():
    """Each distinct fragment with functions of its own, and their direction."""
    found = {}
    for op in OPS:
        if op.family.startswith("wmma"):
            continue
        for name, part in op.fragments.items():
            key = (part.layout, part.container, name, part.dtype)
            found.setdefault(key, (op, part, "store" if name == "D" else "load"))
            if name == "metadata":
                shared = op.metadata.shared.fragment
                key = (shared.layout, shared.container, name)
                found.setdefault(key, (op, shared, "load"))
    return list(found.values())


FRAGMENTS = every_fragment()


def orders(part):
    return ("row",) if part.name == "metadata" else ("row", "col")


def written(part, order, direction):
    write = access.load if direction == "load" else access.store
    return write(part, order, "move")[0]


def test_every_layout_is_tested():
    assert len({part.layout for _, part, _ in FRAGMENTS}) > 130


@pytest.mark.parametrize("share", range(4))
def test_the_expressions_are_the_layout(share):
    """C's integer expressions read the same in Python, so Python reads them."""
    for op, part, direction in FRAGMENTS[share::4]:
        for order in orders(part):
            text = written(part, order, direction)
            run = FragmentAccess(part, order).run
            sizes = {"W": 1, "E": 1, **dict(part.layout.axes)}
            shape = [sizes[axis] for axis in "WLRE"]
            warp, lane, r, e = np.indices(shape)[..., ::run]
            scope = {"warp": warp, "lane": lane, "r": r, "e": e}
            found = dict(re.findall(r"^ *int (\w+) = (.*);$", text, re.M))
            for name, grid in part.layout.grid().items():
                if name in part.layout.free:
                    continue
                value = eval(found.get(name, "0"), {}, scope)
                expected = grid.reshape(shape)[..., ::run]
                assert (np.broadcast_to(value, expected.shape) == expected).all(), op


def test_an_expression_leaves_out_what_changes_nothing():
    a = fm.mma("m16n8k64", a="s4").a
    assert access.expression(a.layout, "row") == "(lane >> 2) + 8 * (r & 1)"
    assert access.expression(a.layout, "col") == "8 * (lane & 3) + 32 * (r >> 1) + e"
    assert access.expression(a.layout, "col", run=8) == "8 * (lane & 3) + 32 * (r >> 1)"
    d = fm.wgmma("m64n24k16", a="f16", d="f32").d
    assert (
        access.expression(d.layout, "col") == "2 * (lane & 3) + (r & 1) + 8 * (r >> 2)"
    )


# ── the functions, run on the host ──────────────────────────────────────────

PRELUDE = """
#define __device__
#define __forceinline__ inline
static int lane_id() { return -1; }
static int warp_id() { return -1; }
#define __cvta_generic_to_shared(pointer) reinterpret_cast<unsigned long long>(pointer)
"""
DESCRIPTOR = """
extern "C" unsigned long long descriptor(
    unsigned long long start, unsigned leading, unsigned stride, int swizzle)
{
    auto pointer = reinterpret_cast<const void*>(start);
    return wgmma_descriptor(pointer, leading, stride, swizzle);
}
"""


def choices(part):
    """Template arguments of the selectors, with the words that pack knows."""
    if not part.selectors:
        return [((), {})]
    sizes = [range(part.layout.sizes[name]) for name in part.selectors]
    found = []
    for values in np.stack(np.meshgrid(*sizes), -1).reshape(-1, len(sizes)).tolist():
        named = dict(zip(part.selectors, values, strict=True))
        legal = [s.legal for s in access.selectors(part)]
        found.append(([row[v] for row, v in zip(legal, values, strict=True)], named))
    return found


def cases():
    """Every fragment in both orders and with every selector; wide ones by sample."""
    for op, part, direction in FRAGMENTS:
        if (
            op.family.startswith("wgmma")
            and part.name in "CD"
            and op.shape.n not in WIDTHS
        ):
            continue
        for order in orders(part):
            for arguments, selected in choices(part):
                yield part, direction, order, arguments, selected


def wrapper(number, part, direction, order, arguments):
    """One function of its own name, and a loop over every lane that calls it."""
    memory = FragmentAccess(part, order)
    warps = dict(part.layout.axes).get("W", 1)
    given = f"reinterpret_cast<{memory_type(part)}*>(memory), stride"
    given += ", matrix_stride" if memory.matrices else ""
    given += ", lane" + (", warp" if warps > 1 else "")
    chosen = f"<{', '.join(map(str, arguments))}>" if arguments else ""
    name, held = f"move{number}", "held[warp * 32 + lane]"
    text = written(part, order, direction).replace(" move(", f" {name}(")
    call = f"{name}({held}, {given});"
    if memory.scalar:
        call = f"{held}[0] = {name}{chosen}({given});"
    return text + (
        f'extern "C" void run{number}(\n'
        f"    {memory.register} (*held)[{part.registers}], unsigned char* memory,\n"
        f"    int stride, int matrix_stride)\n{{\n"
        f"    for (int warp = 0; warp < {warps}; ++warp)\n"
        f"        for (int lane = 0; lane < 32; ++lane)\n            {call}\n}}\n"
    )


def pack_memory(elements, bits):
    """Elements along the last axis as bytes of memory."""
    if bits >= 8:
        return np.ascontiguousarray(elements).view(np.uint8).copy()
    if bits == 1:
        return np.packbits(elements.ravel().astype(np.uint8), bitorder="little")
    low, high = elements.ravel()[::2], elements.ravel()[1::2]
    return (low | high << 4).astype(np.uint8)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The functions as a library of this machine."""
    program = shutil.which("c++")
    if program is None:
        pytest.skip("no C++ compiler on this machine")
    folder = tmp_path_factory.mktemp("host")
    small = [piece.text for piece in helpers() if piece.name in ("nibble", "bit")]
    wgmma = next(piece.text for piece in helpers() if piece.name == "wgmma")
    makes = wgmma[wgmma.index("// The descriptor") :]
    text = [PRELUDE, *small, makes, DESCRIPTOR]
    for number, (part, direction, order, arguments, _) in enumerate(cases()):
        text.append(wrapper(number, part, direction, order, arguments))
    source, library = folder / "source.cpp", folder / "library.so"
    source.write_text("\n".join(text))
    options = ["-shared", "-fPIC", "-w", "-std=c++17", "-fno-strict-aliasing"]
    subprocess.run([program, *options, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


class Memory:
    """A matrix (or several) in memory, with gaps, under random bits."""

    def __init__(self, part, order, generator):
        self.bits = part.container.bits
        self.order = order
        *matrices, rows, cols = part.shape
        lines, length = (rows, cols) if order == "row" else (cols, rows)
        self.stride, self.length = length + 32, length
        self.matrix_stride = self.stride * lines + 64
        count = matrices[0] if matrices else 1
        kind = f"u{max(1, self.bits // 8)}"
        most = 1 << min(self.bits, 63)
        size = (count, self.matrix_stride)
        self.elements = generator.integers(0, most, size, dtype="u8").astype(kind)
        self.lines = lines

    def view(self, elements):
        """The matrices inside, as rows and columns."""
        used = elements[:, : self.lines * self.stride]
        found = used.reshape(-1, self.lines, self.stride)[..., : self.length]
        return found if self.order == "row" else found.swapaxes(-1, -2)


def run(host, number, registers, memory):
    data = pack_memory(memory.elements, memory.bits)
    getattr(host, f"run{number}")(
        ctypes.c_void_p(registers.ctypes.data),
        ctypes.c_void_p(data.ctypes.data),
        memory.stride,
        memory.matrix_stride,
    )
    return data


def test_the_functions_do_what_packing_does(host):
    """Every load is pack, every store unpack, down to each bit of memory."""
    generator = np.random.default_rng(20)
    count = 0
    for number, (part, direction, order, _, selected) in enumerate(cases()):
        memory = Memory(part, order, generator)
        kind = f"u{part.register_bits // 8}"
        registers = generator.integers(0, 1 << 32, (part.lanes, part.registers), "u8")
        registers = registers.astype(kind)
        if direction == "load":
            check_load(host, number, part, memory, registers, selected)
        else:
            check_store(host, number, part, memory, registers)
        count += 1
    assert count > 300


def check_load(host, number, part, memory, registers, selected):
    inside = memory.view(memory.elements)
    values = inside & np.array((1 << part.dtype.bits) - 1, inside.dtype)
    if part.dtype.name == "ue4m3":
        values = values & 0x7F
        inside[...] = values
    matrix = values.reshape(part.shape)
    run(host, number, registers, memory)
    expected = part.pack(part.dtype.decode(matrix), **selected)
    assert (registers == expected.view(registers.dtype)).all(), part


def check_store(host, number, part, memory, registers):
    before = memory.elements.copy()
    data = run(host, number, registers, memory)
    after = data.view(before.dtype).reshape(before.shape)
    expected = part.unpack_bits(registers)
    assert (memory.view(after).reshape(part.shape) == expected).all(), part
    memory.view(after)[...] = memory.view(before)
    assert (after == before).all(), part


def test_descriptors_are_those_of_python(host):
    host.descriptor.restype = ctypes.c_uint64
    for swizzle in (0, 32, 64, 128):
        for start, leading, stride in (
            (0, 16, 32),
            (0x3FFF0, 4096, 0x3FFF0),
            (1024, 0, 8192),
        ):
            given = (ctypes.c_uint64(start), leading, stride, swizzle)
            word = Descriptor(start, leading, stride, swizzle).encode()
            assert host.descriptor(*given) == word


def test_a_store_that_would_share_a_byte_is_refused():
    a = fm.mma("m16n8k64", a="s4").a
    assert "unsigned*>(tile)" in access.store(a, "row", "store")[0]
    with pytest.raises(fm.Error, match="two lanes would write to one byte"):
        access.store(a, "col", "store")


def test_metadata_is_loaded_for_one_tile_or_for_one_per_selector():
    names = [
        [p.name for p in metadata_pieces(fm.mma(shape, a=a, d="f32", sp="sp"))]
        for shape, a in (("m16n8k16", "f16"), ("m16n8k64", "e4m3"))
    ]
    assert names == [
        ["load_metadata_m16k16_f16", "load_metadata_m16k16_f16_tiles"],
        ["load_metadata_m16k64_e4m3"],
    ]


def test_functions_are_named_after_what_they_move():
    op = fm.mma("m8n8k4", a="f16", d="f32")
    names = [fragment_piece(op, part, "load").name for part in op.fragments.values()]
    assert names[0] == "load_a_mma_m8n8k4_row_f16"
    assert names[2:] == ["load_c_mma_m8n8k4_f32", "load_d_mma_m8n8k4_f32"]
