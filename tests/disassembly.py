"""Machine code as text: what nvdisasm prints for a cubin."""

import subprocess
import tempfile
from pathlib import Path

from fragmenta.cuda.tools import assembler


def disassemble(cubin: bytes) -> str:
    """The machine instructions of a cubin."""
    tool = assembler.tool("nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.cubin")
        path.write_bytes(cubin)
        command = [tool, "-c", path]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout
