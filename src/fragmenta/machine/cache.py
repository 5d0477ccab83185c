"""What was made before, and may it be used?

Machine code and measured choices are kept in a folder of the user's own.  The
environment variable ``FRAGMENTA_CACHE`` names another folder, or none if it is
empty.  Keeping is optional: whatever is wrong with the disk is a miss, not an
error.  So is whatever somebody else could have written: an entry counts only if it
belongs to this user, nobody else may write it, and it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path

VARIABLE = "FRAGMENTA_CACHE"

KEPT = 512
"""Entries that the cache holds before it removes the oldest."""

_SUFFIX = ".kept"


class Cache:
    """Bytes by key in a folder.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = Cache(Path(folder))
    ...     kept.put("key", b"value")
    ...     kept.get("key"), kept.get("another")
    (b'value', None)
    """

    def __init__(self, folder: Path | None, most: int = KEPT) -> None:
        self.folder = folder
        self._most = most

    @classmethod
    def present(cls) -> Cache:
        """The cache that the environment asks for."""
        given = os.environ.get(VARIABLE)
        if given == "":
            return cls(None)
        try:
            if given is not None:
                return cls(Path(given).expanduser())
            return cls(_platform_folder() / "fragmenta" / "compiled")
        except RuntimeError:  # no home folder
            return cls(None)

    def get(self, key: str) -> bytes | None:
        """What was put under a key, if it is whole and this user's own."""
        if self.folder is None:
            return None
        try:
            data = _read_own(self._path(key))
        except OSError:
            return None
        if data is None:
            return None
        digest, value = data[:32], data[32:]
        return value if _digest(key, value) == digest else None

    def put(self, key: str, value: bytes) -> None:
        """Keep a value.  Others see all of it or nothing."""
        if self.folder is None:
            return
        part = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # mkstemp lets only this user read and write it.
            handle, part = tempfile.mkstemp(dir=self.folder, prefix="part-")
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, value) + value)
            os.replace(part, self._path(key))
            self._remove_oldest()
        except OSError:
            if part is not None:
                with contextlib.suppress(OSError):
                    os.unlink(part)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / f"{name}{_SUFFIX}"

    def _remove_oldest(self) -> None:
        """Remove the oldest, a quarter at a time, once there are too many."""
        assert self.folder is not None
        files = list(self.folder.glob(f"*{_SUFFIX}"))
        if len(files) <= self._most:
            return
        files.sort(key=lambda path: path.stat().st_mtime)
        for path in files[: len(files) - self._most * 3 // 4]:
            path.unlink(missing_ok=True)


def _digest(key: str, value: bytes) -> bytes:
    """Of both: an entry under another one's name does not count either."""
    name = hashlib.sha256(key.encode()).digest()
    return hashlib.sha256(name + value).digest()


def _read_own(path: Path) -> bytes | None:
    """A file that belongs to this user and that nobody else may write."""
    follow = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, os.O_RDONLY | follow)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if hasattr(os, "getuid"):  # else the system keeps users apart by folder
            others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if about.st_uid != os.getuid() or others:
                return None
        return file.read() if stat.S_ISREG(about.st_mode) else None


def _platform_folder() -> Path:
    """Where this system keeps what can be made again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
