"""The page of a recorded run: up to date, small, and it says what Python says.

``make looks`` uses the page in a browser.
"""

import hashlib
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx.hazards import cases, running
from tests.replay.kernels import copied
from tests.replay.test_lost import changed
from tests.thinning import THOROUGH
from tests.view.test_explorer import IMPORT, Nesting
from tests.view.test_explorer_page import EXPLORER, need

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src" / "fragmenta" / "inspect" / "view" / "replay.html"
ROOMS = ["recording", "session", "views"]
REBUILD = "run: node explorer/build.mjs --replay"
sources = pytest.mark.skipif(
    not (EXPLORER / "replay").is_dir(), reason="no sources in an installed package"
)


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


@sources
def test_page_is_built_from_these_sources(page):
    [names] = re.findall(r'name="sources" content="([^"]*)"', page)
    own = {
        str(each.relative_to(EXPLORER))
        for each in (EXPLORER / "replay").rglob("*")
        if each.is_file()
    }
    assert own <= set(names.split()), REBUILD
    digest = hashlib.sha256()
    for name in sorted(names.split()):
        digest.update(name.encode() + b"\0" + (EXPLORER / name).read_bytes() + b"\0")
    assert f'name="sources-digest" content="{digest.hexdigest()}"' in page, REBUILD


@sources
def test_each_room_of_the_script_imports_from_rooms_before_it():
    folder = EXPLORER / "replay"
    assert {each.name for each in folder.iterdir() if each.is_dir()} == set(ROOMS)
    wrong = []
    for path in folder.glob("*/*.ts"):
        for _, source in IMPORT.findall(path.read_text(encoding="utf-8")):
            found = (path.parent / source).resolve().relative_to(EXPLORER).parts
            # The explorer's rooms come before all of these.
            room = -1 if found[0] == "src" else ROOMS.index(found[1])
            if room > ROOMS.index(path.parent.name):
                wrong.append(f"{path.name} imports {source}")
    assert not wrong


def test_page_is_small_and_asks_for_nothing(page):
    assert len(page.encode()) < 300_000
    assert page.count("<!-- replay -->") == 1
    # The name of SVG is no address that anybody asks for.
    assert not re.search(r"https?://(?!www\.w3\.org/)", page)
    assert not re.search(r"<(script|img|iframe)[^>]*\ssrc=", page)
    assert "@import" not in page


def test_page_is_well_formed(page):
    nesting = Nesting()
    nesting.feed(page)
    nesting.close()
    assert nesting.open == []
    assert len(nesting.ids) == len(set(nesting.ids))


@pytest.mark.xdist_group("explorer")
def test_questions_about_a_made_recording():
    need("whether the replay finds what a plain loop finds")
    done = subprocess.run(
        ["node", "tests/replay/queries.mjs"],
        cwd=EXPLORER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


SMALL = """
.version 8.0 .target sm_80 .address_size 64
.visible .entry halves(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<3>; .reg .pred %p<2>;
    .shared .align 16 .f32 tile[256];
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 16;
    add.s64 %rd4, %rd1, %rd3;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 4;
    add.u32 %r3, %r3, %r2;
    cp.async.cg.shared.global [%r3], [%rd4], 16;
    cp.async.wait_all;
    bar.sync 0;
    xor.b32 %r4, %r3, 512;
    ld.shared.f32 %f1, [%r4];
    mul.f32 %f2, %f1, 0f3F000000;
    setp.lt.f32 %p1, %f2, 0f40000000;
    @%p1 st.shared.f32 [%r4], %f2;
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd2, %rd5;
    st.global.f32 [%rd6], %f2;
    ret;
}"""


def small():
    kernel = ptx.parse(SMALL).kernels["halves"]
    given = np.arange(256, dtype=np.float32) / 32
    arguments = [given, np.zeros(64, np.float32)]
    return kernel.launch(1, 64, arguments, schedule="lazy", replay=True).replay()


LAUNCHES = [
    ("plain", "double_buffer", 1, "lazy"),
    ("plain", "double_buffer", 0, "eager"),
    ("plain", "exchange", 1, "eager"),
    ("plain", "warp_sum", 0, "eager"),
    ("plain", "unset_register", 1, "eager"),
    ("tiles", "scanned", 1, "eager"),
    ("tiles", "branched", 0, "lazy"),
    ("barriers", "circle", 0, "eager"),
    ("values", "two_warps_global", 1, "eager"),
    ("maps", "box", 0, "lazy"),
    ("maps", "box", 1, "lazy"),
    ("pairs", "early_release", 1, "lazy"),
    ("products", "early_sums", 0, "lazy"),
    ("products", "a_registers", 1, "lazy"),
    ("clusters", "shared_ring", 1, "lazy"),
    ("idioms", "ring_wgmma", 0, "lazy"),
    ("idioms", "ring_ldmatrix", 0, "lazy"),
    ("tensor", "pipeline", 0, "lazy"),
    ("tensor", "pipeline", 1, "lazy"),
    ("lifetimes", "two_roles", 1, "lazy"),
]


def recorded(source, entry, bug, schedule):
    row = next(
        each for each in cases.ROWS if (each.source, each.entry) == (source, entry)
    )
    kernel = running.loaded(source, bug).kernels[entry]
    options = {"cluster": row.cluster} if row.cluster > 1 else {}
    arguments = running.for_launch(row, running.made(row))
    return kernel.launch(
        row.grid,
        row.block,
        arguments,
        schedule=schedule,
        watch="report",
        replay=True,
        **options,
    ).replay()


def asked(replay, seed):
    """Questions about some steps, bytes and lines."""
    rng = np.random.default_rng(seed)
    steps = sorted({0, len(replay) - 1, *rng.integers(0, len(replay), 12).tolist()})
    # Leaps, forwards and backwards.
    leaps = rng.permutation(steps).tolist()
    warps = range(len(replay.warps))
    lines = sorted({each.ptx_line for each in replay.sites})[::7]
    return {
        "registers": [[step, int(rng.choice(warps))] for step in leaps],
        "memory": [[s, m] for s in leaps for m in range(len(replay.memories))],
        "byte": [
            [int(rng.choice(steps)), memory, int(rng.integers(0, each.size))]
            for memory, each in enumerate(replay.memories)
            for _ in range(8)
            if each.size
        ],
        "next": [
            [s, int(rng.choice(warps)), bool(back)] for s in leaps for back in (0, 1)
        ],
        "bytes": [written(replay, rng) for _ in range(40)],
        "line": [[replay.ptx_file, line] for line in lines],
    }


def written(replay, rng):
    """A byte that somebody writes, mostly a unit, and a step afterwards."""
    columns = replay.columns
    units = np.flatnonzero(columns["w_unit"] >= 0)
    every = units if units.size and rng.random() < 0.8 else columns["w_step"]
    write = int(rng.choice(units) if every is units else rng.integers(len(every)))
    memory, first, size, step = (
        int(columns[f"w_{name}"][write])
        for name in ("memory", "offset", "size", "step")
    )
    step = min(len(replay) - 1, step + int(rng.integers(3)))
    return [step, memory, first + int(rng.integers(max(1, size)))]


def words(value):
    """A register by lane as unsigned numbers."""
    if value.ndim == 2:
        return [int(low) | int(high) << 64 for low, high in value]
    if value.dtype == bool:
        return value.tolist()
    return value.view(f"u{value.itemsize}").tolist()


FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def read(kind, text):
    """The bits of a value that the page has written out; None for a NaN."""
    halves = re.fullmatch(r"(\w+)x2", kind)
    if halves:
        both = [read(halves[1], each) for each in text.split(", ")]
        return None if None in both else both[0] | both[1] << 16
    if kind == "pred":
        return text == "true"
    if kind == "bf16":
        whole = read("f32", text)
        return None if whole is None else whole >> 16
    if kind in FLOATS:
        value = FLOATS[kind](text)
        return None if np.isnan(value) else int(value.view(f"u{value.itemsize}"))
    if kind.startswith("b"):
        return int(text, 16)
    return int(text) & (1 << int(kind[1:])) - 1


def answered(page, questions):
    """What the script of a page says."""
    done = subprocess.run(
        ["node", "tests/replay/evaluate.mjs", str(page)],
        cwd=EXPLORER,
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize("launch", [None, *(LAUNCHES if THOROUGH else [])], ids=str)
def test_page_says_what_python_says(launch, tmp_path):
    need("whether the replay page shows what Python has recorded")
    replay = small() if launch is None else recorded(*launch)
    assert isinstance(replay, ptx.Replay)
    replay.to_html(tmp_path / "replay.html")
    questions = asked(replay, seed=len(replay))
    said = answered(tmp_path / "replay.html", questions)
    compare_registers(replay, questions, said)
    compare_memory(replay, questions, said)
    for (step, warp, back), found in zip(questions["next"], said["next"], strict=True):
        assert found == replay.next_step(step, warp, back=back)
    for (file, line), found in zip(questions["line"], said["line"], strict=True):
        assert found == replay.steps_of_line(file, line).tolist()
    compare_origins(replay, questions, said)


def compare_origins(replay, questions, said):
    for asked_, found in zip(questions["bytes"], said["bytes"], strict=True):
        wanted = []
        for memory, offset, access in replay.origins(*asked_):
            unit = -1 if access is None or access.unit is None else access.unit
            wanted.append([memory, offset, -1 if access is None else access.step, unit])
        assert found == wanted, asked_


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize("waits, schedule", [(True, "lazy"), (False, "lazy")])
def test_page_follows_copies_as_python_does(waits, schedule, tmp_path):
    need("whether the replay page follows copies")
    replay = copied(waits, schedule).replay()
    questions = {"bytes": asked(replay, seed=3)["bytes"]}
    replay.to_html(tmp_path / "replay.html")
    said = answered(tmp_path / "replay.html", questions)
    compare_origins(replay, questions, said)
    assert any(len(each) == 2 for each in said["bytes"])


@pytest.mark.xdist_group("explorer")
def test_page_has_the_errors_that_python_has(tmp_path):
    need("whether the replay page has the errors of Python")
    replay = changed().replay()
    replay.to_html(tmp_path / "replay.html")
    steps = range(0, len(replay), 5)
    questions = [[s, m, 4 * e] for s in steps for m in (0, 1) for e in (0, 5, 64)]
    names = [each["memory"] for each in replay.head["numerics"]["outputs"]]
    questions = [[s, names[m], at if m == 0 else 0] for s, m, at in questions]
    said = answered(tmp_path / "replay.html", {"errors": questions})["errors"]
    known = 0
    for (step, memory, offset), shown in zip(questions, said, strict=True):
        *found, there = (e[offset // 4] for e in replay.errors(memory, step))
        assert (shown is not None) == there
        if there:
            assert [float(each) for each in shown] == [float(e) for e in found]
            known += 1
    assert 10 < known < len(said)


def compare_registers(replay, questions, said):
    compared = 0
    for (step, warp), shown in zip(
        questions["registers"], said["registers"], strict=True
    ):
        held = {
            number: value
            for number in range(len(replay.registers))
            if (value := replay.value(step, warp, number)) is not None
        }
        assert [number for number, _, _ in shown] == list(held)
        for number, kind, texts in shown:
            for text, bits in zip(texts, words(held[number]), strict=True):
                value = read(kind, text)
                # A NaN has many bits and one text.
                assert value == bits or value is None, (step, warp, number, kind, text)
                compared += 1
    assert compared > 100


def compare_memory(replay, questions, said):
    for (step, memory), found in zip(questions["memory"], said["memory"], strict=True):
        data, state = replay.memory_at(step, memory)
        assert found == hashlib.sha256(data.tobytes() + state.tobytes()).hexdigest()
    for (step, memory, offset), found in zip(
        questions["byte"], said["byte"], strict=True
    ):
        wrote, following, readers = found
        access = replay.writer(step, memory, offset)
        unit = None if access is None else -1 if access.unit is None else access.unit
        assert wrote == (None if access is None else [access.step, unit])
        assert following == replay.next_write(step, memory, offset)
        least = -1 if access is None else access.step
        most = len(replay) if following is None else following
        expected = {each.step for each in replay.readers(step, memory, offset)}
        assert {each for each in readers if least <= each <= most} == expected
