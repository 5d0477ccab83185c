"""Everything that is emitted for ``tcgen05`` compiles, and has the right text."""

import re
from itertools import product

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx as engine
from fragmenta.cuda.source import emit, ptx
from fragmenta.cuda.source.inline import (
    WrapperFunction,
    function_name,
    instruction_piece,
)
from fragmenta.cuda.source.ptx import PLAIN, MmaOptions
from fragmenta.cuda.tools import assembler, compiler
from fragmenta.reference.isa.instruction_descriptor import TABLES, InstructionDescriptor
from fragmenta.reference.isa.tables import tcgen05_mma
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.fields import MODES_OF
from tests.cuda.instructions import TENSOR
from tests.cuda.test_emit import read_back, squeezed

COMPLETE = [
    fm.tcgen05("m128n64k16", a="f16", d="f32"),
    fm.tcgen05("m256n64k16", a="bf16", d="f32", cta_group=2),
    fm.tcgen05("m64n64k8", a="tf32", ws=True, transpose_b=True),
    fm.tcgen05("m128n64k64", a="e4m3", b="e2m1", d="f16", sp=True),
    fm.tcgen05("m128n32k64", a="s8", b="u8", sp=True, saturate=True),
    fm.tcgen05("m32n64k32", a="bf16", d="f32", ws=True, sp=True),
    fm.tcgen05("m128n64k32", a="e4m3", kind="mxf8f6f4"),
    fm.tcgen05("m128n64k128", a="e2m1", kind="mxf4", sp=True),
    fm.tcgen05("m256n64k64", a="e2m1", kind="mxf4nvf4", cta_group=2),
]


def targets():
    """The instructions by target, the first that has them, and by group of CTAs."""
    found = {}
    for op in [*TENSOR, *COMPLETE]:
        target = next(
            (t for t in ("sm_100a", "sm_103a") if op.supported_on(t)), "sm_107a"
        )
        found.setdefault((target, op.cta_group or 1), []).append(op)
    return found


BATCHES = targets()


def choices(op):
    """Every combination of what a ``tcgen05.mma`` may take."""
    if not op.tensor_memory:
        return [PLAIN]
    known = {each.name for listed in tcgen05_mma.lists(op) for each in listed}
    found = []
    for flags in product((False, True), repeat=4):
        given = MmaOptions(*flags)
        names = [n for n in MmaOptions._fields[1:] if getattr(given, n)]
        shifted = op.values.get("ashift") and not given.a_tensor
        if known.issuperset(names) and not shifted:
            found.append(given)
    return found


# ── the asm ─────────────────────────────────────────────────────────────────


def test_every_asm_is_the_statement_with_its_operands():
    for number, op in enumerate([*TENSOR, *COMPLETE]):
        every = choices(op)
        # All of some instructions, one of each: the operands do not depend on the rest.
        for options in every if number % 29 == 0 else [every[number % len(every)]]:
            call = WrapperFunction(op, "f", options=options)
            named = {a.name: a.name for a in call.arguments if a.template}
            said = read_back(call)
            expected = ptx.statement(op, options=options, **named)
            if op.tensor_memory:
                expected = expected.replace("%enable_input_d", "accumulate")
                opening = "{.reg .pred accumulate; setp.ne.b32 accumulate, "
                expected = opening + "%enable_input_d, 0;" + expected + "}"
            assert squeezed(said) == squeezed(expected)


def test_names_are_their_own_and_lines_fit():
    ops = [*TENSOR, *COMPLETE]
    names = [function_name(op) for op in ops]
    assert len(set(names)) == len(ops)
    assert all(re.fullmatch(r"[a-z]\w+", name) for name in names)
    texts = [instruction_piece(op).text for op in ops[::5]]
    texts += [emit.to_ptx(op) for op in ops[::11]]
    texts += [emit.to_cuda(op, kernel=True) for op in COMPLETE]
    lines = {line for text in texts for line in text.splitlines()}
    wide = [line for line in lines if len(line) > 88]
    assert not [line for line in wide if " " in line.strip()]
    assert not [line for line in lines if line != line.rstrip()]


# ── CUDA compiles ───────────────────────────────────────────────────────────

GIVEN = {
    ".b64": "word",
    ".b32": "number",
    "tensor": "number",
    "number": "number",
    "address": "mbar",
    ".b16": "mask",
}


def called(op, options):
    """A call of the function, with every argument."""
    call = WrapperFunction(op, function_name(op) + options.tag, options=options)
    words, before = [], []
    for each in call.arguments:
        if each.array:
            name = f"{each.name}_{each.operand.count}"
            before.append(f"unsigned {name}[{each.operand.count}] = {{}};")
            words.append(name)
        elif not (each.template or each.literal or each.has_default):
            words.append(GIVEN[each.operand.ptx])
    columns = any(a.operand.ptx == "columns" for a in call.arguments)
    after = f"use(r_{count});" if (count := _registers(call)) else ""
    line = f"{call.name}{'<64>' * columns}({', '.join(words)});"
    return "{ " + " ".join([*before, line, after]) + " }"


def _registers(call):
    return next((a.operand.count for a in call.outputs if a.name == "r"), 0)


USE = """
template <int count> __device__ void use(unsigned (&r)[count]) {
    for (int i = 0; i < count; ++i) asm volatile("" :: "r"(r[i]));
}
"""


def source(ops, forms):
    """One kernel that calls all functions; ptxas wants one group of CTAs in it."""
    pieces = {p.name: p for o, x in forms for p in [instruction_piece(o, options=x)]}
    helpers = emit.needed(pieces.values())
    text = "\n".join(piece.text for piece in (*helpers, *pieces.values()))
    body = "\n".join(called(op, options) for op, options in forms)
    return (
        f"{text}{USE}__global__ void all(unsigned number, unsigned long long word, "
        f"unsigned short mask, void* mbar)\n{{\n{body}\n}}\n"
    )


def sample(ops):
    """All but mma, and every kind of mma with every option; collectors are words."""
    seen, found = set(), []
    for op in ops:
        for options in choices(op):
            key = (
                op.family,
                op.values.get("kind"),
                op.values.get("scale_vec"),
                op.idesc,
                options,
            )
            if not op.tensor_memory or key not in seen:
                seen.add(key)
                found.append((op, options))
    return found


@pytest.mark.long
@pytest.mark.parametrize("batch", BATCHES, ids="{0[0]} {0[1]}".format)
def test_functions_compile(batch):
    """NVRTC reads the C++, and ptxas the text of every asm."""
    ops, (target, _) = BATCHES[batch], batch
    forms = sample(ops)
    text = compiler.to_ptx(source(ops, forms), target)
    assert text.count("tcgen05.") >= len(forms)
    read_by_ptxas(text, target)


def read_by_ptxas(text, target):
    """For a virtual architecture the assembler reads every line and makes no code."""
    done = assembler._run(text.splitlines(), target.replace("sm_", "compute_"))
    assert not done.stdout, done.stdout[:2000]
    assert done.returncode == 0


def test_a_wrong_word_is_found():
    text = emit.to_ptx(COMPLETE[0]).replace("kind::f16", "kind::f15")
    with pytest.raises(AssertionError, match="kind::f15"):
        read_by_ptxas(text, "sm_100a")


def test_examples_become_machine_code():
    """What is shown above the functions, of one of each family and kind."""
    for group in (1, 2):
        ops = [op for op in BATCHES["sm_100a", group] if op in COMPLETE]
        ops += BATCHES["sm_100a", group][-40::5]
        kernels = []
        for number, op in enumerate(ops):
            use = "\n    ".join(emit.example(op))
            kernels.append(
                f"__global__ void kernel{number}(unsigned d, unsigned taddr, unsigned "
                "long long a_descriptor, unsigned long long b_descriptor, unsigned long "
                "long s_descriptor, unsigned scale_a, unsigned scale_b, unsigned "
                "metadata, unsigned long long* mbar, void* dst, unsigned idesc, "
                f"unsigned short ctaMask)\n{{\n    {use}\n}}\n"
            )
        text = emit.header(ops) + "using namespace fragmenta;\n" + "".join(kernels)
        assert compiler.to_cubin(text, "sm_100a")


def test_what_is_pasted_stands_alone():
    op = COMPLETE[0]
    for options in ({}, {"a_tensor": True}, {"disable_output_lane": True}):
        text = op.to_cuda(name="multiply", **options)
        assert "//     multiply(" in text.replace(
            "//         multiply", "//     multiply"
        )
        assert compiler.to_ptx(text, "sm_100a")
    for options, op in (
        ({"scale_input_d": True}, COMPLETE[0]),
        ({"zero_column_mask": True}, COMPLETE[2]),
    ):
        assert compiler.to_ptx(op.to_cuda(**options), "sm_100a")


# ── PTX assembles ───────────────────────────────────────────────────────────


def test_every_module_is_read():
    groups = {}
    mma = [op for op in TENSOR if op.tensor_memory]
    others = [op for op in TENSOR if not op.tensor_memory]
    for number, op in enumerate([*mma[::13], *others[::2], *COMPLETE]):
        every = choices(op)
        options = every[number % len(every)]._asdict()
        scaled = {"scale_input_d": 3} if options.pop("scale_input_d") else {}
        text = emit.to_ptx(op, f"entry{number}", **options, **scaled)
        head, _, body = text.partition(".address_size 64\n")
        found = re.search(r"\.version (\S+)\n\.target (\S+)\n", head)
        body = body.replace(".extern .shared .align 1024 .b8 image[];", "")
        groups.setdefault(found.groups(), []).append(body)
    for (version, target), bodies in groups.items():
        head = f".version {version}\n.target {target}\n.address_size 64\n"
        head += ".extern .shared .align 1024 .b8 image[];\n"
        read_by_ptxas(head + "".join(bodies), target)


@pytest.mark.parametrize("op", COMPLETE[::4], ids=str)
def test_modules_become_machine_code(op):
    assert assembler.assemble(op.to_ptx(), "sm_100a")


# ── what the functions make ─────────────────────────────────────────────────


def test_descriptors_are_those_of_the_package():
    """Made by the emitted functions, which run here; start is an address there."""
    rng = np.random.default_rng(5)
    modes = [each for each in MODES_OF["tcgen05"] if each is not None]
    words = [
        Descriptor(0, *(16 * rng.integers(0, 1 << 14, 2)), mode, family="tcgen05")
        for mode in modes
    ]
    found = [
        InstructionDescriptor("f16", 128, 256, "bf16", "bf16", "f32", negate_a=True),
        InstructionDescriptor(
            "tf32", 64, 8, "tf32", "tf32", "f32", sparse=True, selector=1
        ),
        InstructionDescriptor(
            "f8f6f4", 256, 32, "e2m1", "e5m2", "f16", transpose_b=True
        ),
        InstructionDescriptor("i8", 128, 96, "s8", "u8", "s32", saturate=True),
        InstructionDescriptor(
            "mxf8f6f4", 128, 8, "e3m2", "e4m3", "f32", "ue8m0", scale_a_id=3
        ),
        InstructionDescriptor(
            "mxf4", 256, 16, "e2m1", "e2m1", "f32", "ue8m0", wide=True
        ),
        InstructionDescriptor(
            "mxf4nvf4", 128, 64, "e2m1", "e2m1", "f32", "ue4m3", scale_b_id=2
        ),
    ]
    assert [each.kind for each in found] == list(TABLES)
    lines = []
    for i, (mode, each) in enumerate(zip(modes, words, strict=True)):
        code = MODES_OF["tcgen05"].index(mode)
        made = f"tcgen05_descriptor(image, {each.leading}, {each.stride}, {code})"
        lines.append(f"out[{i}] = {made} - start;")
    for i, each in enumerate(found, len(words)):
        lines.append(f"out[{i}] = {idesc_call(each)};")
    helpers = [p.text for p in emit.needed([instruction_piece(op) for op in TENSOR])]
    text = "\n".join(helpers) + (
        '\nextern "C" __global__ void all(unsigned long long* out)\n{\n'
        "__shared__ __align__(1024) unsigned char image[1024];\n"
        "unsigned long long start = __cvta_generic_to_shared(image) / 16;\n"
        "image[threadIdx.x] = 0;\n" + "\n".join(lines) + "\n}\n"
    )
    out = np.zeros(len(lines), np.uint64)
    kernel = engine.parse(compiler.to_ptx(text, "sm_100a")).kernels["all"]
    kernel.launch(1, 1, [out])
    assert out.tolist() == [each.encode() for each in [*words, *found]]


def idesc_call(d):
    """The call that makes this descriptor, from the field's own table of codes."""
    order = {"m": 0, "n": 1, "d": 2, "a": 3, "b": 4, "scale": 5}
    fields = {each.name: each for each in d.fields()}
    names = [n for n in order if n in fields]
    signature = next(
        piece.text
        for piece in emit.needed([instruction_piece(_of_kind(d.kind))])
        if piece.name == f"tcgen05_idesc_{d.kind}"
    )
    taken = re.findall(r"unsigned (\w+)(?: = 0)?[,)]", signature)
    assert taken[: len(names)] == names
    values = [
        d.m if name == "m" else d.n if name == "n" else fields[name].code
        for name in taken
    ]
    return f"tcgen05_idesc_{d.kind}({', '.join(map(str, values))})"


def _of_kind(kind):
    return next(op for op in TENSOR if op.tensor_memory and op.kind == kind)


# ── refusals ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "op, options, match",
    [
        (COMPLETE[0], {"zero_column_mask": True}, "takes no zero_column_mask; it may"),
        (COMPLETE[2], {"disable_output_lane": True}, "takes no disable_output_lane"),
        (COMPLETE[6], {"scale_input_d": True}, "takes no scale_input_d"),
        (COMPLETE[0], {"a_registers": True}, "is in shared memory, or with a_tensor"),
        (
            COMPLETE[0],
            {"kernel": True, "disable_output_lane": True},
            "takes no disable",
        ),
        (TENSOR[0], {"kernel": True}, "alone has no shape: give idesc="),
        (fm.find("movmatrix"), {"kernel": True}, "whole kernels are for tcgen05.mma"),
        (fm.find("movmatrix"), {"a_tensor": True}, "a_tensor is for tcgen05.mma"),
        (
            fm.tcgen05("m128n64k96", a="e2m1", kind="mxf4"),
            {"kernel": True},
            "sources disagree about the ids",
        ),
        (
            fm.tcgen05("m64n64k32", a="f16", sp=True),
            {"kernel": True},
            r"metadata .* \(layout F\) is not known",
        ),
        (
            fm.tcgen05("m128n64k32", a="e4m3", kind="mxf8f6f4", cta_group=2),
            {"kernel": True},
            "no kernel for scales of a pair",
        ),
    ],
)
def test_refused(op, options, match):
    with pytest.raises(fm.Error, match=match):
        op.to_cuda(**options)


def test_the_command():
    name = str(COMPLETE[0])
    assert emit.emit([name], kernel=True) == COMPLETE[0].to_cuda(kernel=True)
    chosen = MmaOptions(a_tensor=True, scale_input_d=True)
    text = emit.emit([name], language="ptx", options=chosen)
    assert text == COMPLETE[0].to_ptx(a_tensor=True, scale_input_d=0)
    with pytest.raises(fm.Error, match="a kernel is CUDA"):
        emit.emit([name], language="ptx", kernel=True)
