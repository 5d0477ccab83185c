"""Launches of programs are recorded, here and before a driver, and replayed.

The driver of ``fragmenta run`` stands for a real one: a program runs under ``fragmenta
record``, which runs under ``fragmenta run``.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.engine.simt.arguments import Received
from fragmenta.errors import NoDevice
from fragmenta.frontends.programs import building
from fragmenta.frontends.programs.asked import Wanted
from fragmenta.frontends.programs.recording import LaunchCapture, LaunchShape, Reachable
from fragmenta.inspect.evidence import arguments, launches
from fragmenta.inspect.evidence.card_memory import Addresses, CardAllocation
from fragmenta.inspect.evidence.launch_fields import bytes_to_make
from fragmenta.launch.kernel import parse
from fragmenta.launch.limits import Limits
from tests.asking import answer, complaint
from tests.clock import HANG
from tests.programs.test_programs import COMMAND, left_behind, run
from tests.thinning import some

HERE = Path(__file__).parent
RECORD = (sys.executable, "-m", "fragmenta", "record")
GOLDEN = HERE.parent / "golden" / "programs"
MADE = {"gpu": "a card", "target": "sm_90a"}


def replayed(folder):
    """All recordings of a folder, each launched once, by the names of their files.

    Nobody watches, here and while they are made, so that both use the same code.
    """
    found = {}
    for path in sorted(folder.iterdir()):
        held = launches.load(path)
        found[path.name] = launches.replay_one(held, *held.launches, watch=False)
    return found


@pytest.mark.xdist_group("programs")
class TestBeforeADriver:
    @pytest.mark.long
    def test_every_shape(self, driver, tmp_path):
        """The program runs as without it; its first launches are kept."""
        out = tmp_path / "out"
        words = (*RECORD, "--launches", "3", "-o", out, "--", driver)
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        done = run("--no-watch", "--", *words, env=environment)
        assert "right memory\n" in done.stdout
        assert done.stdout.endswith("right fork\nright reset\n")
        assert "3 launches recorded in out" in done.stderr
        assert "launches of a graph are not recorded" in done.stderr
        found = replayed(out)
        assert list(found) == ["twice-1.npz", "twice-2.npz", "twice-3.npz"]
        assert all(each.same for each in found.values())
        assert all(each.bytes == 260 for each in found.values())
        assert list(tmp_path.iterdir()) == [out]

    @pytest.mark.long
    def test_a_fault(self, driver, tmp_path):
        """What a launch began with is kept if an error ends it."""
        out = tmp_path / "out"
        words = (*RECORD, "-o", out, "--", driver, "faults")
        done = run("--no-watch", "--", *words, status=1)
        assert "twice-1.npz  twice, ended by CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
        (again,) = replayed(out).values()
        assert again.same
        assert "out of bounds" in again.ended

    def test_no_driver(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
        with pytest.raises(NoDevice, match="needs a machine with a GPU"):
            pytest.skip(f"there is a driver: {building.real_driver()}")

    @pytest.mark.long
    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
    def test_ended(self, driver, how, tmp_path):
        """Whatever ends the command: its launches are kept, and nothing else is.

        The streams end with the last process.
        """
        out = tmp_path / "out"
        words = [*RECORD, "-o", str(out), "--", str(driver), "launches and waits"]
        with subprocess.Popen(
            [*COMMAND, "--no-watch", "--", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        ) as process:
            assert process.stdout.readline() == b"started\n"
            assert process.stdout.readline() == b"launched\n"
            os.kill(recorder(process.pid), how)
            _, said = process.communicate(timeout=HANG)
        assert process.returncode == 128 + how, said
        assert list(tmp_path.iterdir()) == [out]
        assert not left_behind(tmp_path)
        (again,) = replayed(out).values()
        assert again.same
        assert (b"1 launch recorded in out" in said) == (how == signal.SIGINT)


def recorder(parent):
    """The process that is ``fragmenta record``, by its parent."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
            above = (each / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        if words[1:4] == [b"-m", b"fragmenta", b"record"] and int(above) == parent:
            return int(each.name)
    raise AssertionError("nobody records")


def hashed(numbers):
    """What the program shows of an array."""
    made = 0
    for each in numbers:
        made = (made * 31 + each) % 2**32
    return made


@pytest.mark.parametrize(
    "path", some(sorted(GOLDEN.iterdir()), 8), ids=lambda p: p.stem
)
def test_what_an_h200_recorded(path):
    """The program of this test, run on a GPU with the static runtime."""
    found = launches.load(path)
    assert found.made["gpu"] == "NVIDIA H200"
    (again,) = launches.replay(found)
    assert again.same, again.lines
    assert bool(again.ended) == (path.stem == "wild-1")


@pytest.mark.long
@pytest.mark.xdist_group("programs")
def test_launches_that_run_here(source, tmp_path):
    """Structs, lists, variables, ends, clusters, grids, tensor maps: the same bytes.

    The program is relocatable code of two files.
    """
    out, elsewhere = tmp_path / "out", HERE / "elsewhere.cu"
    flags = f"--flags=-w -rdc=true -DELSEWHERE {elsewhere}"
    words = ("--no-watch", "--replay", out, "--json", flags, HERE / "recorded.cu")
    done = run(*words)
    # 3 * (1050 + 3 * i) + 1000 or 2000, which a hash of them shows.
    numbers = [3 * (1050 + 3 * i) + 1000 * (1 + i % 2) for i in range(64)]
    assert f"rows {hashed(numbers)}\n" in done.stderr
    told = json.loads(done.stdout)
    names = "rows chain variables until hosts neighbours together tile"
    assert [each["kernel"] for each in told["recorded"]] == names.split()
    found = replayed(out)
    assert sorted(found) == sorted(f"{name}-1.npz" for name in names.split())
    for name, each in found.items():
        assert each.same, (name, each.lines)
    assert found["neighbours-1.npz"].launch.cluster == (2, 1, 1)
    assert found["together-1.npz"].launch.cooperative
    lists = found["chain-1.npz"].launch
    assert len([each for each in lists.memory if not each.variable]) > 5


# ── memory of a card ────────────────────────────────────────────────────────

TEXT = """
.version 8.0 .target sm_80 .address_size 64
.visible .global .u64 place;
.visible .entry follow(.param .u64 first, .param .u32 value) {
    .reg .b64 %rd<4>; .reg .b32 %r<2>;
    ld.param.u64 %rd1, [first];
    ld.param.u32 %r1, [value];
    ld.global.u64 %rd2, [%rd1];
    st.global.u32 [%rd2], %r1;
    st.global.u64 [%rd1+8], %rd2;
    ld.global.u64 %rd3, [place];
    st.global.u32 [%rd3+4], %r1;
    ret;
}"""
FIRST, SECOND, PLACE, OTHER = 0x7F0000000200, 0x7F0000100000, 0x7F0000200000, 0x7F00003
PARTS = [
    Reachable("first", FIRST, 16),
    Reachable("second", SECOND, 8),
    Reachable("place", PLACE, 8, True),
    Reachable("other", OTHER, 64),
    Reachable("lost", 0, 0, True),  # a variable that the driver does not know
]


def memory():
    """Two allocations and a variable; the first and the variable point to the second."""
    first = np.array([SECOND, 0], np.uint64).view(np.uint8)
    place = np.array([SECOND], np.uint64).view(np.uint8)
    return [first, np.zeros(8, np.uint8), place, np.zeros(64, np.uint8)]


def recorded(folder, change=None, **more):
    """A launch of a card, written by hand, as it is replayed here."""
    kernel = parse(TEXT).kernels["follow"]
    parameters = FIRST.to_bytes(8, "little") + (9).to_bytes(4, "little")
    shape = LaunchShape((1, 1, 1), (1, 1, 1), (0, 0, 0), False, 0)
    record = LaunchCapture(kernel, shape, parameters, PARTS)
    held = memory()
    record.follow(lambda number: held[number])
    after = {
        "first": np.array([SECOND, SECOND], np.uint64).view(np.uint8),
        "second": np.array([9, 9], np.uint32).view(np.uint8),
        "place": held[2],
    }
    if change:
        after[change][-1] ^= 1
    names = [PARTS[number].name for number in record.reach.found]
    assert sorted(names) == ["first", "place", "second"]
    ends = None if "fault" in more else [after[name] for name in names]
    path = record.save(MADE, Wanted(folder / "made"), ends, **more)
    assert [each.name for each in path.parent.iterdir()] == ["follow-1.npz"]
    (again,) = launches.replay(launches.load(path))
    return again


def test_pointers_move_with_their_memory(tmp_path):
    found = recorded(tmp_path)
    assert found.same, found.lines
    assert found.bytes == 32


@pytest.mark.parametrize("change", ["first", "second", "place"])
def test_the_card_is_the_judge(change, tmp_path):
    """One other bit in any memory, and of a variable, is told."""
    found = recorded(tmp_path, change)
    assert [each.name for each in found.differences] == [change]


def test_a_fault_that_does_not_happen_again(tmp_path):
    found = recorded(tmp_path, fault="CUDA_ERROR_ILLEGAL_ADDRESS")
    assert not found.same
    assert "ended with CUDA_ERROR_ILLEGAL_ADDRESS, and not here" in found.lines[0]


def test_a_recording_is_launched(tmp_path, monkeypatch):
    """With the options of a launch; what the recording says is not said again."""
    recorded(tmp_path)
    monkeypatch.chdir(tmp_path / "made")
    said = answer("launch", "follow-1.npz", "--schedules", "lazy,1", "--no-check")
    assert "no byte differs" in said
    (told,) = json.loads(answer("launch", "follow-1.npz", "--json"))["launches"]
    assert told["same"]
    wrong = complaint("launch", "follow-1.npz", "--block", "3", "--shared", "4")
    assert "says all of it; given --block and --shared" in " ".join(wrong.split())


def test_what_is_too_large_is_not_recorded():
    kernel = parse(TEXT).kernels["follow"]
    shape = LaunchShape((1, 1, 1), (1, 1, 1), (0, 0, 0), False, 0)
    large = [Reachable("first", FIRST, 1 << 31)]
    with pytest.raises(fm.Error, match="it can reach 2,147,483,648 bytes"):
        LaunchCapture(kernel, shape, FIRST.to_bytes(8, "little"), large)


def test_only_addresses_of_memory_move():
    """Ends move with what they end; what lies before or behind stays."""
    there = Addresses([(0x5000, 16), (0x1000, 32)], [1 << 40, 2 << 40])
    words = [
        0,
        0xFFF,
        0x1000,
        0x1020,
        0x1021,
        0x4FFF,
        0x5000,
        0x5010,
        0x5011,
        2**64 - 1,
    ]
    moved = there.moved(np.array(words, np.uint64).view(np.uint8)).view(np.uint64)
    expected = [*words]
    for place, base in ((2, 2 << 40), (3, (2 << 40) + 32), (6, 1 << 40)):
        expected[place] = base
    expected[7] = (1 << 40) + 16
    assert moved.tolist() == expected
    odd = np.arange(11, dtype=np.uint8)
    assert there.moved(odd).tolist() == odd.tolist()
    assert Addresses([]).reached(odd) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row["memory"][0].pop("address"), "address is missing"),
        (lambda row: row["memory"][0].update(address=-1), "address is a whole number"),
        (lambda row: row["memory"][0].update(variable=1), "variable is true or false"),
        (lambda row: row["memory"][0].update(array=[]), "array is the description"),
        (lambda row: row["memory"][0]["array"].update(type="u16"), "ends past|row of"),
        (lambda row: row["memory"][0]["array"].update(shape=[4, 4]), "a row of bytes"),
        (lambda row: row["memory"][0]["array"].update(shape=[2**40]), "at most|past"),
        (lambda row: row["memory"][0].update(array={"kind": "scalar"}), "is missing"),
        (lambda row: row.update(memory={}), "memory is a list"),
        (lambda row: row.update(cluster=[1]), "cluster is three whole numbers"),
        (lambda row: row.update(cooperative=0), "cooperative is true or false"),
        (lambda row: row.update(fault=700), "fault is text"),
        (lambda row: row["arguments"].clear(), "argument"),
        (lambda row: _given(row, 0), "8 and 4 bytes; given none"),
        (lambda row: _given(row, 1), "8 and 4 bytes; given 8"),
        (lambda row: row["arguments"][0].update(bytes=""), "given 0 and 4"),
        (lambda row: row["arguments"][1].update(bytes="00" * 3), "given 8 and 3"),
        (lambda row: row["arguments"][1].update(bytes="00" * 9), "given 8 and 9"),
        (lambda row: row["memory"][0].update(array=_bits(2**31)), "the arrays of"),
        (lambda row: row["memory"].clear(), "changed|changes|argument"),
        (
            lambda row: row["memory"][2].update(name="nothing", variable=True),
            "no variable nothing",
        ),
    ],
)
def test_a_changed_recording_is_refused(change, said, tmp_path):
    recorded(tmp_path)
    path = tmp_path / "made" / "follow-1.npz"
    with np.load(path) as stored:
        parts = dict(stored)
    index = json.loads(parts["index"].tobytes())
    row = index["launches"][0]
    change(row)
    with suppress(Exception):  # otherwise its fields are refused before
        specs = [*row["arguments"], *(each["array"] for each in row["memory"])]
        if sum(map(bytes_to_make, specs)) < 1000:
            data = launches.load(path).data
            row["digest"] = launches.digest(launches.make_arguments(specs, 0, data))
    parts["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez(path, **parts)
    with pytest.raises(fm.Error, match=said):
        list(launches.replay(launches.load(path), limits=Limits(memory=1 << 30)))


def _given(row, count):
    """Only so many arguments."""
    row.update(arguments=row["arguments"][:count], changes=[])


def _bits(size):
    return {"kind": "bits", "type": "u8", "shape": [size]}


def test_parameters_of_other_processes_are_as_long_as_the_kernel_reads():
    kernel = parse(TEXT).kernels["follow"]
    for size in (0, 8, 11):
        with pytest.raises(fm.Error, match=f"12 bytes of parameters; given {size}"):
            kernel.launch(1, 1, Received([], bytes(size)))


def test_a_part_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    """The size that the archive says is enough: nothing is unpacked."""
    path = tmp_path / "bomb.npz"
    every = dict.fromkeys((*launches.PARTS, "data"), np.zeros(1 << 20, np.uint8))
    np.savez_compressed(path, **every)
    monkeypatch.setattr(launches, "_MOST_PACKED", 1 << 19)
    with pytest.raises(fm.Error, match="'index' has more than 524,288 bytes"):
        launches.load(path)


def test_memory_is_described_by_plain_values():
    made = CardAllocation("a", 1, False, arguments.stored(np.zeros(3, np.uint8)))
    assert json.loads(json.dumps(made._asdict()))["array"]["shape"] == [3]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("record", "--"), "name a program: fragmenta record -- ./program"),
        (("record", "--", "./nothing"), "there is no such program"),
        (("record", "--kernels", "(", "--", "true"), "takes a regular expression"),
        (("record", "--launches", "0", "--", "true"), "--launches is 1 or more"),
        (("record", "--family", "mma", "--", "true"), "are not for a program"),
        (("record", "--launches", "2", "mine"), "are for a program"),
        (("record", "one", "two"), "a program stands behind --"),
        (("record", sys.executable), "record -- ./program records launches"),
        (("run", "--replay", "/", "true"), "is no empty folder"),
    ],
)
def test_refused_in_words(words, said):
    assert said in " ".join(complaint(*words).split())
