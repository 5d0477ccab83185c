"""Does the command line answer, refuse and pipe as it should?"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import fragmenta
from fragmenta.commands.app import examples
from fragmenta.commands.gpu import NEED_A_GPU
from fragmenta.commands.index import COMMANDS
from fragmenta.cuda.tools.device import present
from fragmenta.errors import NoDevice
from fragmenta.isa.families import FAMILIES, catalogue
from fragmenta.isa.searching import find
from tests.asking import WIDTH, answer, ask, refusal

S4 = "mma.m16n8k64.s4.s4"
S4_FULL = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
SPARSE = "mma.sp::ordered_metadata.m16n8k64.s4.s4"
WGMMA = "wgmma.m64n8k16.f32.f16"

# The same package in a process of its own, whether it is installed or not.
PYTHON = {**os.environ, "PYTHONPATH": str(Path(fragmenta.__file__).parents[1])}


def shell(words: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Ask in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "fragmenta.commands.cli", *words],
        capture_output=True,
        text=True,
        env={**PYTHON, **variables},
        timeout=120,
        check=False,
    )


# ── where, holds ────────────────────────────────────────────────────────────


def test_where() -> None:
    """Column 17 is element 1 of thread 2; row 3 is group 3: lane 4 * 3 + 2."""
    assert answer("where", S4, "A", 3, 17).splitlines() == [
        S4_FULL,
        "A[3, 17]  lane 14, register 0, bits 7:4 (a1)",
    ]


def test_where_takes_operands_in_any_case() -> None:
    assert answer("where", SPARSE, "METADATA", 3, 2) == answer(
        "where", SPARSE, "metadata", 3, 2
    )
    scaled = "mma.m16n8k64.kind::mxf4nvf4.ue4m3"
    assert "scale_A[3, 1]  thread 0: lane 12" in answer(
        "where", scaled, "scale_a", 3, 1
    )


def test_where_names_selectors_and_copies() -> None:
    metadata = answer("where", SPARSE, "metadata", 3, 2)
    assert "selector 0: lane 12, register 0, bits 11:8" in metadata
    assert "selector 1: lane 14, register 0, bits 11:8" in metadata
    doubled = answer("where", "wmma.mma.row.col.m16n16k16.f16.f16", "A", 5, 5)
    assert "(a1)" in doubled
    assert "(a9)" in doubled
    assert "observed on sm_90" in doubled


def test_where_says_what_a_stored_column_stands_for() -> None:
    text = answer("where", SPARSE, "A", 3, 17)
    assert "metadata[3, 4] says which of columns 32..39 this is" in text


def test_where_json_is_the_library() -> None:
    parsed = json.loads(answer("where", WGMMA, "D", 40, 5, "--json"))
    place = find(WGMMA).d.where(40, 5)
    assert parsed["instruction"] == str(find(WGMMA))
    assert parsed["element"] == {"row": 40, "col": 5}
    assert parsed["places"] == [
        {
            "warp": place.warp,
            "lane": place.lane,
            "register": place.register,
            "bits": [0, 31],
            "i": place.register,
        }
    ]


def test_holds() -> None:
    assert answer("holds", S4, "A", "--lane", 13).splitlines()[2:] == [
        "  register 0, bits 31:0  A[3, 8..15]",
        "  register 1, bits 31:0  A[11, 8..15]",
        "  register 2, bits 31:0  A[3, 40..47]",
        "  register 3, bits 31:0  A[11, 40..47]",
    ]


def test_holds_one_register_of_one_warp() -> None:
    words = ("holds", WGMMA, "D", "--warp", 2, "--lane", 13, "--register", 1)
    assert answer(*words).splitlines()[1:] == [
        "D in warp 2, lane 13",
        "  register 1, bits 31:0  D[35, 3]",
    ]
    (element,) = json.loads(answer(*words, "--json"))["elements"]
    assert (element["row"], element["col"], element["register"]) == (35, 3, 1)


# ── table, formula, which ───────────────────────────────────────────────────


@pytest.mark.parametrize("by", ["matrix", "lane"])
@pytest.mark.parametrize("format_", ["csv", "markdown", "json"])
def test_table_is_the_library(by: str, format_: str) -> None:
    text = answer("table", S4, "C", "--by", by, "--format", format_)
    assert text == find(S4).c.table(by, format_) + "\n"


def test_table_has_json_as_the_others_do() -> None:
    asked = ("table", S4, "C")
    assert answer(*asked, "--json") == answer(*asked, "--format", "json")
    assert "contradict" in refusal(*asked, "--json", "--format", "csv")


def test_table_follows_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    wide = answer("table", S4, "A")
    assert 120 < max(map(len, wide.splitlines())) <= 160


def test_formula_of_one_operand_and_of_all() -> None:
    one = answer("formula", S4, "C")
    assert one == f"{S4_FULL}\n\nC:\n{find(S4).c.formula()}\n"
    every = answer("formula", S4)
    assert [line for line in every.splitlines() if line.endswith(":")] == [
        "A:", "B:", "C:", "D:",
    ]  # fmt: skip


def test_formula_breaks_lines_not_formulas() -> None:
    """Cut to 80 columns it has the same words as the library's."""
    narrow = answer("formula", S4, "A").split("A:", 1)[1]
    assert narrow.split() == find(S4).a.formula().split()


def test_which_of_a_sparse_instruction() -> None:
    text = answer("which", SPARSE, 3, 5)
    for line in (
        r"D\[3, 5\] +lane 14, register 1, bits 31:0",
        r"A\[3, 8\.\.15\] of columns 16\.\.31 +lane 13, register 0, bits 31:0",
        r"B\[56\.\.63, 5\] +lane 23, register 1, bits 31:0",
        r"metadata\[3, 0\.\.7\] selector 1 +lane 14, register 0, bits 31:0",
        r"C\[3, 5\] +lane 14, register 1, bits 31:0",
    ):
        assert re.search(f"(?m)^{line}$", text)


def test_which_says_that_b_is_in_shared_memory() -> None:
    text = answer("which", WGMMA, 40, 5)
    assert re.search(r"B\[0\.\.15, 5\] +in shared memory", text)
    assert json.loads(answer("which", WGMMA, 40, 5, "--json"))["shared_memory"] == ["B"]


@pytest.mark.parametrize(
    "text",
    [S4, SPARSE, WGMMA, "mma.m8n8k4.row.col.f32.f16.f16.f32", "mma.sp.m16n8k16.tf32"],
)
def test_which_covers_the_whole_sum(text: str) -> None:
    """Every element of the row of A and of the column of B, and no other."""
    op = find(text)
    at = [1] * len(op.d.shape)
    parsed = json.loads(answer("which", text, *at, "--json"))
    for name, along in (("A", "col"), ("B", "row")):
        if name not in op.fragments:
            continue
        found: list[int] = []
        for feed in parsed["feeds"]:
            if feed["operand"] == name:
                extent = feed["element"][along]
                low, high = extent if isinstance(extent, list) else (extent, extent)
                found += range(low, high + 1)
        size = op.fragments[name].layout.sizes[along]
        assert found == list(range(size))


def test_which_of_a_move() -> None:
    assert "does not multiply" in refusal("which", "ldmatrix.m8n8.x1.b16", 0, 0, 0)


# ── list, show ──────────────────────────────────────────────────────────────


def test_list_is_the_catalogue() -> None:
    assert answer("list").splitlines() == [str(op) for op in catalogue()]


def test_list_filters() -> None:
    found = answer("list", "--family", "mma", "--type", "s4", "--shape", "m16n8k64")
    assert S4_FULL in found.splitlines()
    assert all(".m16n8k64." in line and ".s4" in line for line in found.splitlines())
    older = answer("list", "--target", "sm_75").splitlines()
    assert older
    assert S4_FULL not in older
    assert len(answer("list", "--shape", "m64n256k*").splitlines()) == sum(
        op.values.get("shape", "").startswith("m64n256k") for op in catalogue()
    )
    both = answer("list", "--type", "s4", "--type", "u4", "--family", "mma")
    assert all({"s4", "u4"} <= set(line.split(".")) for line in both.splitlines())


def test_list_long_and_json_say_what_is_required() -> None:
    assert f"PTX 7.0  sm_80+  {S4_FULL}" in answer(
        "list", "--family", "mma", "-l", "--type", "s4"
    )
    entries = json.loads(answer("list", "--type", "b1", "--json"))
    assert {entry["family"] for entry in entries} <= set(FAMILIES)
    assert all("b1" in entry["types"].values() for entry in entries)


def test_list_of_nothing_is_status_1() -> None:
    result = ask("list", "--family", "mma", "--type", "f64", "--target", "sm_75")
    assert result.exit_code == 1
    assert not result.stdout
    assert "No instruction" in result.stderr


def test_show() -> None:
    text = answer("show", SPARSE)
    for line in (
        "requires  PTX 8.5, sm_80+",
        "native    sm_80 sm_86 sm_87 sm_88 sm_89",
        "sparsity  4:8 in pairs, selector 0 or 1",
        "          selector: one of 0, 1",
        "  layout    row = L2 L3 L4 R0  col = E0 E1 E2 L0 L1",
        "  CuTe      ((4,8),(8,2)):((128,1),(16,8))",
    ):
        assert line in text.splitlines()
    becomes = find(SPARSE).expanded_to("sm_90")
    assert f"expanded  to {becomes} on sm_90 sm_90a" in text


def test_show_json_is_the_library() -> None:
    op = find(SPARSE)
    parsed = json.loads(answer("show", SPARSE, "--json"))
    assert parsed["targets"]["sm_90"] == "8.5"
    assert parsed["expanded"]["sm_90"] == op.expanded_to("sm_90")
    assert parsed["native"] == [t for t in op.requires.targets if op.native_on(t)]
    assert parsed["sparsity"]["selectors"] == [0, 1]
    assert parsed["notes"] == list(op.notes)
    for name, part in op.fragments.items():
        assert parsed["fragments"][name]["layout"] == str(part.layout)
        assert parsed["fragments"][name]["formula"] == part.formula()


def test_show_both_ways_of_a_wgmma() -> None:
    text = answer("show", WGMMA)
    assert "A in shared memory:" in text
    assert "A in registers:" in text
    odd = answer("show", "wgmma.m64n24k16.f32.f16")
    assert "none: a size is no power of two" in odd


# ── every command, every family ─────────────────────────────────────────────


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_fit_80_columns(family: str) -> None:
    """Only a mnemonic may be longer: it is one word."""
    ops = list(catalogue(family))
    for op in ops[:: max(1, len(ops) // 5)]:
        asked = [("show",), ("formula",)] if op.fragments else [("show",)]
        if {"A", "C", "D"} <= set(op.fragments):
            asked.append(("which", *["1"] * len(op.d.shape)))
        for command, *rest in asked:
            lines = answer(command, op, *rest).splitlines()
            assert max(len(line) for line in lines if line != str(op)) <= WIDTH
        for name, part in op.fragments.items():
            for words in (
                ("where", op, name, *[0] * len(part.shape)),
                ("holds", op, name, "--lane", 31),
            ):
                lines = answer(*words).splitlines()
                assert max(len(line) for line in lines if line != str(op)) <= WIDTH


@pytest.fixture
def matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that examples read, in a folder for those that they write."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    shapes = {"a": (40, 48), "b": (48, 24), "w": (32, 64), "sparse": (32, 64)}
    files = {n: random.standard_normal(s).astype("f2") for n, s in shapes.items()}
    files["c"] = np.ones((40, 24), np.float32)
    files["sparse"][:, ::2] = 0
    for name, matrix in files.items():
        np.save(f"{name}.npy", matrix)
    Path("tests").symlink_to(Path(__file__).parents[1])  # for the recordings there
    monkeypatch.setattr(webbrowser, "open", lambda *_args, **_options: True)


@pytest.mark.usefixtures("matrices")
@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_run(command: str) -> None:
    text = answer(command, "--help")
    assert max(map(len, text.splitlines())) <= WIDTH
    assert examples(command)
    for example in examples(command):
        assert example in text
        program, *words = shlex.split(example.partition(" > ")[0])
        assert program == "fragmenta"
        if command in NEED_A_GPU and not gpu_is_there():
            result = ask(*words)
            assert result.exit_code == 2
            assert "GPU" in result.output or "No such file" in result.output
        else:
            assert answer(*words)


def gpu_is_there() -> bool:
    try:
        present()
    except NoDevice:
        return False
    return True


def test_every_command_is_in_the_help() -> None:
    text = answer("--help")
    assert set(COMMANDS) == set(re.findall(r"(?m)^  ([a-z]+)  +[A-Z]", text))
    assert answer("-h") == text


def test_version() -> None:
    assert answer("--version") == f"fragmenta {fragmenta.__version__}\n"


# ── refusals ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("where", S4, "A", -1, 5), "row -1 is out of range; row is 0 to 15"),
        (("where", S4, "A", 3, 64), "col 64 is out of range; col is 0 to 63"),
        (("where", S4, "A", 3), "A is indexed by"),
        (("where", S4, "A", 3, "x"), "x is not a whole number"),
        (("where", S4, "A", 3, 1.5), "1.5 is not a whole number"),
        (("where", S4, "metadata", 0, 0), "has no operand metadata"),
        (("where", SPARSE, "metadta", 0, 0), "did you mean metadata?"),
        (("where", WGMMA, "B", 0, 0), "B of wgmma is in shared memory"),
        (("where", S4, "A", 3, 5, "--jsn"), "--json"),
        (("holds", S4, "A", "--lane", 32), "lane 32 is out of range"),
        (("holds", S4, "A", "--lane", -1), "lane -1 is out of range"),
        (("holds", S4, "A", "--lane", 0, "--register", 4), "out of range"),
        (("holds", S4, "A", "--lane", 0, "--warp", 1), "one warp"),
        (("holds", WGMMA, "A", "--lane", 0, "--warp", 4), "warp 4 is out of range"),
        (("holds", S4, "A"), "Missing option '--lane'"),
        (("table", S4, "A", "--by", "lanes"), "did you mean lane?"),
        (("table", S4, "A", "--format", "html"), "html is not text, csv, markdown"),
        (("which", S4, 16, 0), "row 16 is out of range"),
        (("list", "--target", "sm_91"), "did you mean sm_90?"),
        (("list", "--type", "e4m4"), "did you mean e4m3?"),
        (("list", "--family", "wgma"), "did you mean wgmma?"),
        (("list", "--shape", "m16n8k63"), "did you mean m16n8k64?"),
        (("wher",), "Did you mean 'where'"),
        (("show", ""), ""),
    ],
)
def test_refusals(words: tuple[object, ...], message: str) -> None:
    text = " ".join(refusal(*words).split())
    assert message in text


def test_what_does_not_exist_names_the_nearest() -> None:
    full = "mma.sync.aligned.m16n8k64.row.col.f32.tf32.tf32.f32"
    text = " ".join(refusal("show", full).split())
    assert "does not exist" in text
    assert "nearest: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in text


def test_an_ambiguous_name_lists_its_candidates() -> None:
    text = refusal("where", "mma.m16n8k64.s4", "A", 3, 17)
    assert f"  {S4_FULL}\n" in text
    assert len(text.splitlines()) == 4


def test_messages_are_wrapped() -> None:
    text = refusal("list", "--target", "sm_91")
    assert max(map(len, text.splitlines())) <= WIDTH


# ── as a process ────────────────────────────────────────────────────────────


def test_plain_text_in_a_pipe() -> None:
    done = shell(["table", S4, "C"])
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= WIDTH


def test_errors_go_to_stderr() -> None:
    done = shell(["where", S4, "A", "-1", "0"])
    assert done.returncode == 2
    assert not done.stdout
    assert done.stderr == "Error: row -1 is out of range; row is 0 to 15\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_closed_pipe_is_no_event() -> None:
    """As under ``| head``, but closed before the first byte, so it is certain."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fragmenta.commands.cli", "list"],
            stdout=write,
            stderr=subprocess.PIPE,
            env=PYTHON,
            timeout=120,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fragmenta.commands.cli", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=PYTHON,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "Error: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_interrupting_is_silent() -> None:
    """Ctrl-C anywhere, imports included: status 130 and no traceback."""
    code = (
        "import signal, sys, fragmenta.commands.cli, fragmenta.commands.catalogue as c\n"
        "def stop(*words): signal.raise_signal(signal.SIGINT)\n"
        "c._chosen = stop\n"
        "sys.argv = ['fragmenta', 'list']\n"
        "fragmenta.commands.cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=PYTHON,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")


def terminal(words: Sequence[str], **variables: str) -> str:
    """What a question prints on a terminal."""
    pty = pytest.importorskip("pty")
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "fragmenta.commands.cli", *words],
        stdout=follower,
        stderr=follower,
        env={**PYTHON, "TERM": "xterm-256color", **variables},
    )
    os.close(follower)
    output = b""
    while True:
        try:
            more = os.read(leader, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not more:
            break
        output += more
    os.close(leader)
    assert child.wait(timeout=120) == 0
    return output.decode()


def test_colour_on_terminals_only_if_wanted() -> None:
    asked = ["where", S4, "A", "3", "17"]
    plain = answer(*asked)
    assert "\x1b[" in terminal(asked, NO_COLOR="")
    assert terminal(asked, NO_COLOR="1").replace("\r", "") == plain
    assert terminal(asked, TERM="dumb").replace("\r", "") == plain


# ── completion ──────────────────────────────────────────────────────────────


def complete(line: str) -> list[str]:
    """What bash would offer for the last word of a line."""
    done = shell(
        [],
        _FRAGMENTA_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(line.split(" ")) - 1),
    )
    return done.stdout.split()


def test_completion() -> None:
    assert complete("fragmenta wh") == ["where", "which"]
    assert complete("fragmenta where movmatrix") == [str(find("movmatrix"))]
    assert complete("fragmenta where x scale") == ["scale_A", "scale_B"]
    assert complete("fragmenta list --target sm_90") == ["sm_90", "sm_90a"]
    assert complete("fragmenta list --family mma") == ["mma", "mma.sp"]
    assert complete("fragmenta table x A --by ") == ["matrix", "lane"]


def test_completion_script() -> None:
    done = shell(["--show-completion", "bash"])
    assert "_FRAGMENTA_COMPLETE" in (done.stdout or shell(["--show-completion"]).stdout)


def test_a_column_that_is_not_stored_is_explained() -> None:
    said = " ".join(refusal("where", SPARSE, "A", 5, 63).split())
    assert "column 63 is one of stored columns 28..31, if metadata[5, 7]" in said
    found = json.loads(answer("where", SPARSE, "A", 5, 3, "--json"))
    assert found["columns"] == [0, 7]


def test_a_module_that_runs() -> None:
    words = [sys.executable, "-m", "fragmenta", "--version"]
    done = subprocess.run(
        words, env=PYTHON, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("fragmenta ")


def test_types_and_shapes_in_any_case() -> None:
    words = ("list", "--family", "mma")
    found = answer(*words, "--type", "S4", "--shape", "M16N8K64")
    assert found == answer(*words, "--type", "s4", "--shape", "m16n8k64")
    assert S4_FULL in found.split()


def test_a_register_that_is_not_there() -> None:
    said = refusal("holds", SPARSE, "metadata", "--lane", 13, "--register", 1)
    assert "register 1 is out of range; metadata has register 0 only" in said
    said = refusal("where", S4, "A", 10**23, 3)
    assert f"row {10**23} is out of range" in " ".join(said.split())
