"""PTX kernels are written in one place, which declares what they name."""

import re
from pathlib import Path

import pytest

import fragmenta as fm
from fragmenta.cuda.source import kernel, ptx, tiled
from fragmenta.cuda.source.kernel import KernelBuilder, ParameterType
from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa.instruction import Operand
from tests.own_code import strings

SOURCE = Path(fm.__file__).parent
X = Operand("x", ".b32", 2)


WRITTEN_ONCE = (
    *(".visible .entry", ".address_size", ".maxntid", ".shared .align"),
    *("cvta.to.global.u64 %base", "mov.u32 %thread, %tid.x", "ld.global.v4"),
    *("st.shared.v4.", "st.global"),
)


@pytest.mark.long
@pytest.mark.xdist_group("house")
def test_only_one_module_writes_kernels():
    texts = {path: "\n".join(strings(path)) for path in SOURCE.rglob("*.py")}
    for words in WRITTEN_ONCE:
        found = [
            path.relative_to(SOURCE).as_posix()
            for path, text in texts.items()
            if words in text
        ]
        # The room ptx reads such texts, coverage tries each opcode, a pool warms up, and
        # orders runs the body of a loop; the kernel that fills memory is the same
        # everywhere.
        rooms = (
            "ptx/",
            "launch/coverage",
            "launch/orders/loops",
            "frontends/pool/worker",
        )
        others = {path for path in found if not path.startswith(rooms)}
        assert others <= {"cuda/source/kernel.py", "cuda/tools/programs.py"}, words


def copied():
    made = KernelBuilder("copied")
    made.pointers(["x", "y", "image"])
    made.declare([X])
    made.image(256)
    made.tiles(32)
    made.point("image", "%tile", 256)
    made.copy("in", 256, 32)
    made.do("bar.sync 0;")
    made.load(X)
    made.store(X, "y")
    made.point("image", "%tile", 256)
    made.copy("out", 256, 32)
    return made.text()


def test_every_register_is_declared_once_and_used():
    text = copied()
    listed = re.findall(r"(?m)^ +\.reg \.\w+ (.*);$", text)
    declared = [name.partition("<")[0] for line in listed for name in line.split(", ")]
    assert len(declared) == len(set(declared)) > 10
    used = set(re.findall(r"%\w+", re.sub(r"(?m)^ +\.reg .*$", "", text)))
    assert {re.sub(r"^%x\d", "%x", name) for name in used} - {"%tid", "%ctaid"} == set(
        declared
    )


def test_a_kernel_of_copies_assembles_for_every_target():
    for target in ("sm_75", "sm_80", "sm_90a", "sm_120a"):
        version = assembler.newest_version()
        assert assembler.assemble(kernel.module([copied()], target, version), target)


def test_parameters_keep_their_order_and_their_types():
    made = KernelBuilder("one", {"n": ParameterType(".u32", "how many")})
    made.pointers(["d", "a"])
    made.do("ld.param.u32 %size, [n];")
    head = made.text().split("{")[0]
    assert re.findall(r"\.param (\S+ \w+)", head) == [".u32 n", ".u64 p_d", ".u64 p_a"]
    assert ".reg .u32 %size;" in made.text()


def test_wgmma_is_the_same_in_both_kernels():
    """One tile for ``to_ptx``, many for a GPU that is asked: one instruction."""
    op = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")
    for a_registers in (False, True):
        chosen = {"selector": 1, "imm_scale_b": -1}
        many = tiled.entry(op, "k", image_bytes=4096, a_registers=a_registers, **chosen)
        one = op.to_ptx(name="k", a_registers=a_registers, **chosen)
        values = ptx.immediates(op, chosen, a_registers=a_registers)
        said = ptx.statement(op, a_registers=a_registers, **values)
        assert said in many
        assert said in re.sub(r"\n +(?=%|\d)", " ", one).replace(",\n", ", ")
        for text in (many, one):
            assert text.index("fence.proxy.async") < text.index("wgmma.fence")


def test_immediates_are_checked_in_one_place():
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    assert ptx.immediates(op, {"trans_b": 1}) == {
        "imm_scale_a": 1,
        "imm_scale_b": 1,
        "trans_a": 0,
        "trans_b": 1,
    }
    for given, said in (
        ({"trans_b": 2}, "trans_b 2"),
        ({"sat": 1}, "no immediate sat"),
    ):
        for make in (
            lambda x: tiled.entry(op, "k", image_bytes=4096, **x),
            lambda x: op.to_ptx(name="k", **x),
        ):
            with pytest.raises(fm.Error, match=said):
                make(given)
