"""The kernel that prunes and compresses, run on the CPU by a C++ compiler.

CUDA's words are given a meaning that a host has: a thread of a block is a thread of
the process.
"""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from fragmenta.hopper.kernels import prepare
from fragmenta.hopper.kernels.packing import pack, packed_shape
from fragmenta.kernels import Kernel
from fragmenta.reference.registers.dtype import dtype
from fragmenta.reference.sparse.compression import compress
from fragmenta.reference.sparse.pruning import prune
from tests.thinning import some

COMPILER = shutil.which("g++") or shutil.which("c++")
TYPES = ("e4m3", "e5m2", "s8", "u8", "bf16", "f16", "tf32")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

BEFORE = r"""
#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <thread>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __constant__ static const
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
using std::min;
struct uint4 { unsigned x, y, z, w; };
struct Place { unsigned x, y; };
static thread_local Place threadIdx, blockIdx;
static Place gridDim;
static std::barrier<>* all_threads;
static void __syncthreads() { all_threads->arrive_and_wait(); }
template <class T> static T __ldcs(const T* from) { return *from; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __reduce_add_sync(unsigned, int) { std::abort(); }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned places) {
    unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned found = 0;
    for (int i = 0; i < 4; i++)
        found |= (unsigned)(both >> 8 * (places >> 4 * i & 7) & 255) << 8 * i;
    return found;
}
"""

AFTER = r"""
#define SEEN __attribute__((visibility("default")))
extern "C" SEEN void all_blocks(
    const char* matrix, long long pitch, int rows, long long width, char* packed,
    unsigned wide, unsigned high) {
    gridDim = {wide, high};
    std::barrier<> meeting(256);
    all_threads = &meeting;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 256; t++)
        threads.emplace_back([=] {
            threadIdx = {t, 0};
            for (unsigned y = 0; y < high; y++)
                for (unsigned x = 0; x < wide; x++) {
                    blockIdx = {x, y};
                    compress(matrix, pitch, rows, width, packed);
                    __syncthreads();
                }
        });
    for (auto& thread : threads) thread.join();
}

extern "C" SEEN void all_chunks(
    const Given* from, long long count, Unit* values, unsigned* codes) {
    for (long long i = 0; i < count; i++) {
        codes[i] = 0;
        for (int c = 0; c < COUNT / CHUNK; c++)
            codes[i] |= shrink(from[i], c, values[i]) << 4 * c;
    }
}
"""

SPREAD = 'asm("prmt.b32 %0, %1, 0, 0xBA98;" : "=r"(all) : "r"(word));'
"""Selectors with their fourth bit take the sign of a byte, eight times."""


@pytest.fixture(scope="module", params=some(TYPES, 2))
def host(request, tmp_path_factory):
    """The type, and its kernel as a library."""
    name = request.param
    text = prepare.prepare_source(name)
    if dtype(name).bits == 8:
        assert SPREAD in text
    text = text.replace(SPREAD, "all = (word >> 7 & 0x01010101u) * 255u;")
    folder = tmp_path_factory.mktemp(name)
    (folder / "compress.cpp").write_text(BEFORE + text + AFTER)
    flags = [
        "-std=c++20",
        "-O1",
        "-fno-strict-aliasing",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",  # a Python with zlib has a function compress, too
        "-pthread",
    ]
    called = [COMPILER, *flags, "-o", "compress.so", "compress.cpp"]
    done = subprocess.run(
        called, cwd=folder, capture_output=True, text=True, check=False
    )
    if "barrier" in done.stderr and "No such file" in done.stderr:
        pytest.skip("needs a compiler of C++20")
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(folder / "compress.so"))
    assert hasattr(library, "all_blocks")
    assert not hasattr(library, "compress")
    return name, library


def drawn(name, rows, columns, seed):
    """Patterns of all kinds: any, and few different ones, so that many are equal."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(f"u{dtype(name).storage.itemsize}")
    bits = rng.integers(0, 1 << dtype(name).bits, (rows, columns), kind)
    few = rng.choice(bits.reshape(-1), 5)
    few[:2] = 0, 1 << dtype(name).bits - 1
    bits[::2] = rng.choice(few, bits[::2].shape)
    return bits.view(dtype(name).storage)


def expected(name, matrix):
    op = Kernel(name).instruction
    kept = prune(op, matrix, pad=True)[:, : matrix.shape[1]]
    return op, compress(op, kept, pad=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "rows, columns", some([(70, 33), (64, 128), (260, 64), (3, 200)], 2)
)
def test_every_byte_of_a_packed_matrix(host, rows, columns):
    name, library = host
    matrix = drawn(name, rows, columns, seed=rows)
    room = np.zeros((rows, -(-matrix.nbytes // rows // 16) * 16), np.uint8)
    room[:, : matrix.nbytes // rows] = matrix.view(np.uint8)
    shape = packed_shape(name, rows, columns)
    packed = np.full(shape, 0xA5, np.uint8)
    library.all_blocks(
        ctypes.c_void_p(room.ctypes.data),
        ctypes.c_longlong(room.shape[1]),
        rows,
        ctypes.c_longlong(matrix.nbytes // rows),
        ctypes.c_void_p(packed.ctypes.data),
        shape[1],
        4 * shape[0],
    )
    np.testing.assert_array_equal(packed, pack(*expected(name, matrix)).data)


def test_chunks_of_all_kinds(host):
    name, library = host
    of = dtype(name)
    matrix = drawn(name, 1024, 2048, seed=7)
    _, compressed = expected(name, matrix)
    units = matrix.nbytes // 32
    values = np.zeros((units, 16), np.uint8)
    codes = np.zeros(units, np.uint32)
    library.all_chunks(
        ctypes.c_void_p(matrix.ctypes.data),
        ctypes.c_longlong(units),
        ctypes.c_void_p(values.ctypes.data),
        ctypes.c_void_p(codes.ctypes.data),
    )
    per = compressed.indices.size // units
    found = codes[:, None] >> 4 * np.arange(per, dtype=np.uint32) & 15
    np.testing.assert_array_equal(found, compressed.indices.reshape(units, per))
    np.testing.assert_array_equal(
        values.reshape(len(matrix), -1),
        np.ascontiguousarray(compressed.values).view(np.uint8).reshape(len(matrix), -1),
        err_msg=str(of),
    )
