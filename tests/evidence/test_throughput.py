"""Kernels that measure: what they contain, and how their times become rates."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.commands import app
from fragmenta.cuda.source import kernel
from fragmenta.cuda.tools import assembler, device, launch
from fragmenta.inspect.evidence import throughput
from fragmenta.reference.isa.families import IN_REGISTERS
from fragmenta.reference.shared.descriptor import Descriptor, extent
from fragmenta.reference.shared.tiles import read_tile
from tests.disassembly import disassemble
from tests.thinning import some

TARGET = "sm_90a"


def cubin(ops, *options):
    version = max(op.requires.ptx_on(TARGET) for op in ops)
    text = "".join(throughput.bench(op, TARGET).entry() for op in ops)
    return assembler.assemble(kernel.module([text], TARGET, version), TARGET, *options)


def machine(op):
    """How often each machine instruction is in the kernel."""
    lines = disassemble(cubin([op])).splitlines()
    found = (re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+ )?(\w+)", x) for x in lines)
    return Counter(match[1] for match in found if match)


@pytest.mark.parametrize("family", IN_REGISTERS)
def test_kernels_assemble(family):
    """One instruction of each shape and type, wgmma of a few n."""
    chosen = {}
    for op in catalogue(family):
        if not op.supported_on(TARGET) or op.shape.n not in (8, 16, 32, 256):
            continue
        if op.warpgroup and (op.shape.n > 8) != (op.types["a"].bits > 8):
            continue  # narrow or wide, half of the types each
        if op.types.get("c", op.types["d"]) == op.types["d"]:
            chosen[op.shape, op.types["a"], op.types["d"]] = op
    assert len(chosen) > 9
    assert cubin(some(chosen.values(), 5), "-O0").startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("text", "name"),
    some(
        [
            ("mma.m16n8k16.f32.f16", "HMMA"),
            ("mma.m16n8k32.s32.s8.s8", "IMMA"),
            ("mma.m16n8k16.f64", "DMMA"),
            ("mma.sp::ordered_metadata.m16n8k32.f32.bf16", "HMMA"),
            ("wgmma.m64n256k16.f32.f16", "HGMMA"),
            ("wgmma.mma_async.sp.m64n256k64.f32.e4m3.e4m3", "QGMMA"),
        ],
        2,
    ),
)
def test_the_loop_is_the_instruction_and_nothing_is_spilled(text, name):
    op = fm.find(text)
    found, made = machine(op), throughput.bench(op, TARGET)
    groups = made.threads // op.d.lanes
    assert found[name] * groups == made.per_round
    assert not {"STL", "LDL"} & set(found)
    if name.endswith("GMMA"):
        assert sum(found[x] for x in found if "WARPGROUP" in x) <= 3


@pytest.mark.parametrize(
    "text",
    some(
        [
            "mma.m16n8k64.s4.s4",
            "mma.m16n8k32.f32.e4m3.e4m3",
            "mma.sp::ordered_metadata.m16n8k64.f32.e4m3.e4m3",
            "mma.sp::ordered_metadata.m16n8k128.s4.s4",
        ],
        2,
    ),
)
def test_what_the_assembler_expands_stays_in_the_loop(text):
    """All of it: operands that change are converted in every round."""
    op = fm.find(text)
    lines = disassemble(cubin([op])).splitlines()
    branch = next(i for i, line in enumerate(lines) if re.search(r"@!?U?P\d BRA", line))
    label = re.search(r"\(?(\.L_x_\d+)", lines[branch])[1]
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{label}:"))
    before, inside = "\n".join(lines[:start]), "\n".join(lines[start:branch])
    assert start < branch
    # 4-bit integers are multiplied by a subroutine
    assert len(re.findall("[HI]MMA|CALL", inside)) >= 2
    assert not re.search("[HI]MMA|F2FP|SHFL", before)
    assert not re.search("STL|LDL", "\n".join(lines))


def test_the_data_is_random_and_fits():
    for text in ("mma.sp::ordered_metadata.m16n8k64.s8.s8", "mma.m16n8k8.f32.tf32"):
        op = fm.find(text)
        made = throughput.bench(op, TARGET)
        arrays = made.inputs()
        assert list(arrays) == [each.name for each in made.held]
        assert {len(array) for array in arrays.values()} == {made.groups * made.chains}
        assert all(len(np.unique(array)) > 100 for array in arrays.values())
        assert made.output().shape == arrays["c"].shape
        given = dict(arrays)
        operands = [given.pop(name) for name in "abc"]
        d = op.execute(*operands, **given)
        if op.d.dtype.name == "f32":
            assert np.isfinite(op.d.unpack(d)).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_descriptors_step_through_the_image(sparse):
    k = 32 if sparse else 16
    op = fm.wgmma(f"m64n24k{k}", a="f16", d="f32", **({"sp": "sp"} if sparse else {}))
    made = throughput.bench(op, TARGET)
    image = made.inputs()["image"]
    assert image.size == made.image_bytes == (64 + 24) * 128
    wide = {name: extent(op, name)[1] for name in "AB"}
    for name in "AB":
        words = made.descriptors[name.lower()]
        assert len(words) == 64 // wide[name]
        seen = [read_tile(op, name, image, word) for word in words]
        assert len({each.tobytes() for each in seen}) == len(words)
        assert Descriptor.decode(words[0]).swizzle == 128


def test_one_instruction_of_each_kind_is_chosen():
    ops = throughput.representative(TARGET)
    assert len(ops) == len(set(ops)) > 40
    assert {op.family for op in ops} == set(IN_REGISTERS) - {"wmma.mma"}
    assert all(op.supported_on(TARGET) for op in ops)
    assert {op.shape.n for op in ops if op.warpgroup} == {256}
    assert throughput.representative("sm_70")


# ── from times to rates ─────────────────────────────────────────────────────


class Clock:
    """A GPU that takes as long as the instructions would at a given rate."""

    name = "NVIDIA H200"
    target = TARGET
    processors = 132

    def __init__(self, rate=5e14):
        self.rate = rate
        self.rounds = []

    def versions(self):
        return {"gpu": self.name, "target": self.target}

    def load(self, cubin):
        return cubin

    def time(self, module, name, grid, block, inputs, output, runs):
        assert name.encode() in module
        op = next(
            op
            for family in IN_REGISTERS
            for op in catalogue(family)
            if launch.TileKernel(op).name == name
        )
        made = throughput.bench(op, TARGET)
        assert (grid, block) == (132, made.threads)
        (rounds,) = inputs[-1].tolist()
        self.rounds.append(rounds)
        m, n, k = op.shape
        seconds = 2 * m * n * k * made.per_round * rounds * grid / self.rate
        slow_start = [10 * seconds] * min(2, runs - 1)
        return [*slow_start, *[seconds] * (runs - len(slow_start))]


def test_rates_are_counted_with_all_of_k():
    op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp")
    gpu = Clock()
    (found,) = throughput.throughput([op], gpu, runs=5)
    assert found.rate == pytest.approx(5e14)
    assert found.datasheet == 1979e12
    assert found.share == pytest.approx(0.2527, abs=1e-4)
    assert gpu.rounds[1] > gpu.rounds[0]  # long enough to be timed


def test_what_cannot_be_measured_says_why():
    lacking = next(op for op in catalogue("mma") if op.scale_vec)
    mixed = fm.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16")
    expanded = fm.mma("m16n8k64", a="s4")
    moving = fm.find("ldmatrix.m8n8.x4.b16")
    ops = [lacking, mixed, expanded, moving]
    found = throughput.throughput(ops, Clock(), runs=3)
    assert [each.rate is None for each in found] == [True, True, False, True]
    notes = [each.note for each in found]
    assert "this is sm_90a" in notes[0]
    assert "another type than C" in notes[1]
    assert notes[2] == "expanded to s8/u8"
    assert "does not multiply" in notes[3]
    text = throughput.to_text(found)
    assert all(note in text for note in notes)


@pytest.mark.parametrize(
    ("gpu", "text", "wanted"),
    [
        ("NVIDIA H200", "mma.m16n8k32.s32.s8.s8", 1979),
        ("NVIDIA H200 NVL", "mma.m16n8k32.s32.s8.s8", 1670.5),
        ("NVIDIA H100 80GB HBM3", "wgmma.m64n8k8.f32.tf32", 494.5),
        ("NVIDIA H100 PCIe", "mma.m8n8k4.f64", 51),
        ("NVIDIA A100-SXM4-80GB", "mma.m16n8k64.s4.s4", 1248),
        ("NVIDIA A100-SXM4-80GB", "mma.m16n8k256.and", None),
        ("NVIDIA GeForce RTX 4090", "mma.m16n8k32.s32.s8.s8", None),
    ],
)
def test_datasheets(gpu, text, wanted):
    found = throughput.datasheet(gpu, fm.find(text))
    assert found == (None if wanted is None else wanted * 1e12)


def test_throughput_on_the_command_line(monkeypatch):
    monkeypatch.setattr(device, "present", Clock)
    words = ["throughput", "mma.m16n8k16.f32.f16", "--runs", "3"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert " 500.0      989.5    51%  mma.sync" in result.stdout
    result = CliRunner().invoke(app, [*words, "--json"])
    (rate,) = json.loads(result.stdout)["rates"]
    assert rate["rate"] == pytest.approx(5e14)
    assert CliRunner().invoke(app, [*words[:3], "0"]).exit_code == 2
