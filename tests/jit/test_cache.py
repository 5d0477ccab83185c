"""What is kept on disk: optional, whole, and the user's own."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.base.jit import cache, compiler
from fragmenta.base.jit.cache import VARIABLE, Cache
from fragmenta.base.jit.trace import I32

SOURCE = Path(fm.__file__).parents[1]

PRODUCT = """
import numpy as np, fragmenta as fm
op = fm.mma("m16n8k16", a="f16", d="f32")
ones = np.ones((16, 16), np.float16)
D = op(ones, ones[:, :8], np.zeros((16, 8), np.float32))
assert (D == 16).all()
sparse = fm.mma("m16n8k16", a="f16", d="f32", sp="sp")
assert fm.sparse.compress(sparse, fm.sparse.prune(sparse, ones)).values.shape == (16, 8)
"""


def compute(**environment):
    """A first computation in a fresh process."""
    kept = {k: v for k, v in os.environ.items() if k not in (VARIABLE, "HOME")}
    kept |= {"PYTHONPATH": str(SOURCE)} | environment
    done = subprocess.run(
        [sys.executable, "-c", PRODUCT],
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    "platform, variable, under",
    [
        ("linux", "XDG_CACHE_HOME", "fragmenta/compiled"),
        ("win32", "LOCALAPPDATA", "fragmenta/compiled"),
        ("darwin", "HOME", "Library/Caches/fragmenta/compiled"),
    ],
)
def test_it_is_where_the_platform_has_it(
    platform, variable, under, monkeypatch, tmp_path
):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(cache.sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert Cache.present().folder == tmp_path / Path(under)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """What a first process keeps."""
    folder = tmp_path_factory.mktemp("kept") / "new"
    compute(FRAGMENTA_CACHE=str(folder))
    return folder


def test_compiled_loops_are_kept_and_used_again(kept):
    files = sorted(kept.iterdir())
    assert files
    before = [path.stat().st_ino for path in files]  # what is written is a new file
    compute(FRAGMENTA_CACHE=str(kept))
    assert [path.stat().st_ino for path in files] == before
    assert sorted(kept.iterdir()) == files


def test_the_folder_and_its_entries_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        Cache(tmp_path / "new").put("key", b"value")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (entry,) = (tmp_path / "new").iterdir()
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600


def test_what_others_may_write_is_not_used(tmp_path):
    kept = Cache(tmp_path)
    for mode in (0o620, 0o602):
        kept.put("key", b"value")
        (entry,) = tmp_path.iterdir()
        entry.chmod(mode)
        assert kept.get("key") is None
        kept.put("key", b"value")
        assert kept.get("key") == b"value"


def test_what_another_user_wrote_is_not_used(tmp_path, monkeypatch):
    kept = Cache(tmp_path)
    kept.put("key", b"value")
    monkeypatch.setattr(os, "getuid", lambda: 12345, raising=False)
    assert kept.get("key") is None


def test_a_link_is_not_followed(tmp_path):
    kept = Cache(tmp_path / "cache")
    kept.put("key", b"value")
    (entry,) = (tmp_path / "cache").iterdir()
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert kept.get("key") is None


def test_an_entry_under_another_name_is_not_used(tmp_path):
    kept = Cache(tmp_path)
    kept.put("one", b"value")
    (entry,) = tmp_path.iterdir()
    kept.put("other", b"more")
    (second,) = set(tmp_path.iterdir()) - {entry}
    entry.replace(second)
    assert kept.get("other") is None


@pytest.fixture
def compiled(monkeypatch):
    """The loops that were compiled, not found in the cache."""
    made = []
    real = compiler._optimized

    def counted(text, *level):
        made.append(text)
        return real(text, *level)

    monkeypatch.setattr(compiler, "_optimized", counted)
    return made


def twice():
    """A loop that is compiled, or found in the cache, when it is first called."""

    @compiler.kernel(x=compiler.pointer(I32))
    def twice(code, x):
        x[0] = x[0] + x[0]

    x = np.array([21], np.int32)
    twice(x)
    assert x[0] == 42


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 100, "flip"])
def test_damaged_machine_code_is_made_anew(tmp_path, damage, compiled, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    twice()
    assert len(compiled) == 1
    twice()
    assert len(compiled) == 1
    (path,) = tmp_path.iterdir()
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(bytes(whole) if damage == "flip" else damage)
    twice()
    assert len(compiled) == 2
    twice()
    assert len(compiled) == 2


def test_a_process_makes_anew_what_is_damaged(kept, tmp_path):
    damages = (b"", b"short", b"x" * 100)
    for number, path in enumerate(sorted(kept.iterdir())):
        (tmp_path / path.name).write_bytes(damages[number % 3])
    compute(FRAGMENTA_CACHE=str(tmp_path))
    for path in kept.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_a_full_disk_is_no_error(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    kept = Cache(tmp_path)
    kept.put("key", b"value")
    assert kept.get("key") is None
    assert not list(tmp_path.iterdir())


def test_no_home_and_no_place_to_write_are_no_errors(tmp_path, compiled, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("where a folder should be")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for variable, place in (
        ("HOME", str(blocked)),
        (VARIABLE, str(blocked)),
        (VARIABLE, ""),
    ):
        with monkeypatch.context() as here:
            here.delenv(VARIABLE, raising=False)
            here.setenv(variable, place)
            twice()
    assert len(compiled) == 3


def test_no_home_at_all(monkeypatch):
    def none(*_):
        raise RuntimeError("no home")

    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.sys, "platform", "linux")
    monkeypatch.setattr(cache.Path, "home", none)
    assert Cache.present().folder is None


def test_the_oldest_go_first(tmp_path):
    kept = Cache(tmp_path, most=8)
    for number in range(9):
        kept.put(str(number), b"value")
        for path in tmp_path.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    left = [number for number in range(9) if kept.get(str(number))]
    assert left == [3, 4, 5, 6, 7, 8]


def test_what_is_used_stays(tmp_path):
    kept = Cache(tmp_path, most=8)
    for number in range(9):
        kept.put(str(number), b"value")
        for path in tmp_path.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**13))
        assert kept.get("0") == b"value"
    left = [number for number in range(9) if kept.get(str(number))]
    assert left == [0, 4, 5, 6, 7, 8]


def test_nothing_is_kept_beside_the_source():
    assert np is not None
    assert not list(SOURCE.rglob("*.nbi"))
