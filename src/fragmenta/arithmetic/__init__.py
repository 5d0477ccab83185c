"""What does the hardware compute?

Matrices of raw bits in, a matrix of raw bits out, exact to the last bit::

    how = model("sm_90", "f16", "f16", "f32", "f32", 16)   a target's way
    multiply(a, b, c, how)                                 the result
    explain_steps(row, column, bits, how)                  one element of it
"""

from fragmenta.arithmetic.matrix import multiply
from fragmenta.arithmetic.models import Model, model
from fragmenta.arithmetic.trace import Explanation, Step, Term, explain_steps

__all__ = [
    "Explanation",
    "Model",
    "Step",
    "Term",
    "explain_steps",
    "model",
    "multiply",
]
