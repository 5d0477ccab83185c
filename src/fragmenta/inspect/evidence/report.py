"""The report of a verification."""

from __future__ import annotations

from dataclasses import asdict

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools import device

SHOWN = 3
"""Programs that the text of a report contains; JSON has them all."""


@dataclass(frozen=True)
class First:
    """The first difference of an instruction, in full."""

    where: str
    gpu: str
    cpu: str
    program: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of one instruction."""

    instruction: str
    family: str
    types: str
    trials: int
    elements: int
    differing_bits: int = 0
    differing_elements: int = 0
    first: First | None = None


@dataclass(frozen=True)
class VerificationReport:
    """What was verified, on which GPU, and the outcomes."""

    made: dict[str, str]
    seed: int
    seconds: float
    outcomes: list[Outcome]

    @property
    def differing(self) -> list[Outcome]:
        """The instructions of which some bit differs."""
        return [each for each in self.outcomes if each.differing_bits]

    def summary(self) -> str:
        """One line."""
        elements = sum(each.elements for each in self.outcomes)
        bits = sum(each.differing_bits for each in self.outcomes)
        count = len(self.outcomes)
        how = (
            "no bit differs"
            if not bits
            else f"{bits} bits differ, in {len(self.differing)} instructions"
        )
        what = f"{count} instruction{'s' * (count != 1)}"
        return f"{what}, {elements:,} elements of D: {how}"

    def to_text(self) -> str:
        """A table of all instructions, and programs for the first differences."""
        heading = ("trials", "elements", "bits", "instruction, first difference")
        rows = [heading]
        for each in self.outcomes:
            first = each.first
            shown = (
                f"  {first.where}: GPU {first.gpu}, CPU {first.cpu}" if first else ""
            )
            rows.append(
                (
                    str(each.trials),
                    str(each.elements),
                    str(each.differing_bits),
                    each.instruction + shown,
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [device.describe(self.made), ""]
        for row in rows:
            numbers = (f"{x:>{w}}" for x, w in zip(row, widths, strict=False))
            lines.append("  ".join([*numbers, row[3]]))
        lines += ["", f"{self.summary()} ({self.seconds:.0f} s, seed {self.seed})"]
        programs = [each.first.program for each in self.differing if each.first]
        for text in programs[:SHOWN]:
            lines += ["", text.rstrip()]
        if len(programs) > SHOWN:
            lines += ["", f"{len(programs) - SHOWN} more programs with --json."]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Everything, for a program."""
        return {
            "made": self.made,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "instructions": len(self.outcomes),
            "elements": sum(each.elements for each in self.outcomes),
            "differing_bits": sum(each.differing_bits for each in self.outcomes),
            "outcomes": [asdict(each) for each in self.outcomes],
        }

    def to_markdown(self) -> str:
        """A page for ``docs/verification``: a line for each family and types."""
        made = self.made
        lines = [
            f"# Verified on {made['gpu']}",
            "",
            *(f"- {_label(name)}: {value}" for name, value in made.items()),
            f"- seed: {self.seed}",
            f"- duration: {self.seconds:.0f} s",
            "",
            f"**{self.summary()}.**",
            "",
            "| family | types | instructions | trials | elements | differing bits |",
            "|---|---|---:|---:|---:|---:|",
        ]
        for (family, types), group in self._groups():
            counts = (
                len(group),
                sum(each.trials for each in group),
                sum(each.elements for each in group),
                sum(each.differing_bits for each in group),
            )
            numbers = " | ".join(f"{count:,}" for count in counts)
            lines.append(f"| {family} | {types} | {numbers} |")
        for each in self.differing:
            assert each.first is not None
            lines += ["", f"## `{each.instruction}`", ""]
            lines += ["```python", each.first.program.rstrip(), "```"]
        return "\n".join(lines) + "\n"

    def _groups(self) -> list[tuple[tuple[str, str], list[Outcome]]]:
        found: dict[tuple[str, str], list[Outcome]] = {}
        for each in self.outcomes:
            found.setdefault((each.family, each.types), []).append(each)
        return list(found.items())


def _label(name: str) -> str:
    return {"cuda_driver": "CUDA of the driver", "gpu": "GPU"}.get(name, name)
