"""Quantisation: numbers become small elements and scales, and back.

quantize(...)        numbers -> Quantized: elements, one scale for each block
dequantize(q)        the numbers that they stand for, exactly
report(X, q)         what quantisation cost
to_scaled_mm(q)      what PyTorch's scaled_mm takes; from_scaled_mm goes back

>>> import fragmenta as fm
>>> q = fm.quant.quantize("mxfp4", [[1.0, -2.7, 0.3, 12.0]])
>>> fm.quant.dequantize(q)
array([[ 1., -3.,  0., 12.]])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.base.door import homes, opener

_HOME = homes(
    {
        "reference.quant.quantization": "quantize dequantize Quantized",
        "reference.quant.reporting": "report Report",
        "reference.tensor_memory.scaled_mm": "to_scaled_mm from_scaled_mm ScaledMM",
    }
)
__all__ = sorted(_HOME)  # noqa: PLE0605 - the keys are strings

# The imports say to type checkers what the table says; a test holds the two together.
if TYPE_CHECKING:
    from fragmenta.reference.quant.quantization import Quantized as Quantized
    from fragmenta.reference.quant.quantization import dequantize as dequantize
    from fragmenta.reference.quant.quantization import quantize as quantize
    from fragmenta.reference.quant.reporting import Report as Report
    from fragmenta.reference.quant.reporting import report as report
    from fragmenta.reference.tensor_memory.scaled_mm import ScaledMM as ScaledMM
    from fragmenta.reference.tensor_memory.scaled_mm import (
        from_scaled_mm as from_scaled_mm,
    )
    from fragmenta.reference.tensor_memory.scaled_mm import to_scaled_mm as to_scaled_mm
else:
    __getattr__ = opener(__name__, _HOME)


def __dir__() -> list[str]:
    return __all__
