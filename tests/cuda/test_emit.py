"""Everything that is emitted compiles, and has the right text."""

import re
import subprocess
from collections import Counter
from itertools import product

import pytest

import fragmenta as fm
from fragmenta.base.jit.cache import VARIABLE
from fragmenta.cuda.source import emit, ptx
from fragmenta.cuda.source.access import FragmentAccess
from fragmenta.cuda.source.helpers import helpers
from fragmenta.cuda.source.inline import (
    WrapperFunction,
    function_name,
    instruction_piece,
)
from fragmenta.cuda.tools import assembler, compiler
from tests.cuda.instructions import OPS, OTHERS, WGMMA, WIDTHS, forms, memory_type
from tests.thinning import some


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """What is tested here is the compiler, not what it once said."""
    monkeypatch.setenv(VARIABLE, "")


# ── CUDA compiles ───────────────────────────────────────────────────────────


def target_of(op):
    return "sm_90a" if op.supported_on("sm_90a") else op.requires.targets[0]


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
        *(
            "unsigned spdesc",
            "int stride",
            "unsigned long long a_descriptor, b_descriptor",
        ),
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
    "sync": [o for o in OTHERS if o.family == "sync"],
    "sm_100a": [o for o in OTHERS if target_of(o) == "sm_100a"],
    "sm_107a": [o for o in OTHERS if target_of(o) == "sm_107a"],
    "sm_120a": [o for o in OTHERS if target_of(o) == "sm_120a"],
    **{f"wgmma n{n}": [o for o in WGMMA if o.shape.n == n] for n in (8, 24)},
}


@pytest.mark.long
@pytest.mark.parametrize("batch", BATCHES)
def test_every_example_compiles(batch):
    # Their asm and their PTX are checked below.
    ops = some(BATCHES[batch], 5)
    (target,) = {target_of(op) for op in ops}
    assert compiler.to_cubin(examples(ops), target)


def test_the_batches_are_the_catalogue():
    listed = {op for ops in BATCHES.values() for op in ops}
    assert set(OTHERS) <= listed
    assert all(op.shape.n not in (8, 24) or op in listed for op in WGMMA)


def calls(op, source):
    """The function with its defaults, then with the last legal immediates."""
    call = WrapperFunction(op, function_name(op), source)
    names = [a.name for a in call.arguments if not a.operand.values]
    names = [name for name in names if name != "scale_d"]
    listed = ", ".join(names)
    yield f"{call.name}({listed});"
    other = [
        str(min(a.operand.values, key=lambda v, d=a.default: (v == d, -v)))
        for a in call.arguments
        if a.template
    ]
    if other:
        yield f"{call.name}<{', '.join(other)}>({listed});"


@pytest.mark.long
@pytest.mark.parametrize("part", (5,))
def test_wgmma_compiles(part):
    """All of one width and accumulator share a kernel, and its registers.

    Some of the widths: the assembler reads modules of all widths below.
    """
    widths = some(sorted({op.shape.n for op in WGMMA})[part::9], 2)
    groups = {}
    for op in WGMMA:
        if op.shape.n in widths:
            groups.setdefault((op.shape.n, op.types["d"]), []).append(op)
    text = emit.header([o for g in groups.values() for o in g], fragments=False)
    for number, ops in enumerate(groups.values()):
        held = FragmentAccess(ops[0].d, "row").register
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
        op
        for op in OTHERS
        if target_of(op) == target and any(len(o.values) > 1 for o in op.operands)
    ]
    assert len(ops) >= 48
    ops, kernels = some(ops, 3), []
    for number, op in enumerate(ops):
        use = emit.example(op)
        plain, chosen = calls(op, False)
        assert any("".join(line.split()) == plain.replace(" ", "") for line in use)
        kernels.append(kernel(number, op, False, [*use, chosen]))
    text = emit.header(ops) + "using namespace fragmenta;\n" + "".join(kernels)
    assert len(ops) >= 16
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

BINDING = re.compile(r'"[=+]?[rfdlnh]"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)')


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
        if operand.ptx in ("immediate", "integer", "constant", "columns"):
            bound.append(name)
        else:
            bound.append(f"%{name}{index if operand.vector else ''}")
    return re.sub(r"%(\d+)", lambda match: bound[int(match[1])], said)


def squeezed(text):
    return re.sub(r"\s", "", text)


def test_every_asm_is_the_statement_with_its_operands():
    """Numbers of an asm are easily one off: read them back, and compare."""
    for op in (*OTHERS, *some(WGMMA, 4)):
        for source in forms(op):
            call = WrapperFunction(op, "f", source)
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


#: The operands that an instruction writes, by family: the manual's destinations.
RESULTS = {
    **dict.fromkeys(("mma", "mma.sp", "wgmma", "wgmma.sp", "wmma.mma"), ("d",)),
    **dict.fromkeys(("ldmatrix", "movmatrix"), ("d",)),
    **dict.fromkeys(("stmatrix", "wmma.store", "sync"), ()),
    "spcompress": ("mdata", "cdata"),
    "spdecompress": ("data",),
}


def test_every_register_that_is_written_is_an_output():
    """An asm that does not say so compiles, and its result is lost."""
    for op in OPS:
        loaded = op.family == "wmma.load"
        results = (op.values["operand"],) if loaded else RESULTS[op.family]
        counts = {o.name: o.count for o in op.operands if o.name in results}
        assert tuple(counts) == results
        for source in forms(op):
            bound = re.findall(
                r'"[=+][rfd]"\((\w+)\[', WrapperFunction(op, "f", source).text()
            )
            assert Counter(bound) == counts, str(op)


@pytest.mark.parametrize(
    "name", ["spcompress.b8.b4.sp::2:4.x4", "spdecompress.b8.b4.sp::4:8.x4"]
)
def test_what_may_stand_for_a_register_is_the_assemblers_rule(name):
    """A constant or ``_`` for one register of each operand: read only, written only."""
    op = fm.instruction(name)
    plain, whole = ptx.statement(op), " ".join(emit.to_ptx(op).split())
    head, text, tail = whole[whole.index(".version") :].partition(plain)
    assert text
    ours, theirs = {}, {}
    for each, given in product(op.operands, ("1", "_")):
        changed = plain.replace(f"%{each.name}{1 if each.vector else ''}", given, 1)
        ours[changed] = passes(fm.instruction, changed)
        module = head + changed + tail
        theirs[changed] = passes(assembler.assemble, module, "sm_107a")
    assert ours == theirs


def passes(check, *given):
    try:
        return bool(check(*given))
    except fm.Error:
        return False


# ── headers ─────────────────────────────────────────────────────────────────

MIXED = [
    fm.mma("m16n8k16", a="f16", d="f32"),
    fm.wgmma("m64n8k16", a="f16", d="f32"),
    fm.mma("m16n8k32", a="e2m1", d="f32", kind="f8f6f4"),
    fm.find("mma.sp::ordered_metadata.m16n8k128.kind::mxf4"),
    fm.find("ldmatrix.m16n16.x1.trans.b8"),
    fm.find("stmatrix.m8n8.x4.b16"),
]


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        "sm_75",
        "sm_80",
        "sm_90",
        "sm_90a",
        "sm_100f",
        "sm_103a",
        "sm_120",
        "sm_120f",
        "sm_121a",
    ],
)
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
                compiler.CompileError, match=r"is\s+undefined|no\s+instance"
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
    for op in some(OPS, 7):
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
    for target, text in entries([(op, False) for op in some(OTHERS[part::2], 3)]):
        assert assembler.assemble(text, assembled(target), "-O0")


@pytest.mark.parametrize("n", WIDTHS)
def test_wgmma_modules_assemble(n):
    listed = [(op, s) for op in WGMMA if op.shape.n == n for s in forms(op)]
    listed = some(listed, 8, WIDTHS.index(n))  # the assembler reads more of them below
    for target, text in entries(listed):
        assert assembler.assemble(text, target, "-O0")


def test_wgmma_modules_are_read(tmp_path):
    """For a virtual architecture the assembler reads every line and makes no code."""
    command = [
        assembler.tool("ptxas"),
        "-arch=compute_90a",
        path := tmp_path / "in.ptx",
    ]
    for target, text in entries([(op, s) for op in some(WGMMA, 3) for s in forms(op)]):
        assert target == "sm_90a"
        path.write_text(text)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:1000]
    path.write_text(text.replace("wgmma.fence", "wgmma.fense", 1))
    assert subprocess.run(command, capture_output=True, check=False).returncode


def test_a_module_stands_alone_and_takes_immediates():
    op = fm.wgmma("m64n16k32", a="bf16", d="f32", sp="sp")
    text = emit.to_ptx(op, target="sm_90a", selector=1, imm_scale_a=-1, trans_b=1)
    assert assembler.assemble(text, "sm_90a")
    assert "%scale_d, -1, 1, 0, 1;" in text
    plain = emit.to_ptx(op)
    assert "%scale_d, 1, 1, 0, 0;" in plain
    with pytest.raises(fm.Error, match=r"selector 2 is not legal .* is 0 or 1"):
        emit.to_ptx(op, selector=2)
    with pytest.raises(fm.Error, match="has no immediate byte_a; it has selector"):
        emit.to_ptx(op, byte_a=0)
    with pytest.raises(fm.errors.UnsupportedTarget, match="sm_100a does not have"):
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
