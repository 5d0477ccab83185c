"""A cache on disk of what was compiled or measured.

Machine code and measured choices are kept in a folder of the user.  The
environment variable ``FRAGMENTA_CACHE`` names another folder; if it is empty,
nothing is kept.  A problem with the disk is a cache miss, not an error.  An entry
is used only if it is complete, belongs to this user, and cannot be written by
other users.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

VARIABLE = "FRAGMENTA_CACHE"

KEPT = 16384
"""The most entries in the cache; beyond that, those unused for longest are removed."""

_USED_AGAIN = 3600
"""An entry that is older is marked as used: this many seconds are enough to tell."""

_LOOK = 64
"""Entries written between two searches for old ones."""

_SUFFIX = ".kept"
_WRITTEN = itertools.count(1)


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
        self._look = _LOOK if most > _LOOK else 1

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
        """The value of a key, if it is complete and was written by this user."""
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
        """Keep a value.  Other processes see either all of it or nothing."""
        if self.folder is None:
            return
        part = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # mkstemp makes a file that only this user can read and write.
            handle, part = tempfile.mkstemp(dir=self.folder, prefix="part-")
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(key, value) + value)
            os.replace(part, self._path(key))
            if next(_WRITTEN) % self._look == 0:
                self._remove_unused()
        except OSError:
            if part is not None:
                with contextlib.suppress(OSError):
                    os.unlink(part)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / f"{name}{_SUFFIX}"

    def _remove_unused(self) -> None:
        """Remove what was unused for longest, a quarter, once there are too many."""
        assert self.folder is not None
        files = list(self.folder.glob(f"*{_SUFFIX}"))
        if len(files) <= self._most:
            return
        files.sort(key=lambda path: path.stat().st_mtime)
        for path in files[: len(files) - self._most * 3 // 4]:
            path.unlink(missing_ok=True)


def _digest(key: str, value: bytes) -> bytes:
    """A digest of key and value: an entry under the name of another is refused."""
    name = hashlib.sha256(key.encode()).digest()
    return hashlib.sha256(name + value).digest()


def _read_own(path: Path) -> bytes | None:
    """The content of a file, if only this user owns and can write it."""
    follow = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, os.O_RDONLY | follow)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if hasattr(os, "getuid"):  # without it, each user has a separate folder
            others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if about.st_uid != os.getuid() or others:
                return None
        if not stat.S_ISREG(about.st_mode):
            return None
        if time.time() - about.st_mtime > _USED_AGAIN:
            with contextlib.suppress(OSError):
                os.utime(handle if os.utime in os.supports_fd else path)
        return file.read()


def _platform_folder() -> Path:
    """The folder where this system keeps caches."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
