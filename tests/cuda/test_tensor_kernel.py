"""The kernels that are emitted for ``tcgen05`` compute what the package computes.

They are compiled by NVRTC and run here, watched for what a kernel may do wrong.
"""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx as engine
from fragmenta.cuda.source.tensor_kernel import made
from fragmenta.reference.registers.tensor_fragment import TensorAddress
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.tiles import pair_halves
from fragmenta.reference.shared.tiles import tile as shared_tile
from fragmenta.reference.tensor_memory.copying import copies
from tests.cuda.tensor_launches import launch, random_matrix
from tests.thinning import some

KERNELS = {
    "layout D": (fm.tcgen05("m128n16k16", a="f16", d="f16"), {"tiles": (2, 2)}),
    "layout F": (fm.tcgen05("m64n24k8", a="tf32"), {}),
    "layout B": (
        fm.tcgen05("m128n32k32", a="e2m1", b="e5m2", d="f32", cta_group=2),
        {"a_tensor": True, "tiles": (2, 1)},
    ),
    "layout G": (
        fm.tcgen05("m32n64k16", a="f16", ws=True),
        {"a_tensor": True, "tiles": (2, 1)},
    ),
    "MN-major": (
        fm.tcgen05("m128n32k8", a="tf32", transpose_a=True, transpose_b=True),
        {},
    ),
    "padded": (fm.tcgen05("m128n16k32", a="e2m1", b="e3m2", d="f32"), {}),
    "sparse E": (
        fm.tcgen05("m64n64k64", a="s8", ws=True, sp=True),
        {"tiles": (2, 1)},
    ),
    "scaled": (
        fm.tcgen05("m128n136k32", kind="mxf8f6f4", a="e4m3", b="e2m1"),
        {"tiles": (2, 1)},
    ),
    "scaled sparse": (
        fm.tcgen05("m128n16k128", kind="mxf4nvf4", a="e2m1", sp=True),
        {},
    ),
    "scaled pair": (
        fm.tcgen05("m256n32k32", kind="mxf8f6f4", a="e4m3", cta_group=2),
        {"tiles": (1, 2)},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", some(KERNELS, 2))
def test_a_kernel_multiplies(name):
    op, options = KERNELS[name]
    found, right = launch(op, **options)
    assert np.abs(right.astype(np.float64)).max() > 0
    assert (found == right).all()


def test_a_kernel_is_right_however_late_the_work_is_done():
    op = fm.tcgen05("m128n16k32", a="f16", sp=True)
    found, right = launch(op, schedule=["eager", "lazy", 3])
    assert (found == right).all()


def test_what_a_launch_needs():
    kernel = made(fm.tcgen05("m128n256k64", kind="mxf4nvf4", a="e2m1"))
    assert kernel.allocated == 512
    assert kernel.shared_bytes == 128 * 128 + 256 * 128 + 4 * 512 + 8 * 512 + 16
    assert f"{kernel.shared_bytes} bytes" in kernel.text()


# ── modules of one instruction ──────────────────────────────────────────────


def run(op, name, arguments, *, shared=0, **options):
    """Launch the module of an instruction with its parameters by name."""
    kernel = engine.parse(op.to_ptx(name=name, **options)).kernels[name]
    given = [arguments[each.name] for each in kernel.parameters]
    kernel.launch(op.cta_group or 1, 128, given, shared=shared, target="sm_100a")


@pytest.mark.parametrize("group", [1, 2])
def test_a_module_multiplies(group):
    """Images go in, and what op.execute makes of them comes out."""
    op = fm.tcgen05(f"m{128 * group}n32k16", a="f16", d="f32", cta_group=group)
    rng = np.random.default_rng(group)
    a = pair_halves(random_matrix(rng, op.a.shape, op.types["a"]), op, "A")
    b = pair_halves(random_matrix(rng, (16, 32), op.types["b"]), op, "B")
    image, of_a = shared_tile(op, "A", a, swizzle=32)
    image, of_b = shared_tile(op, "B", b, swizzle=32, image=image)
    before = op.d.pack(random_matrix(rng, op.d.shape, op.types["d"]), address=8)
    after = before.copy()
    arguments = {
        "p_image": image,
        "image_words": image.shape[-1] // 4,
        "p_tensor": after,
        "d": 8,
        "a": of_a.encode(),
        "b": of_b.encode(),
        "enable_input_d": 1,
    }
    run(op, "multiply", arguments, shared=1024 + image.shape[-1])
    right = op.execute(before, of_a, of_b, smem=image, d=8, target="sm_100a")
    assert (after == right).all()
    assert (after != before).any()


def test_a_module_leaves_lanes_alone():
    """Options are parameters, too: a mask of lanes, and A in tensor memory."""
    op = fm.tcgen05("m128n16k16", a="f16", d="f32")
    rng = np.random.default_rng(7)
    image, of_b = shared_tile(op, "B", random_matrix(rng, (16, 16), op.types["b"]))
    before = op.a.pack(random_matrix(rng, op.a.shape, op.types["a"]), address=100)
    mask = np.array([1, 0, 0xFFFF0000, 2], np.uint32)
    after = before.copy()
    arguments = {
        "p_image": image,
        "image_words": image.shape[-1] // 4,
        "p_tensor": after,
        "d": 0,
        "a": 100,
        "b": of_b.encode(),
        "enable_input_d": 0,
        "p_disable_output_lane": mask,
    }
    run(
        op,
        "masked",
        arguments,
        shared=1024 + image.shape[-1],
        a_tensor=True,
        disable_output_lane=True,
    )
    right = op.execute(
        before,
        TensorAddress(0, 100),
        of_b,
        smem=image,
        enable_input_d=0,
        disable_output_lane=mask,
        target="sm_100a",
    )
    assert (after == right).all()
    assert not (after[0, :16]).any()
    assert after[1, :16].any()


def test_modules_load_and_store():
    rng = np.random.default_rng(3)
    memory = rng.integers(0, 1 << 32, (128, 512), np.uint32)
    ld = fm.instruction("tcgen05.ld.sync.aligned.16x256b.x2.b32")
    registers = np.zeros((128, 8), np.uint32)
    address = TensorAddress(16, 40)
    run(ld, "load", {"p_tensor": memory, "p_r": registers, "taddr": address.encode()})
    part = ld.fragments["R"]
    for warp in range(4):
        cells = part.unpack_bits(registers[32 * warp : 32 * warp + 32])
        lanes = slice(32 * warp + 16, 32 * warp + 32)
        assert (cells == memory[lanes, 40 : 40 + cells.shape[1]]).all()
    st = fm.instruction("tcgen05.st.sync.aligned.16x256b.x2.b32")
    other = np.zeros_like(memory)
    run(st, "store", {"p_tensor": other, "p_r": registers, "taddr": address.encode()})
    here = np.zeros((128, 512), bool)
    here[np.arange(128) % 32 >= 16, 40:56] = True
    assert (other == np.where(here, memory, 0)).all()


def test_a_module_copies():
    op = fm.instruction("tcgen05.cp.cta_group::1.32x128b.warpx4")
    image = np.arange(1024, dtype=np.uint32).view(np.uint8)
    memory = np.zeros((128, 512), np.uint32)
    word = Descriptor(512, 16, 128, 0, family="tcgen05").encode()
    arguments = {
        "p_image": image,
        "image_words": 1024,
        "p_tensor": memory,
        "taddr": 4,
        "s": word,
    }
    run(op, "copy", arguments, shared=1024 + image.size)
    rows = np.arange(128, 128 + 32 * 4).reshape(32, 4)
    assert (copies(op).unpack_bits(memory, address=4) == rows).all()
    assert (memory[:, 4:8] == np.tile(rows, (4, 1))).all()


@pytest.mark.parametrize(
    "words",
    [
        "alloc.cta_group::1.sync.aligned.b32",
        "dealloc.cta_group::2.sync.aligned.b32",
        "relinquish_alloc_permit.cta_group::1.sync.aligned",
        "wait::ld.sync.aligned",
        "commit.cta_group::1.mbarrier::arrive::one.b64",
        "commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64",
        "commit.cta_group::2.mbarrier::arrive::one.multicast::cluster.b64",
        "fence::after_thread_sync",
    ],
)
def test_other_modules_end(words):
    run(fm.instruction(f"tcgen05.{words}"), "alone", {})
