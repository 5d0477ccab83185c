"""Verifying, recording and replaying, with a GPU that is made of the package.

There is no GPU here.  One stands in that answers by ``execute``; told to, it
flips a bit, which must be found.
"""

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.cuda.source import tiled
from fragmenta.cuda.tools import assembler, device, launch
from fragmenta.cuda.tools.launch import TileKernel, on_device
from fragmenta.errors import AddressError
from fragmenta.inspect.evidence import moves, record, registers, verify, warpgroup, wmma
from fragmenta.inspect.evidence.moves import MoveCase
from fragmenta.inspect.evidence.variants import Variant, variants
from fragmenta.inspect.evidence.warpgroup import wgmma_tile
from fragmenta.reference.isa.families import IN_REGISTERS
from fragmenta.reference.shared.tiles import tile as shared_tile
from tests.asking import ask
from tests.thinning import some

FEW = (
    *("mma.m16n8k16.f32.f16", "mma.m16n8k32.s32.s8.s8", "mma.m8n8k4.f64"),
    "mma.m16n8k256.and",
)


def identifier(text):
    return "".join(each if each.isalnum() else "_" for each in text)


NAMED = {identifier(str(op)): op for f in IN_REGISTERS for op in catalogue(f)}
MOVES = {identifier(str(op)): op for f in moves.FAMILIES for op in catalogue(f)}


class StandIn:
    """Answers kernels by their names, with what the package computes."""

    name = "a stand-in"
    target = "sm_90a"
    processors = 4

    def __init__(self, spoil=None):
        self.spoil = spoil
        self.asked = []

    def versions(self):
        return {"gpu": self.name, "target": self.target, "ptxas": "13.0.88"}

    def load(self, cubin):
        assert cubin.startswith(b"\x7fELF")
        return cubin

    def run(self, module, name, grid, block, inputs, output):
        assert name.encode() in module
        self.asked.append(name)
        if name in MOVES:
            d = self._moved(MOVES[name], grid, block, inputs)
        elif case := self._wmma(name, inputs):
            d = case.expect(case.inputs(), self.target)
        else:
            d = self._named(name, block, inputs)
        assert d.shape == output.shape
        assert len(d) == grid
        if self.spoil and self.spoil in name:
            d = d.copy()
            d.reshape(-1)[-1] ^= 1
        return d

    def _named(self, name, block, inputs):
        found = max((x for x in NAMED if f"{name}__".startswith(f"{x}__")), key=len)
        op, rest = NAMED[found], name[len(found) :].replace("minus_", "-")
        chosen = dict(re.findall(r"__(\w+?)_(-?\d+)(?=__|$)", rest))
        chosen = {each: int(value) for each, value in chosen.items()}
        assert block == op.d.lanes
        if not op.warpgroup:
            names = TileKernel(op).parameters
            given = dict(zip(names, inputs, strict=True))
            operands = [given.pop(x) for x in "abc"]
            return op.execute(*operands, **given, **chosen)
        names = tiled.parameters(op, a_registers=rest.endswith("a_registers"))[1:]
        given = dict(zip(names, inputs, strict=True))
        operands = [given.pop(x) for x in "cab"]
        return op.execute(*operands, smem=given.pop("image"), **given, **chosen)

    def _moved(self, op, grid, block, inputs):
        assert block == 32
        given = dict(zip(tiled.parameters(op)[1:], inputs, strict=True))
        return MoveCase(op, grid, seed=1).expect(given, self.target)

    def _wmma(self, name, inputs):
        """The case of wmma with this kernel that reads just this, if there is one."""
        for case in wmma_cases(self.target).get(name, ()):
            arrays = case.inputs().values()
            if len(arrays) == len(inputs) and all(map(np.array_equal, arrays, inputs)):
                return case
        return None


@cache
def wmma_cases(target):
    """Every case of wmma, by kernel; several may share one."""
    found = {}
    for case in ALL_WMMA(target, tiles=8, seed=1):
        found.setdefault(case.name, []).append(case)
    return found


ALL_WMMA, ALL_WGMMA = wmma.cases, warpgroup.cases


@pytest.fixture
def gpu(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setattr(device, "present", lambda: stand_in)
    return stand_in


# ── verify ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", ["mma", "mma.sp", "wmma.mma"])
def test_every_instruction_on_registers_is_asked(family, monkeypatch):
    gpu, listed = StandIn(), some(catalogue(family), 5)
    monkeypatch.setattr(verify, "catalogue", {family: listed}.get)
    report = verify.verify(gpu, families=[family], tiles=8)
    ops = [op for op in listed if op.supported_on("sm_90a")]
    assert len(ops) > 10
    assert [each.instruction for each in report.outcomes] == list(map(str, ops))
    assert not report.differing
    assert all(each.trials >= 3 for each in report.outcomes)
    for op in ops:
        name = TileKernel(op).name
        asked = [x for x in gpu.asked if x.startswith(name)]
        assert len(asked) >= len(op.selectors or (0,))
    assert report.summary().endswith("no bit differs")


@pytest.mark.long
def test_wgmma_is_asked_in_every_way():
    ops = [op for op in catalogue("wgmma.sp") if op.types["a"].name in ("f16", "tf32")]
    narrow = [op for op in ops if op.shape.n <= 40]
    gpu = StandIn()
    report = verify.verify(gpu, instructions=narrow, tiles=8)
    assert not report.differing
    assert {each.trials for each in report.outcomes} == {8}
    ways = {name.split("__", 1)[1] for name in gpu.asked if "f32_f16" in name}
    for text in ("a_registers", "a_memory", "selector_1", "trans_a_1", "trans_b_1"):
        assert any(text in way for way in ways), text
    assert {x.count("minus_1") for x in ways} == {0, 1, 2}


def test_a_million_elements_of_every_floating_point_instruction():
    for family in IN_REGISTERS:
        for turn, op in enumerate(catalogue(family)):
            if not op.supported_on("sm_90a"):
                continue
            found = verify.portions(op, turn=turn)
            elements = sum(each.tiles for each in found) * op.shape.m * op.shape.n
            floating = op.types["a"].kind == "float"
            assert elements >= (1_000_000 if floating else 100_000)
            assert len({each.seed for each in found}) == len(found)


def test_over_its_neighbours_wgmma_takes_all_variants():
    def key(variant):
        return replace(variant, scale_a=1, scale_b=1, turn=0)

    for sparse in ("wgmma", "wgmma.sp"):
        ops = [op for op in catalogue(sparse) if op.types["a"].name == "bf16"]
        seen = {
            key(each.way)
            for turn, op in enumerate(ops)
            for each in verify.portions(op, tiles=8, turn=turn)
        }
        assert seen == set(variants(ops[0]))


def test_the_portions_are_small():
    for family in IN_REGISTERS:
        for op in some(list(catalogue(family))[::29], 3):
            for each in verify.portions(op)[:1]:
                made = each.inputs()
                assert sum(array.nbytes for array in made.values()) < 40e6, op


def test_processes_prepare_the_same():
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    one, two = (
        verify.verify(StandIn("trans_a_1"), instructions=[op], tiles=24, jobs=jobs)
        for jobs in (1, 2)
    )
    assert one.outcomes == two.outcomes
    assert one.differing


# ── a wrong bit ─────────────────────────────────────────────────────────────


def run(program, gpu, monkeypatch):
    """What a program prints, on a machine with that GPU."""
    monkeypatch.setattr(device, "present", lambda: gpu)
    launch.load.cache_clear()
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(program, "program", "exec"), {})
    return dict(line.split() for line in printed.getvalue().splitlines())


WRONG = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16",
    "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.u8",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_bit_is_found_and_its_program_repeats_it(text, monkeypatch):
    op = fm.instruction(text)
    gpu = StandIn(spoil=identifier(text))
    report = verify.verify(gpu, instructions=[op], tiles=16, seed=5)
    (outcome,) = report.differing
    # one bit in every portion
    assert outcome.differing_bits == len(gpu.asked) == outcome.differing_elements
    first = outcome.first
    assert int(first.gpu, 16) ^ int(first.cpu, 16) in (1, 1 << 16)
    assert max(map(len, first.program.splitlines())) <= 96
    # A GPU that is right gives the CPU's answer, one that is wrong its own.
    right = run(first.program, StandIn(), monkeypatch)
    assert right == {"CPU": first.cpu, "GPU": first.cpu}
    wrong = run(first.program, StandIn(spoil=identifier(text)), monkeypatch)
    assert wrong == {"CPU": first.cpu, "GPU": first.gpu}


def test_the_program_names_what_feeds_the_element():
    op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
    (outcome,) = verify.verify(
        StandIn(spoil="mma"), instructions=[op], tiles=9
    ).differing
    lines = outcome.first.program.splitlines()
    assert lines[0] == f"# {op}"
    a, columns, b = (
        next(line for line in lines if line.startswith(f"#   {what}:"))
        for what in ("A", "in columns", "B")
    )
    assert len(a.split()) == 2 + 16
    positions = list(map(int, columns.split()[3:]))
    assert positions == sorted(positions)
    assert len(b.split()) > 10


def test_without_a_gpu_the_program_still_gives_the_cpu(monkeypatch):
    op = fm.mma("m16n8k16", a="f16", d="f32")
    (outcome,) = verify.verify(StandIn("mma"), instructions=[op], tiles=8).differing
    device.present.cache_clear()
    printed = io.StringIO()
    with pytest.raises(fm.errors.NoDevice), redirect_stdout(printed):
        exec(compile(outcome.first.program, "program", "exec"), {})
    assert printed.getvalue() == f"CPU {outcome.first.cpu}\n"


# ── the report ──────────────────────────────────────────────────────────────


def test_the_report_as_text_json_and_markdown():
    ops = [fm.mma("m16n8k16", a="f16", d=d) for d in ("f16", "f32")]
    report = verify.verify(StandIn(), instructions=ops, tiles=8)
    text = report.to_text()
    assert "2 instructions, 2,048 elements of D: no bit differs" in text
    assert all(str(op) in text for op in ops)
    data = json.loads(json.dumps(report.to_json()))
    assert data["made"]["gpu"] == "a stand-in"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["made"]["date"])
    assert [each["differing_bits"] for each in data["outcomes"]] == [0, 0]
    page = report.to_markdown()
    assert page.startswith("# Verified on a stand-in\n")
    assert "| mma | d f16 a f16 b f16 c f16 | 1 | 8 | 1,024 | 0 |" in page
    spoiled = verify.verify(StandIn("f32_f16"), instructions=ops, tiles=8)
    assert "1 bits differ" in spoiled.to_markdown()
    assert "```python" in spoiled.to_markdown()
    assert "GPU 0x" in spoiled.to_text()


def test_verify_on_the_command_line(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "catalogue", lambda f: list(catalogue(f))[10:22])
    page = tmp_path / "page.md"
    words = ("--family", "mma", "--tiles", 8, "--seed", 3)
    result = ask("verify", "--jobs", 1, *words, "--markdown", page)
    assert result.exit_code == 0, result.output
    assert "12 instructions" in result.stdout
    assert "no bit differs" in page.read_text()
    gpu.spoil = "m16n8k16_row_col_f32_bf16"
    result = ask("verify", "--jobs", 1, *words, "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    (wrong,) = [each for each in data["outcomes"] if each["differing_bits"]]
    assert "import fragmenta as fm" in wrong["first"]["program"]


def test_verify_one_instruction_on_the_command_line(gpu):
    result = ask("verify", "--jobs", 1, "mma.m16n8k16.f32.f16", "--tiles", 8)
    assert result.exit_code == 0, result.output
    assert "1 instruction, 1,024 elements" in result.stdout
    refused = ask("verify", "--jobs", 1, "mma.m16n8k64.kind::mxf4.e2m1")
    assert refused.exit_code == 2
    told = " ".join(refused.stderr.split())
    assert "needs PTX 8.7, sm_120a/f sm_121a/f; this is sm_90a" in told


def test_verify_refuses(gpu):
    for words, message in (
        (("--family", "mmma"), "did you mean mma"),
        (("--family", "ldmatrix"), "verified are"),
        (("--tiles", 0), "1 tile or more"),
        (("ldmatrix.m8n8.x4.b16",), "does not multiply"),
    ):
        result = ask("verify", "--jobs", 1, *words)
        assert result.exit_code == 2, words
        assert message in result.stderr.replace("\n", " ")


# ── record and replay ───────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", record.KINDS)
def test_recorded_and_replayed(kind, gpu, tmp_path, monkeypatch):
    """Some cases of each kind: all of them are in the golden files."""
    monkeypatch.setattr(warpgroup, "cases", lambda *x, **y: ALL_WGMMA(*x, **y)[::25])
    monkeypatch.setattr(wmma, "cases", lambda *x, **y: ALL_WMMA(*x, **y)[::24])
    # What is kept of so few cases would be found by later tests.
    monkeypatch.setattr(wmma, "_recorded", wmma._recorded.__wrapped__)
    monkeypatch.setattr(registers, "catalogue", lambda f: list(catalogue(f))[::9])
    result = ask("record", tmp_path, "--family", kind)
    assert result.exit_code == 0, result.output
    path = tmp_path / f"{kind}.npz"
    assert path.name in result.stdout
    found = record.load(path)
    assert found.made["gpu"] == "a stand-in"
    wanted = {"mma": 12, "mma.sp": 20, "wgmma": 15, "moves": 37, "wmma": 27}
    assert len(found.cases) == wanted[kind]
    result = ask("replay", tmp_path)
    assert result.exit_code == 0, result.output
    assert f"{wanted[kind]} cases  no bit differs" in result.stdout


def test_a_wrong_bit_in_a_recording_is_told(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(registers, "catalogue", lambda f: list(catalogue(f))[10:20])
    gpu.spoil = "m16n8k8_row_col_f32_tf32"
    found = record.record(gpu, "mma")
    found.save(tmp_path / "mma.npz")
    result = ask("replay", tmp_path / "mma.npz")
    assert result.exit_code == 1
    assert "D[15, 7]: GPU 0x" in result.stdout
    result = ask("replay", tmp_path, "--json")
    assert result.exit_code == 1
    (told,) = json.loads(result.stdout)
    assert told["differing_bits"] == 1
    assert told["differences"][0]["instruction"].startswith("mma.sync")


# ── on_device ───────────────────────────────────────────────────────────────


def test_on_device_takes_and_returns_what_execute_does(gpu):
    op = fm.mma("m16n8k16", a="f16", d="f32")
    rng = np.random.default_rng(1)
    A = rng.standard_normal((3, 1, 16, 16)).astype(np.float16)
    B = rng.standard_normal((4, 16, 8)).astype(np.float16)
    a, b, c = op.a.pack(A), op.b.pack(B), op.c.pack(np.ones((16, 8), np.float32))
    d = on_device(op, a, b, c)
    assert d.shape == (3, 4, 32, 4)
    assert (d == op.execute(a, b, c)).all()
    assert (on_device(op, a[0, 0], b[0], c) == d[0, 0]).all()
    assert on_device(op, a[:0], b[:1], c).shape == (0, 1, 32, 4)


def test_on_device_sparse(gpu):
    op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp")
    rng = np.random.default_rng(2)
    A, B = (
        rng.standard_normal(shape).astype(np.float16) for shape in ((16, 32), (32, 8))
    )
    packed = fm.sparse.compress(op, fm.sparse.prune(op, A))
    a, b = op.a.pack(packed.values), op.b.pack(B)
    c = op.c.pack(np.zeros((16, 8)))
    e = op.metadata.pack(packed.indices, selector=0)
    options = {"metadata": e, "selector": 0}
    d = on_device(op, a, b, c, **options, target="sm_90")
    assert (d == op.execute(a, b, c, **options)).all()
    with pytest.raises(fm.Error, match="needs metadata"):
        on_device(op, a, b, c)
    with pytest.raises(fm.errors.ShapeError, match="selector 2 is not allowed"):
        on_device(op, a, b, c, metadata=e, selector=2)


def wgmma_operands(op, start=0):
    rng = np.random.default_rng(3)
    A, B = (
        rng.standard_normal(shape).astype(np.float16)
        for shape in ((64, 16), (16, op.shape.n))
    )
    smem, a = shared_tile(op, "A", A, start=start)
    smem, b = shared_tile(op, "B", B, image=smem)
    d = op.d.pack(rng.standard_normal(op.d.shape, np.float32))
    return (d, a, b), {"smem": smem}


@pytest.mark.parametrize("start", [0, 1024, 150 * 1024])
def test_on_device_wgmma(gpu, start):
    """From an image that fits a kernel, and from one that is cut to what is read."""
    op = fm.wgmma("m64n64k16", a="f16", d="f32")
    operands, options = wgmma_operands(op, start)
    assert (options["smem"].size > tiled.MOST) == (start > 1024)
    for chosen in ({}, {"scale_d": 0}, {"imm_scale_a": -1, "imm_scale_b": -1}):
        d = on_device(op, *operands, **options, **chosen)
        assert (d == op.execute(*operands, **options, **chosen)).all()
    d, a, b = operands
    words = np.array([[a.encode()], [a.encode()]], np.uint64)
    many = on_device(op, d, words, b, **options, scale_d=np.array([0, 1, 1]))
    assert many.shape == (2, 3, *d.shape)
    assert (many[1, 2] == op.execute(*operands, **options)).all()


def test_on_device_wgmma_with_a_in_registers(gpu):
    op = fm.wgmma("m64n8k32", a="f16", d="f16", sp="sp")
    for variant in variants(op)[-4:]:
        operands, options = wgmma_tile(op, variant, tiles=8, seed=2, tile=5)
        assert variant.a_registers
        d = on_device(op, *operands, **options)
        assert (d == op.execute(*operands, **options)).all()


def test_on_device_refuses(gpu):
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    (d, a, b), options = wgmma_operands(op)
    with pytest.raises(AddressError, match="outside the image"):
        on_device(op, d, a, b, smem=options["smem"][:4096])
    with pytest.raises(fm.errors.ShapeError, match="imm_scale_a 2 is not allowed"):
        on_device(op, d, a, b, **options, imm_scale_a=2)
    with pytest.raises(fm.errors.ShapeError, match="scale_d is 0 or 1"):
        on_device(op, d, a, b, **options, scale_d=2)
    with pytest.raises(fm.Error, match="takes no trans"):
        on_device(op, d, a, b, **options, trans=1)
    with pytest.raises(fm.Error, match="takes no metadata"):
        on_device(op, d, a, b, **options, metadata=d)
    with pytest.raises(fm.errors.ShapeError, match="do not broadcast together"):
        on_device(op, np.stack([d] * 2), np.full(3, a.encode()), b, **options)
    with pytest.raises(fm.Error, match="does not multiply"):
        on_device(fm.find("ldmatrix.m8n8.x4.b16"))
    dense = fm.mma("m16n8k32", a="s8")
    ones = [part.pack(np.ones(part.shape)) for part in (dense.a, dense.b, dense.c)]
    with pytest.raises(fm.errors.UnsupportedTarget, match="is sm_90a, not sm_80"):
        on_device(dense, *ones, target="sm_80")
    with pytest.raises(fm.Error, match="takes no metadata"):
        on_device(dense, *ones, metadata=ones[0])
    with pytest.raises(fm.errors.UnsupportedTarget, match="a stand-in is sm_90a"):
        on_device(next(op for op in catalogue("mma") if op.scale_vec), *ones)


def test_operands_that_do_not_fit_a_kernel_are_refused(gpu):
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    (d, _, b), _ = wgmma_operands(op)
    smem = np.zeros(200 * 1024, np.uint8)
    far = fm.instruction(str(op)) and replace(b, start=0, stride=16 * 1024)
    with pytest.raises(fm.Error, match="spread over"):
        on_device(op, d, replace(far, leading=16), far, smem=smem)


# ── kernels ─────────────────────────────────────────────────────────────────


def test_the_kernels_of_every_turn_assemble():
    ops = [fm.find(text) for text in FEW]
    ops += list(catalogue("wgmma"))[::97] + list(catalogue("wgmma.sp"))[::97]
    kernels = {}
    for turn, op in enumerate(ops):
        for each in verify.portions(op, tiles=8, turn=turn):
            kernels[each.kernel.name] = each.kernel
    text = launch.source(list(kernels.values()), "sm_90a")
    cubin = assembler.assemble(text, "sm_90a", "-O0")
    assert all(name.encode() in cubin for name in kernels)


def test_modules_are_kept_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    text = launch.source([TileKernel(fm.mma("m16n8k16", a="f16", d="f32"))], "sm_90a")
    first = launch.cubin(text, "sm_90a")
    assert list(tmp_path.iterdir())
    monkeypatch.setattr(assembler, "assemble", None)
    assert launch.cubin(text, "sm_90a") == first


def test_without_ptxas_the_driver_assembles(monkeypatch):
    class Driver(StandIn):
        def load_text(self, text):
            assert text.startswith(".version")
            return text.encode()

    def missing(name):
        raise fm.Error(f"no {name} found")

    monkeypatch.setattr(assembler, "tool", missing)
    op = fm.mma("m16n8k32", a="s8")
    ones = [part.pack(np.ones(part.shape)) for part in (op.a, op.b, op.c)]
    d = on_device(op, *ones, gpu=Driver())
    assert (d == op.execute(*ones)).all()


def test_variants_are_spelled_as_python():
    """A program contains the variant as it prints itself."""
    variant = Variant(False, 1, -1, 1, 0, 1, 7)
    assert eval(repr(variant)) == variant
