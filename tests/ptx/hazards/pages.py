"""Writes the pages on hazards with the reports that are really printed.

    python -m tests.ptx.hazards.pages      # writes the reports and the pictures

A page has a kernel, the report about it, and the repair as changed lines.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from fragmenta.inspect.view.svg import Drawing, document, down
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import cases

IMAGES = Path(__file__).parents[3] / "docs" / "images"
PICTURES = {
    "timeline": "pairs-early_release-1",
    "timeline-ring": "idioms-ring_wgmma",
    "timeline-store": "pairs-store_depth-1",
    "timeline-cluster": "clusters-shared_ring",
    "timeline-tensor": "tensor-pipeline",
}
"""The pictures of launches that pages show, and the cases that are launched."""
EXAMPLE = Path(__file__).parents[3] / "examples" / "two_copies.ptx"
"""The kernel of the README, whose picture is there."""
FOLDER = Path(__file__).parents[3] / "docs" / "hazards"
WORDS = np.arange(2048, dtype=np.uint32)


class Launch(NamedTuple):
    """How the kernel of a page is launched."""

    grid: int
    block: int
    arguments: tuple[Any, ...]
    repaired: tuple[Any, ...] | None = None
    """The arguments after the repair, if they are others."""


OUT = np.zeros(2048, np.uint32)
GIVEN: dict[str, Any] = {
    "const u32 *": WORDS,
    "u32 *": OUT,
    "const u16 *": np.ones(2048, np.float16),
    "float *": np.zeros((64, 8), np.float32),
    "int ": 40,
}
"""What a kernel gets, by the type of its parameter."""
HALVES = np.ones((64, 64), np.float16)
SPECIAL = {
    "layout-mismatch": Launch(
        1,
        128,
        (
            ptx.tensor_map(HALVES, (64, 64), swizzle=128),
            ptx.tensor_map(HALVES[:8], (8, 64), swizzle=128),
            GIVEN["float *"],
        ),
    ),
    "bad-tensor-map": Launch(
        1, 32, (OUT, OUT), (ptx.tensor_map(WORDS[:512].reshape(16, 32), (8, 16)), OUT)
    ),
}
"""Launches of pages whose kernels take something else."""
STRICT = ("tensor-registers-in-flight", "missing-tensor-fence")
"""Rules that are reported with strict=True."""
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))


def launch(rule: str, code: str) -> Launch:
    """The launch of a page: its first line has blocks and threads."""
    if rule in SPECIAL:
        return SPECIAL[rule]
    shape = re.match(r"// (?:(\d+) blocks of )?(\d+) threads\n", code)
    assert shape is not None, f"{rule}: a kernel begins with '// 32 threads'"
    (parameters,) = re.findall(r"KERNEL \w+\(([^)]*)\)", code)
    given = [
        next(value for kind, value in GIVEN.items() if each.startswith(kind))
        for each in parameters.split(", ")
    ]
    return Launch(int(shape[1] or 1), int(shape[2]), tuple(given))


class Page(NamedTuple):
    """What a page shows."""

    rule: str
    kernel: str
    report: str
    repair: str


def read(rule: str) -> Page:
    """The parts of a page."""
    text = (FOLDER / f"{rule}.md").read_text("utf-8")
    blocks = [
        re.findall(rf"(?s)```{kind}\n(.*?)```", text)
        for kind in ("cuda", "text", "diff")
    ]
    assert [len(each) for each in blocks] == [1, 1, 1], rule
    return Page(rule, *(each[0] for each in blocks))


def repaired(page: Page) -> str:
    """The kernel with the lines of the repair."""
    found = page.kernel
    parts = re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)*)", page.repair, re.M)
    for old, new in parts:
        before, after = (re.sub(r"(?m)^[-+]", "", each) for each in (old, new))
        assert found.count(before) == 1, f"{page.rule}: {before!r} is not there once"
        found = found.replace(before, after)
    return found


def problems(rule: str, code: str, right: bool = False) -> list[tuple[str, str]]:
    """The rule and the words of each report about a kernel, wrong or repaired."""
    try:
        result = launched(rule, code, right)
    except ptx.KernelFault as fault:
        return [(fault.kind, str(fault))]
    return [(each.rule, each.paragraph()) for each in result.problems]


SCHEDULES = ("eager", "lazy", 3)
"""The schedules with which the wrong kernel of a page is recorded."""


def replay(rule: str) -> ptx.Replay:
    """The recorded runs of the kernel of a page, and the repaired one beside them."""
    page = read(rule)
    found = _recorded(rule, page.kernel, schedule=SCHEDULES)
    # Without a problem, the first block would be recorded.
    blocks = ptx.Window(blocks=tuple({each.block: None for each in found.warps}))
    right = _recorded(rule, repaired(page), right=True, replay=blocks)
    return found.beside(right, "repaired")


def _recorded(rule: str, code: str, right: bool = False, **options: Any) -> ptx.Replay:
    """The record of a launch, with the source."""
    try:
        result = launched(rule, code, right, **{"replay": True, **options})
    except ptx.KernelFault as fault:
        result = fault.result
    found = result.replay()
    for run in found.runs:  # PTX opens no file that it names
        run.head["files"].append({"name": f"{rule}.cu", "text": code})
    return found


@cache
def compiled(rule: str, code: str) -> ptx.Kernel:
    """The kernel of a page, read once for all tests."""
    target = "sm_100a" if "blackwell.cuh" in code else "sm_90a"
    code = running.with_headers(code, f"{rule}.cu")
    text = running.without_folders(compiler.to_ptx(code, target, "-lineinfo"))
    [kernel] = ptx.parse(text, f"{rule}.ptx").kernels.values()
    return kernel


def launched(rule: str, code: str, right: bool = False, **options: Any) -> ptx.Result:
    """The launch of a kernel, wrong or repaired."""
    how = launch(rule, code)
    arguments = how.repaired if right and how.repaired is not None else how.arguments
    kernel = compiled(rule, code)
    given = [e.copy() if isinstance(e, np.ndarray) else e for e in arguments]
    watch = ptx.Watch("report", strict=rule in STRICT)
    result = kernel.launch(how.grid, how.block, given, watch=watch, **options)
    # A picture may need the launch once more, as it was.
    for each, old in zip(given, arguments, strict=True):
        if isinstance(each, np.ndarray):
            each[...] = old
    return result


def report(page: Page) -> str:
    """What is printed about the kernel of a page: the first report with its rule."""
    found = problems(page.rule, page.kernel)
    return next(words for rule, words in found if rule == page.rule) + "\n"


def picture(name: str) -> str:
    """What happens in the launch of a case, all copies as late as they may be."""
    case = next(each for each in cases() if each.name == name)
    row = case.row
    kernel = running.loaded(row.source, case.bug).kernels[row.entry]
    given = running.for_launch(row, running.made(row))
    options: dict[str, Any] = {"cluster": row.cluster} if row.cluster > 1 else {}
    result = kernel.launch(
        row.grid, row.block, given, watch="report", schedule="lazy", **options
    )
    return str(result.timeline())


def readme_picture() -> str:
    """What the kernel of the README does."""
    given = [np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32)]
    kernel = ptx.load(EXAMPLE).kernels["add"]
    return str(kernel.launch(1, 32, given, watch="report").timeline())


def page_picture(rule: str) -> str:
    """The picture of a page: what its kernel does, event by event."""
    if rule == "bank-conflict":
        return banks()
    return str(launched(rule, read(rule).kernel).timeline())


def banks() -> str:
    """The bank that each lane uses in a column of a tile, without and with padding."""
    panels = []
    for words in (32, 33):
        parts = [f'<text class="k t" x="0" y="11">rows of {words} words</text>']
        for lane in range(32):
            place = words * lane
            x, y = 46 + 25 * (place % 32), 34 + 13 * lane
            parts.append(
                f'<text class="r s" x="40" y="{y + 9}">lane {lane}</text>'
                f'<rect class="b" x="46" y="{y}" width="800" height="12"/>'
                f'<rect class="l{lane}" x="{x}" y="{y}" width="25" height="12"/>'
                f'<text class="m t" x="{x + 12.5}" y="{y + 9}">{place}</text>'
            )
        parts += [
            f'<text class="m s" x="{58.5 + 25 * bank}" y="28">{bank}</text>'
            for bank in range(32)
        ]
        taken = max(np.bincount(words * np.arange(32) % 32))
        passes = f"{taken} passes" if taken > 1 else "1 pass"
        text = f'<text class="k s" x="46" y="466">{passes}: columns are banks, cells '
        parts.append(f"{text}have the word that the lane wants</text>")
        panels.append(Drawing(850, 474, "".join(parts)))
    return document(down(panels, 18), "Banks of a column of a tile")


def main() -> None:
    for name, case in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(picture(case), "utf-8")
    (IMAGES / "timeline-readme.svg").write_text(readme_picture(), "utf-8")
    for rule in PAGES:
        (IMAGES / f"hazard-{rule}.svg").write_text(page_picture(rule), "utf-8")
    for rule in PAGES:
        page, path = read(rule), FOLDER / f"{rule}.md"
        text = path.read_text("utf-8")
        shown = f"```text\n{page.report}```"
        path.write_text(text.replace(shown, f"```text\n{report(page)}```"), "utf-8")


if __name__ == "__main__":
    main()
