"""Trees: the expression of one element, as text, as JSON and as a picture."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall
from fragmenta.inspect.sameness import trees
from fragmenta.inspect.sameness.drawing import PAGE
from fragmenta.inspect.sameness.telling import Node, brief
from fragmenta.inspect.sameness.tree import Tree
from tests.sameness.kernels import call
from tests.sameness.test_invariance import product

X = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)


def tree(name, element=2):
    y = np.zeros(32, np.float32)
    made = call(name, X, y)
    result = made.kernel.launch(1, 32, [X, y], watch=False)
    return result.tree(y, element)


def test_a_chain_and_a_tree_are_told_apart():
    assert str(tree("chain")).splitlines() == [
        "y[2] =",
        "  add.rn.f32   (line 13)",
        "    add.rn.f32   (line 13)",
        "      add.rn.f32   (line 13)",
        "        x[2, 0]",
        "        x[2, 1]",
        "      x[2, 2]",
        "    x[2, 3]",
    ]
    nested = tree("tree").root
    assert [each.name for each in nested.operands] == ["add.rn.f32"] * 2


def test_contraction_is_part_of_an_expression():
    assert tree("contracted").root.name == "fma.rn.f32"
    assert tree("apart").root.name == "add.rn.f32"


def test_a_moved_value_is_its_source():
    assert str(tree("compared")).splitlines()[1].strip() in ("x[2, 0]", "x[2, 1]")


def test_steps_of_tensor_cores():
    made = product("whole", "sm_80")
    d = made.arguments[2]
    result = made.kernel.launch(1, 32, made.arguments, watch=False)
    found = result.tree(d, (0, 0))
    root = found.root
    assert root.kind == "product"
    assert [len(step) for step in root.steps] == [8, 8]
    row = {pair[0].index[0] for step in root.steps for pair in step}
    assert row == {0, 1, 2, 3}  # lanes 0 to 3 hold row 0 of A
    assert root.operands[0].kind == "constant"
    assert "2 steps of 8 products; 24 bits below" in str(found)


def test_json_has_every_node_once():
    found = json.loads(json.dumps(tree("chain").to_dict()))
    assert found["output"], found["element"] == ("y", [2])
    assert len(found["nodes"]) == 7
    assert found["nodes"][found["root"]]["name"] == "add.rn.f32"


def test_what_has_no_tree_is_refused():
    y = np.zeros(32, np.float32)
    result = call("chain", X, y).kernel.launch(1, 32, [X, y], watch=False)
    with pytest.raises(BadCall, match="no element"):
        result.tree(y, 32)
    with pytest.raises(BadCall, match="none of the arguments"):
        result.tree(np.zeros(3), 0)
    with pytest.raises(BadCall, match="only the result"):
        ptx.Result({}, {}).tree(y, 0)


def test_the_minus_of_a_difference_has_its_operand():
    """A sub is an addition of a negative number."""
    made = call("", X, np.zeros(32, np.float32), "sub.f32 %f9, %f1, %f2;")
    y = made.arguments[1]
    result = made.kernel.launch(1, 32, made.arguments, watch=False)
    names = [each.name for each in result.tree(y, 0).nodes()]
    assert sorted(names) == ["add.rn.f32", "neg", "x[0, 0]", "x[0, 1]"]


# ── pictures ────────────────────────────────────────────────────────────────


def size(svg):
    found = re.search(r'width="(\d+)" height="(\d+)"', svg)
    return tuple(map(int, found.groups()))


def texts(svg):
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [each.text for each in found]


def test_a_picture_has_a_box_for_each_node():
    found = tree("tree")
    assert [each for each in texts(found.to_svg()) if each.startswith("x[2")] == [
        f"x[2, {n}]" for n in range(4)
    ]
    assert found.to_svg() == found._repr_svg_()
    assert "prefers-color-scheme: dark" in found.to_svg()


def test_where_two_trees_part_is_marked_in_both():
    found = ptx.same(call("chain", X, np.zeros(32, np.float32)), call("tree", X))
    picture = found.to_svg()
    assert picture.count('<rect class="x"') == 2
    assert "a red frame: here the expressions part" in texts(picture)
    equal = ptx.same(call("chain", X), call("turned", X))
    with pytest.raises(BadCall, match="nothing to draw"):
        equal.to_svg()


def balanced(depth, first=0, step=1):
    """A sum of 2**depth inputs in pairs."""
    if not depth:
        return Node("input", f"x[{first}]", array="x", index=(first,))
    halves = (balanced(depth - 1, first + n * step, 2 * step) for n in range(2))
    return Node("operation", "add.rn.f32", operands=tuple(halves))


def mixed(depth):
    """A sum in which no part is like another."""
    if not depth:
        return Node("input", "x[0]", array="x", index=(0,))
    halves = (mixed(depth - 1), Node("operation", f"op{depth}", operands=(mixed(0),)))
    inner = Node("operation", f"add{depth}", operands=halves)
    return Node("operation", f"mul{depth}", operands=(inner, inner))


@pytest.mark.parametrize(
    "root", [balanced(2), balanced(10), mixed(30)], ids=["few", "many", "deep"]
)
def test_every_picture_fits_a_page(root):
    """What has 2**30 leaves, too."""
    picture = Tree("y", (0,), root).to_svg()
    width, height = size(picture)
    assert width <= PAGE[0] + 40
    assert height <= PAGE[1] + 100
    assert len(Tree("y", (0,), root).__str__().splitlines()) < 70


def test_what_is_regular_is_folded():
    said = str(Tree("y", (0,), balanced(6)))
    assert "the same of x[1], …, x[63]" in said
    assert len(said.splitlines()) < 24
    assert "x[63]" in "".join(texts(Tree("y", (0,), balanced(6)).to_svg()))


# A block reads a row; blocks that wait for all others read one, too.
BLOCKS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry rows(.param .u64 x, .param .u64 y, .param .u64 count)
{{
    .reg .b32 %r<6>; .reg .b64 %rd<9>; .reg .f32 %f<4>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [count];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd4, %r1, 8; mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd1, %rd4; add.s64 %rd7, %rd2, %rd5;
    {meets}
    ld.global.v2.f32 {{%f1, %f2}}, [%rd6];
    add.f32 %f3, %f1, %f2;
    st.global.f32 [%rd7], %f3;
    ret;
}}"""
MEETS = """
    atom.global.add.u32 %r2, [%rd3], 1;
again:
    ld.volatile.global.u32 %r3, [%rd3];
    setp.lt.u32 %p, %r3, 16; @%p bra again;"""


@pytest.mark.parametrize("meets, part", [("", (11, 12)), (MEETS, (0, 1))])
def test_a_tree_needs_the_block_that_makes_the_element(monkeypatch, meets, part):
    """Blocks that wait for others run all, whatever was asked for."""
    runs = []

    class Noted(trees.LoggedExpressions):
        def finish(self, watch):
            super().finish(watch)
            runs.append((self.part, int(sum(map(len, self.log)))))

    monkeypatch.setattr(trees, "LoggedExpressions", Noted)
    kernel = ptx.parse(BLOCKS.format(meets=meets)).kernels["rows"]
    x, y = np.ones((16, 2), np.float32), np.zeros(16, np.float32)
    result = kernel.launch(16, 1, [x, y, np.zeros(1, np.uint32)], watch=False)
    found = result.tree(y, 11)
    assert brief(found.root) == "add.rn.f32(x[11, 0], x[11, 1])"
    ((asked, words),) = runs
    assert asked == part
    kernel.launch(1, 1, [x, y, np.full(1, 16, np.uint32)], watch=False).tree(y, 0)
    alone = runs[1][1]
    assert words == (16 * alone if meets else alone)
