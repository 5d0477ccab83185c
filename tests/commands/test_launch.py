"""`fragmenta launch` runs kernels, shows what they did, and refuses in words."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from fragmenta.commands.launch_arguments import read_arguments
from tests.asking import answer, ask, complaint, page

AXPY = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .f32 a, .param .u64 .ptr .global .align 4 x,
                     .param .u64 y, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    ld.param.f32 %f0, [a];
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    setp.ge.u32 %p, %r1, %r0;
    @%p ret;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    ld.global.f32 %f2, [%rd4];
    fma.rn.f32 %f2, %f0, %f1, %f2;
    st.global.f32 [%rd4], %f2;
    ret;
}
"""
MORE = """
.visible .entry fixed(.param .b32 n, .param .align 8 .b8 pair[16], .param .u16 half)
.reqntid 64
{
    ret;
}
.visible .entry forever()
{
LOOP:
    bra LOOP;
}
"""
ASKED = ("axpy.ptx", "--grid", "2", "--block", "4")
ARGS = ("--arg", "f32:2", "--arg", "arange:f32:6", "--arg", "ones:f32:2x3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("axpy.ptx").write_text(AXPY)
    Path("more.ptx").write_text(AXPY + MORE)
    return tmp_path


# ── what happened ───────────────────────────────────────────────────────────


def test_a_launch_is_shown_and_saved() -> None:
    text = page("launch", *ASKED, *ARGS, "--arg", "i32:6", "--save", "2=y.npy")
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["kernel"].split() == ["kernel", "axpy"]
    assert lines["grid"].split() == ["grid", "2"]
    assert lines["instructions"].split()[1] == "36"
    assert "exact by IEEE 754" in lines["fidelity"]
    assert lines["1"].split() == ["1", "x", "f32", "6", "none", "0", "5", "0"]
    assert lines["2"].split() == ["2", "y", "f32", "2x3", "5", "1", "11", "0"]
    found = np.load("y.npy")
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 3, 5], [7, 9, 11]]


def test_json_has_everything() -> None:
    text = answer(
        "launch", *ASKED, *ARGS, "--arg", "i32:5", "--json", "--target", "sm_90a"
    )
    found = json.loads(text)
    assert (found["kernel"], found["target"]) == ("axpy", "sm_90a")
    assert (found["grid"], found["block"]) == ([2], [4])
    assert sum(found["counts"].values()) == found["instructions"]
    x, y = found["arrays"]
    assert (x["changed"], x["argument"], x["name"]) == (0, 1, "x")
    assert (y["changed"], y["size"], y["shape"]) == (4, 6, [2, 3])
    assert (y["least"], y["most"], y["nan"]) == (1, 9, 0)


def test_files_are_arguments(folder: Path) -> None:
    np.save("x.npy", np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3)))
    words = ("--arg", "f32:1", "--arg", "x.npy", "--arg", "zeros:f32:6")
    answer("launch", *ASKED, *words, "--arg", "u32:6", "--save", "2=y.npy")
    assert np.load("y.npy").tolist() == [0, 1, 2, 3, 4, 5]
    assert np.load("x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_pointers_reach_into_other_arrays() -> None:
    words = ("--arg", "f32:1", "--arg", "pointer:2+8", "--arg", "arange:f32:6")
    answer("launch", *ASKED, *words, "--arg", "u32:4", "--save", "2=y.npy")
    # All lanes of a warp read before one of them writes.
    assert np.load("y.npy").tolist() == [2, 4, 6, 8, 4, 5]


def test_numbers_of_nan_are_counted() -> None:
    words = ("--arg", "f32:nan", "--arg", "ones:f32:6", "--arg", "ones:f32:6")
    found = json.loads(answer("launch", *ASKED, *words, "--arg", "u32:4", "--json"))
    assert found["arrays"][1]["nan"] == 4


def test_printed_text_comes_last() -> None:
    from tests.ptx import recordings

    launch = next(each for each in recordings.of_source("printing") if each.row.printed)
    Path("p.ptx").write_text(launch.file.texts[launch.row.text][1])
    words = []
    for spec in launch.row.arguments:
        shape = "x".join(map(str, spec.get("shape", ())))
        kind = f"{spec['type']}:{spec['value']}" if not shape else None
        words += ["--arg", kind or f"zeros:{spec['type']}:{shape}"]
    sizes = [",".join(map(str, side)) for side in (launch.row.grid, launch.row.block)]
    asked = ("p.ptx", launch.row.entry, "--grid", sizes[0], "--block", sizes[1], *words)
    text = answer("launch", *asked)
    printed = text.partition("\nprinted\n")[2]
    assert printed
    assert (
        json.loads(answer("launch", *asked, "--json"))["output"].strip()
        == printed.strip()
    )


def test_problems_of_the_file_are_counted() -> None:
    setp = "    setp.ge.u32 %p, %r1, %r0;"
    early = AXPY.replace(setp, f"    add.u32 %r0, %r0, %r4;\n{setp}")
    Path("axpy.ptx").write_text(
        early.replace("    ret;\n}", "    mov.u32 %r4, 0;\n    ret;\n}")
    )
    asked = ("launch", *ASKED, *ARGS, "--arg", "i32:6")
    assert "problems      1 warning\n" in page(*asked)
    (found,) = json.loads(answer(*asked, "--json"))["problems"]
    assert found["rule"] == "uninitialised"


# ── the list ────────────────────────────────────────────────────────────────


def test_kernels_are_listed() -> None:
    text = page("launch", "more.ptx", "--list")
    assert text.splitlines()[0].split() == ["axpy", "sm_80"]
    assert "   1  .u64     x  ptr global align 4" in text
    assert "  .reqntid 64" in text
    assert "   1  .b8[16]  pair" in text
    found = json.loads(answer("launch", "more.ptx", "fixed", "--list", "--json"))
    assert [each["kernel"] for each in found] == ["fixed"]
    assert [each["size"] for each in found[0]["parameters"]] == [4, 16, 2]


def test_no_kernels() -> None:
    Path("none.ptx").write_text(".version 8.0 .target sm_80 .address_size 64")
    result = ask("launch", "none.ptx", "--list")
    assert result.exit_code == 1
    assert "has no kernels" in result.stderr


# ── faults ──────────────────────────────────────────────────────────────────


def test_a_fault_is_told_as_compilers_do() -> None:
    result = ask("launch", *ASKED, *ARGS, "--arg", "i32:8", "--save", "2=y.npy")
    assert result.exit_code == 1
    line = AXPY.splitlines().index("    ld.global.f32 %f1, [%rd3];") + 1
    first, *rest = result.stderr.splitlines()
    assert first.startswith(f"axpy.ptx:{line}: error: out of bounds: ld.global.f32")
    assert any("thread (2, 0, 0) of block (1, 0, 0)" in each for each in rest)
    assert not Path("y.npy").exists()
    result = ask("launch", *ASKED, *ARGS, "--arg", "i32:8", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (found["fault"], found["line"]) == ("bounds", line)
    assert (found["block"], found["thread"]) == ([1, 0, 0], [2, 0, 0])


def test_a_limit_ends_what_never_ends() -> None:
    result = ask("launch", "more.ptx", "forever", "--block", "1", "--limit", "1000")
    assert result.exit_code == 1
    assert "more than 1,000 warp instructions" in result.stderr


def test_a_schedule_is_saved_and_repeated() -> None:
    words = ("launch", *ASKED, *ARGS, "--arg", "i32:6")
    first = ("--schedule", "lazy+oldest-waits", "--save-schedule", "first.json")
    answer(*words, *first)
    answer(*words, "--schedule", "first.json", "--save-schedule", "second.json")
    found = json.loads(Path("first.json").read_text())
    assert found["turns"] == {"0": [[0, 0]], "1": [[0, 0]]}
    assert json.loads(Path("second.json").read_text()) == found
    failing = ("launch", "more.ptx", "forever", "--block", "1", "--limit", "1000")
    ask(*failing, "--schedule", "in-steps", "--save-schedule", "third.json")
    assert json.loads(Path("third.json").read_text())["turns"]["0"][0] == [0, 0]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), ("{", "is not JSON"), ("[]", "has no schedule")],
)
def test_a_file_without_a_schedule(content: str | None, said: str) -> None:
    if content is not None:
        Path("turns.json").write_text(content)
    result = ask("launch", *ASKED, *ARGS, "--arg", "i32:6", "--schedule", "turns.json")
    assert result.exit_code == 2
    assert said in result.stderr


# ── refusals ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("none.npy", "No such file"),
        ("x.txt", "neither a .npy file nor an argument"),
        ("zero:f32:4", "did you mean zeros?"),
        ("zeros:f31:4", "no type f31 (did you mean f32?)"),
        ("zeros:f32", "it is written zeros:TYPE:SHAPE"),
        ("zeros:f32:4:5", "it is written zeros:TYPE:SHAPE"),
        ("zeros:f32:4,5", "SHAPE is numbers with x between them"),
        ("zeros:f32:-4", "SHAPE is numbers with x between them"),
        ("zeros:f32:999999x999999", "at most 4,294,967,296 bytes"),
        ("zeros:f32:" + "9" * 5000, "at most"),
        ("full:f16:4:1e6", "f16 cannot hold 1e+06"),
        ("full:e4m3:4:inf", "e4m3 cannot hold inf"),
        ("full:i8:4:300", "do not fit i8"),
        ("full:i8:4:x", "the VALUE of i8 is a whole number"),
        ("arange:i8:300", "i8 counts to 127, not to 299"),
        ("arange:f16:70000", "f16 cannot hold"),
        ("random:f32:4:x", "SEED is a whole number"),
        ("i32:1.5", "the VALUE of i32 is a whole number; given '1.5'"),
        ("i32:" + "9" * 5000, "do not fit i32"),
        ("f32:one", "the VALUE of f32 is a number"),
        ("f32:1e60", "f32 cannot hold 1e+60"),
        ("u8:-1", "do not fit u8"),
        ("bytes:0g", "two hexadecimal digits"),
        ("pointer:9", "argument 9 is no array; there is none"),
        ("pointer:x", "a pointer is pointer:INDEX[+OFFSET]"),
        ("", "neither a .npy file nor an argument"),
    ],
)
def test_arguments_that_are_none(text: str, said: str) -> None:
    told = complaint("launch", "axpy.ptx", "--block", "1", "--arg", text)
    assert said in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.ptx",), "none.ptx"),
        (("axpy.ptx", "axpi"), "no kernel axpi (did you mean axpy?)"),
        (("more.ptx",), "more.ptx has 3 kernels, name one: axpy, fixed and forever"),
        (("axpy.ptx",), "--block is missing"),
        (("axpy.ptx", "--block", "0"), "a block has 1 to 1,024 threads"),
        (("axpy.ptx", "--block", "8x8"), "one to three whole numbers, such as 8"),
        (("axpy.ptx", "--grid", "1,2,3,4", "--block", "1"), "one to three whole"),
        (("axpy.ptx", "--block", "1", "--grid", "-1"), "grid is one to three"),
        (("axpy.ptx", "--block", "1"), "axpy has 4 parameters: a (a f32), x"),
        (("axpy.ptx", "--block", "1", "--save", "0=y.npy"), "argument 0 is no array"),
        (
            ("axpy.ptx", "--block", "1", "--save", "y.npy"),
            "--save takes INDEX=FILE.npy",
        ),
        (
            ("axpy.ptx", "--block", "1", "--arg", "i32:2"),
            "argument 0 (a) is a .f32 of 4 bytes, i32 has 4; write f32:2",
        ),
        (("axpy.ptx", "--block", "1", "--arg", "f64:2"), "f64 has 8; write f32:2"),
        (
            ("axpy.ptx", "--block", "1", "--shared", "999999", *ARGS, "--arg", "i32:1"),
            "has 166,912 bytes of shared memory",
        ),
        (
            ("axpy.ptx", "--block", "1", "--target", "sm_1", *ARGS, "--arg", "i32:1"),
            "sm_1",
        ),
        (
            (
                "more.ptx",
                "fixed",
                "--block",
                "32",
                "--arg",
                "i32:1",
                "--arg",
                "bytes:" + "00" * 16,
                "--arg",
                "u16:1",
            ),
            "needs blocks of (64, 1, 1)",
        ),
        (
            (
                "more.ptx",
                "fixed",
                "--arg",
                "i32:1",
                "--arg",
                "bytes:0011",
                "--arg",
                "u16:1",
            ),
            "pair) has 16 bytes; given bytes of 2",
        ),
    ],
)
def test_questions_that_have_no_answer(words: tuple[str, ...], said: str) -> None:
    assert said in complaint("launch", *words)


def test_the_kernel_may_say_its_block() -> None:
    struct = "bytes:" + "00" * 16
    words = ("--arg", "b32:7", "--arg", struct, "--arg", "u16:1")
    found = json.loads(answer("launch", "more.ptx", "fixed", *words, "--json"))
    assert found["block"] == [64]


def test_nothing_is_overwritten_silently() -> None:
    Path("y.npy").write_bytes(b"precious")
    words = (*ASKED, *ARGS, "--arg", "i32:6", "--save", "2=y.npy")
    assert "y.npy already exists; --force overwrites it" in complaint("launch", *words)
    assert Path("y.npy").read_bytes() == b"precious"
    answer("launch", *words, "--force")
    assert np.load("y.npy").shape == (2, 3)
    told = complaint("launch", *ASKED, *ARGS, "--arg", "i32:6", "--save", "2=y.txt")
    assert "--save must name a .npy file" in told
    twice = ("--save", "1=z.npy", "--save", "2=z.npy")
    assert "a file one array" in complaint(
        "launch", *ASKED, *ARGS, "--arg", "i32:6", *twice
    )


# ── arguments ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["bf16", "e4m3", "e5m2", "f16", "f32", "f64"])
def test_values_in_every_type(kind: str) -> None:
    full, ones, counted, scalar = read_arguments(
        [
            f"full:{kind}:2x2:-1.5",
            f"ones:{kind}:3",
            f"arange:{kind}:4",
            f"{kind}:0x1.8p1",
        ]
    )
    assert full.elements.astype(float).tolist() == [[-1.5, -1.5], [-1.5, -1.5]]
    assert ones.elements.astype(float).tolist() == [1, 1, 1]
    assert counted.elements.astype(float).tolist() == [0, 1, 2, 3]
    assert scalar.elements is None
    exact = {
        "bf16": ml_dtypes.bfloat16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "f16": "f2",
        "f32": "f4",
        "f64": "f8",
    }
    assert scalar.value.tobytes() == np.array(3, exact[kind]).tobytes()


def test_random_arrays_are_the_same_everywhere() -> None:
    one, two, three = read_arguments(["random:f32:4", "random:f32:4", "random:f32:4:0"])
    assert not np.array_equal(one.value, two.value)
    assert np.array_equal(one.value, three.value)
    assert one.value.tolist() == RANDOM
    (whole,) = read_arguments(["random:u32:1000:5"])
    assert np.unpackbits(whole.value.view(np.uint8)).mean() == pytest.approx(
        0.5, abs=0.02
    )


RANDOM = [
    1.4434242248535156,
    0.14059066772460938,
    -1.4682846069335938,
    1.1308403015136719,
]


def test_names_of_the_ptx_manual_are_types() -> None:
    signed, bits, hexadecimal = read_arguments(["s32:-5", "b64:7", "u32:0xff"])
    assert (signed.value, bits.value) == (np.int32(-5), np.uint64(7))
    assert hexadecimal.value == 255
    assert bits.value.dtype == np.uint64


def test_a_type_without_a_name_is_bytes(folder: Path) -> None:
    np.save("c.npy", np.arange(4, dtype=np.complex64))
    np.save("b.npy", np.arange(4).astype(ml_dtypes.bfloat16).view("V2"))
    found, raw = read_arguments(["c.npy", "b.npy"])
    assert (found.value.dtype, found.value.shape) == (np.uint8, (32,))
    assert raw.value.nbytes == 8
