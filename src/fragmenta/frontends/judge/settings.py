"""How candidates are judged: sizes, seeds, values, and what each of them may take."""

from __future__ import annotations

from collections.abc import Sequence

from fragmenta.base.arrays.checks import check_flags, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall
from fragmenta.frontends.judge.values import VALUES, check_values
from fragmenta.reference.isa.target import check_target


@dataclass(frozen=True)
class Settings:
    """How a candidate is judged.

    >>> Settings(seconds=10, values=("plain", "nan")).seconds
    10
    """

    target: str = "sm_90a"
    """The target that kernels are compiled for, and whose bits they return."""
    seconds: float = 60.0
    """How long a candidate may take, with compiling."""
    memory: int = 4 << 30
    """Bytes of memory that its process may take."""
    seeds: int = 2
    """Inputs of the given sizes that are tried."""
    values: Sequence[str] = tuple(VALUES)
    """The kinds of values that are tried."""
    shapes: bool = True
    """Whether other sizes are tried."""
    strides: bool = True
    """Whether inputs with gaps and transposed inputs are tried."""
    schedules: bool = True
    """Whether other orders of asynchronous work are tried."""
    elements: int = 1 << 15
    """Elements of the inputs, and of the outputs; larger sizes are halved."""
    products: int = 1 << 20
    """Products of matrices in a call; larger sizes are halved."""

    def __post_init__(self) -> None:
        check_target(self.target)
        check_values(self.values)
        check_flags(shapes=self.shapes, strides=self.strides, schedules=self.schedules)
        for name in ("memory", "seeds", "elements", "products"):
            given = getattr(self, name)
            if not is_whole(given) or given < 1:
                raise BadCall(f"{name} is a whole number from 1; given {given!r}")
        if not isinstance(self.seconds, int | float) or not self.seconds > 0:
            raise BadCall(f"seconds is a number above 0; given {self.seconds!r}")
