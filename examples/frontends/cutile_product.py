"""A product of matrices with cuTile, on a GPU or with ``fragmenta run -- python THIS``.

The arrays are made with cuda.core; CuPy's and PyTorch's are taken as they are.
"""

import cuda.tile as ct
import numpy as np
from cuda.core import Device, LegacyPinnedMemoryResource

TILE = 32
SIDE = 64


@ct.kernel
def product(a, b, c):
    """Compute a tile of the product."""
    i, j = ct.bid(0), ct.bid(1)
    total = ct.full((TILE, TILE), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(TILE, TILE))):
        x = ct.load(a, index=(i, k), shape=(TILE, TILE), allow_tma=False)
        y = ct.load(b, index=(k, j), shape=(TILE, TILE), allow_tma=False)
        total = ct.mma(x, y, total)
    ct.store(c, index=(i, j), tile=total, allow_tma=False)


class Array:
    """An array in the memory of the device."""

    def __init__(self, values):
        self.values = values
        self.host = LegacyPinnedMemoryResource().allocate(values.nbytes)
        self.memory = device.allocate(values.nbytes, stream=stream)
        self.seen()[:] = values
        self.host.copy_to(self.memory, stream=stream)

    def seen(self):
        """What the host sees of it."""
        bytes_of = np.from_dlpack(self.host)
        return bytes_of.view(self.values.dtype).reshape(self.values.shape)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.values.shape,
            "typestr": self.values.dtype.str,
            "data": (int(self.memory.handle), False),
            "version": 3,
        }

    def get(self):
        """Its values."""
        self.memory.copy_to(self.host, stream=stream)
        stream.sync()
        return self.seen()


device = Device()
device.set_current()
stream = device.create_stream()
random = np.random.default_rng(1)
a, b = (random.integers(-4, 5, (SIDE, SIDE)).astype(np.float16) for _ in range(2))
c = Array(np.zeros((SIDE, SIDE), np.float32))
tiles = SIDE // TILE
ct.launch(int(stream.handle), (tiles, tiles, 1), product, (Array(a), Array(b), c))
assert np.array_equal(c.get(), a.astype(np.float32) @ b.astype(np.float32))
print("multiplied")
