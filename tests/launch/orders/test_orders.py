"""All orders of small kernels: wrong ones are found in one launch, right ones are clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall, KernelError, KernelHazard
from fragmenta.launch.orders.dependence import dependent
from fragmenta.ptx.reading import parse
from fragmenta.ptx.rules import named
from tests.asking import ask
from tests.launch.orders.cases import ROWS, launch, text
from tests.thinning import some

WRONG = [(name, bug) for name, row in ROWS.items() for bug in (*row.hangs, *row.others)]


def errors(result: Any) -> list[Any]:
    return [each for each in result.problems if each.severity == "error"]


@pytest.mark.parametrize("name", ROWS)
def test_a_right_kernel_is_clean_in_all_orders(name: str) -> None:
    result = launch(name, 0)
    assert result.orders.clean
    assert not errors(result)
    assert result.orders.verdict == "all orders"
    assert result.orders.reasons == ()
    assert result.orders.summary.startswith("no order hangs: ")


@pytest.mark.long
@pytest.mark.parametrize(("name", "bug"), WRONG)
def test_a_wrong_kernel_is_found(name: str, bug: int) -> None:
    result = launch(name, bug)
    assert errors(result)
    assert result.orders.hangs == (bug in ROWS[name].hangs)
    if result.orders.hangs:
        found = next(e for e in errors(result) if e.rule == "deadlock")
        assert "Then nobody can go on:" in found.message
        assert found.source is not None
        assert all(len(line) <= 80 for line in result.orders.text().splitlines())


@pytest.mark.parametrize(("name", "bug"), some(WRONG, 2))
def test_the_kind_is_the_rule_of_the_first_error(name: str, bug: int) -> None:
    """A cause comes before the hang that may follow from it."""
    with pytest.raises(KernelError) as caught:
        launch(name, bug, watch=True)
    if not isinstance(caught.value, KernelHazard):  # the launch itself has hung
        assert caught.value.kind == "deadlock"
        return
    wrong = [each.rule for each in caught.value.problems if each.severity == "error"]
    assert caught.value.kind == wrong[0]
    assert caught.value.kind == errors(launch(name, bug))[0].rule
    causes = [each for each in wrong if not named(each).consequence]
    assert wrong[: len(causes)] == causes


@pytest.mark.parametrize("name", ROWS)
def test_the_arrays_are_those_of_the_launch_itself(name: str) -> None:
    """The recorded run leaves no trace."""
    row = ROWS[name]
    given = []
    for options in ({}, {"orders": None}):
        before = [e.copy() if isinstance(e, np.ndarray) else e for e in row.arguments]
        kernel = ptx.parse(text(0)).kernels[name]
        how: dict[str, Any] = {"orders": "all", "cluster": row.cluster, **options}
        kernel.launch(row.grid, row.block, before, **how)
        given.append([np.asarray(each).tobytes() for each in before])
    assert given[0] == given[1]


def test_a_barrier_that_two_roles_share_hangs_in_another_order_only() -> None:
    """The launch itself ends, and collides; only some orders of the warps hang."""
    alone = launch("two_roles", 1, orders=None)
    assert {each.rule for each in errors(alone)} == {"barrier-collision"}
    found = errors(launch("two_roles", 1))
    assert {each.rule for each in found} == {"barrier-collision", "deadlock"}
    (hang,) = (each for each in found if each.rule == "deadlock")
    assert "where 32 of 64 threads" in " ".join(hang.message.split())
    with pytest.raises(KernelHazard) as caught:
        launch("two_roles", 1, watch=True)
    assert caught.value.kind == "barrier-collision"


def test_an_order_that_hangs_is_raised_though_the_launch_itself_is_clean() -> None:
    """Two locks in two orders: the blocks of the launch itself do not meet."""
    assert not errors(launch("locks", 1, orders=None))
    with pytest.raises(KernelHazard, match="Then nobody can go on:") as caught:
        launch("locks", 1, watch=True)
    assert caught.value.kind == "deadlock"
    (hang,) = (e for e in errors(caught.value.result) if e.rule == "deadlock")
    assert "take them in the same order" in " ".join(hang.hint.split())
    assert not errors(launch("locks", 0))


def test_the_parity_that_was_meant_is_named() -> None:
    story = launch("which_parity", 1).orders.text()
    assert "did you mean 0?" in " ".join(story.split())
    assert "nobody waited for it: parity 1" in " ".join(story.split())


def test_what_an_atomic_returned_is_followed() -> None:
    """Any of the blocks may be the last one: each of these orders hangs, or none."""
    result = launch("last_block", 1)
    assert result.orders.hangs
    assert result.orders.orders > 1


def test_a_limit_is_told() -> None:
    found = launch("ring", 0, orders=3).orders
    assert found.verdict == "incomplete"
    assert any("3 states" in each for each in found.reasons)


@pytest.mark.parametrize("orders", ["every", 0, -1, True, 1.5])
def test_other_orders_are_refused(orders: Any) -> None:
    with pytest.raises(BadCall, match="orders is 'all'"):
        launch("two_roles", 0, orders=orders)


def test_orders_need_the_launch_to_be_watched() -> None:
    with pytest.raises(BadCall, match="watched"):
        launch("two_roles", 0, watch=False)


# ── the command ─────────────────────────────────────────────────────────────


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def made(bug: int) -> str:
        Path("k.ptx").write_text(text(bug))
        return "k.ptx"

    return made


HEAD = """\
kernel        two_roles
target        sm_90a
grid          1
block         128
"""
"""What the command says before it explores."""


def test_the_command_tells_the_story(file: Any) -> None:
    words = ("orders", file(1), "two_roles", "--block", "128")
    result = ask(*words)
    assert result.exit_code == 1
    head, story = result.stdout[: len(HEAD)], result.stdout[len(HEAD) :]
    assert head == HEAD
    assert story.startswith("an order hangs, after ")
    assert "Then nobody can go on:" in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    found = json.loads(ask(*words, "--json").stdout)
    assert found["hangs"] is True
    assert (found["verdict"], found["coverage"]) == ("hangs", "all orders")
    assert not found["clean"]
    assert found["steps"][0]["line"] > 0
    assert {each["rule"] for each in found["problems"]} >= {"deadlock"}


def test_the_command_writes_sarif(file: Any) -> None:
    words = ("orders", file(1), "two_roles", "--block", "128", "--sarif", "k.sarif")
    assert ask(*words).exit_code == 1
    found = json.loads(Path("k.sarif").read_text())
    rules = [each["ruleId"] for each in found["runs"][0]["results"]]
    assert set(rules) == {"barrier-collision", "deadlock"}
    assert rules.count("deadlock") == 1


def test_the_command_says_that_no_order_hangs(file: Any) -> None:
    result = ask("orders", file(0), "two_roles", "--block", "128", "--limit", "100")
    assert result.exit_code == 0
    assert result.stdout == HEAD + "no order hangs: 1 order covers all, in 1 state\n"


def test_a_launch_may_ask_for_orders(file: Any) -> None:
    words = ("launch", file(1), "two_roles", "--block", "128", "--orders")
    assert ask(*words).exit_code == 1
    found = json.loads(ask(*words, "--json", "--problems", "report").stdout)
    assert found["orders"]["hangs"] is True


# ── branches on data ────────────────────────────────────────────────────────

_HEAD = """
.version 8.0
.target sm_90
.address_size 64
.entry f(.param .u64 at, .param .u32 n) {
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .b64 bar;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
"""
_DATA = {
    "an argument": ("setp.lt.u32 %p1, %r2, %r1; @%p1 bra L;", "bar.sync 0;", 0),
    "memory": (
        "ld.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L;",
        "bar.sync 0;",
        1,
    ),
    "memory, and no barrier": (
        "ld.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; @%p1 bra L;",
        "add.u32 %r4, %r4, 1;",
        0,
    ),
    "memory, through another branch": (
        "ld.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; mov.u32 %r4, 0; "
        "@%p1 bra M; mov.u32 %r4, 1; M: setp.eq.u32 %p2, %r4, 0; @%p2 bra L;",
        "bar.sync 0;",
        1,
    ),
    "an operand": ("ld.shared.u32 %r3, [bar];", "bar.sync %r3;", 1),
    "a flag, in a loop": (
        "W: ld.acquire.gpu.global.u32 %r3, [%rd1]; setp.eq.u32 %p1, %r3, 0; "
        "@%p1 bra W;",
        "bar.sync 0;",
        0,
    ),
}


@pytest.mark.parametrize("case", _DATA)
def test_branches_on_data_are_found(case: str) -> None:
    before, after, count = _DATA[case]
    module = parse(f"{_HEAD} {before} {after} L: ret; }}")
    found = [each for each in dependent(module, "f") if not each.word]
    assert len(found) == count
