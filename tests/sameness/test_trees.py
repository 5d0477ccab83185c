"""Trees: the expression of one element, as text and JSON."""

import json

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall
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
