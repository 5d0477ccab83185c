"""Run prepared kernels on a GPU; see scalars.py.

This file is copied to the other machine, where only NumPy and CuPy need to be.
"""

import json
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np

#: Every STRIDE-th result is kept in full.
STRIDE = 16


def compacted(words):
    """Each 16th result in full, and checksums of the others."""
    others = [words[:, first::STRIDE].tobytes() for first in range(1, STRIDE)]
    sums = np.array([zlib.crc32(each) for each in others], "<u4")
    return words[:, ::STRIDE].tobytes() + sums.tobytes()


def loaded(cupy, listed, name):
    """The kernels of a list; assembled here if the driver does not take them."""
    try:
        module = cupy.RawModule(path=str(listed.with_suffix(".cubin")))
        module.get_function(name)
        return module
    except Exception as wrong:
        print(listed.stem, "is assembled here:", wrong)
    text = listed.with_suffix(".ptx").read_text()
    again = Path("/tmp/again.ptx")
    again.write_text(text.replace(".version 9.4", ".version 9.0"))
    cubin = again.with_suffix(".cubin")
    subprocess.run(["ptxas", "-arch=sm_90a", again, "-o", cubin], check=True)
    return cupy.RawModule(path=str(cubin))


def main(folder: Path, results: Path) -> None:
    """Run every kernel once."""
    import cupy

    pools = cupy.asarray(np.load(folder / "pools.npy"))
    count = pools.shape[1]
    print(cupy.cuda.runtime.getDeviceProperties(0)["name"])
    print("driver", cupy.cuda.runtime.driverGetVersion())
    sizes, kept = {}, []
    for listed in sorted(folder.glob("*.json")):
        try:
            names = json.loads(listed.read_text())
            module = loaded(cupy, listed, next(iter(names)))
            for name, (form, rows) in names.items():
                out = cupy.full((rows, count), 0xDEADBEEFDEADBEEF, cupy.uint64)
                module.get_function(name)((count // 128,), (128,), (pools, out))
                kept.append(compacted(cupy.asnumpy(out)))
                sizes[form] = len(kept[-1])
            print(listed.stem, len(names), flush=True)
        except Exception as wrong:
            print(listed.stem, "failed:", repr(wrong), flush=True)
    (results / "sizes.json").write_text(json.dumps(sizes))
    (results / "results.bin").write_bytes(b"".join(kept))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
