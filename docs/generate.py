"""Generate pages from the catalogue, the docstrings and the recordings.

    python docs/generate.py          # or: make pages

writes what is between ``<!-- generated: name -->`` and ``<!-- /generated -->`` in the
pages of docs/ and in README.md, the pictures that pages show, and the pages of rules in
mkdocs.yml.  The pages are
committed, so that they can be read where the code is.  ``tests/test_docs.py`` fails if
one is outdated.  Long lists, in which one looks something up, are not committed.

    python docs/generate.py --site   # make docs does this before mkdocs

also writes build/docs/, which has more than the repository: those lists, a picture for
every set of operands, links into the explorer, charts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from making import (
    classes,
    corpus,
    counters,
    effects,
    families,
    figures,
    gallery,
    hazards,
    judge,
    kernels,
    litmus,
    numbers,
    openings,
    orders,
    performance,
    planted,
    programs,
    references,
    site,
    sketches,
)
from making.markdown import DOCS, ROOT

import fragmenta

END = "<!-- /generated -->"
REGION = re.compile(
    rf"(?s)<!-- generated: (\S+) -->\n(?:(?:(?!<!-- generated: ).)*?{END}\n)?"
)

LOOKED_UP = re.compile(r"instructions:|api\b|commands$|opcodes$")
"""Long lists of what the package itself says: only the site has them."""

WRITERS: dict[str, Callable[[], str]] = {
    **{f"family:{name}": partial(families.family, name) for name in families.FAMILIES},
    "tcgen05": families.tcgen05_tables,
    "instructions": families.index,
    **{
        f"instructions:{name}": partial(families.instructions, name)
        for name in families.LISTS
    },
    **{f"gallery:{show}": partial(gallery.listed, show) for show in gallery.SHOWS},
    "certainty": numbers.certainty_table,
    "certainty-words": numbers.certainty_words,
    "models": numbers.model_table,
    "expansions": numbers.expansion_table,
    "published": numbers.published_tables,
    "recordings": numbers.recording_table,
    "fuzz": numbers.fuzz_table,
    "bounds": numbers.bounds_table,
    "thorough": numbers.thorough_tables,
    "planted": planted.planted_table,
    "planted-missed": planted.missed_table,
    "sameness": numbers.sameness_words,
    "hazards": hazards.rule_table,
    "orders-kernels": orders.kernels,
    "orders-mutants": orders.mutants,
    "mutants": hazards.mutants,
    "counters-metrics": counters.metrics,
    "counters-compared": counters.compared,
    "counters-reasons": counters.reasons,
    "counters-sentence": counters.sentence,
    "counters-held-out": counters.held_out,
    "classes": classes.table,
    "litmus": litmus.litmus_tables,
    "litmus-kernels": litmus.kernel_table,
    "litmus-counts": litmus.counts,
    "effects": effects.effect_table,
    "completions": effects.completion_table,
    "not-run": effects.not_run_table,
    "opcodes": kernels.opcode_tables,
    "launches": kernels.launch_table,
    "scalars": kernels.scalar_table,
    "special": kernels.special_table,
    "corpus": corpus.summary,
    "corpus-sentence": corpus.sentence,
    "corpus-libraries": corpus.libraries,
    "corpus-findings": corpus.findings,
    "corpus-others": corpus.others,
    "corpus-kernels": corpus.kernels,
    "judge": judge.summary,
    "judge-findings": judge.finding_table,
    "judge-cheats": judge.cheat_table,
    "judge-honest": judge.honest_table,
    "judge-held-out": judge.held_out,
    "performance-machine": performance.machine,
    "performance-compared": performance.compared,
    "performance-summary": performance.summary,
    "performance-tools": performance.tools,
    "performance-cores": performance.cores,
    "cards": programs.card_table,
    **{
        f"example:{name}": partial(programs.example, name) for name in programs.EXAMPLES
    },
    "cuda-functions": programs.function_table,
    "cuda-refused": programs.refused_table,
    "blackwell-programs": programs.blackwell_table,
    "cuda-programs": programs.result_table,
    "recorded-programs": programs.recorded_table,
    "performance-threads": performance.threads,
    "commands": references.commands,
    "api": references.api,
    **{f"api:{room}": partial(references.api, room) for room in fragmenta._ROOMS},
}
"""The function that writes each name after ``generated:``."""


def main(*options: str) -> None:
    """Write what is outdated; with ``--site``, also build/docs."""
    for path, text in {**pages(), **pictures()}.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    if "--site" in options:
        site.write(complete)


def pages() -> dict[Path, str]:
    """Every page with generated text, up to date."""
    found = {}
    for path in (*sorted(DOCS.rglob("*.md")), ROOT / "README.md"):
        text = path.read_text(encoding="utf-8")
        if REGION.search(text):
            found[path] = page(text)
    return {**found, ROOT / "mkdocs.yml": hazards.contents()}


def page(text: str) -> str:
    """A page of the repository with the generated text that belongs to each mark."""

    def committed(mark: re.Match[str]) -> str:
        looked_up = LOOKED_UP.match(mark[1])
        made = "`make docs` builds this list." if looked_up else WRITERS[mark[1]]()
        return _region(mark[1], made)

    return REGION.sub(committed, text)


def complete(text: str) -> str:
    """A page of the repository with the lists that are not committed."""

    def listed(mark: re.Match[str]) -> str:
        looked_up = LOOKED_UP.match(mark[1])
        return _region(mark[1], WRITERS[mark[1]]()) if looked_up else mark[0]

    return REGION.sub(listed, text)


def _region(name: str, text: str) -> str:
    return f"<!-- generated: {name} -->\n\n{text}\n\n{END}\n"


def pictures() -> dict[Path, str]:
    """Every picture that a page shows."""
    drawn = {name: each.svg() for name, each in figures.FIGURES.items()}
    drawn |= figures.trees()
    openings_of = {**openings.DRAWN, **sketches.DRAWN}
    drawn |= {name: draw() for name, draw in openings_of.items()}
    return {DOCS / "pictures" / f"{name}.svg": svg for name, svg in drawn.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
