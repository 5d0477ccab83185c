"""The sources compile for sm_90a, and the assembler has nothing to say."""

import re
import subprocess

import pytest

from fragmenta.cuda.tools import assembler
from fragmenta.errors import Error
from fragmenta.hopper.kernels import prepare, source
from fragmenta.kernels import Kernel, Tile
from tests.thinning import some

KERNELS = [
    Kernel("e4m3", out="bf16", tile=Tile(256, 192, 2), transposed=True),
    Kernel("s8", tile=Tile(256, 128)),
    Kernel("bf16", out="f16", tile=Tile(64, 16), scaled=True),
    Kernel("tf32", tile=Tile(128, 64), transposed=True),
    Kernel("e4m3", "e5m2", tile=Tile(128, 128), promote=True),
    Kernel("bf16", out="bf16", tile=Tile(128, 256, 2), sparse=False),
    Kernel("b1", tile=Tile(128, 128), sparse=False, xor=True),
    Kernel("b1", tile=Tile(128, 192, 2, turns=True), sparse=False),
    Kernel("bf16", tile=Tile(128, 128, 2, turns=True), sparse=False, transposed=True),
]


def compiled(text, folder):
    """What nvcc and ptxas say."""
    try:
        nvcc = assembler.tool("nvcc")
    except Error:
        pytest.skip("no nvcc here")
    path = folder / "kernel.cu"
    path.write_text(text)
    command = [
        nvcc,
        "-cubin",
        "-arch=sm_90a",
        "-Xptxas",
        "-v",
        path,
        "-o",
        f"{path}bin",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert not done.returncode, said
    return said


@pytest.mark.long
@pytest.mark.parametrize("kernel", some(KERNELS, 2), ids=str)
def test_no_warning_about_wgmma(kernel, tmp_path):
    said = compiled(source.source(kernel), tmp_path)
    assert not re.search(r"C75\d\d", said), said
    assert " 0 bytes spill stores" in said, said


@pytest.mark.parametrize("name", ["gemm.cu", "prepare.cu", "activate.cu", "widen.cu"])
def test_no_lambda_is_generic(name):
    """NVRTC before 13.1 refuses them, and the machine with the GPU may have one."""
    assert not re.search(r"\[[&=]?\]\s*\([^)]*\bauto\b", source.text(name))


@pytest.mark.parametrize("a", some(["s8", "e5m2", "bf16", "tf32"], 2))
def test_compression_compiles(a, tmp_path):
    assert "registers" in compiled(prepare.prepare_source(a), tmp_path)


def test_the_wrapper_is_the_projects_own():
    text = source.source(Kernel("bf16", tile=Tile(64, 8)))
    assert "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16" in text
    assert text.count("void multiply(") == 1
