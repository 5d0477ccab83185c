"""A name has the meaning of the innermost block that declares it."""

from fragmenta.ptx.module import Address, Label, Register, Symbol
from tests.ptx.reading.texts import kernel

TWICE = """
{ .reg .b32 t; mov.b32 t, 1; AGAIN: @%p1 bra DONE; bra AGAIN; DONE: }
{ .reg .f32 t; mov.f32 t, 1.0; AGAIN: @%p1 bra DONE; bra AGAIN; DONE: }
bra OUT; { bra OUT; } OUT:
"""


def branches(found):
    return [
        each.operands[0].name for each in found.instructions if each.opcode == "bra"
    ]


def test_blocks_have_their_own_names():
    found = kernel(TWICE)
    assert branches(found) == ["DONE", "AGAIN", "DONE@2", "AGAIN@2", "OUT", "OUT"]
    assert found.labels == {"AGAIN": 1, "DONE": 3, "AGAIN@2": 4, "DONE@2": 6, "OUT": 8}
    inner = [each for each in found.registers if each.name == "t"]
    assert [each.type for each in inner] == ["b32", "f32"]
    assert inner[0].number != inner[1].number
    assert found.instructions[1].operands == (Label("DONE", "DONE"),)
    assert found.instructions[4].operands == (Label("DONE@2", "DONE"),)


def test_an_inner_register_hides_the_outer_one_from_its_declaration_on():
    found = kernel(
        "{ mov.b32 %r1, 1; .reg .f32 %r1; mov.f32 %r1, 1.0; } mov.b32 %r1, 2;"
    )
    first, second, third, _ = (
        each.operands[0] if each.operands else None for each in found.instructions
    )
    assert first == third
    assert (first.type, second.type) == ("b32", "f32")


def test_a_range_is_hidden_as_well():
    found = kernel(
        "mov.b32 %r1, 1; { .reg .b64 %r<2>; mov.b64 %r1, 1; mov.b32 %r3, 1; }"
    )
    types = [each.operands[0].type for each in found.instructions[:3]]
    assert types == ["b32", "b64", "b32"]


def test_variables_of_calls():
    call = "{ .param .b32 x; st.param.b32 [x+0], %r1; call quiet, (x); }\n"
    found = kernel(call * 3)
    assert [*found.variables] == ["x", "x@2", "x@3"]
    assert found.variables["x@2"].name == "x@2"
    stores = [each.operands[0] for each in found.instructions if each.opcode == "st"]
    assert stores == [
        Address(Symbol("x")),
        Address(Symbol("x@2")),
        Address(Symbol("x@3")),
    ]
    assert found.instructions[3].operands[1].items == (Symbol("x@2"),)


def test_a_variable_that_hides_one_of_the_module():
    found = kernel("mov.u64 %rd1, a; { .shared .u32 a; mov.u32 %r1, a; }")
    assert found.instructions[0].operands[1] == Symbol("a")
    assert found.instructions[1].operands[1] == Symbol("a@2")
    assert [*found.variables] == ["a@2"]


def test_labels_forward_backward_and_inward():
    found = kernel("{ N: trap; } bra N;")  # a label of a block is unknown outside
    assert found.instructions[1].operands == (Label("N@0", "N"),)
    assert found.labels == {"N": 0}
    assert kernel("L1: L2 : ret; add: bra add; quiet: bra quiet;").labels == {
        "L1": 0,
        "L2": 0,
        "add": 1,
        "quiet@2": 2,
    }
    assert kernel("bra %L; %L:").labels == {"%L": 1}


def test_what_is_not_declared():
    found = kernel(
        "mov.b32 %undeclared, nothing; @missing bra NOWHERE; mov.b64 {lost, %r1}, %rd1;"
        "mov.b32 %r9, %undeclared; ld.global.u32 %r1, [away+4];"
    )
    moved, branch, vector, again, load, _ = found.instructions
    assert moved.operands[0].type == ""
    assert moved.operands[1] == Symbol("nothing")
    assert branch.guard == Register("missing", "", 1)
    assert branch.operands == (Label("NOWHERE", "NOWHERE"),)
    assert "NOWHERE" not in found.labels
    assert vector.operands[0].items[0].name == "lost"
    assert vector.operands[0].items[0].type == ""
    assert again.operands[0].name == "%r9"
    assert again.operands[0].type == ""
    assert again.operands[1] == moved.operands[0]
    assert load.operands[1] == Address(Symbol("away"), 4)
    assert type(load.operands[1].base) is Symbol


def test_variables_of_a_block_are_unknown_outside():
    found = kernel("{ .param .b32 x; } st.param.b32 [x], 1; mov.u64 %rd1, x+4;")
    store, moved, _ = found.instructions
    assert store.operands[0] == Address(Symbol("x@0"))
    assert moved.operands[1] == Symbol("x@0", 4)


def test_used_before_it_is_declared():
    found = kernel("mov.b32 late, 1; mov.b32 %z1, 1; .reg .b32 %z<3>; mov.b32 %z1, 1;")
    first, second, third = (each.operands[0] for each in found.instructions[:3])
    assert first == Symbol("late")
    assert (second.type, third.type) == ("", "b32")


def test_a_register_may_have_the_name_of_a_special_one():
    found = kernel(".reg .u32 %laneid; mov.u32 %laneid, 1; mov.u32 %r1, %warpid;")
    assert isinstance(found.instructions[0].operands[0], Register)
    assert not isinstance(found.instructions[1].operands[1], Register)


def test_tables():
    found = kernel(
        "{ ts: .branchtargets A, B; brx.idx %r1, ts; A: B: }"
        "{ ts: .branchtargets C<2>; brx.idx %r1, ts; C0: C1: }"
        "ct: .calltargets quiet, next; call %rd1, ct;"
    )
    assert found.tables == {
        "ts": (Label("A", "A"), Label("B", "B")),
        "ts@2": (Label("C0", "C0"), Label("C1", "C1")),
        "ct": (Symbol("quiet"), Symbol("next")),
    }
    used = [each.operands[1] for each in found.instructions[:3]]
    assert used == [Symbol("ts"), Symbol("ts@2"), Symbol("ct")]


def test_prototypes():
    found = kernel(
        "p : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]);"
        "q: .callprototype _ ; r: .callprototype ()_ () .noreturn;"
        "call (%r1), %rd1, (%rd2, 0), p;"
    )
    assert [*found.prototypes] == ["p", "q", "r"]
    first = found.prototypes["p"]
    assert [each.size for each in first.parameters] == [8, 16]
    assert [each.type for each in first.returns] == ["b32"]
    assert found.prototypes["r"].directives == {"noreturn": ()}
    assert found.instructions[0].operands[3] == Symbol("p")
