"""The files that compilers write are read completely.

``files`` has nvcc's and Triton's output for kernels written for this test; the CUDA
sources stand beside it.
"""

import re

import pytest

from fragmenta.ptx.module import Address, Label, OperandGroup, Symbol
from tests.ptx.reading.texts import FILES, loaded, stored

NAMES = sorted(path.name for path in FILES.iterdir() if ".ptx" in path.suffixes)
_OPCODE = re.compile(
    r"(?:^|[;{}]|\w\s*:(?!:))\s*(?:@!?[%\w]+\s+)?([a-z]\w*)(?=[\s.;])(?!\s*:)",
    re.MULTILINE,
)


def opcodes(text):
    """The opcodes of a text, found without a reader: words at the start of statements."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\.section\s+\S+\s*\{[^}]*\}", "", text)
    body = text[text.index("{") :]
    # What goes on over several lines begins with a word, too.
    body = re.sub(r"[(,]\s*\n\s*", "(", body)
    return [word for word in _OPCODE.findall(body) if word not in ("param", "reg")]


@pytest.mark.parametrize("name", NAMES)
def test_every_instruction_is_there(name):
    module = loaded(name)
    read = [each.opcode for f in module.functions.values() for each in f.instructions]
    assert read == opcodes(stored(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_known(name):
    module = loaded(name)
    for function in module.functions.values():
        assert all(each.type for each in function.registers)
        known = {*module.variables, *module.functions, *function.variables}
        known |= {*function.tables, *function.prototypes}
        known |= {each.name for each in (*function.parameters, *function.returns)}
        for instruction in function.instructions:
            for operand in instruction.operands:
                items = (
                    operand.items if isinstance(operand, OperandGroup) else (operand,)
                )
                for item in items:
                    base = item.base if isinstance(item, Address) else item
                    if isinstance(base, Symbol):
                        assert base.name in known
                    if isinstance(base, Label):
                        assert base.name in function.labels


@pytest.mark.parametrize("name", NAMES)
def test_lines_point_at_instructions(name):
    lines = stored(name).splitlines()
    for function in loaded(name).functions.values():
        for each in function.instructions:
            rest = lines[each.line - 1][each.column - 1 :]
            assert rest.startswith("@" if each.guard else each.opcode)


def test_sources_of_nvcc_and_triton():
    mixed = loaded("mixed.ptx").functions["mixed"].instructions
    assert {each.source.file for each in mixed if each.source} == {
        "mixed.cu",
        "cuda_fp16.hpp",
        "sm_20_atomic_functions.hpp",
    }
    triton = loaded("triton_matmul_80.ptx.xz").functions["matmul"].instructions
    assert {each.source.file for each in triton if each.source} >= {"tk.py"}


def test_the_modules_themselves():
    mixed = loaded("mixed.ptx")
    assert mixed.variables["weights"].initial.hex().startswith("0000803f00000040")
    assert mixed.variables["middle"].references == ((0, Symbol("grid", 12)),)
    assert mixed.variables["counter"].attributes == ("managed",)
    assert mixed.variables["dynamic"].elements is None
    assert mixed.functions["mixed"].directives["maxntid"] == (256, 1, 1)
    assert len(mixed.functions["mixed"].prototypes) == 1
    inline = loaded("inline.ptx").functions["waits"]
    assert [*inline.labels] == [
        "AGAIN",
        "DONE",
        "AGAIN@2",
        "DONE@2",
        "AGAIN@3",
        "DONE@3",
    ]
    hopper = loaded("hopper_gemm.ptx.xz")
    assert hopper.target == "sm_90a"
    opened = loaded("triton_matmul_100.ptx.xz").functions["matmul"]
    assert any(each.opcode == "tcgen05" for each in opened.instructions)
