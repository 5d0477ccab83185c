"""What does the hardware compute?

Matrices of raw bits in, a matrix of raw bits out, exact to the last bit::

    model("sm_90", "f16", "f16", "f32", "f32", 16)    how a target does it
    multiply(a, b, c, model)                          the result
"""

from fragmenta.arithmetic.models import ARCHITECTURES, TOOLKIT, Model, model
from fragmenta.arithmetic.matrix import multiply

__all__ = ["ARCHITECTURES", "TOOLKIT", "Model", "model", "multiply"]
