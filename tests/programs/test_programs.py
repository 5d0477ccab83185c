"""Programs run as they are: every shape, with the errors and the crashes that they have."""

import json
import os
import resource
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from fragmenta import ptx
from fragmenta.commands.run import _Report
from fragmenta.cuda.tools import assembler, fatbin
from fragmenta.errors import Error, MissingPackage
from fragmenta.frontends.programs import building, compiling, elf
from fragmenta.frontends.programs.asked import ProgramOptions
from fragmenta.frontends.programs.modules import LoadedModule, Skipped, chosen
from fragmenta.frontends.programs.reports import LaunchReport
from fragmenta.frontends.programs.running import Outcome
from fragmenta.ptx.checking.problem import Problem
from tests.asking import complaint
from tests.clock import HANG

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "fragmenta", "run"]


def run(*words, status=0, **options):
    """Ask for a run; both of its streams."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        **options,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def parts(text):
    return [line[6:] for line in text.splitlines() if line.startswith("right ")]


def left_behind(folder):
    """Processes that were started with a folder for temporary files."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}\0".encode() in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_bytes())
        except OSError:  # it is another user's, or has ended
            continue
    return found


@pytest.mark.xdist_group("programs")
class TestDriver:
    @pytest.mark.long
    def test_every_shape(self, driver):
        done = run(driver)
        named = "device memory kernels streams names threads fork reset"
        assert parts(done.stdout) == named.split()
        assert "no problems" in done.stderr
        assert "use spawn instead" in done.stderr
        said = " ".join(done.stderr.split())
        assert said.count("link the program with nvcc -cudart shared") == 2

    def test_memory_of_the_program_among_the_addresses_of_the_device(self, driver):
        # Without a limit of the stack, its threads have theirs there.
        def without_limit():
            hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
            resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))

        done = run(driver, preexec_fn=without_limit)
        assert "threads" in parts(done.stdout)

    def test_a_process_that_forks_first_has_two_devices(self, driver):
        done = run(driver, "early fork")
        assert parts(done.stdout) == ["early fork"]
        assert "8 launches" in done.stderr

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("how", "status", "said"),
        [
            ("status", 42, "no problems"),
            ("killed", 137, "ended by SIGKILL"),
            ("reads device memory", 139, "ended by SIGSEGV"),
            ("loses the server", 1, "the engine was ended by SIGKILL"),
            ("faults", 1, "out of bounds: ld.global.u32 reads 4 bytes at"),
        ],
    )
    def test_ends(self, driver, how, status, said, tmp_path):
        """The exit status is the program's, or 1; nothing is left behind."""
        done = run(
            driver, how, status=status, env={**os.environ, "TMPDIR": str(tmp_path)}
        )
        assert said in done.stderr
        assert not list(tmp_path.iterdir())

    def test_a_kernel_without_an_end(self, driver):
        done = run("--limit", 10_000, driver, "endless", status=1)
        assert "executed more than 10,000 warp instructions" in " ".join(
            done.stderr.split()
        )

    @pytest.mark.long
    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_interrupted(self, driver, how, tmp_path):
        """A program that waits is ended with the command, and nothing is left."""
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        words = [*COMMAND, str(driver), "waits"]
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        ) as process:
            assert process.stdout.readline() == b"started\n"
            process.send_signal(how)
            _, said = process.communicate(timeout=HANG)
        ended = -how if how == signal.SIGKILL else 128 + how
        assert process.returncode == ended, said
        assert not list(tmp_path.iterdir())
        assert not left_behind(tmp_path)

    def test_arguments_are_passed_on(self, tmp_path):
        """Also those that look like options and numbers of this command."""
        words = ["printf", "%s|", "--json", "-1", "--", "-h", "A[1,2]"]
        assert run("--", *words).stdout == "--json|-1|--|-h|A[1,2]|"
        assert run(*words).stdout == "--json|-1|--|-h|A[1,2]|"

    def test_python_starts_as_the_user_has_it(self, driver, tmp_path):
        """A ``sitecustomize`` of the user runs, too, in programs and their children."""
        said = "import os\nif 'FRAGMENTA_RUN' in os.environ: print('mine', flush=True)"
        (tmp_path / "sitecustomize.py").write_text(said)
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])"
        paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": ":".join(filter(None, paths))}
        words = [sys.executable, "-c", code]
        done = run("--report", tmp_path / "report", "--", *words, env=environment)
        assert done.stdout == "mine\nmine\n"

    def test_a_script(self, driver):
        code = (
            "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int();"
            "print(cuda.cuInit(0), cuda.cuDeviceGetAttribute(ctypes.byref(n), 75, 0), n)"
        )
        done = run("--card", "a100", "--", sys.executable, "-c", code)
        assert done.stdout == "0 0 c_int(8)\n"


@pytest.mark.xdist_group("programs")
class TestRuntime:
    @pytest.mark.long
    def test_every_shape(self, source):
        done = run("--json", "--flags=-w", HERE / "shapes.cu")
        named = (
            "launches clusters cooperative memory copies streams graphs device "
            "libraries printing refusing symbols resetting"
        )
        assert parts(done.stderr) == named.split()
        said = [line for line in done.stderr.splitlines() if "hello" in line]
        lines = done.stderr.splitlines()
        assert said == ["hello from 0", "hello from 1"]
        order = ("launched", "hello from 0", "waited")
        assert sorted(map(lines.index, order)) == list(map(lines.index, order))
        found = json.loads(done.stdout)
        assert found["card"] == "h100"
        assert found["status"] == 0
        assert not [p for each in found["launches"] for p in each["problems"]]
        assert {each.partition(":")[0] for each in found["refused"]} == {
            "cudaMallocArray",
            "cudaDeviceEnablePeerAccess",
        }

    def test_hazards(self, source, tmp_path):
        """They follow the program's own output, each once, with its source line."""
        report, sarif = tmp_path / "report.txt", tmp_path / "found.sarif"
        words = ("--report", report, "--sarif", sarif, HERE / "hazards.cu")
        done = run(*words, status=1)
        assert done.stdout.startswith("the program's own words:")
        text = " ".join(report.read_text().split())
        assert "4 launches of 3 kernels" in text
        assert "racing:" in text
        assert "shared-race" in text
        assert "hazards.cu:7" in text
        assert "(in 2 launches)" in text
        assert "fine:" not in text
        assert "byte 128 of argument 0, which nobody has written" in text
        found = json.loads(sarif.read_text())["runs"][0]["results"]
        assert [each["ruleId"] for each in found] == ["shared-race", "uninitialised"]
        for each, lines in zip(found, [(6, 7), (10,)], strict=True):
            place = each["locations"][0]["physicalLocation"]
            assert place["artifactLocation"]["uri"].endswith("hazards.cu")
            assert place["region"]["startLine"] in lines

    @pytest.mark.long
    def test_what_nobody_wrote_is_copied_to_the_host(self, source):
        words = ("--json", HERE / "unwritten.cu")
        assert json.loads(run(*words).stdout)["calls"] == []
        found = json.loads(run(*words, "wrong", status=1).stdout)["calls"]
        said = [
            (each["severity"], each["message"].rpartition(": ")[2]) for each in found
        ]
        assert said == [
            ("warning", "bytes 240 to 255"),
            ("error", "bytes 0 to 255"),
            ("warning", "bytes 1,536 to 1,551"),
            ("warning", "bytes 32 to 62"),
            *[("info", "bytes 4 to 7 and 20 to 23")] * 3,
        ]
        assert {each["rule"] for each in found} == {"uninitialised"}
        assert "16 of which nobody has written" in found[0]["message"]
        text = run(HERE / "unwritten.cu", "wrong", status=1).stderr
        said, lines = (
            " ".join(text.split()),
            (HERE / "unwritten.cu").read_text().splitlines(),
        )
        at = found[1]["line"]
        assert f"unwritten.cu:{at}:1: error: uninitialised: 256 bytes of" in said
        assert "cudaMemcpyAsync(host, other" in lines[at - 1]
        assert all("cudaMemcpy" in lines[each["line"] - 1] for each in found)
        assert " ".join(text.split()).count("bytes 4 to 7 and 20 to 23") == 1
        run("--no-watch", HERE / "unwritten.cu", "wrong")

    @pytest.mark.long
    def test_all_orders_of_launches(self, source, tmp_path):
        """Each launch has a verdict; text and JSON say the same."""
        file = tmp_path / "roles.cu"
        meet = 'asm volatile("bar.sync 1, 64;" ::: "memory");'
        file.write_text(
            f"__global__ void roles() {{ {meet} if (threadIdx.x < 64) {meet} }}"
            f"__global__ void right() {{ {meet} }}"
            "int main() { for (int i = 0; i < 2; ++i) roles<<<1, 128>>>();"
            "right<<<1, 64>>>(); return cudaDeviceSynchronize(); }"
        )
        report = tmp_path / "report.txt"
        words = ("--orders", "--json", "--report", report, file)
        told = json.loads(run(*words, status=1).stdout)["launches"]
        verdicts = [each["orders"]["verdict"] for each in told]
        assert verdicts == ["hangs", "hangs", "all orders"]
        text = " ".join(report.read_text().split())
        assert (
            f"orders of roles: {told[0]['orders']['summary']} (in 2 launches)" in text
        )
        assert "orders of right: no order hangs" in text
        words = ("--orders", "--launches", 1, "--kernels", "right", "--json", file)
        told = json.loads(run(*words).stdout)["launches"]
        assert [bool(each["orders"]) for each in told] == [False, False, True]
        assert "is not given" in run("--states", 5, file, status=2).stderr

    @pytest.mark.long
    def test_some_kernels_are_watched(self, source):
        done = run("--kernels", "^fine$", HERE / "hazards.cu")
        assert "3 not watched" in done.stderr
        assert "not watched" in run("--no-watch", HERE / "hazards.cu").stderr

    def test_the_static_runtime_is_told_how_to_link(self, source, tmp_path):
        made = tmp_path / "program"
        nvcc = str(assembler.tool("nvcc"))
        words = ["-arch=compute_90", "-cudart=none", str(HERE / "hazards.cu")]
        more = ["-Xlinker", "--unresolved-symbols=ignore-all", "-o", str(made)]
        subprocess.run([nvcc, *words, *more], check=True)
        said = " ".join(run(made, status=2).stderr.split())
        assert "link the program with nvcc -cudart shared" in said


def test_headers_of_the_flags_come_first(monkeypatch, tmp_path):
    """A program may bring a newer CUB than the toolkit's."""
    given = []

    def compiled(nvcc, version, source, words, made):
        given.extend(words)
        made.write_bytes(b"")
        return []

    ours = [tmp_path / "runtime", tmp_path / "cccl"]
    monkeypatch.setattr(compiling, "_nvcc", lambda: Path("nvcc"))
    monkeypatch.setattr(compiling, "_version", lambda nvcc: "13.0")
    monkeypatch.setattr(compiling, "_compile", compiled)
    monkeypatch.setattr(compiling.compiler, "includes", lambda: ours)
    source = tmp_path / "program.cu"
    source.write_text("")
    compiling.compile_program(str(source), "sm_90a", ["-Imine"], tmp_path)
    found = [each for each in given if each.startswith("-I")]
    assert found == ["-Imine", f"-I{ours[1]}"]


def test_libraries_of_machine_code_are_named(libraries, tmp_path):
    """A program that needs cuBLAS is refused before it starts."""
    cxx = building.find_compiler()
    fake, made = tmp_path / "libcublas.so.13", tmp_path / "program"
    empty = tmp_path / "empty.cpp"
    empty.write_text("int nothing() { return 0; }\n")
    words = [cxx, "-shared", "-fPIC", "-Wl,-soname,libcublas.so.13", empty, "-o", fake]
    subprocess.run(list(map(str, words)), check=True)
    main = tmp_path / "main.cpp"
    main.write_text("int nothing(); int main() { return nothing(); }\n")
    subprocess.run(list(map(str, [cxx, main, fake, "-o", made])), check=True)
    said = " ".join(run(made, status=2).stderr.split())
    assert "needs cuBLAS (libcublas.so.13): NVIDIA's machine code" in said


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mma.m16n8k16.f32.f16", "a.npy", "b.npy"), "fragmenta matmul multiplies"),
        (("./nothing",), "there is no such program"),
        (("nothing.cu",), "there is no such file"),
        (("--card", "h101", "true"), "did you mean h100?"),
        (("--kernels", "(", "true"), "--kernels takes a regular expression"),
    ],
)
def test_refused_in_words(words, said):
    assert said in " ".join(run(*words, status=2).stderr.split())


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("ad.cu", "ad.cu: there is no such file (did you mean add.cu?)"),
        ("folder.cu", "it is a folder, not a source"),
        ("folder", "it is a folder; name the program in it"),
        ("./progrm", "there is no such program (did you mean ./program?)"),
        ("progrm", "there is no such program (did you mean ./program?)"),
        ("none/progrm", "none/progrm: there is no such program"),
        ("program", "it is not on PATH; did you mean ./program?"),
        ("f.ptx", "fragmenta launch f.ptx launches one"),
        ("text", "it is no program that can be run; chmod +x"),
        ("./program", "./program is damaged: it ends too early"),
    ],
)
def test_what_is_no_program_is_refused_with_what_is_meant(
    word, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "folder.cu"):
        (tmp_path / name).mkdir()
    for name in ("add.cu", "f.ptx", "text"):
        (tmp_path / name).write_text("")
    (tmp_path / "program").write_bytes(fatbin.ELF + b"\xff" * 100)
    (tmp_path / "program").chmod(0o700)
    assert said in " ".join(complaint("run", word).split())


def test_any_bytes_of_an_elf_file_are_read_or_refused():
    """Its dynamic section may say anything about the names of libraries."""
    dynamic = struct.pack("<8Q", 1, 1, 1, 9, 1, 2**63, 0, 0)
    parts = {".dynamic": dynamic, ".dynstr": b"\0liba.so\0\xff\xfe"}
    assert elf._needed(parts) == ["liba.so", "\N{REPLACEMENT CHARACTER}" * 2, ""]


def test_what_compilers_print_may_be_any_bytes():
    """They print lines of the source."""
    code = "import os; os.write(1, b'a'); os.write(2, bytes([255, 10]))"
    said = compiling._run([sys.executable, "-c", code])
    assert (said.stdout, said.stderr) == ("a", "\N{REPLACEMENT CHARACTER}\n")


def test_a_source_without_main_is_no_program(monkeypatch, tmp_path):
    said = "/usr/bin/ld: x.o: in function `_start':\nundefined reference to `main'"
    done = subprocess.CompletedProcess([], 1, "", said)
    monkeypatch.setattr(compiling, "_run", lambda words: done)
    with pytest.raises(Error, match=r"x.cu has no function main.*launch x.cu"):
        compiling._compile(Path("nvcc"), "13.0", Path("x.cu"), [], tmp_path / "x")


def test_the_report_fits_80_columns():
    why = "the launch took longer than 60 s; launch(..., limits=...) allows more"
    one = (1, 1, 1)
    launched = LaunchReport("k" * 30, one, one, 10**12, 1.0, False, True, [], why)
    found = Outcome(-2, [launched] * 3, refused=["cuFunction, " * 12])
    text = _Report("x", ProgramOptions(), found).to_text()
    assert max(map(len, text.splitlines())) <= 80


def test_a_line_with_two_problems_counts_a_launch_once():
    """Both stand at one place, so that the report shows one of them."""
    one = (1, 1, 1)
    both = [Problem("mbarrier", "error", 7, 2, "", each) for each in ("one", "other")]
    for launches in (1, 3):
        made = [LaunchReport("k", one, one, 9, 1.0, True, True, both)] * launches
        text = _Report("x", ProgramOptions(), Outcome(0, made)).to_text()
        assert ("launches)" in text) == (launches == 3)
        assert text.count("(in 3 launches)") == (launches == 3)


def test_a_launch_that_a_limit_ended_is_not_without_problems():
    why = "it took too long\n  warp 0 lanes 0\n    spinning on a word"
    one = (1, 1, 1)
    launched = LaunchReport("spin", one, one, 0, 0.0, True, False, [], why)
    text = _Report("x", ProgramOptions(), Outcome(0, [launched])).to_text()
    assert "; 1 not run to its end" in " ".join(text.split())
    assert "no problems" not in text
    assert f"spin was not run to its end: {why}" in text


def test_variables_with_addresses_of_functions():
    """A table of virtual functions is placed as a launch places it."""
    text = """
.version 8.0 .target sm_80 .address_size 64
.func first() { ret; }
.func second() { ret; }
.visible .global .u64 other = 7;
.visible .global .u64 table[3] = {second, generic(other), first};
.visible .entry f(.param .u64 out) {
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.global.u64 %rd2, [table];
    st.global.u64 [%rd1], %rd2;
    ret;
}"""
    made = LoadedModule(text.encode(), "sm_90a", Skipped())
    expected = ptx.parse(text).variables["table"]
    assert made.variables["table"].tolist() == expected.tolist()
    made.close()


def test_relocatable_code_beside_a_library_of_machine_code():
    """Parts with PTX are linked, the others are left out; one must have some."""
    head = b".version 8.0 .target sm_80 .address_size 64 "
    texts = [head + b".extern .global .u32 x;", head + b".visible .global .u32 x;"]
    empty = fatbin.MAGIC + bytes([1, 0, 16, 0]) + bytes(8)

    def message(parts):
        sizes = b"".join(len(each).to_bytes(8, "little") for each in parts)
        return sizes + b"".join(parts)

    made, _ = chosen(message([*texts, empty]), "sm_90a", 3)
    assert made.endswith(".visible .global .u32 x;")
    assert made.count("x;") == 1
    with pytest.raises(Error, match="has no PTX"):
        chosen(message([empty]), "sm_90a", 1)
    with pytest.raises(Error, match="too short"):
        chosen(b"1234", "sm_90a", 1)


def test_no_compiler_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(MissingPackage, match=r"needs a C\+\+ compiler.*apt install g"):
        building.find_compiler()
