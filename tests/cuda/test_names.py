"""Names in emitted sources: identifiers, and nothing that could be code."""

import pytest

import fragmenta as fm
from fragmenta.cuda.source import emit

OP = fm.find("movmatrix")
WRONG = (
    "f() { } void g",
    "a b",
    "",
    "9lives",
    "a-b",
    "a;b",
    "a\nb",
    "größe",
    "_",
    "x" * 2000,
    "a//b",
    5,
    b"f",
    "a.b",
    "%f",
    "a::b",
)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_identifier_is_refused(name):
    for write in (OP.to_cuda, OP.to_ptx):
        with pytest.raises(fm.errors.BadCall, match="name is an identifier"):
            write(name=name)


@pytest.mark.parametrize("name", ["transpose", "_f", "F2_x"])
def test_identifiers_are_taken(name):
    assert f"void {name}(" in OP.to_cuda(name=name)
    assert f".entry {name}(" in OP.to_ptx(name=name)


def test_a_namespace_is_identifiers_too():
    assert "namespace a::b {" in emit.header([OP], namespace="a::b")
    for wrong in ("a {", "", "a::", "::a", "a b"):
        with pytest.raises(fm.errors.BadCall, match="namespace is an identifier"):
            emit.header([OP], namespace=wrong)
