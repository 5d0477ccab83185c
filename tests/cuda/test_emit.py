"""Everything emitted compiles, and its index expressions are the layouts."""

import ctypes
import re
import shutil
import subprocess

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.cuda.source import access, emit, ptx
from fragmenta.cuda.source.access import Access
from fragmenta.cuda.source.fragments import fragment_piece, metadata_pieces
from fragmenta.cuda.source.helpers import helpers
from fragmenta.cuda.source.inline import Call, function_name, instruction_piece
from fragmenta.cuda.tools import assembler, compiler
from fragmenta.isa.families import catalogue
from fragmenta.machine.cache import VARIABLE
from fragmenta.registers.metadata import Metadata
from fragmenta.shared.descriptor import Descriptor

OPS = list(catalogue())
WGMMA = [op for op in OPS if op.family.startswith("wgmma")]
OTHERS = [op for op in OPS if not op.family.startswith("wgmma")]

# Widths of wgmma that stand for all: the least, one that is no power of two,
# the most.
WIDTHS = (8, 24, 256)


def forms(op):
    """A wgmma is emitted twice: with A in shared memory, with A in registers."""
    return (False, True) if op.family.startswith("wgmma") else (False,)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """What is tested here is the compiler, not what it once said."""
    monkeypatch.setenv(VARIABLE, "")


# ── CUDA compiles ───────────────────────────────────────────────────────────


def target_of(op):
    return "sm_90a" if op.supported_on("sm_90a") else op.requires.targets[0]


def memory_type(part):
    memory = Access(part, "row")
    if memory.typed:
        return memory.register
    return {8: "unsigned char", 16: "unsigned short", 32: "unsigned"}.get(
        memory.bits, "void"
    )


def kernel(number, op, a_registers, body):
    """A kernel with everything that an example names as its parameters."""
    untyped = op.family.startswith("wmma")
    pointers = [
        f"{'void' if untyped else memory_type(part)}* {name}, int ld{name.lower()}"
        for name, part in op.fragments.items()
        if name in "ABCD"
    ]
    rest = [
        *("int matrix_a, int matrix_b, int matrix_c, int matrix_d", "void* E, int lde"),
        *("unsigned char* SA, int ldsa, unsigned char* SB, int ldsb", "void* address"),
        *("int stride", "unsigned long long a_descriptor, b_descriptor"),
    ]
    listed = ", ".join([*pointers, *rest]).replace(", b_d", ", unsigned long long b_d")
    inside = "\n    ".join(body)
    return f"__global__ void kernel{number}({listed})\n{{\n    {inside}\n}}\n"


def examples(ops):
    """A header, and the example of each of its instructions as a kernel."""
    listed = [(op, source) for op in ops for source in forms(op)]
    kernels = [
        kernel(number, op, source, emit.example(op, a_registers=source))
        for number, (op, source) in enumerate(listed)
    ]
    return emit.header(ops) + "using namespace fragmenta;\n" + "".join(kernels)


BATCHES = {
    **{
        family: [o for o in OTHERS if o.family == family and target_of(o) == "sm_90a"]
        for family in ("mma", "mma.sp", "wmma.mma", "wmma.load", "wmma.store")
    },
    "moves": [o for o in OTHERS if "matrix" in o.family and target_of(o) == "sm_90a"],
    "sm_100a": [o for o in OTHERS if target_of(o) == "sm_100a"],
    "sm_120a": [o for o in OTHERS if target_of(o) == "sm_120a"],
    **{f"wgmma n{n}": [o for o in WGMMA if o.shape.n == n] for n in (8, 24)},
}


@pytest.mark.parametrize("batch", BATCHES)
def test_every_example_compiles(batch):
    ops = BATCHES[batch]
    (target,) = {target_of(op) for op in ops}
    assert compiler.to_cubin(examples(ops), target)


def test_the_batches_are_the_catalogue():
    listed = {op for ops in BATCHES.values() for op in ops}
    assert set(OTHERS) <= listed
    assert all(op.shape.n not in (8, 24) or op in listed for op in WGMMA)


def calls(op, source):
    """The function with its defaults, then with the last legal immediates."""
    call = Call(op, function_name(op), source)
    names = [a.name for a in call.arguments if not a.operand.values]
    names = [name for name in names if name != "scale_d"]
    listed = ", ".join(names)
    yield f"{call.name}({listed});"
    other = [str(min(a.operand.values, key=lambda v, d=a.default: (v == d, -v)))
             for a in call.arguments if a.template]  # fmt: skip
    if other:
        yield f"{call.name}<{', '.join(other)}>({listed});"


@pytest.mark.parametrize("part", range(8))
def test_every_wgmma_compiles(part):
    """All of one width and accumulator share a kernel, and its registers."""
    widths = sorted({op.shape.n for op in WGMMA})[part::8]
    groups = {}
    for op in WGMMA:
        if op.shape.n in widths:
            groups.setdefault((op.shape.n, op.types["d"]), []).append(op)
    text = emit.header([o for g in groups.values() for o in g], fragments=False)
    for number, ops in enumerate(groups.values()):
        held = Access(ops[0].d, "row").register
        # Other immediates at every other width: each type meets both.
        which = ops[0].shape.n // 8 % 2 - 1
        body = [list(calls(op, s))[which] for op in ops for s in forms(op)]
        text += (
            f"__global__ void kernel{number}({held}* D, const unsigned (&a)[4], unsigned"
            f" metadata, long long a_descriptor, long long b_descriptor)\n{{\n"
            f"using namespace fragmenta;\n{held} d[{ops[0].d.registers}];\n"
            + "\n".join(body)
            + f"\nfor (int r = 0; r < {ops[0].d.registers}; ++r) D[r] = d[r];\n}}\n"
        )
    assert compiler.to_cubin(text, "sm_90a")


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
def test_every_immediate_compiles(target):
    ops = [
        op for op in OTHERS
        if target_of(op) == target and any(len(o.values) > 1 for o in op.operands)
    ]  # fmt: skip
    kernels = []
    for number, op in enumerate(ops):
        use = emit.example(op)
        plain, chosen = calls(op, False)
        assert any("".join(line.split()) == plain.replace(" ", "") for line in use)
        kernels.append(kernel(number, op, False, [*use, chosen]))
    text = emit.header(ops) + "using namespace fragmenta;\n" + "".join(kernels)
    assert len(ops) >= 48
    assert compiler.to_cubin(text, target)


def test_a_wrong_immediate_does_not_compile():
    op = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
    text = emit.to_cuda(op, "multiply")
    use = [
        line.replace("multiply", "multiply<2>") for line in emit.example(op, "multiply")
    ]
    with pytest.raises(compiler.CompileError, match="selector is 0 or 1"):
        compiler.to_cubin(text + kernel(0, op, False, use), "sm_80")


def test_what_is_pasted_stands_alone():
    """The text of one instruction, renamed, without a header around it."""
    for text in (
        "mma.m16n8k64.s4.s4",
        "wgmma.m64n16k16.f32.f16",
        "ldmatrix.m8n8.x4.b16",
    ):
        op = fm.find(text)
        for source in forms(op):
            pasted = emit.to_cuda(op, "multiply", a_registers=source)
            use = emit.example(op, "multiply", a_registers=source)
            shown = re.findall(r"^//     (.*)$", pasted.partition("\n\n")[0], re.M)
            assert shown == use
            assert compiler.to_cubin(pasted + kernel(0, op, source, use), "sm_90a")


# ── the asm names what it binds ─────────────────────────────────────────────

BINDING = re.compile(r'"[=+]?[rfdln]"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)')


def read_back(call):
    """The asm's statement with its numbers replaced by what they are bound to."""
    text = call.text()
    lines = re.findall(r'^ +"(.*)"$', text, re.M)
    said = "".join(lines).replace("\\n", " ")
    bound = []
    for found in BINDING.findall(text):
        name = re.findall(r"\w+(?:\[\d+\])?", found)[-1]
        name, _, index = name.removesuffix("_descriptor").rstrip("]").partition("[")
        operand = next(a.operand for a in call.arguments if a.operand.name == name)
        if operand.ptx == "immediate":
            bound.append(name)
        else:
            bound.append(f"%{name}{index if operand.vector else ''}")
    return re.sub(r"%(\d+)", lambda match: bound[int(match[1])], said)


def squeezed(text):
    return re.sub(r"\s", "", text)


def test_every_asm_is_the_statement_with_its_operands():
    """Numbers of an asm are easily one off: read them back, and compare."""
    for op in OPS:
        for source in forms(op):
            call = Call(op, "f", source)
            named = {a.name: a.name for a in call.arguments if a.template}
            said, expected = (
                read_back(call),
                ptx.statement(op, a_registers=source, **named),
            )
            if op.family.startswith("wgmma"):
                opening = (
                    "{ .reg .pred accumulate; setp.ne.b32 accumulate, %scale_d, 0;"
                )
                expected = expected.replace("%scale_d", "accumulate")
                expected = opening + expected + "}"
            assert squeezed(said) == squeezed(expected)


# ── headers ─────────────────────────────────────────────────────────────────

MIXED = [
    fm.mma("m16n8k16", a="f16", d="f32"),
    fm.wgmma("m64n8k16", a="f16", d="f32"),
    fm.mma("m16n8k32", a="e2m1", d="f32", kind="f8f6f4"),
    fm.find("mma.sp::ordered_metadata.m16n8k128.kind::mxf4"),
    fm.find("ldmatrix.m16n16.x1.trans.b8"),
    fm.find("stmatrix.m8n8.x4.b16"),
]


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f",
                                    "sm_103a", "sm_120", "sm_120f", "sm_121a"])  # fmt: skip
def test_a_header_has_what_the_target_has(target):
    """The rest is not there, so that using it is an error and including it none."""
    text = emit.header(MIXED) + "using namespace fragmenta;\n"
    for op in MIXED:
        use = emit.example(op)
        source = text + kernel(0, op, False, use)
        if op.supported_on(target):
            assert compiler.to_cubin(source, target)
        else:
            with pytest.raises(
                compiler.CompileError, match=r"is undefined|no instance"
            ):
                compiler.to_cubin(source, target)


def test_a_header_says_everything_once():
    text = emit.header(op for op in OPS if op.family in ("mma", "mma.sp"))
    heads = re.findall(r"__forceinline__ \w+ (\w+)\(", text)
    assert len(heads) == len(set(heads)) > 500
    assert text.count("#pragma once") == 1
    assert "#include" not in text


def test_a_header_of_nothing_is_refused():
    with pytest.raises(fm.Error, match="one instruction or more"):
        emit.header([])


def test_a_header_may_have_another_namespace_and_no_fragments():
    text = emit.header(MIXED[:1], namespace="mine::own", fragments=False)
    assert "namespace mine::own {" in text
    assert "load_a" not in text
    assert compiler.to_cubin(text, "sm_80")


# ── the text ────────────────────────────────────────────────────────────────


def pieces(op):
    for source in forms(op):
        yield instruction_piece(op, a_registers=source)
        yield from emit.companions(op, a_registers=source)


def test_a_name_means_one_text_and_every_line_fits():
    texts = {}
    for op in OPS:
        for piece in pieces(op):
            assert texts.setdefault(piece.name, piece.text) == piece.text, str(op)
    lines = {line for text in texts.values() for line in text.splitlines()}
    lines |= {line for piece in helpers() for line in piece.text.splitlines()}
    lines |= set(emit.header(MIXED).splitlines())
    lines |= {line for op in OPS[::7] for line in emit.to_ptx(op).splitlines()}
    # Only a mnemonic that PTX may not break is wider than the page.
    assert not [line for line in lines if len(line) > 88 and " " in line.strip()]
    assert not [line for line in lines if line != line.rstrip()]


def test_function_names_are_identifiers_and_their_own():
    names = [function_name(op) for op in OPS]
    assert len(set(names)) == len(OPS)
    assert all(re.fullmatch(r"[a-z]\w+", name) for name in names)


def test_the_comment_has_the_instruction_its_needs_and_its_layouts():
    for op in OPS[::11]:
        text = instruction_piece(op).text.replace("//   .", ".").replace("\n.", ".")
        assert f"// {op}\n" in text
        assert f"Needs PTX {op.requires.ptx} and" in text
        for name, part in op.fragments.items():
            if not (name == "A" and op.family.startswith("wgmma")):
                assert str(part.layout) in text


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
            if isinstance(part, Metadata):
                key = (part.shared.layout, part.container, name)
                found.setdefault(key, (op, part.shared, "load"))
    return list(found.values())


FRAGMENTS = every_fragment()


def orders(part):
    return ("row",) if isinstance(part, Metadata) else ("row", "col")


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
            run = Access(part, order).run
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
    memory = Access(part, order)
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
            check_load(host, number, part, memory, registers, selected, generator)
        else:
            check_store(host, number, part, memory, registers)
        count += 1
    assert count > 300


def check_load(host, number, part, memory, registers, selected, generator):
    inside = memory.view(memory.elements)
    values = inside & np.array((1 << part.dtype.bits) - 1, inside.dtype)
    if isinstance(part, Metadata):
        codes = np.array(part.granularity.codes(), np.uint8)
        values = codes[generator.integers(0, len(codes), values.shape)]
        inside[...] = values
    if part.dtype.name == "ue4m3":
        values = values & 0x7F
        inside[...] = values
    matrix = values.reshape(part.shape)
    run(host, number, registers, memory)
    given = matrix if isinstance(part, Metadata) else part.dtype.decode(matrix)
    expected = part.pack(given, **selected)
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
    names = [[p.name for p in metadata_pieces(fm.mma(shape, a=a, d="f32", sp="sp"))]
             for shape, a in (("m16n8k16", "f16"), ("m16n8k64", "e4m3"))]  # fmt: skip
    assert names == [
        ["load_metadata_m16k16_f16", "load_metadata_m16k16_f16_tiles"],
        ["load_metadata_m16k64_e4m3"],
    ]


def test_functions_are_named_after_what_they_move():
    op = fm.mma("m8n8k4", a="f16", d="f32")
    names = [fragment_piece(op, part, "load").name for part in op.fragments.values()]
    assert names[0] == "load_a_mma_m8n8k4_row_f16"
    assert names[2:] == ["load_c_mma_m8n8k4_f32", "load_d_mma_m8n8k4_f32"]


# ── PTX ─────────────────────────────────────────────────────────────────────


def entries(listed):
    """Modules of one target and version as one, each entry under its own name."""
    groups = {}
    for number, (op, source) in enumerate(listed):
        text = emit.to_ptx(op, f"entry{number}", a_registers=source)
        head, _, body = text.partition(".address_size 64\n")
        found = re.search(r"\.version (\S+)\n\.target (\S+)\n", head)
        body = body.replace(".extern .shared .align 1024 .b8 image[];", "")
        groups.setdefault(found.groups(), []).append(body)
    for (version, target), bodies in groups.items():
        head = f".version {version}\n.target {target}\n.address_size 64\n"
        shared = ".extern .shared .align 1024 .b8 image[];\n"
        yield target, head + shared + "".join(bodies)


def assembled(target):
    """The present assembler starts at sm_75, and takes older text for it."""
    return "sm_75" if target in ("sm_70", "sm_72") else target


@pytest.mark.parametrize("part", range(2))
def test_every_module_assembles(part):
    for target, text in entries([(op, False) for op in OTHERS[part::2]]):
        assert assembler.assemble(text, assembled(target), "-O0")


@pytest.mark.parametrize("n", WIDTHS)
def test_wgmma_modules_assemble(n):
    listed = [(op, s) for op in WGMMA if op.shape.n == n for s in forms(op)]
    for target, text in entries(listed):
        assert assembler.assemble(text, target, "-O0")


def test_every_wgmma_module_is_read(tmp_path):
    """For a virtual architecture the assembler reads every line and makes no code."""
    command = [
        assembler.tool("ptxas"),
        "-arch=compute_90a",
        path := tmp_path / "in.ptx",
    ]
    for target, text in entries([(op, s) for op in WGMMA for s in forms(op)]):
        assert target == "sm_90a"
        path.write_text(text)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:1000]
    path.write_text(text.replace("wgmma.fence", "wgmma.fense", 1))
    assert subprocess.run(command, capture_output=True, check=False).returncode


def test_a_module_stands_alone_and_takes_immediates():
    op = fm.wgmma("m64n16k32", a="bf16", d="f32", sp="sp")
    text = emit.to_ptx(op, target="sm_90a", selector=1, scale_a=-1, trans_b=1)
    assert assembler.assemble(text, "sm_90a")
    assert "%scale_d, -1, 1, 0, 1;" in text
    plain = emit.to_ptx(op)
    assert "%scale_d, 1, 1, 0, 0;" in plain
    with pytest.raises(fm.Error, match=r"selector 2 is not legal .* is 0 or 1"):
        emit.to_ptx(op, selector=2)
    with pytest.raises(fm.Error, match="has no immediate byte_a; it has selector"):
        emit.to_ptx(op, byte_a=0)
    with pytest.raises(fm.UnsupportedTarget, match="sm_100a does not have"):
        emit.to_ptx(op, target="sm_100a")


# ── the command ─────────────────────────────────────────────────────────────


def test_emit_takes_names_and_abbreviations():
    op = fm.mma("m16n8k64", a="s4", b="s4")
    assert emit.emit(["mma.m16n8k64.s4.s4"]) == emit.to_cuda(op)
    assert emit.emit([str(op)], language="ptx", target="sm_90") == emit.to_ptx(
        op, target="sm_90"
    )
    assert emit.emit(["mma.m16n8k16.f16", str(op)], as_header=True) == emit.header(
        [*fm.search("mma.m16n8k16.f16"), op]
    )


@pytest.mark.parametrize(
    "given, match",
    [
        ({"texts": ["mma.m16n8k64.s4.s4"], "language": "cude"}, "did you mean cuda"),
        (
            {"texts": ["movmatrix"], "language": "ptx", "as_header": True},
            "header is CUDA",
        ),
        ({"texts": ["movmatrix", "movmatrix"]}, "one instruction at a time"),
        ({"texts": ["mma.m16n8k16"]}, "fits"),
        ({"texts": ["nonsense"], "as_header": True}, "nonsense"),
        ({"texts": ["movmatrix"], "a_registers": True}, "only wgmma chooses"),
    ],
)
def test_emit_refuses(given, match):
    with pytest.raises(fm.Error, match=match):
        emit.emit(**given)
