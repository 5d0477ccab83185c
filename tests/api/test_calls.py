"""Calls of instructions: each takes the operands of its unit, and a wrong call names the right one."""

import copy
import inspect
import pickle
import pydoc
import subprocess
import sys

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.cuda.source import emit
from fragmenta.cuda.source import loops as loop_source
from fragmenta.frontends.api import calls
from fragmenta.inspect.evidence import kernels
from fragmenta.reference.execution import explain, mma, tcgen05, wgmma
from fragmenta.reference.isa.operand_lists import lists
from fragmenta.reference.shared import moves

DENSE = fm.mma("m16n8k16", a="f16", d="f32")
SPARSE = fm.mma("m16n8k64", a="s4", sp="sp")
SCALED = fm.mma("m16n8k64", a="e2m1", kind="mxf4")
WARPGROUP = fm.wgmma("m64n8k16", a="f16", d="f32")
TENSOR = fm.tcgen05("m128n256k16", a="f16", d="f32")
LOAD = fm.find("ldmatrix.m8n8.x1.b16")

CALLS = {
    DENSE: "(a, b, c, *, target=None)",
    SPARSE: "(a, b, c, *, metadata, selector=0, target=None)",
    SCALED: "(a, b, c, *, scale_a, scale_b, byte_a=0, thread_a=0, byte_b=0, thread_b=0, "
    "target=None)",
    fm.find("wmma.mma.m8n8k32.s4"): "(a, b, c, *, target=None)",
    WARPGROUP: "(d, a, b, *, smem, scale_d=1, imm_scale_a=1, imm_scale_b=1, trans_a=0, trans_b=0, "
    "target=None)",
    fm.wgmma("m64n8k64", a="s8", sp="sp"): "(d, a, b, *, smem, metadata, selector=0, "
    "scale_d=1, target=None)",
    TENSOR: "(tmem, a, b, *, smem, d=0, enable_input_d=1, scale_input_d=None, "
    "disable_output_lane=None, target=None)",
    fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4"): "(tmem, a, b, *, smem, d=0, "
    "enable_input_d=1, scale_a, scale_b, target=None)",
    fm.tcgen05("m64n64k16", a="f16", ws=True): "(tmem, a, b, *, smem, d=0, "
    "enable_input_d=1, zero_column_mask=None, target=None)",
    LOAD: "(image, addresses)",
    fm.find("stmatrix.m8n8.x1.b16"): "(image, addresses, registers)",
    fm.find("movmatrix"): "(registers)",
}


@pytest.mark.parametrize("op", CALLS, ids=str)
def test_help_shows_the_operands_of_its_instruction(op):
    line, _, told = op.help().partition("\n\n")
    assert " ".join(line.split()) == f"op.execute{CALLS[op]}"
    rows = told.splitlines()
    assert max(map(len, line.splitlines())) <= 80
    # Every argument is told in words that fit a terminal.
    names = inspect.signature(op.execute).parameters
    shown = [row.split()[0] for row in rows]
    assert {*shown} <= {*names}
    assert all(len(row.split()) > 2 and len(row) <= 80 for row in rows)


@pytest.mark.parametrize(
    "op, matrices, element",
    [
        (DENSE, "(A, B, C=None, *, target=None)", "row, col, target=None)"),
        (
            SCALED,
            "(A, B, C=None, *, scale_a, scale_b, target=None)",
            "scale_a, scale_b, ",
        ),
        (WARPGROUP, "(A, B, C=None, *, target=None)", "row, col, target=None)"),
    ],
    ids=str,
)
def test_matrices_and_explain(op, matrices, element):
    assert calls.call_line(op, "__call__") == f"op{matrices}"
    assert element in calls.call_line(op, "explain")
    assert all(calls.arguments(op, "explain").values())


def test_on_device_takes_what_execute_takes():
    assert calls.call_line(SPARSE, "on_device") == (
        "op.on_device(a, b, c, *, metadata, selector=0, target=None, gpu=None)"
    )
    with pytest.raises(
        fm.errors.BadCall, match=r"needs c; the call is op\.on_device\(a, b"
    ):
        DENSE.on_device(1, 2)


def test_every_method_has_a_real_signature():
    page = pydoc.render_doc(fm.Mma, renderer=pydoc.plaintext)
    assert "execute(" in page
    assert "metadata: 'ArrayLike | None' = None" in page
    assert str(inspect.signature(fm.Wgmma.execute)).startswith("(self, d: 'ArrayLike'")
    assert pydoc.render_doc(DENSE.execute, renderer=pydoc.plaintext).count("*args") == 0


def test_methods_of_the_class_are_those_of_the_instruction():
    words = [part.pack(np.ones(part.shape)) for part in (DENSE.a, DENSE.b, DENSE.c)]
    found = fm.Mma.execute(DENSE, *words)
    assert (found == DENSE.execute(*words)).all()
    assert (found == DENSE.execute(c=words[2], b=words[1], a=words[0])).all()
    again = pickle.loads(pickle.dumps(DENSE.execute))
    assert (again(*words) == found).all()
    assert copy.deepcopy(DENSE) is DENSE
    assert pickle.loads(pickle.dumps(fm.Mma.execute)) is fm.Mma.execute


def test_moves_are_executed():
    image = np.arange(128, dtype=np.uint8)
    addresses = np.arange(32) * 16 % 128
    words = LOAD.execute(image, addresses)
    assert (words == moves.ldmatrix(LOAD, image, addresses)).all()
    store = fm.find("stmatrix.m8n8.x1.b16")
    assert (store.execute(np.zeros_like(image), addresses, words) == image).all()
    turned = fm.find("movmatrix")
    assert (turned.execute(turned.execute(words)) == words).all()


# ── wrong calls ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "call, error, why",
    [
        (lambda: DENSE.execute(1, 2), fm.errors.BadCall, "needs c"),
        (
            lambda: DENSE.execute(1, 2, 3, 4),
            fm.errors.BadCall,
            "takes 3 operands; given 4",
        ),
        (lambda: DENSE.execute(1, 2, 3, a=4), fm.errors.BadCall, "is given a twice"),
        (
            lambda: SPARSE.execute(1, 2, 3, metdata=4),
            fm.errors.BadCall,
            "did you mean metadata",
        ),
        (lambda: SPARSE.execute(1, 2, 3), fm.errors.BadMetadata, r"op\.metadata\.pack"),
        (lambda: DENSE.execute(1, 2, 3, metadata=4), fm.Error, "is dense"),
        (lambda: DENSE.execute(1, 2, 3, selector=1), fm.Error, "is dense"),
        (lambda: SCALED.execute(1, 2, 3), fm.Error, "needs scale_a and scale_b"),
        (lambda: WARPGROUP.execute(1, 2, 3), fm.errors.BadCall, "needs smem"),
        (lambda: WARPGROUP.execute(1, 2, 3, c=4), fm.errors.BadCall, "takes no c"),
        (lambda: TENSOR.execute(1), fm.errors.BadCall, "needs a, b and smem"),
        (lambda: LOAD.execute(1), fm.errors.BadCall, "needs addresses"),
    ],
)
def test_a_wrong_call_says_the_right_one(call, error, why):
    with pytest.raises(error, match=why) as caught:
        call()
    assert isinstance(caught.value, fm.Error)
    line = str(caught.value).split("the call is ")[1]
    assert line in {f"op.execute{each}" for each in CALLS.values()}


def test_a_wrong_call_of_matrices_says_the_right_one():
    with pytest.raises(
        fm.errors.BadCall, match=r"needs B; the call is op\(A, B, C=None, \*, t"
    ):
        DENSE(np.ones((16, 16)))
    with pytest.raises(
        TypeError, match=r"needs row; the call is op\.explain\(A, B, C="
    ):
        DENSE.explain(1, 2, col=3)


def test_what_says_nothing_is_taken():
    words = [part.pack(np.ones(part.shape)) for part in (DENSE.a, DENSE.b, DENSE.c)]
    DENSE.execute(*words, metadata=None, selector=0, scale_a=None, byte_a=0)


def test_what_cannot_be_executed_says_so():
    with pytest.raises(fm.Error, match=r"seen in a kernel"):
        fm.find("wgmma.fence").execute(1, 2, 3)
    with pytest.raises(fm.Error, match=r"fm\.tensor_memory\.load\("):
        fm.instruction("tcgen05.ld.sync.aligned.32x32b.x1.b32").execute()
    assert not calls.call_line(fm.find("wgmma.fence"))
    assert "seen in a kernel" in fm.find("wgmma.fence").help()
    with pytest.raises(fm.Error, match="did you mean explain"):
        DENSE.help("explian")


# ── one source ──────────────────────────────────────────────────────────────

GIVEN = {"trans_a": 1, "trans_b": 1, "scale_d": 0, "selector": 1, "scale_input_d": 1}


def kinds():
    """One multiplying instruction for each set of operands."""
    found = {}
    for op in fm.catalogue():
        if op.multiplies and not op.tensor_memory:
            names = tuple(each.name for each in lists(op)[0])
            found.setdefault((op.family, names), op)
    return list(found.values())


@pytest.mark.parametrize("op", kinds(), ids=str)
def test_what_is_not_shown_is_refused(op):
    shown = calls.signature(op, "execute").parameters
    more = {"smem": np.zeros(8, np.uint8)} if "smem" in shown else {}
    needed = {n for n, p in shown.items() if p.default is p.empty and n not in "abcd"}
    for name in needed - {"smem"}:
        with pytest.raises(fm.Error, match=name):
            op.execute(0, 0, 0, **more)
    if op.sparse:
        codes = np.full(
            (op.shape.m, op.metadata.shape[-1]), op.granularity.empty, np.uint8
        )
        more["metadata"] = op.metadata.pack(codes)
    for name in inspect.signature(op.execute).parameters:
        if name not in shown:
            value = GIVEN.get(name, -1 if op.warpgroup else 1)
            with pytest.raises(fm.Error, match=name.split("_")[0]):
                op.execute(0, 0, 0, **more, **{name: value})


@pytest.mark.parametrize(
    "method, function",
    [
        (fm.Mma.execute, mma.execute),
        (fm.Wgmma.execute, wgmma.execute),
        (fm.TensorMma.execute, tcgen05.execute),
        (fm.LdMatrix.execute, moves.ldmatrix),
        (fm.StMatrix.execute, moves.stmatrix),
        (fm.MovMatrix.execute, moves.movmatrix),
        (fm.Instruction.__call__, mma.call),
        (fm.Instruction.explain, explain.explain),
        (fm.Instruction.to_cuda, emit.to_cuda),
        (fm.Instruction.to_ptx, emit.to_ptx),
        (fm.shared.MatrixLoop.to_cuda, loop_source.to_cuda),
        (fm.ptx.Kernel.verify, kernels.verify),
    ],
)
def test_a_method_takes_what_its_function_takes(method, function):
    (_, *taken), (_, *wanted) = (
        inspect.signature(each).parameters.values() for each in (method, function)
    )
    same = [each.replace(annotation=str(each.annotation)) for each in taken]
    assert same == [each.replace(annotation=str(each.annotation)) for each in wanted]


def test_every_argument_has_its_words():
    units = {"mma": fm.Mma, "wgmma": fm.Wgmma, "tcgen05": fm.TensorMma}
    units |= dict.fromkeys(["matrix"], fm.StMatrix)
    for unit, kind in units.items():
        for each in calls.parameters(kind, "execute"):
            assert (unit, each.name) in calls._ARGUMENTS or each.name == "target"
    for each in calls.parameters(fm.Instruction, "explain"):
        assert ("whole", each.name) in calls._ARGUMENTS or each.name == "target"


def test_an_instruction_opens_no_later_room():
    code = (
        "import sys, fragmenta as fm; op = fm.mma('m16n8k16', a='f16', d='f32'); op.a; "
        "print([m for m in sys.modules if m.startswith(('fragmenta.reference.execution', "
        "'fragmenta.cuda', 'fragmenta.inspect.view', 'fragmenta.ptx', 'llvmlite'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
