"""Calls of CUDA have the lines of the program's source."""

import ctypes
import json
import os
import subprocess
from pathlib import Path

import pytest

from fragmenta.errors import MissingPackage
from fragmenta.frontends.programs import building
from fragmenta.frontends.programs.places import CallSite, Symbolizer
from tests.programs.test_programs import run

HERE = Path(__file__).parent


@pytest.fixture
def made(tmp_path):
    """Make a library of a function in line 3; the library, and a place in it."""

    def make(*flags):
        try:
            compiler = building.find_compiler()
        except MissingPackage as why:
            pytest.skip(str(why))
        source, library = tmp_path / "f.cpp", tmp_path / "libf.so"
        source.write_text('\n\nextern "C" int f(int x) {\n    return 3 * x;\n}\n')
        words = [compiler, "-shared", "-fPIC", *flags, source.name, "-o", library.name]
        subprocess.run(words, cwd=tmp_path, check=True)
        function = ctypes.CDLL(str(library)).f
        return source, ctypes.cast(function, ctypes.c_void_p).value

    return make


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_each_version_of_debug_information_is_read(made, version, monkeypatch):
    source, address = made("-g", f"-gdwarf-{version}")
    monkeypatch.chdir(source.parent)
    call = CallSite("cudaFree", (address + 1,))
    places = Symbolizer(os.getpid())
    assert str(places.source(call)) == "f.cpp:3"
    assert places.words(call) == "cudaFree at f.cpp:3"
    inside = CallSite("cudaFree", (address + 9,))
    assert places.source(inside).line in (4, 5)


def test_without_lines_the_function_is_named(made):
    _, address = made()
    places = Symbolizer(os.getpid())
    call = CallSite("cudaFree", (address + 1, 1))
    assert places.source(call) is None
    assert places.words(call) == "cudaFree in f of libf.so"
    assert places.words(CallSite("cudaFree", (1,))) == "cudaFree"


def test_without_names_the_place_is_told(made):
    _, address = made("-s")
    places = Symbolizer(os.getpid())
    assert places.words(CallSite("cudaFree", (address + 1,))).startswith("cudaFree in ")


def line(text):
    lines = (HERE / "freed.cu").read_text().splitlines()
    return next(at for at, each in enumerate(lines, 1) if text in each)


@pytest.mark.long
def test_uses_of_freed_memory_are_told_with_lines(source):
    words = ("--json", HERE / "freed.cu")
    done = run(*words)
    assert json.loads(done.stdout)["calls"] == []
    assert "right 0" in done.stderr
    done = run(*words, "wrong", status=1)
    assert "1 1 1 1 1 0\n" in done.stderr  # CUDA's own errors
    found = json.loads(done.stdout)["calls"]
    assert {(each["rule"], each["severity"]) for each in found} == {("freed", "error")}
    calls = [
        ("cudaFree frees", "cudaFree(wrong));"),
        ("cudaMemcpy reads", "cudaMemcpy(host, wrong + 4"),
        ("cudaMemcpy writes", "cudaMemcpy(wrong"),
        ("cudaMemset writes", "cudaMemset(wrong"),
    ]
    freed = line("~Array")
    for each, (said, text) in zip(found, calls, strict=True):
        assert each["message"].startswith(f"{said} allocation 0 (cudaMalloc, 256 bytes")
        first = f"freed.cu:{freed}), after launch 1 of the program"
        assert each["message"].endswith(first)
        expected = line('printf("%d ", ' + text)
        assert each["line"] == expected
        assert each["source"].endswith(f"freed.cu:{expected}")
        (related,) = each["related"]
        assert related["source"].endswith(f"freed.cu:{freed}")
    run("--no-watch", HERE / "freed.cu", "wrong")


@pytest.mark.long
def test_a_kernel_that_uses_freed_memory_names_the_free(source, tmp_path):
    sarif = tmp_path / "found.sarif"
    text = run("--sarif", sarif, HERE / "freed.cu", "kernel", status=1).stderr
    said = " ".join(text.split())
    assert "which was freed: allocation 0 (cudaMalloc, 256 bytes), by cudaFree" in said
    assert f"freed.cu:{line('~Array')}), after launch 1 of the program" in said
    found = json.loads(sarif.read_text())["runs"][0]["results"]
    places = [each["locations"][0]["physicalLocation"] for each in found]
    expected = line("cudaMemcpy(host, wrong + 4")
    assert expected in [each["region"]["startLine"] for each in places]
    assert all(e["artifactLocation"]["uri"].endswith("freed.cu") for e in places)
