"""Does everything that the documentation shows happen as shown?"""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta.commands import app
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.tensor import TENSOR
from fragmenta.ptx.opcodes.textures import TEXTURES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def name(page: Path) -> str:
    return str(page.relative_to(DOCS))


def uses_torch(page: Path) -> bool:
    return ">>> import torch" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.torch] if uses_torch(page) else [])
        for page in PAGES
    ],
    ids=name,
)
def test_python_examples(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # recordings are named from here
    text = page.read_text(encoding="utf-8")
    examples = doctest.DocTestParser().get_doctest(text, {}, page.name, None, 0)
    assert text.count(">>> ") == 0 or examples.examples
    report: list[str] = []
    doctest.DocTestRunner().run(examples, out=report.append)
    assert not report, "".join(report)


def console() -> list[tuple[str, str]]:
    """Each command that a page shows, and its answer."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"(?s)```console\n(.*?)```", text)
        for run in (r for block in blocks for r in re.split(r"(?m)^\$ ", block) if r):
            command, _, shown = run.partition("\n")
            found.append((command, shown))
    return found


@pytest.mark.parametrize(("command", "shown"), console())
def test_console_examples(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)  # files are named from here
    program, *words = shlex.split(command)
    assert program == "fragmenta"
    assert CliRunner().invoke(app, words).output == shown


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)#]+)", text):
        if not link.startswith(("http", "../pictures", "pictures")):
            assert (page.parent / link).exists(), link


def script(path: str) -> ModuleType:
    """A script of docs/, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generator() -> ModuleType:
    return script("generate.py")


def test_generated_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = generator()
    monkeypatch.setattr(made, "BUILT", tmp_path / "docs")
    made.main()
    pages = {
        name: (tmp_path / "docs" / name).read_text(encoding="utf-8")
        for name in map(name, PAGES)
    }
    assert not [page for page, text in pages.items() if "<!-- generated" in text]
    listed = re.findall(r"(?m)^\| `(\S+)` \|", pages["instructions.md"])
    assert sorted(listed) == sorted(map(str, fm.catalogue()))
    check_opcodes(pages["opcodes.md"])
    for family in made.FAMILIES:
        text = pages[f"families/{family}.md"]
        linked, drawn = (
            set(re.findall(r"\(#([\w-]+)\)", text)),
            set(re.findall(r"\{ #([\w-]+) \}", text)),
        )
        # The page of tcgen05 has no table of instructions: its pictures are one each.
        assert linked == drawn or family == "tcgen05"
        for slug in drawn:
            assert (tmp_path / "docs" / "pictures" / f"{slug}.svg").exists()
    assert all(
        f"## {each}\n" in pages["reference/api.md"] for each in ("find", "Layout")
    )
    assert "ptx.Kernel" in pages["reference/ptx.md"]
    assert "### Kernel.launch\n" in pages["reference/ptx.md"]
    assert "### Allocator.free\n" in pages["reference/tensor_memory.md"]
    assert "fragmenta draw [OPTIONS]" in pages["reference/commands.md"]


def check_opcodes(page: str) -> None:
    """Every line of the table of opcodes has a row, and says whether it runs."""
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    lines = [line for some in TABLE.lines.values() for line in some]
    public = [line for line in lines if not line.opcode.startswith("_")]
    said = {row.split(" | ")[3] for row in rows if row.count(" | ") > 3}
    assert len(rows) - len(TENSOR | TEXTURES) == len(public)
    assert said == {"yes", "no"}
    assert set(re.findall(r"(?m)^## (\w+)$", page)) == {line.opcode for line in public}


def test_what_is_said_about_launches_is_recorded() -> None:
    """The README's numbers are those of the recordings."""
    made = generator()
    total = r"\| all \| (\d+) \| (\d+) \|"
    [(kernels, launches)] = re.findall(total, made.launch_table())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{launches} launches of {kernels} kernels" in readme
    assert "| `opcodes/integer.py` |" in made.scalar_table()
    every = r"(?m)^\| `tanh.approx.f32` \| all \| [\d,]{13} \| 0 \|$"
    assert re.search(every, made.special_table())


def test_the_comparison_with_mma_sim_is_the_committed_one() -> None:
    """Every number of the committed result is in the table, and no other."""
    told = json.loads((DOCS / "published" / "mma-sim.json").read_text("utf-8"))
    compared, left_out = generator().published_tables().split("Not compared")
    line = r"(?m)^\| (sm_\w+|all) \|.*\| (\d+) \| ([\d,]+) \| (\d+) \|$"
    lines = re.findall(line, compared)
    found = [[int(each.replace(",", "")) for each in counts] for _, *counts in lines]
    every = [sum(row[key] for row in told["rows"]) for key in ("elements", "different")]
    assert found[-1] == [len(told["rows"]), *every]
    assert [sum(column) for column in zip(*found[:-1], strict=True)] == found[-1]
    assert {target for target, *_ in lines[:-1]} == {r["target"] for r in told["rows"]}
    assert told["made"]["date"] in compared
    for line in told["excluded"]:
        counted = f"| {line['reason']} | {line['instructions']:,} |"
        assert counted in left_out
    assert "<!-- generated: published -->" in (DOCS / "numerics.md").read_text("utf-8")


def test_status_is_said_with_care() -> None:
    status = generator().status
    assert status(fm.wgmma("m64n104k32", a="e4m3", d="f32")) == "exact on H200"
    assert status(fm.find("mma.m16n8k16.f32.f16")) == "exact on H200"
    scaled = next(op for op in fm.catalogue("mma") if op.kind == "mxf4")
    assert status(scaled) == "published parameters"


def test_every_page_is_in_the_table_of_contents() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(map(name, PAGES)) <= set(re.findall(r"(\S+\.md)$", nav, re.M))


def test_the_chart_of_kernels_shows_the_committed_benchmark() -> None:
    """The chart is drawn by hand, so it could be older than the numbers."""
    chart = (DOCS / "plots" / "kernels.svg").read_text(encoding="utf-8")
    measured = json.loads((DOCS / "benchmarks" / "h200-gemm.json").read_text("utf-8"))
    compared = re.compile(r"torch[._]|cuSPARSELt tuned$|fragmenta 2:4 \[")
    rates = [
        f"{row['rate']:.0f}"
        for row in measured["rows"]
        if row["size"] == [8192] * 3 and compared.match(row["what"])
    ]
    assert len(rates) == 3 * 4
    for rate in rates:
        assert f">{rate}</text>" in chart


def test_contributing_names_every_room() -> None:
    """The table has every folder and module of the package; the picture shows it."""
    drawn = script("plots/rooms.py")
    source = Path(fm.__file__).parent
    found = {path.relative_to(source).parts[0] for path in source.rglob("*.py")}
    known = drawn.rooms()
    assert {name.partition("/")[0] for name in known} == {
        name.removesuffix(".py") for name in found - {"__init__.py", "__main__.py"}
    }
    assert {
        module for module, _ in drawn.modules() if not drawn.room(module, known)
    } <= {
        "cuda"  # it only holds two rooms
    }
    picture = drawn.PICTURE.read_text(encoding="utf-8")
    assert picture == drawn.draw(), "run: python docs/plots/rooms.py"
