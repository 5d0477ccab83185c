"""What a text can ask for without end has a limit, and an error in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.launch import grid
from fragmenta.launch.limits import BETWEEN, LINES_A_SECOND, Limits, Meter, check_limits
from tests.ptx.test_linear import HEAD, kernel

PRINTF = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
PRINT = """{
.param .b64 a; .param .b64 b; .param .b32 r;
mov.u64 %rd3, words; cvta.global.u64 %rd3, %rd3; st.param.b64 [a], %rd3;
mov.u64 %rd4, 0; st.param.b64 [b], %rd4; call (r), vprintf, (a, b); }
"""


def words(text: str) -> str:
    """A variable with a text, and printf."""
    data = ", ".join(str(ord(letter)) for letter in text)
    return f"{PRINTF}.global .b8 words[{len(text) + 1}] = {{{data}, 0}};\n"


def launch(text: str, **options: Any) -> Any:
    data = np.zeros(64, np.uint32)
    given = [bytes(8)] if "big_parameter" in text else [data]
    options.setdefault("watch", False)
    return ptx.parse(text).kernels["f"].launch(1, 1, given, **options)


# ── declared sizes ──────────────────────────────────────────────────────────

GIANT = 1 << 30
DECLARED = {
    "local": (kernel(".local .b8 b[65536][65536]; st.local.u8 [b], 1;"), "524,288"),
    "two locals": (
        kernel(".local .b8 a[400000]; .local .b8 b[400000]; st.local.u8 [a], 1;"),
        "800,000",
    ),
    "local of a function": (
        kernel("call g;", f".func g() {{ .local .b8 b[{GIANT}]; ret; }}\n"),
        "g declares 1,073,741,824",
    ),
    "local of a function that calls itself": (
        kernel(
            "call g;", ".func g() { .local .b8 b[65536][65536][256]; call g; ret; }\n"
        ),
        "g declares",
    ),
    "parameter of a function": (
        kernel("call g;", f".func g(.param .b8 a[{GIANT}]) {{ ret; }}\n"),
        "g declares",
    ),
    "parameter in a call": (kernel(f"{{ .param .b8 p[{GIANT}]; }}"), "f declares"),
    "parameter of a kernel": (
        f"{HEAD}.entry f(.param .b8 big_parameter[{GIANT}]) {{ ret; }}",
        "32,764",
    ),
    "shared": (
        kernel("st.shared.u8 [s], 1;", f".shared .b8 s{'[2]' * 62};\n"),
        "232,448",
    ),
    "global": (kernel("", f".global .b8 big{'[2]' * 62};\n"), "memory="),
    "constant": (kernel("", f".const .b8 big{'[2]' * 62};\n"), "memory="),
    "several": (
        kernel("", ".global .b8 a[65536][65536][4096];\n.global .b8 b[1];\n"),
        "memory",
    ),
}


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("check", [False, True])
def test_declared_sizes_are_refused_in_words(name: str, check: bool) -> None:
    text, said = DECLARED[name]
    with pytest.raises(fm.Error, match=said):
        launch(text, watch=check and "report")


def test_a_variable_has_as_many_bytes_as_there_are_addresses() -> None:
    text = kernel("ld.global.u8 %r1, [big];", ".global .b8 big[65536][65536][32];\n")
    with pytest.raises(fm.errors.ValueRangeError, match="at most 68,719,476,736"):
        launch(text, limits=ptx.Limits(memory=1 << 50))


def test_an_array_has_as_many_bytes_as_there_are_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fragmenta.engine.simt.layout.FIRST_SLOT", 1 << 10)
    found = ptx.parse(kernel("")).kernels["f"]
    found.launch(1, 1, [np.zeros(1024, np.uint8)], watch=False)
    with pytest.raises(fm.errors.ValueRangeError, match="the most is 1,024"):
        found.launch(1, 1, [np.zeros(1025, np.uint8)], watch=False)


def test_what_fits_runs() -> None:
    body = ".local .b8 b[524288]; st.local.u8 [b+524287], 1;"
    assert launch(kernel(body)).instructions


# ── time, memory, code ──────────────────────────────────────────────────────

#: It counts: a loop in which nothing changes is told at once.
ENDLESS = kernel(".reg .u64 %n; mov.u64 %n, 0; L: add.u64 %n, %n, 1; bra L;")


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("grid", [1, 64])
def test_a_loop_without_an_end_has_an_end(check: bool, grid: int) -> None:
    data = np.zeros(1, np.uint32)
    found = ptx.parse(ENDLESS).kernels["f"]
    with pytest.raises(
        fm.errors.LimitReached, match=r"seconds=\)\) allows more"
    ) as why:
        found.launch(
            grid, 32, [data], watch=check and "report", limits=ptx.Limits(seconds=0.2)
        )
    assert why.value.kind == "seconds"


def test_a_loop_in_which_nothing_changes_needs_no_limit() -> None:
    with pytest.raises(
        fm.errors.KernelFault, match="spins or waits; nothing changes"
    ) as why:
        launch(kernel("L: bra L;"))
    assert why.value.kind == "deadlock"
    assert "the loop has no end" in why.value.hint
    assert "barrier" not in why.value.hint


def test_a_loop_before_a_barrier_leaves_the_others_waiting() -> None:
    text = (
        ".reg .pred %first; .reg .b32 %t; mov.u32 %t, %tid.x; "
        "setp.lt.u32 %first, %t, 32; @%first bra L; "
        "bar.sync 0; bra END; L: bra L; END: ret;"
    )
    with pytest.raises(fm.errors.KernelFault, match="nothing changes") as why:
        ptx.parse(kernel(text)).kernels["f"].launch(1, 64, [np.zeros(1, np.uint32)])
    assert "does not come to the barrier" in str(why.value)
    assert "the loop has no end" not in why.value.hint


def test_a_long_kernel_is_not_compiled() -> None:
    text = kernel("mov.u32 %r1, 5;\n" * (LINES_A_SECOND // 20 + 100))
    with pytest.raises(
        fm.errors.LimitReached, match=r"takes more than 0\.05 s to compile"
    ):
        launch(text, limits=ptx.Limits(seconds=0.05))


@pytest.mark.parametrize(
    "text, memory",
    [
        (kernel("mov.u32 %r1, 5;\n" * 3000), 1 << 20),
        (kernel(".local .b8 b[400000]; st.local.u8 [b], 1;"), 10 << 20),
        (kernel("", ".global .b8 big[20000000];\n"), 10 << 20),
    ],
    ids=["code", "blocks", "variables"],
)
@pytest.mark.parametrize("blocks", [1, 4])
def test_memory_is_asked_for_first(
    text: str, memory: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One block runs in the thread of the caller, several in threads of their own."""
    monkeypatch.setattr(grid, "cores", lambda: 2)
    found = ptx.parse(text).kernels["f"]
    limits = ptx.Limits(memory=memory)
    with pytest.raises(fm.errors.LimitReached, match="memory=") as why:
        found.launch(blocks, 256, [np.zeros(1)], watch=False, limits=limits)
    assert why.value.kind == "memory"


def test_a_process_that_grows_is_seen() -> None:
    now, used = [0.0], [1000]
    meter = Meter(Limits(None, 500, None), lambda: now[0], lambda: used[0])
    used[0] = 1600
    meter.check()  # it is not yet time to look
    now[0] += 2 * BETWEEN
    with pytest.raises(fm.errors.LimitReached, match="uses 600 bytes of memory; 500"):
        meter.check()


@pytest.mark.parametrize("blocks", [1, 4])
def test_memory_that_the_system_does_not_give(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "cores", lambda: 2)
    found = ptx.parse(kernel("")).kernels["f"]

    def none(size: int) -> Any:
        raise MemoryError(f"no {size} bytes")

    monkeypatch.setattr("fragmenta.engine.simt.context.aligned", none)
    with pytest.raises(
        fm.errors.LimitReached, match="no memory left for the launch: no "
    ):
        found.launch(blocks, 32, [np.zeros(1)], watch=False)


@pytest.mark.parametrize("name", ["seconds", "memory", "output", "stack"])
@pytest.mark.parametrize("wrong", [-1, "1", 1j, True, [], np.zeros(2), float("nan")])
def test_limits_are_numbers(name: str, wrong: Any) -> None:
    with pytest.raises(fm.Error, match=f"^{name} is "):
        check_limits(ptx.Limits(**{name: wrong}))


# ── text ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "conversion",
    [
        "%2000000000d",
        "%.2000000000f",
        "%-2000000000s",
        "%99999999999999999999x",
        "%.99999999999c",
        "%65537d",
        "%.65537e",
    ],
)
def test_widths_have_an_end(conversion: str) -> None:
    with pytest.raises(fm.errors.KernelFault, match="at most 65,536"):
        launch(kernel(PRINT, words(conversion)))


def test_widths_from_memory_have_an_end() -> None:
    given = "st.global.u32 [%rd1], 2000000000;"
    body = given + PRINT.replace("mov.u64 %rd4, 0;", "mov.u64 %rd4, %rd1;")
    with pytest.raises(fm.errors.KernelFault, match=r"2000000000.*at most 65,536"):
        launch(kernel(body, words("%*d")))


def test_a_kernel_prints_so_much_and_no_more() -> None:
    text = kernel(PRINT * 3, words("%10d"))
    assert len(launch(text, limits=ptx.Limits(output=30)).output) == 30
    with pytest.raises(fm.errors.LimitReached, match="more than 29 characters") as why:
        launch(text, limits=ptx.Limits(output=29))
    assert (why.value.kind, len(why.value.output)) == ("output", 20)


@pytest.mark.parametrize(
    "declared, call",
    [
        ("(.param .b32 r) vprintf(.param .b64 a)", "call (r), vprintf, (a);"),
        (
            "(.param .b32 r) vprintf(.param .b64 a, .param .b64 b)",
            "call (r), vprintf, (c, c);",
        ),
        (
            "(.param .b32 r) vprintf(.param .b64 a, .param .b64 b)",
            "call (a), vprintf, (a, a);",
        ),
        ("vprintf(.param .b64 a, .param .b64 b)", "call vprintf, (a, a);"),
        ("__assertfail(.param .b64 a)", "call __assertfail, (a);"),
        ("(.param .b64 r) malloc()", "call (a), malloc;"),
    ],
)
def test_the_host_trusts_no_declaration(declared: str, call: str) -> None:
    body = f"{{ .param .b64 a; .param .b32 c; .param .b32 r; {call} }}"
    with pytest.raises(fm.Error, match="takes parameters of"):
        launch(kernel(body, f".extern .func {declared};\n"))


# ── calls ───────────────────────────────────────────────────────────────────

G = ".func (.param .b32 r) g(.param .b32 a) { ret; }\n"
SHARED_COPY = (
    ".shared .align 16 .b8 s[1024]; mov.u32 %r2, s; "
    "cp.async.ca.shared.global [%r2], [%rd1], {}; cp.async.wait_all;"
)
WRONG = {
    "call nothing;": ("", "nothing is not declared"),
    "call gg, (5);": (G, "gg is not declared.*did you mean g"),
    "call g;": (G, "g has 1 parameters, 1 results; the call has 0 and 0"),
    "call (%r1), g, (%r1, %r2);": (G, "the call has 2 and 1"),
    "call (%r1, %r2), g, (%r1);": (G, "the call has 1 and 2"),
    "call f, (%rd1);": ("", "f is a kernel, which cannot be called"),
    "call (%r1), (%r1);": (G, "a call names a function"),
    "brx.idx %r1, nothing;": ("", "nothing is no"),
    **{SHARED_COPY.format(n): ("", "4, 8 or 16") for n in (0, -4, 3, 1 << 20)},
}


@pytest.mark.parametrize("body", WRONG)
@pytest.mark.parametrize("watch", [False, True])
def test_a_wrong_call_is_refused_in_words(body: str, watch: bool) -> None:
    before, said = WRONG[body]
    with pytest.raises(fm.Error, match=said):
        launch(kernel(body, before), watch=watch)
