"""Fast parsing of parameters: flags, words and numbers.

Typer converts parameters with a validation library that takes longer to import than
most commands take to run.  Parameters of plain types are converted here instead.
Others are left to Typer, and so are all if the attributes used here change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

from fragmenta.errors import nearest, one_of


class Command(TyperCommand):
    """A command whose plain parameters are parsed here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace the converters of plain parameters, then parse."""
        read_plainly(self.get_params(ctx))
        return super().parse_args(ctx, args)


def read_plainly(parameters: Iterable[Any]) -> None:
    """Let :class:`_ParameterConverter` convert parameters of plain types."""
    for parameter in parameters:
        declared = getattr(parameter, "type_descriptor", None)
        annotation = getattr(declared, "annotation", None)
        info = getattr(declared, "parameter_info", None)
        limited = any(getattr(info, limit, None) for limit in ("min", "max", "parser"))
        unset = getattr(parameter, "_runtime_param", parameter) is None
        if unset and _plain(annotation) and not limited:
            parameter._runtime_param = _ParameterConverter(annotation)


def _plain(annotation: Any) -> bool:
    if get_origin(annotation) is list:
        return _plain(get_args(annotation)[0])
    return annotation in (bool, str, int, float) or get_origin(annotation) is Literal


class _ParameterConverter:
    """Converts one parameter in place of Typer."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert the text of a parameter; Typer calls this."""
        if get_origin(self.annotation) is not list:
            return None if value is None else _read(value, self.annotation, param)
        (each,) = get_args(self.annotation)
        return [_read(item, each, param) for item in value or ()]


def _read(given: Any, annotation: Any, parameter: Any) -> Any:
    if annotation in (int, float):
        try:
            return annotation(given)
        except ValueError:
            kind = "a whole number" if annotation is int else "a number"
            wrong = f"{given} is not {kind}"
            raise typer.BadParameter(wrong, param=parameter) from None
    allowed = get_args(annotation)  # of a Literal; nothing for the others
    if allowed and given not in allowed:
        wrong = f"{given} is not {one_of(allowed)}{nearest(given, allowed)}"
        raise typer.BadParameter(wrong, param=parameter)
    return given
