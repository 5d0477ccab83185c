"""The animated picture of the explorer in the README.

    python docs/plots/film.py

Chromium shows the page as it is built, ``explorer/tests/film.mjs`` acts on it, and
Pillow puts the frames together.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
FILM = ROOT / "docs" / "images" / "explorer.webp"
LARGEST = 2_000_000
"""Bytes: the README must open quickly."""


def main() -> None:
    """Shoot the frames, and write the film."""
    with tempfile.TemporaryDirectory() as folder:
        script = ROOT / "explorer" / "tests" / "film.mjs"
        subprocess.run(["node", script, folder], check=True)
        listed = json.loads((Path(folder) / "frames.json").read_text("utf-8"))
        first, *rest = (
            Image.open(Path(folder) / name).convert("RGB") for name, _ in listed
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
