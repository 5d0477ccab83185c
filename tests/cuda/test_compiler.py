"""Compilers are found, refuse in their own words, and are asked only once."""

import pytest

import fragmenta as fm
from fragmenta.base.jit.cache import VARIABLE
from fragmenta.cuda.tools import compiler

SOURCE = "__global__ void f(int* x) { *x = %d; }"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Counting:
    """A compiler that counts how often it is asked."""

    version = "counting 1"

    def __init__(self):
        self.asked = 0

    def compile(self, source, target, options):
        self.asked += 1
        return f"{source} {target} {options}".encode()


@pytest.fixture
def counting(monkeypatch):
    made = Counting()
    monkeypatch.setattr(compiler, "find", lambda name=None: made)
    return made


def test_a_result_is_kept_by_source_target_options_and_version(folder, counting):
    first = compiler.to_cubin("a", "sm_90a")
    assert compiler.to_cubin("a", "sm_90a") == first
    assert counting.asked == 1
    compiler.to_cubin("a", "sm_80")
    compiler.to_cubin("a", "sm_90a", "-G")
    compiler.to_cubin("b", "sm_90a")
    counting.version = "counting 2"
    compiler.to_cubin("a", "sm_90a")
    assert counting.asked == 5
    assert len(list(folder.iterdir())) == 5


def test_an_empty_variable_keeps_nothing(monkeypatch, counting, tmp_path):
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        compiler.to_cubin("a", "sm_90a")
    assert counting.asked == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100])
def test_a_damaged_result_is_made_anew(folder, counting, damage):
    compiler.to_cubin("a", "sm_90a")
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage)
    compiler.to_cubin("a", "sm_90a")
    assert counting.asked == 2
    assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(folder, counting):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where a folder should be")
    assert compiler.to_cubin("a", "sm_90a") == compiler.to_cubin("a", "sm_90a")
    assert counting.asked == 2


def test_nothing_half_written_is_left_behind(folder, counting):
    compiler.to_cubin("a", "sm_90a")
    assert [path.suffix for path in folder.iterdir()] == [".kept"]


@pytest.mark.parametrize("name", ["nvrtc", "nvcc"])
def test_both_compilers_compile_and_refuse(name, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    try:
        found = compiler.find(name)
    except fm.Error as why:
        pytest.skip(str(why))
    assert found.version.startswith(name)
    assert compiler.to_cubin(SOURCE % 1, "sm_90a", compiler=name)[:4] == b"\x7fELF"
    with pytest.raises(
        compiler.CompileError, match='identifier "g" is undefined'
    ) as why:
        compiler.to_cubin("__global__ void f() { g(); }", "sm_90a", compiler=name)
    assert str(why.value).startswith(f"{name} refuses the source for sm_90a:\n")
    assert "/tmp" not in str(why.value)


def test_an_unknown_compiler_or_target_is_named():
    with pytest.raises(
        fm.errors.BadCall, match="no compiler clang; there are nvrtc and nvcc"
    ):
        compiler.find("clang")
    with pytest.raises(fm.errors.UnsupportedTarget, match="did you mean sm_90"):
        compiler.to_cubin("", "sm_91")


def test_without_any_compiler_one_is_told_what_to_install(monkeypatch):
    def missing(*_):
        raise fm.Error("not here")

    monkeypatch.setattr(compiler, "_library", missing)
    monkeypatch.setattr(compiler.assembler, "tool", missing)
    compiler.find.cache_clear()
    try:
        with pytest.raises(
            fm.errors.MissingPackage, match="install the wheel nvidia-cuda-nvrtc"
        ):
            compiler.find()
        with pytest.raises(fm.errors.MissingPackage, match="no nvrtc found"):
            compiler.find("nvrtc")
    finally:
        compiler.find.cache_clear()
