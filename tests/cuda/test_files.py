"""Files with kernels are read: sources, fat binaries, cubins, programs, several."""

import json
import subprocess

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools import assembler, compiler, files
from tests.asking import answer, ask

TWO = """
template <typename T> __global__ void scale(T *x, T factor) { x[threadIdx.x] *= factor; }
__global__ void turn(int *x)
{
    __shared__ int kept[64];
    kept[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = kept[63 - threadIdx.x];
}
template __global__ void scale<float>(float *, float);
template __global__ void scale<double>(double *, double);
int main() { turn<<<1, 64>>>(nullptr); }
"""
RIGHT = TWO.replace(
    "x[threadIdx.x];\n    x", "x[threadIdx.x];\n    __syncthreads();\n    x"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    (made / "two.cu").write_text(TWO)
    (made / "right.cu").write_text(RIGHT)
    (made / "other.cu").write_text("__global__ void other(int *x) { *x = 5; }\n")
    return made


@pytest.fixture(scope="module")
def nvcc(folder):
    """nvcc, in the folder of the sources."""
    try:
        compiler.find("nvcc")
    except fm.Error as why:
        pytest.skip(str(why))
    tool = str(assembler.tool("nvcc"))

    def call(*words):
        subprocess.run([tool, *words], cwd=folder, check=True, capture_output=True)

    return call


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_kernels_are_found_by_their_names_in_cpp():
    kernels = ptx.load("two.cu").kernels
    assert kernels["turn"] is kernels["turn(int*)"] is kernels["_Z4turnPi"]
    assert kernels["scale<double>"].name == "_Z5scaleIdEvPT_S0_"
    assert kernels["scale< float >"].names == ("x", "factor")
    with pytest.raises(fm.Error, match=r"scale may be scale<float>\(.* or scale<doub"):
        kernels["scale"]
    with pytest.raises(
        fm.Error, match=r"no kernel trun \(did you mean turn\?\); there are"
    ):
        kernels["trun"]
    assert "_Z4turnPi" in kernels
    assert "turn" not in dict(kernels)


def test_an_instance_may_be_asked_for():
    module = ptx.load("two.cu", kernel="scale<short>", target="sm_80")
    assert module.target == "sm_80"
    assert module.kernels["scale<short>"].parameters[1].size == 2


def test_reports_name_the_source():
    said = ask("launch", "two.cu", "turn", "--block", "64", "--arg", "arange:i32:64")
    assert said.exit_code == 1
    assert (
        "two.cu: note: the code of the host is not compiled: main in line 11"
        in said.stderr
    )
    assert "two.cu:7:5: error: shared-race: " in said.stderr
    assert "    x[threadIdx.x] = kept[63 - threadIdx.x];\n    ^\n" in said.stderr
    assert "hint: Let __syncthreads() come between the two: before two.cu:7." in (
        said.stderr
    )
    assert all(len(line) <= 80 for line in said.stderr.splitlines())
    words = ("launch", "two.cu", "turn", "--block", "32", "--arg", "arange:i32:64")
    fault = ask(*words, "--sarif", "-")
    (found,) = json.loads(fault.stdout)["runs"][0]["results"]
    (place,) = found["locations"]
    about = place["physicalLocation"]
    assert about["artifactLocation"] == {"uri": "two.cu"}
    assert about["region"]["startLine"] == 7
    assert all("PTX" not in str(each) for each in found.get("relatedLocations", ()))


def test_several_files_and_options():
    words = ("--block", "64", "--arg", "arange:i32:64")
    text = answer("launch", "right.cu", "other.cu", "turn", *words)
    assert "turn(int*)" in text
    said = ask("launch", "right.cu", "two.cu", "turn", *words)
    assert "turn in right.cu and turn in two.cu" in " ".join(said.stderr.split())
    text = answer("launch", "right.cu", "other.cu", "--list")
    assert {line for line in text.splitlines() if line[0] != " "} == {
        "scale<float>(float*, float)  sm_90a",
        "scale<double>(double*, double)  sm_90a",
        "turn(int*)  sm_90a",
        "other(int*)  sm_90a",
    }
    assert "no problems" in answer("check", "right.cu", "other.cu", "--target", "sm_80")
    assert "5" in answer("launch", "other.cu", "--block", "1", "--arg", "zeros:i32:1")
    said = ask("launch", "other.cu", "--block", "1", "--flags", "-Dother=0x")
    assert said.exit_code != 0
    assert "other.cu:1:" in said.stderr
    assert "--orders" not in answer("orders", "right.cu", "turn", *words)


def test_same_takes_flags(folder):
    text = "__global__ void times(float *x) { x[threadIdx.x] *= SCALE; }\n"
    (folder / "times.cu").write_text(text)
    (folder / "again.cu").write_text(
        text.replace("*= SCALE", "= SCALE * x[threadIdx.x]")
    )
    words = ("same", "times.cu", "again.cu", "--block", "4", "--arg", "random:f32:4")
    assert answer(*words, "--flags", "-DSCALE=3.0f").startswith("same:")
    said = ask(*words)
    assert said.exit_code == 2
    assert "times.cu:1:" in said.stderr


@pytest.mark.long
def test_programs_and_fat_binaries(nvcc):
    both = "-gencode=arch=compute_80,code=compute_80"
    more = "-gencode=arch=compute_90a,code=[compute_90a,sm_90a]"
    nvcc(
        both,
        more,
        "-cudart",
        "none",
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "right.cu",
        "other.cu",
        "-o",
        "all.so",
    )
    nvcc("-fatbin", both, more, "right.cu", "-o", "right.fatbin")
    for file in ("all.so", "right.fatbin"):
        x = np.arange(64, dtype=np.int32)
        module = ptx.load(file, kernel="turn")
        assert module.target == "sm_90a"
        module.kernels["turn"].launch(1, 64, [x])
        assert x.tolist() == list(range(63, -1, -1))
        older = ptx.load(file, kernel="scale<float>", target="sm_86")
        assert older.target == "sm_80"
    assert files.read("all.so").kernel("other", "sm_80").loaded.target == "sm_80"
    with pytest.raises(fm.Error, match=r"all.so has 4 kernels, name one: .*other\(int"):
        ptx.load("all.so")
    assert "no problems" in answer("check", "all.so")
    assert "turn(int*)  sm_90a" in answer("launch", "all.so", "--list")
    words = ("--block", "64", "--arg", "arange:i32:64")
    assert "sm_80" in answer("launch", "all.so", "turn", *words, "--target", "sm_80")


def test_cubins(nvcc):
    nvcc("-cubin", "-arch=sm_90a", "right.cu", "-o", "plain.cubin")
    with pytest.raises(
        fm.errors.BadFile, match=r"plain\.cubin has no PTX: only machine"
    ):
        ptx.load("plain.cubin")
    nvcc("-cubin", "-arch=sm_90a", "-G", "other.cu", "-o", "debug.cubin")
    x = np.zeros(1, np.int32)
    ptx.load("debug.cubin").kernels["other"].launch(1, 1, [x])
    assert x[0] == 5


def test_raw_modules_of_files(nvcc):
    nvcc("-fatbin", "-arch=compute_80", "right.cu", "-o", "raw.fatbin")
    x = np.arange(64, dtype=np.int32)
    for path in ("right.cu", "raw.fatbin"):
        ptx.RawModule(path=path).get_function("turn")((1,), (64,), (x,))
    assert x.tolist() == list(range(64))
    with pytest.raises(fm.Error, match="cannot be read: No such file"):
        ptx.RawModule(path="missing.cubin").compile()


def test_code_with_its_path_is_named_after_it():
    kernel = ptx.RawKernel(TWO, "turn", path="mine/two.cu")
    with pytest.raises(fm.errors.KernelHazard, match=r"mine/two\.cu:7"):
        kernel((1,), (64,), (np.zeros(64, np.int32),))


@pytest.mark.parametrize(
    ("code", "words", "wanted"),
    [
        ("int main() { return 0; }", ["launch"], "has no kernel; CUDA C++ marks one"),
        ("int main() { return 0; }", ["check"], "note: it has no kernel; CUDA C++"),
        (
            "template <class T> __global__ void t(T *x) { *x = 1; }",
            ["launch"],
            "those instances are compiled that are launched or named",
        ),
        ('#include "mine.h"\n', ["check"], "The option -IFOLDER names a folder"),
        ("#include <cuda/nothing>\n", ["check"], "pip install fragmenta[cuda]"),
        (
            "__global__ void f() {}",
            ["launch", "--flags", "-DX='1"],
            "--flags -DX='1: No closing quotation",
        ),
    ],
)
def test_words_for_a_source_that_gives_nothing(tmp_path, code, words, wanted):
    (tmp_path / "given.cu").write_text(code)
    said = ask(words[0], str(tmp_path / "given.cu"), *words[1:])
    assert wanted in " ".join(said.stderr.split())


def test_notices_name_a_kernel_as_its_source_does(monkeypatch):
    monkeypatch.setenv("FRAGMENTA_PATIENCE", "0")
    words = ("turn", "--block", "64", "--arg", "arange:i32:64")
    for command, way in (("launch", "launching"), ("orders", "exploring")):
        said = ask(command, "right.cu", *words).stderr
        assert f"fragmenta: {way} turn\n" in said
