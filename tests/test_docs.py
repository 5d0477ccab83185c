"""Everything that the documentation shows happens as shown."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import json
import re
import shlex
import zlib
from collections import Counter
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta.commands import app
from fragmenta.launch.kernel import Kernel
from fragmenta.ptx.effects import LINES, NOT_RUN
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.tensor import TENSOR
from fragmenta.ptx.opcodes.textures import TEXTURES
from fragmenta.reference.isa.table import read
from tests.pages import examples
from tests.test_house import HOUSE, ROOMS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
GENERATED = re.compile(r"(?s)<!-- generated: \S+ -->.*?<!-- /generated -->")


def name(page: Path) -> str:
    return str(page.relative_to(DOCS))


@cache
def whole(page: Path) -> str:
    """A page with the lists that the repository leaves out."""
    return str(generator().complete(page.read_text(encoding="utf-8")))


def written(page: Path) -> str:
    """A page without what is generated: examples of docstrings run as their tests."""
    return GENERATED.sub("", page.read_text(encoding="utf-8"))


def uses_torch(page: Path) -> bool:
    return ">>> import torch" in written(page)


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
    text = written(page)
    found = examples(text, page.name)
    assert text.count(">>> ") == 0 or found.examples
    report: list[str] = []
    doctest.DocTestRunner().run(found, out=report.append)
    assert not report, "".join(report)


def console() -> list[tuple[str, str]]:
    """Each command that a page shows, and its answer."""
    found = []
    for page in PAGES:
        blocks = re.findall(r"(?s)```console\n(.*?)```", written(page))
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
    """Files are there, and headings have the name that a link gives them."""
    for link, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(page)):
        if link.startswith("http"):
            continue
        to = (page.parent / link) if link else page
        assert to.exists(), link
        assert not heading or heading in anchors(to), f"{link}#{heading}"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem
)
def test_code_hosts_show_the_page_as_meant(page: Path) -> None:
    """Rows of a table have as many cells as its head; marks of doctest are not shown."""
    assert "<BLANKLINE>" not in whole(page)
    for block in re.findall(r"(?m)(?:^\|.*\n)+", prose(page)):
        cells = {len(re.split(r"(?<!\\)\|", row)) for row in block.splitlines()}
        assert len(cells) == 1, block[:200]


def prose(page: Path) -> str:
    return re.sub(r"(?s)```.*?```", "", whole(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """What the headings of a page are called, if no two have the same name."""
    titles = re.findall(r"(?m)^#+ (.*)$", prose(page))
    found = Counter(generator().site.anchor(title) for title in titles)
    return frozenset(each for each, count in found.items() if count == 1)


def script(path: str) -> ModuleType:
    """A script of docs/, as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, DOCS / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def generator() -> ModuleType:
    return script("generate.py")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "<!-- gen" in page.read_text("utf-8")], ids=name
)
def test_generated_text_is_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == generator().page(text), "run: python docs/generate.py"
    assert len(text) < 300_000  # code hosts show no longer pages
    assert text.count("<!-- generated: ") == text.count("<!-- /generated -->")
    made = "".join(GENERATED.findall(whole(page)))
    plain = re.sub(r"(?s)```.*?```|`[^`]*`", "", made)
    assert not re.search(r"<BLANKLINE>|doctest:| at 0x\w+>", made)
    assert not re.search(r":\w+:$|``|\{ ?[#:.]|\{\{", plain), "only mkdocs reads that"


def test_what_is_looked_up_is_not_committed() -> None:
    """A list is left out of the repository, and built again whatever stands there."""
    text = "# Names\n\n<!-- generated: instructions:wmma -->\n\nold\n\n<!-- /generated -->\n"
    short, long = generator().page(text), generator().complete(text)
    assert "`make docs` builds this list." in short
    assert "old" not in short + long
    assert long.count("`wmma.") > 100
    assert generator().complete(short) == long
    assert generator().page(long) == short


def test_pictures_are_up_to_date() -> None:
    for path, svg in generator().pictures().items():
        assert path.read_text("utf-8") == svg, "run: python docs/generate.py"


LISTS = ["gallery", "install", "instructions", "kernels-history", "opcodes", "security"]
"""Pages that are looked up and not read from the top."""


def test_pages_open_with_their_picture() -> None:
    """It stands in the first screen, before any code, and words say what it shows."""
    for path in sorted(set(DOCS.glob("*.md")) - {DOCS / f"{e}.md" for e in LISTS}):
        top = path.read_text("utf-8").partition("\n```")[0].splitlines()[:18]
        shown = re.findall(r"(?m)^!\[(.*)\]\((.+)\)$", "\n".join(top))
        assert shown, f"{path.name} has no picture before its first code"
        alt, file = shown[0]
        assert len(alt.split()) > 3
        assert (DOCS / file).exists()


def test_the_site_has_more_pictures() -> None:
    """Each picture has the name of its heading; the first of a page is drawn here."""
    made = generator()
    for family in (*made.families.FAMILIES, "tcgen05"):
        name = f"families/{family}.md"
        text = (DOCS / name).read_text("utf-8")
        marked = made.site.PICTURE.findall(text)
        assert marked == re.findall(r"(?m)^### `(.*)`$", text)
        [(file, svg), *_] = made.site.drawings(f"<!-- picture: {marked[0]} -->")
        assert made.site.page(text, name).count(f"../pictures/{file}") == 1
        assert svg.startswith("<svg")


def check_effects(page: str) -> None:
    """Every asynchronous instruction has a row, and every form that does not run."""
    rows = re.findall(r"(?m)^\| `([\w.:]+)`.* \|$", page)
    names = [each.instruction for each in LINES]
    refused = [line["instruction"] for line in read(NOT_RUN)]
    assert [each for each in rows if each in {*names, *refused}] == names + refused


def test_what_generated_pages_list() -> None:
    listed = [
        each
        for page in (DOCS / "instructions").glob("*.md")
        for each in re.findall(r"(?m)^\| `(.+?)` \|", whole(page))
    ]
    assert sorted(listed) == sorted(map(str, fm.catalogue()))
    check_opcodes(whole(DOCS / "opcodes.md"))
    check_effects((DOCS / "ptx.md").read_text("utf-8"))
    pages = {name(page): whole(page) for page in (DOCS / "reference").glob("*.md")}
    assert "\n## find\n" in pages["reference/api.md"]
    assert "\n## class Layout\n" in pages["reference/api.md"]
    assert "ptx.Kernel" in pages["reference/ptx.md"]
    assert "### Kernel.launch\n" in pages["reference/ptx.md"]
    assert "### Allocator.free\n" in pages["reference/tensor_memory.md"]
    assert "fragmenta draw [OPTIONS]" in pages["reference/commands.md"]


def test_docstrings_as_markdown() -> None:
    """Roles, lists, code and examples; what only doctest reads is left out."""
    made = generator().references
    told = """See :func:`~fragmenta.find` and :func:`dtype`::

        a line

    Then ``x``:
    - one
    - two

    >>> print()  # doctest: +SKIP
    <BLANKLINE>

    >>> 1
    1
    """
    assert made.markdown(inspect.cleandoc(told), {"dtype": "#dtype"}) == (
        "See `find` and [`dtype`](#dtype):\n\n```text\na line\n```\n\n"
        "Then `x`:\n\n- one\n- two\n\n"
        "```python\n>>> print()\n\n\n>>> 1\n1\n```"
    )


def test_signatures_as_written() -> None:
    def given(x: int, /, *y: str, z: float = 1.0, **rest: object) -> None: ...

    def shown(self: object, *, function: object = print) -> None: ...

    signature = generator().references.signature
    assert signature("f", given) == (
        "f(x: int, /, *y: str, z: float = 1.0, **rest: object) -> None"
    )
    assert signature("f", shown) == "f(*, function: object = print) -> None"
    assert signature("f" * 60, shown).splitlines()[1:3] == [
        "    *,",
        "    function: object = print,",
    ]
    assert signature("C.p", shown, called=False) == "C.p -> None"


def check_opcodes(page: str) -> None:
    """Every line of the table of opcodes has a row, and says whether it runs."""
    rows = [row for row in page.splitlines() if row.startswith(("| `", "| <code>"))]
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
    [(kernels, launches)] = re.findall(total, made.kernels.launch_table())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{launches} launches of {kernels} kernels" in readme
    assert "| `opcodes/integer.py` |" in made.kernels.scalar_table()
    every = r"(?m)^\| `tanh.approx.f32` \| all \| [\d,]{13} \| 0 \|$"
    assert re.search(every, made.kernels.special_table())


def test_the_comparison_with_mma_sim_is_the_committed_one() -> None:
    """Every number of the committed result is in the table, and no other."""
    told = json.loads((DOCS / "published" / "mma-sim.json").read_text("utf-8"))
    compared, left_out = generator().numbers.published_tables().split("Not compared")
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


def test_pages_install_from_the_source() -> None:
    """The package index does not have the project."""
    for page in [ROOT / "README.md", *PAGES]:
        words = re.findall(r"(?m)pip install ([^`\n]*)", page.read_text("utf-8"))
        assert not [e for e in words if re.search(r"(?<![./])\bfragmenta\b", e)], page
    assert "is not in the package index" in " ".join(
        (DOCS / "install.md").read_text("utf-8").split()
    )


def test_the_extra_for_cuda_is_not_only_for_a_gpu() -> None:
    (said,) = re.findall(
        r"'\.\[cuda\]' +# (.*)", (ROOT / "README.md").read_text("utf-8")
    )
    assert "compiles CUDA C++, GPU or not" in said


def test_status_is_said_with_care() -> None:
    status = generator().numbers.status
    assert status(fm.wgmma("m64n104k32", a="e4m3", d="f32")) == "exact on H200"
    assert status(fm.find("mma.m16n8k16.f32.f16")) == "exact on H200"
    scaled = next(op for op in fm.catalogue("mma") if op.kind == "mxf4")
    assert status(scaled) == "published parameters"


def test_every_page_is_in_the_table_of_contents() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert set(map(name, PAGES)) <= set(re.findall(r"(\S+\.md)$", nav, re.M))
    assert nav == generator().hazards.contents(), "run: make pages"


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


def test_the_pictures_of_growth_show_the_committed_benchmark() -> None:
    chart = (DOCS / "plots" / "growth.svg").read_text(encoding="utf-8")
    files = [DOCS / "benchmarks" / f"{each}.json" for each in ("peers", "cores")]
    numbers = [json.loads(e.read_text("utf-8"))["growth"] for e in files if e.exists()]
    shows = f"growth {zlib.crc32(json.dumps(numbers).encode()):08x}"
    assert shows in chart, "run: python docs/plots/make.py growth"


def test_the_ways_go_through_rooms_that_there_are() -> None:
    drawn = script("plots/ways.py")
    source = Path(fm.__file__).parent
    rooms = {step[0] for steps in drawn.WAYS.values() for step in steps}
    assert [room for room in rooms if not (source / room).is_dir()] == []
    picture = drawn.PICTURE.read_text(encoding="utf-8")
    assert picture == drawn.draw(), "run: python docs/plots/ways.py"


def test_the_ways_are_chains() -> None:
    """An arrow arrives above where the next one leaves: they do not join to one line."""
    drawn = script("plots/ways.py")
    path = r'class="arrow" d="M\d+ (\d+)h\d+v(\d+)h-\d+"'
    found = [tuple(map(int, each)) for each in re.findall(path, drawn.draw())]
    assert len(found) == sum(len(steps) - 1 for steps in drawn.WAYS.values())
    ends = [leaves + down for leaves, down in found]
    assert all(end < start for end, (start, _) in zip(ends, found[1:], strict=False))


def test_contributing_names_every_room() -> None:
    """The table has every room of the package, in order; the picture shows it."""
    drawn = script("plots/rooms.py")
    known = drawn.rooms()
    parts = [each.replace("/", ".") for each in known]
    of_two = {"cuda.source", "cuda.tools"}
    wanted = [each for each in ROOMS if each != "__main__" and not HOUSE.get(each)]
    assert [each for each in parts if each not in of_two] == [
        each for each in wanted if each != "cuda"
    ]
    picture = drawn.PICTURE.read_text(encoding="utf-8")
    assert picture == drawn.draw(), "run: python docs/plots/rooms.py"


def test_the_page_has_every_argument_of_a_launch_and_no_other() -> None:
    page = (DOCS / "ptx.md").read_text("utf-8")
    table = page.partition("The other arguments of `launch`:")[2].split("\n\n")[1]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    taken = list(inspect.signature(Kernel.launch).parameters)
    assert sorted(named) == sorted(set(taken) - {"self", "grid", "block"})
