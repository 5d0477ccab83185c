"""The loop over all fragments of a tile, for ``fragmenta shared``."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from fragmenta.commands.output import width
from fragmenta.cuda.source.loops import to_cuda
from fragmenta.errors import BadCall
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.loops import ldmatrix_loop
from fragmenta.reference.shared.matching import SIDES, Along
from fragmenta.reference.shared.matrix_loop import MatrixLoop
from fragmenta.reference.shared.placement import Order
from fragmenta.reference.shared.suggestions import Copy, suggest_swizzle
from fragmenta.reference.shared.swizzles import AnySwizzle


class CommandOutput(NamedTuple):
    """A result as text and as JSON."""

    text: str
    record: dict[str, object]


class WholeTile(NamedTuple):
    """A tile with the arguments of ``ldmatrix_loop``."""

    op: Instruction
    operand: str
    shape: tuple[int, int]
    order: Order
    pitch: int | None
    swizzle: AnySwizzle

    def loop(self, num: str | None, along: Along | None) -> MatrixLoop:
        """The loop that loads the tile."""
        return ldmatrix_loop(
            self.op,
            self.operand,
            tile=self.shape,
            order=self.order,
            pitch=self.pitch,
            swizzle=self.swizzle,
            num=num,
            along=along,
        )

    def suggested(
        self, num: str | None, along: Along | None, copy: Copy | None, cuda: bool
    ) -> CommandOutput:
        """Swizzles and paddings, the best first, or the function of the best."""
        found = suggest_swizzle(
            self.op,
            self.operand,
            tile=self.shape,
            order=self.order,
            copy=copy,
            num=num,
            along=along,
        )
        best = found.best.loop
        text = f"{self.op}\n{found}\n\nthe best of them:\n{indented(described(best))}"
        record = {**self._about(best), "suggestions": found.records()}
        if not cuda:
            return CommandOutput(text, record)
        source = to_cuda(best)
        return CommandOutput(source.rstrip("\n"), {**record, "source": source})

    def written(self, num: str | None, along: Along | None) -> CommandOutput:
        """The CUDA function."""
        loop = self.loop(num, along)
        source = to_cuda(loop)
        return CommandOutput(
            source.rstrip("\n"), {**self._about(loop), "source": source}
        )

    def _about(self, loop: MatrixLoop) -> dict[str, object]:
        return {
            "instruction": str(self.op),
            "operand": self.operand,
            "tile": self.shape,
            "order": self.order,
            "loop": loop_record(loop),
        }


_OWN = {
    "--suggest": "searches the swizzle and the pitch of what ldmatrix loads",
    "--language": "writes what ldmatrix loads",
}


def check_alone(option: str, **given: object) -> None:
    """Refuse what --suggest or --language would ignore."""
    for name, value in given.items():
        if value is not None:
            raise BadCall(
                f"{option} {_OWN[option]}; it does not go with --{name} {value}"
            )


def expressions(loop: MatrixLoop) -> str:
    """The element that a lane addresses in the first step, by the lane."""
    first = {name: 0 for name, n in loop.steps.items() if n > 1}
    found = loop.layout.to_cuda("holds", language="cuda", **{"U": 0, **first})
    sides = dict(zip(("row", "col"), SIDES[loop.operand], strict=True))
    return ", ".join(f"{sides[name]} = {text}" for name, text in found.items())


def described(loop: MatrixLoop) -> str:
    """The loop, and the addresses of its lanes."""
    head, *body = str(loop).splitlines()
    return "\n".join([head, *body, f"lane: {expressions(loop)}"])


def indented(text: str) -> str:
    """Lines of at most so many columns, indented."""
    lines = []
    for line in text.splitlines():
        lines += textwrap.wrap(
            line,
            width() - 4,
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent="  ",
        )
    return textwrap.indent("\n".join(lines), "  ")


def loop_record(loop: MatrixLoop) -> dict[str, object]:
    """The loop as JSON."""
    cost = loop.conflicts()
    return {
        "instruction": str(loop.move),
        "along": loop.along,
        "steps": loop.steps,
        "layout": str(loop.layout),
        "registers": str(loop.register_layout),
        "pitch": loop.memory.pitch,
        "swizzle": list(loop.memory.swizzle),
        "degree": cost.degree,
        "turns": cost.turns,
        "phases": cost.phases,
        "addresses": loop.addresses.tolist(),
    }
