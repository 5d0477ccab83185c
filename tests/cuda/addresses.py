"""The addresses from which a GPU's ``wgmma`` reads shared memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fragmenta.cuda.tools import assembler, launch
from fragmenta.cuda.tools.device import GPU
from fragmenta.cuda.tools.launch import TileKernel
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.shared.descriptor import Addresses, Descriptor

IMAGE_BYTES = 48 * 1024
"""Longer than any start plus tile."""


def observed_addresses(gpu: GPU, descriptors: Sequence[Descriptor]) -> Addresses:
    """From which address the GPU reads each element (k, n) of a u8 B.

    For each descriptor (32, 8) addresses, those of B of ``m64n8k32``,
    K-major.  A picks out single elements, and the image holds the low byte of
    each address in one run and the high byte in another, so D *is* the
    address.  Base offsets are passed on as they are.
    """
    op = instruction("wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.u8")
    pick = np.zeros((64, 32), np.uint8)
    pick[np.arange(32), np.arange(32)] = 1
    address = np.arange(IMAGE_BYTES, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    words = np.repeat(np.array([d.encode() for d in descriptors], np.uint64), 2)
    tiles = len(words)
    arrays = {
        "c": np.zeros((tiles, 128, op.d.registers), np.uint32),
        "a": np.tile(op.a.pack(pick), (tiles, 1, 1)),
        "b": words,
        "scale_d": np.zeros(tiles, np.uint32),
        "image": np.tile(np.ascontiguousarray(address.T), (tiles // 2, 1)),
    }
    kernel = TileKernel(op, a_registers=True, image_bytes=IMAGE_BYTES)
    text = launch.source([kernel], gpu.target)
    module = gpu.load(assembler.assemble(text, gpu.target))
    output = launch.poisoned(*kernel.form(tiles))
    d = launch.run(gpu, module, kernel, arrays, output)
    low, high = op.d.unpack(d)[:, :32].reshape(-1, 2, 32, 8).swapaxes(0, 1)
    found: Addresses = low.astype(np.int64) + 256 * high.astype(np.int64)
    return found
