"""What the hardware computes, bit for bit.

Operands and results are matrices of raw bits, exact to the last bit::

    how = model("sm_90", "f16", "f16", "f32", "f32", 16)   how a target computes it
    multiply(a, b, c, how)                                 the result
    explain_steps(row, column, bits, how)                  one element, step by step
"""

from fragmenta.reference.arithmetic.matrix import multiply
from fragmenta.reference.arithmetic.models import Model, model
from fragmenta.reference.arithmetic.trace import Explanation, Step, Term, explain_steps

__all__ = [
    "Explanation",
    "Model",
    "Step",
    "Term",
    "explain_steps",
    "model",
    "multiply",
]
