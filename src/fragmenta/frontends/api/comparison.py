"""Comparisons of instructions as users have them, with their plot."""

from __future__ import annotations

from fragmenta.frontends.api.returning import returning
from fragmenta.frontends.api.texts import Svg
from fragmenta.reference.execution import compare as comparison


class Compared(comparison.Compared):
    """The errors of instructions on targets; ``str()`` is a table.

    >>> import fragmenta as fm
    >>> told = fm.compare("mma.m16n8k16.f32.f16", "sm_90", k=64)
    >>> len(told.rows), told.rows[0].target
    (1, 'sm_90')
    """

    def to_svg(self) -> Svg:
        """A plot of the mean relative error over k; see
        :mod:`fragmenta.inspect.view.plot`.

        >>> import fragmenta as fm
        >>> fm.compare("mma.m16n8k16.f32.f16", k=64).to_svg()[:4]
        '<svg'
        """
        from fragmenta.inspect.view.plot import error_plot

        return Svg(error_plot(self))

    def _repr_svg_(self) -> str:
        return self.to_svg()


compare = returning(comparison.compare, Compared.of, "Compared", __name__)
