"""Every configuration fits, and the choice is sensible."""

import json
from dataclasses import replace

import pytest

import fragmenta as fm
from fragmenta.base.jit.cache import Cache
from fragmenta.hopper.kernels.choosing import SPARSE_TILES, expected_time, tiles_for
from fragmenta.hopper.kernels.tuning import key, known, tune
from fragmenta.kernels import Kernel, Tile, choose

ALL = [
    replace(Kernel(a, tile=Tile(64, 64), sparse=sparse), **variant)
    for a in ("e4m3", "s8", "bf16", "tf32")
    for sparse in (True, False)
    for variant in ({}, {"transposed": True}, {"scaled": True, "out": "bf16"})
]


@pytest.mark.parametrize("kernel", ALL, ids=str)
def test_every_tile_fits_in_shared_memory(kernel):
    for tile in tiles_for(kernel):
        each = replace(kernel, tile=tile)
        assert each.shared_bytes + 16 * each.stages <= 232_448
        assert each.stages >= 4
        team = 1 if tile.turns else tile.consumers
        assert tile.m == 64 * team * tile.blocks
        assert each.instruction.supported_on("sm_90a")


def test_bytes_of_the_first_design():
    kernel = Kernel("e4m3", out="bf16", tile=Tile(256, 192, 2))
    assert kernel.block_bytes == 64 * 64 + 128 * 8
    assert kernel.stage_bytes == 20 * 1024 + 24 * 1024
    assert (kernel.stages, kernel.threads) == (4, 384)


@pytest.mark.parametrize("n, widest", [(1, 8), (16, 16), (64, 64), (8192, 192)])
def test_choice_by_batch(n, widest):
    kernel = choose(Kernel("e4m3", out="bf16"), 8192, n, 8192)
    assert kernel.tile.n == widest


def test_grid_is_whole_clusters():
    kernel = Kernel("e4m3", tile=Tile(256, 192, 2))
    assert kernel.grid(8192, 8192) == 132
    assert kernel.grid(1, 1) == 2
    assert kernel.grid(8192, 8192, processors=131) == 130


def test_more_work_takes_longer():
    kernel = Kernel("bf16", tile=Tile(128, 128))
    times = [expected_time(kernel, 4096, n, 4096) for n in (128, 4096, 16384)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"a": "s8", "out": "bf16"}, "unless it is scaled"),
        ({"a": "s8", "out": "s32", "scaled": True}, "or f16, if it is scaled"),
        ({"a": "bf16", "promote": True}, "only for e4m3"),
        ({"a": "e4m3", "promote": True, "tile": Tile(256, 128)}, "no registers"),
        ({"a": "s8", "xor": True}, "xor is for b1"),
        ({"a": "e4m3", "tile": Tile(256, 200)}, "no kernel for tiles"),
        ({"a": "e4m3", "tile": Tile(64, 44)}, "n 8, 16, 24, 32"),
        ({"a": "e4m3", "tile": Tile(64, 32, 2, split=2)}, "neither a cluster nor"),
        ({"a": "e4m3", "tile": Tile(64, 32, split=5)}, "k is 2, 3, 4, 6 or 8"),
        ({"a": "e4m3", "tile": Tile(256, 192, split=2)}, "more shared memory"),
        ({"a": "e4m3", "tile": Tile(64, 0)}, "no kernel for tiles"),
        ({"a": "e4m3", "tile": Tile(64, 8, 2)}, "no kernel for tiles"),
        ({"a": "e4m3", "tile": Tile(64, 64, 4)}, "clusters of 1 or 2"),
        ({"a": "e4m3", "tile": Tile(256, 256)}, "more registers"),
        ({"a": "e4m3", "tile": Tile(256, 64, turns=True)}, "no kernel for tiles"),
        ({"a": "e4m3", "out": "s32"}, "must be stored as"),
    ],
)
def test_what_cannot_be_is_refused(arguments, said):
    with pytest.raises(fm.Error, match=said):
        Kernel(**arguments)


def test_a_measured_choice_is_kept(tmp_path, monkeypatch):
    from fragmenta.hopper.kernels import tuning

    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    tuning._kept.cache_clear()
    shape, kernel = (512, 512, 512), Kernel("bf16")
    best = tune(kernel, shape, "GPU", lambda each: each.tile.n)
    assert known(kernel, shape, "GPU") == best
    assert key(kernel, shape, "GPU") != key(Kernel("f16"), shape, "GPU")
    tuning._kept.cache_clear()
    assert known(kernel, shape, "GPU") == best  # from the file
    tuning._kept.cache_clear()
    tuning._kept()  # before another process adds what it found
    kept = Cache(tmp_path)
    read = json.loads(kept.get(tuning._version()))
    more = read | {"other": [64, 8, 1, False, 2]}
    kept.put(tuning._version(), json.dumps(more).encode())
    tune(Kernel("s8"), shape, "GPU", lambda each: each.tile.n)
    assert set(json.loads(kept.get(tuning._version()))) == {
        *more,
        key(Kernel("s8"), shape, "GPU"),
    }
    tuning._kept.cache_clear()


# ── splits along k ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("tile", [t for t in SPARSE_TILES if t.split > 1][::7], ids=str)
def test_the_parts_are_all_of_k(tile):
    kernel = Kernel("e4m3", tile=tile)
    stage = kernel.slabs * kernel.slab_k
    for k in (tile.split * stage, 11 * stage + 4, 64 * stage - 4):
        parts = kernel.parts(k)
        assert [last for _, last in parts] == [x for x, _ in parts[1:]] + [k]
        assert parts[0][0] == 0
        lengths = [-(-(last - first) // stage) for first, last in parts]
        assert max(lengths) - min(lengths) <= 1
    with pytest.raises(fm.errors.ShapeError, match="need k of at least"):
        kernel.parts((tile.split - 1) * stage)


def test_few_tiles_are_split_and_many_are_not():
    kernel = Kernel("bf16", out="bf16", transposed=True)
    assert choose(kernel, 4096, 96, 14336).tile.split > 1
    assert choose(kernel, 28672, 512, 8192).tile.split == 1


@pytest.mark.parametrize("a", ["bf16", "e4m3", "s8", "tf32"])
def test_a_tile_is_hardly_wider_than_the_batch(a):
    kernel = Kernel(a, transposed=True)
    for n in (1, 9, 24, 33, 100, 200):
        assert choose(kernel, 8192, n, 8192).tile.n < n + 16


def test_tuning_keeps_the_order_of_the_sum():
    shape, asked = (1024, 64, 4096), []

    def measure(kernel):
        asked.append(kernel)
        return -kernel.tile.n

    first = choose(Kernel("bf16"), *shape)
    tune(Kernel("bf16"), shape, "no card", measure)
    assert len(asked) > 1
    assert {tuple(each.parts(4096)) for each in asked} == {tuple(first.parts(4096))}
