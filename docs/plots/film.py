"""The film in the README: an element is found, a bit is lost, a hazard is stopped.

    python docs/plots/film.py

Chromium shows the explorer as it is built, then what ``fragmenta launch`` prints and
draws of the README's kernel; ``explorer/tests/film.mjs`` acts, and Pillow puts the
frames together.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
FILM = ROOT / "docs" / "images" / "explorer.webp"
SIZE = (1200, 900)
LARGEST = 2_000_000
"""Bytes: the README must open quickly."""


ASKED = "launch examples/two_copies.ptx --arg arange:u32:64 --arg zeros:u32:32"


def report() -> str:
    """The command, and the first problem that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "fragmenta", *ASKED.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stderr[done.stderr.index("examples/") :]
    return f"$ fragmenta {ASKED}\n{said.partition(chr(10) * 2)[0]}\n"


def main() -> None:
    """Shoot the frames, and write the film."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "report.txt").write_text(report(), "utf-8")
        script = ROOT / "explorer" / "tests" / "film.mjs"
        subprocess.run(["node", script, folder], check=True)
        listed = json.loads((Path(folder) / "frames.json").read_text("utf-8"))
        first, *rest = (
            Image.open(Path(folder) / name).convert("RGB").resize(SIZE)
            for name, _ in listed
        )
        first.save(
            FILM,
            save_all=True,
            append_images=rest,
            duration=[milliseconds for _, milliseconds in listed],
            loop=0,
            quality=72,
            method=6,
        )
    size = FILM.stat().st_size
    print(f"{FILM.relative_to(ROOT)}: {len(listed)} frames, {size:,} bytes")
    assert size < LARGEST


if __name__ == "__main__":
    main()
