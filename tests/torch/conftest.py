"""What the tests of PyTorch share."""

import sys

import pytest


@pytest.fixture(autouse=True)
def forgetful():
    """What one test compiled counts for no other: PyTorch compiles a function 8 times."""
    yield
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
