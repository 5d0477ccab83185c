"""Public objects are equal to their records, also after copying and pickling."""

import copy
import pickle
import subprocess
import sys
from operator import attrgetter

import pytest

import fragmenta as fm
from fragmenta.base.arrays.record import Record
from fragmenta.frontends.api.instructions import kept, kind_of, public
from fragmenta.reference.execution.compare import compare
from fragmenta.reference.isa import families
from fragmenta.reference.isa import instruction as instructions
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.shared.loops import ldmatrix_loop
from fragmenta.reference.tensor_memory.copying import copies

NAMES = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": fm.Mma,
    "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32": fm.Mma,
    "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32": fm.Mma,
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16": fm.Wgmma,
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.s8": fm.Wgmma,
    "tcgen05.mma.cta_group::1.kind::f16 0x08400010": fm.TensorMma,
    "tcgen05.mma.cta_group::1.kind::f16": fm.TensorMma,
    "ldmatrix.sync.aligned.m8n8.x4.b16": fm.LdMatrix,
    "stmatrix.sync.aligned.m8n8.x4.b16": fm.StMatrix,
    "movmatrix.sync.aligned.m8n8.trans.b16": fm.MovMatrix,
    "tcgen05.ld.sync.aligned.32x32b.x1.b32": fm.Instruction,
    "wmma.load.a.sync.aligned.row.m16n16k16.f16": fm.Instruction,
    "wgmma.fence.sync.aligned": fm.Instruction,
    "spdecompress.b8.b4.sp::2:4.x2": fm.Instruction,
}


@pytest.mark.parametrize("name", NAMES)
def test_an_instruction_has_the_class_of_its_unit(name):
    op, record = fm.instruction(name), instruction(name)
    assert type(op) is NAMES[name] is kind_of(record)
    assert type(record).__module__ == "fragmenta.reference.isa.instruction"
    assert not hasattr(record, "execute")
    assert op == record
    assert record == op
    assert hash(op) == hash(record)
    assert {op: 1}[record] == 1
    assert fm.instruction(name) is op
    assert fm.instruction(record) is op
    assert fm.instruction(op) is op
    assert kept(record) is op
    for each, part in op.fragments.items():
        assert isinstance(part, fm.Fragment)
        assert part == record.fragments[each]
        assert hash(part) == hash(record.fragments[each])


def test_every_form_has_a_class():
    for form in families.FORMS:
        op = next(families.catalogue(form=form))
        made = public(op)
        assert made == op
        assert made.multiplies == bool(form.multiplies)
        assert (type(made) is fm.Instruction) == (
            not form.multiplies and form.unit != "matrix"
        )


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_pickles(name):
    op, record = fm.instruction(name), instruction(name)
    assert copy.copy(op) is copy.deepcopy(op) is op
    assert pickle.loads(pickle.dumps(op)) is op
    assert copy.copy(record) is copy.deepcopy(record) is record
    again = pickle.loads(pickle.dumps(record))
    assert again == record
    assert type(again) is type(record)
    assert (again.form, again.row) == (record.form, record.row)
    for part in (*op.fragments.values(), *record.fragments.values()):
        assert pickle.loads(pickle.dumps(part)) == part
        assert type(pickle.loads(pickle.dumps(part))) is type(part)


def test_a_record_of_the_catalogue_is_read_back_in_another_process():
    wrote = (
        "import pickle, sys; from fragmenta.reference.isa.families import catalogue; "
        "sys.stdout.buffer.write(pickle.dumps(next(catalogue('wgmma.sp'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", wrote], capture_output=True, check=True
    )
    assert pickle.loads(done.stdout) == next(fm.catalogue("wgmma.sp"))


def test_descriptors_keep_the_class():
    bare = fm.instruction("tcgen05.mma.cta_group::1.kind::f16")
    assert type(bare.with_descriptor(0x08400010)) is fm.TensorMma
    assert fm.instruction(bare, idesc=0x08400010) == bare.with_descriptor(0x08400010)


def test_what_is_found_is_public():
    assert type(fm.find("HMMA.16816.F32.BF16")) is fm.Mma
    assert {type(op) for op in fm.search("movmatrix")} == {fm.MovMatrix}
    assert type(fm.from_sass("HMMA.16816.F32")[0].instruction) is fm.Mma
    assert type(fm.wmma.mma("m8n8k32", a="s4")) is fm.Mma
    op = fm.tcgen05("m128n128k32", kind="mxf8f6f4", a="e4m3")
    assert isinstance(fm.tensor_memory.scale_copy(op, "scale_A"), fm.Instruction)
    order = fm.weights.shuffle(DENSE, "B", shape=(256, 64))
    assert isinstance(order.op, fm.Mma)
    assert isinstance(order.fragment, fm.Fragment)


DENSE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def test_loops():
    asked = {"tile": (64, 32), "order": "row"}
    loop, record = (
        fm.shared.ldmatrix_loop(DENSE, "A", **asked),
        ldmatrix_loop(DENSE, "A", **asked),
    )
    assert type(loop) is fm.shared.MatrixLoop
    assert loop == record
    assert hash(loop) == hash(record)
    assert isinstance(loop.move, fm.LdMatrix)
    assert loop.first[0] is loop.move
    assert isinstance(loop.op, fm.Mma)
    assert isinstance(loop.part, fm.Fragment)
    assert "ldmatrix" in loop.to_cuda()
    again = pickle.loads(pickle.dumps(loop))
    assert again == loop
    assert type(again) is fm.shared.MatrixLoop
    move, addresses = fm.shared.ldmatrix_addresses(DENSE, "A", order="row")
    assert isinstance(move, fm.LdMatrix)
    assert len(move.execute(loop.image([[0] * 32] * 64), addresses)) == 32
    best = fm.shared.suggest_swizzle(DENSE, "A", **asked).best.loop
    assert "ldmatrix" in best.to_cuda()


def test_other_records():
    told = fm.compare(DENSE, "sm_90", k=64)
    assert told == compare(DENSE, "sm_90", k=64)
    assert told._repr_svg_() == told.to_svg()
    part = fm.tensor_memory.copies("tcgen05.cp.cta_group::1.64x128b.warpx2::01_23")
    assert isinstance(part, fm.tensor_memory.TensorFragment)
    assert part == copies("tcgen05.cp.cta_group::1.64x128b.warpx2::01_23")
    assert part.to_svg().startswith("<svg")


def test_kernels_and_results():
    module = fm.ptx.parse(
        ".version 8.0 .target sm_80 .address_size 64 .entry f() { ret; }"
    )
    kernel = module.kernels["f"]
    assert type(kernel) is fm.ptx.Kernel
    result = kernel.launch(1, 32)
    assert type(result) is fm.ptx.Result
    assert str(result.timeline()).startswith("<svg")
    again = pickle.loads(pickle.dumps(kernel))
    assert type(again) is fm.ptx.Kernel


def test_equality_is_written_once():
    """A dataclass that writes its own would tell a record from its public object."""
    own = {Record.__eq__, instructions.Instruction.__eq__}
    found = [Record]
    for each in found:
        found += each.__subclasses__()
    inside = [each for each in found if each.__module__.startswith("fragmenta.")]
    assert len(inside) > 15
    assert not [each for each in inside if each.__eq__ not in own]


def test_functions_are_pickled_by_name():
    for name in (
        "mma",
        "find",
        "shared.ldmatrix_loop",
        "compare",
        "weights.shuffle",
    ):
        function = attrgetter(name)(fm)
        assert pickle.loads(pickle.dumps(function)) is function
