"""Products in the page of a recorded run: its elements and words are Python's."""

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.source.emit import to_ptx
from fragmenta.reference.execution.tcgen05 import operands
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.tensor_fragment import TensorAddress
from tests.debugging.test_matrices import TWICE
from tests.ptx import tensor_kernels
from tests.ptx.test_tensor_kernels import PAIRS, PRODUCTS, A, D, _case, _work
from tests.thinning import THOROUGH
from tests.view.test_explorer_page import EXPLORER, need

OPS = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale"
    ".scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
]
"""A kind each: dense, sparse, integers, 64 bits, scales."""


def answers(replay, path, questions):
    """What the page's own code says about a recording."""
    replay.to_html(path)
    done = subprocess.run(
        ["node", "tests/replay/evaluate.mjs", str(path)],
        cwd=EXPLORER,
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def numbers(op, name, rng):
    """Some elements of an operand; of all sizes, so that bits are lost."""
    part = op.fragments[name]
    if part.dtype.is_integer:
        size = 1 << min(8, part.dtype.bits) - 1
        return rng.integers(0, size, part.shape).astype(part.dtype.storage)
    if part.dtype.bits < 16:
        bits = rng.integers(0, 1 << part.dtype.bits - 1, part.shape)
        return bits.astype(np.uint8).view(part.dtype.storage)
    sizes = 2.0 ** rng.integers(-12, 5, part.shape)
    return (rng.standard_normal(part.shape) * sizes).astype(part.dtype.storage)


def launched(op, seed=3):
    """A recorded launch of one instruction, and its matrices."""
    rng = np.random.default_rng(seed)
    given = {name: numbers(op, name, rng) for name in "ABC"}
    words = {name: op.fragments[name].pack(given[name]) for name in "ABC"}
    if op.sparse:
        whole = rng.standard_normal((op.shape[0], op.shape[2]))
        kept = fm.sparse.prune(op, whole.astype(given["A"].dtype))
        given["sparse"] = kept = fm.sparse.compress(op, kept)
        given["A"], words["A"] = kept.values, op.a.pack(kept.values)
        words["metadata"] = op.metadata.pack(kept.indices)
    for name in ("scale_A", "scale_B"):
        if name in op.fragments:
            given[name] = numbers(op, name, rng)
            words[name] = op.fragments[name].pack(given[name])
    (kernel,) = ptx.parse(to_ptx(op)).kernels.values()
    d = np.zeros((32, op.d.registers), words["C"].dtype)
    order = ["A", "B", "C", "metadata", "scale_A", "scale_B"]
    arguments = [d, *(words[name] for name in order if name in words)]
    result = kernel.launch(1, 32, arguments, target=op.requires.targets[0], replay=True)
    return result.replay(), given, op.d.unpack(d)


def step_of(replay, opcode):
    (site,) = [n for n, each in enumerate(replay.sites) if each.opcode == opcode]
    return int(np.flatnonzero(replay.steps.site == site)[0])


def bits_of(values):
    array = np.ascontiguousarray(values)
    return [str(each) for each in array.view(f"u{array.itemsize}").ravel().tolist()]


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize("name", OPS if THOROUGH else OPS[1::3])
def test_elements_and_explanations_of_mma_are_pythons(name, tmp_path):
    need("whether the replay page explains a product as Python does")
    op = fm.instruction(name)
    replay, given, d = launched(op)
    step = step_of(replay, name)
    elements = [0, d.size // 3, d.size - 1]
    (said,) = answers(replay, tmp_path / "page.html", {"products": [[step, elements]]})[
        "products"
    ]
    assert said["name"] == name
    for operand in ("A", "B", "C", "scale_A", "scale_B"):
        if operand in given:
            assert said[operand] == bits_of(given[operand]), operand
    assert said["recorded"] == said["D"] == bits_of(d)
    more = {"scale_a": given.get("scale_A"), "scale_b": given.get("scale_B")}
    more = {name: value for name, value in more.items() if value is not None}
    operands = [given.get("sparse", given["A"]), given["B"], given["C"]]
    for index, text in zip(elements, said["explained"], strict=True):
        row, col = divmod(index, d.shape[1])
        told = op.explain(*operands, row=row, col=col, target=replay.target, **more)
        assert text == str(told)


WGMMA = [
    ("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", 128, 0, "lazy"),
    ("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16", 32, 1, "eager"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16", 64, 0, "lazy"),
    ("wgmma.mma_async.sp.sync.aligned.m64n8k64.f16.e4m3.e4m3", 0, 0, "lazy"),
]
"""An instruction, the swizzle of B, whether B is MN-major, the schedule."""
IMAGE = 1 << 15


def chained(op, swizzle, trans, schedule):
    """A recorded launch of three products in a row, without a wait between them."""
    rng = np.random.default_rng(swizzle)
    text = to_ptx(op)
    first = text.index("    wgmma.mma_async")
    product = text[first : text.index(";", first) + 1]
    changed = product.replace("_d, 1, 1", "_d, 1, -1").replace("0, 0;", f"0, {trans};")
    again = changed.replace("%scale_d", "1")
    text = text.replace(product, f"{changed}\n{again}\n{again}")
    (kernel,) = ptx.parse(text).kernels.values()
    kind = op.types["a"]
    size = IMAGE // kind.storage.itemsize
    image = (rng.standard_normal(size) * 2.0 ** rng.integers(-6, 3, size)).astype(
        kind.storage
    )
    d = rng.standard_normal(op.d.shape).astype(op.d.dtype.storage)
    words = op.d.pack(d)
    descriptors = [
        fm.shared.Descriptor(start=0, leading=2048, stride=1024, swizzle=0),
        fm.shared.Descriptor(start=1 << 14, leading=1024, stride=2048, swizzle=swizzle),
    ]
    arguments, kept = [words], None
    if op.sparse:
        whole = rng.standard_normal((op.shape[0], op.shape[2])).astype(kind.storage)
        kept = fm.sparse.compress(op, fm.sparse.prune(op, whole))
        arguments.append(op.metadata.pack(kept.indices))
    arguments += [*(each.encode() for each in descriptors), image, IMAGE // 4, 0]
    launch = kernel.launch(
        1, 128, arguments, shared=IMAGE, schedule=schedule, replay=True
    )
    return launch.replay(), descriptors[1], image, kept, op.d.unpack(words)


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize(
    ("name", "swizzle", "trans", "schedule"), WGMMA if THOROUGH else WGMMA[:1]
)
def test_products_of_a_warpgroup_are_pythons(name, swizzle, trans, schedule, tmp_path):
    need("whether the replay page follows the products of a warpgroup")
    op = fm.instruction(name)
    replay, of_b, image, kept, d = chained(op, swizzle, trans, schedule)
    warp = 2
    steps = [
        step
        for step in replay.steps_of_warp(warp).tolist()
        if replay.sites[replay.steps.site[step]].opcode == name
    ]
    assert len(steps) == 3
    asked = {"products": [[step, [5]] for step in steps]}
    said = answers(replay, tmp_path / "page.html", asked)["products"]
    k, n = op.shape[2], op.shape[1]
    major = "mn" if trans else "k"
    places = of_b.address(np.arange(n), np.arange(k)[:, None], op.types["b"], major)
    b = image.view(np.uint8)[places[..., None] + np.arange(image.itemsize)]
    b = b.reshape(k, -1).copy().view(image.dtype)
    # The first product begins with zero, the next ones with what is there.
    c = np.zeros(op.d.shape, op.d.dtype.storage)
    for each in said:
        assert each["B"] == bits_of(-b)
        assert each["C"] == bits_of(c)
        words = np.array(each["A"], np.uint64).astype(f"u{image.itemsize}")
        a = words.view(image.dtype).reshape(64, -1)
        a = replace(kept, values=a) if kept else a
        told = op.explain(a, -b, c, row=5 // n, col=5 % n, target="sm_90a")
        assert each["explained"] == [str(told)]
        c = np.array(each["D"], np.uint64).astype(f"u{c.itemsize}").view(c.dtype)
        c = c.reshape(op.d.shape)
    assert said[-1]["recorded"] == said[-1]["D"] == bits_of(d)
    assert said[-1]["D"] != said[-2]["D"]


TABLES = {"one": PRODUCTS, "pair": PAIRS}
IN_TENSOR_MEMORY = [
    (table, number, inside)
    for table, text in TABLES.items()
    for number in range(len(read(text)))
    for inside in (False, True)
]
"""Tables of kernels of ``tcgen05.mma``, a line of one, whether A is in tensor memory."""
SOME = [("one", 7, False), ("pair", 2, True)]
"""Scales and padded elements; a pair of CTAs, and a sparse A."""


def in_tensor_memory(table, number, inside, schedule="lazy"):
    """A recorded launch of a ``tcgen05.mma``, its memories, and tensor memory after."""
    lines = read(TABLES[table])
    case = _case(lines[number])
    after = case.memory.copy()
    launch = tensor_kernels.launch(
        _work(TABLES[table]),
        number + inside * len(lines),
        case.shared,
        after,
        group=case.op.cta_group,
        a=case.a,
        b=case.b,
        a_tmem=A,
        idesc=case.op.idesc,
        schedule=schedule,
        replay=True,
        **case.given,
    )
    return case, launch.replay(), after


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize(
    ("table", "number", "inside"), IN_TENSOR_MEMORY if THOROUGH else SOME
)
def test_products_in_tensor_memory_are_pythons(table, number, inside, tmp_path):
    need("whether the replay page follows a product in tensor memory")
    line = read(TABLES[table])[number]
    case, replay, after = in_tensor_memory(table, number, inside)
    op = case.op
    step = int(np.flatnonzero(replay.steps.site == site_of(replay, "tcgen05.mma"))[-1])
    elements = [0, 5 + op.shape.n * (op.shape.m - 1)]
    asked = {"products": [[step, elements]]}
    (said,) = answers(replay, tmp_path / "page.html", asked)["products"]
    assert said["name"] == str(op)
    where = TensorAddress(0, A) if inside else case.a
    given = {k: v for k, v in case.options.items() if k != "disable_output_lane"}
    given["enable_input_d"] = 1
    wanted = operands(op, case.memory, where, case.b, smem=case.shared, **given)
    assert said["A"] == bits_of(wanted.a)
    assert said["recorded"] == bits_of(op.d.unpack_bits(after, address=D))
    if line["more"] == "zero":  # the page says that it does not draw this
        assert said["explained"] == [None, None]
        return
    assert said["B"] == bits_of(wanted.b)
    assert said["C"] == bits_of(wanted.c)
    for name, bits in (("scale_A", wanted.scale_a), ("scale_B", wanted.scale_b)):
        assert said.get(name, []) == ([] if bits is None else bits_of(bits))
    explained(op, said, wanted, elements, line["more"])


def explained(op, said, bits, elements, more):
    """Elements of D are explained in Python's words, or it is said why not."""
    kept = None
    a, b, c = (
        op.types[name].decode(each) for name, each in zip("abd", bits, strict=False)
    )
    if op.sparse:
        codes = np.array(said["codes"], np.uint8).reshape(op.metadata.shape)
        kept = fm.sparse.Compressed(a, codes, op.metadata.granularity)
    scales = {
        name: getattr(op, name).dtype.decode(getattr(bits, name))
        for name in ("scale_a", "scale_b")
        if op.scale_vec
    }
    for index, text in zip(elements, said["explained"], strict=True):
        row, col = divmod(index, op.shape.n)
        if more == "lanes" and row == 0:  # its lane is not written
            assert text is None
            continue
        told = op.explain(kept or a, b, c, row=row, col=col, target="sm_100a", **scales)
        assert text == str(told)
    if more != "lanes":
        assert said["D"] == said["recorded"]


UNKNOWN = {
    "ashift": ("f16.ashift", "", {"shape": "m64n8k16", "a": "f16", "d": "f32"}),
    "lut": (
        "f8f6f4.decompress::lut::b",
        "[%r8+16],",
        {"shape": "m64n8k32", "a": "e4m3", "b": "e2m1", "d": "f32"},
    ),
}
"""Products that nobody can compute: kind, operands besides, the descriptor's shape."""


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize("which", UNKNOWN if THOROUGH else ["ashift"])
def test_a_product_that_is_not_known_says_so(which, tmp_path):
    """Its operands are drawn as they lie in memory; D is not computed."""
    need("what the replay page draws of a product that nobody can compute")
    kind, more, shape = UNKNOWN[which]
    op = fm.tcgen05(**shape)
    lanes = ", ".join(["%t"] * 8)
    first = TWICE.index("    @%p1 tcgen05.mma")
    last = TWICE.index("    @%p1 tcgen05.commit")
    work = f"""    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r8], {{{lanes}}};
    tcgen05.wait::st.sync.aligned;
    @%p1 tcgen05.mma.cta_group::1.kind::{kind} [%r8+8], [%r8], %l5, {more} %i, %p3;
"""
    text = TWICE[:first] + work + TWICE[last:]
    if which == "lut":
        text = text.replace("8.8", "9.4").replace("sm_100a", "sm_107a")
    (kernel,) = ptx.parse(text).kernels.values()
    tiles = np.zeros(2560, np.uint8)
    b = fm.shared.Descriptor(start=0, leading=128, stride=256, swizzle=0).encode()
    with pytest.raises(ptx.KernelFault, match="not known") as stopped:
        kernel.launch(1, 32, [tiles, b, b, op.idesc], replay=True)
    replay = stopped.value.replay()
    step = len(replay) - 1
    (said,) = answers(replay, tmp_path / "page.html", {"products": [[step, [0]]]})[
        "products"
    ]
    cells = np.full((128, 512), 0x7FFF7FFF, np.uint32)  # what nobody has written
    cells[:32, :8] = np.arange(32)[:, None]
    assert said["A"] == bits_of(op.a.unpack_bits(cells, address=0))
    assert said["explained"] == [None]
    assert said["recorded"] is None
    assert (said.get("B") is None) == (which == "lut")
    assert "is not known without a GPU" in said["unknown"]


def site_of(replay, opcode):
    """The one instruction of a kernel that begins so and was run."""
    run = {int(each) for each in np.unique(replay.steps.site)}
    (site,) = [n for n in run if replay.sites[n].opcode.startswith(opcode)]
    return site
