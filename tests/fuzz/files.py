"""Files: what was written is read, and what was damaged is refused.

The judge is NumPy itself: what is read is what ``numpy.load`` reads, and what it
cannot read is refused here, too.  Of recordings, the judge is what they say.
"""

from __future__ import annotations

import atexit
import copy
import io
import json
import os
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fragmenta as fm
from fragmenta.base.arrays import npy
from fragmenta.commands import files
from fragmenta.commands.compute import load_a
from fragmenta.inspect.evidence import record
from fragmenta.reference.registers.dtype import DTYPES
from fragmenta.reference.sparse.compression import compress
from tests.fuzz.engine import Ask, Surface, Wrong, bits, expect, same
from tests.fuzz.packing import patterns
from tests.fuzz.sparsity import forms, sparse_bits

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"
KINDS = ("<f4", "<f8", ">f4", "<f2", "|i1", "|u1", "<i4", ">i8", "|b1", "|V1", "<u2")


@cache
def folder() -> Path:
    """A folder in memory, if there is one, that goes with the process."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = tempfile.mkdtemp(prefix="fragmenta-fuzz-", dir=memory)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def put(content: bytes, name: str = "x.npy") -> str:
    path = folder() / name
    path.write_bytes(content)
    return str(path)


def array(rng: random.Random) -> Any:
    kind = np.dtype(rng.choice(KINDS))
    shape = tuple(rng.randint(0, 4) for _ in range(rng.randint(0, 3)))
    size = int(np.prod(shape)) * kind.itemsize
    found = np.frombuffer(rng.randbytes(size), kind).reshape(shape)
    if kind == np.bool_:
        found = bits(rng, np.uint8, shape) % 2 == 1
    return np.asfortranarray(found) if rng.random() < 0.3 else found


def saved(one: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, one)
    return file.getvalue()


def archived(arrays: dict[str, Any], packed: bool) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(file, **arrays)
    return file.getvalue()


def alike(found: Any, wanted: Any, what: str) -> None:
    """The same bytes of the same type in the same shape."""
    expect(found.dtype == wanted.dtype, f"{what}: {found.dtype}, not {wanted.dtype}")
    same(_bytes(found), _bytes(wanted), what)


def _bytes(one: Any) -> Any:
    """Bytes along a new last axis, so that NaN and nameless items compare."""
    whole = np.ascontiguousarray(one).reshape(one.shape)
    return np.frombuffer(whole.tobytes(), np.uint8).reshape(*one.shape, one.itemsize)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The same with something changed, cut off, put in or twice."""
    spoiled = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(spoiled)) if spoiled else 0
        if rng.random() < 0.5:
            at = min(at, rng.randrange(80))  # where the header is
        kind = rng.randrange(6)
        if kind == 0 and spoiled:
            spoiled[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and spoiled:
            spoiled[at] = rng.choice(b"\x00\xff'(){},:<|0129fFVOL-\n")
        elif kind == 2:
            del spoiled[at:]
        elif kind == 3:
            spoiled[at:at] = rng.randbytes(rng.randint(1, 9))
        elif kind == 4:
            del spoiled[at : at + rng.randint(1, 9)]
        else:
            old = rng.choice((b"True", b"False", b"descr", b"shape", b"(", b"<f", b"1"))
            new = rng.choice((b"None", b"1e9", b"-1", b"O", b"[(", b"9" * 30, b""))
            spoiled = bytearray(bytes(spoiled).replace(old, new, 1))
    return bytes(spoiled)


# ── games ───────────────────────────────────────────────────────────────────


def whole_files(ask: Ask) -> None:
    """What NumPy writes is read as NumPy reads it."""
    rng = ask.rng
    one = array(rng)
    alike(ask.accepted(npy.read, put(saved(one))), one, "a file")


def whole_archives(ask: Ask) -> None:
    """Each array of an archive is there under its name."""
    rng = ask.rng
    arrays = {name: array(rng) for name in rng.sample(["a", "b", "width"], 2)}
    found = ask.accepted(npy.read, put(archived(arrays, rng.random() < 0.5), "x.npz"))
    expect(sorted(found) == sorted(arrays), f"{sorted(found)} are the names")
    for name, one in arrays.items():
        alike(ask.accepted(found.__getitem__, name), one, f"{name} of an archive")


def damaged_files(ask: Ask) -> None:
    """What is read of a damaged file is what NumPy reads of it."""
    rng = ask.rng
    content = damaged(saved(array(rng)), rng)
    found = ask(npy.read, put(content))
    if not isinstance(found, np.ndarray):
        return
    if b"'descr': '<f1'" in content[:256]:
        return  # a name that NumPy writes and does not read
    try:
        wanted = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as why:  # NumPy lists no errors either
        raise Wrong(f"NumPy does not read this: {why}; read as {found!r:.80}") from None
    alike(found, wanted, "a damaged file")


def damaged_archives(ask: Ask) -> None:
    """An archive with a flipped bit is refused, or the bit meant nothing."""
    rng = ask.rng
    arrays = {"a": array(rng), "b": array(rng)}
    content = damaged(archived(arrays, rng.random() < 0.5), rng)
    found = ask(npy.read, put(content, "x.npz"))
    if not isinstance(found, npy.Archive):
        return
    for name in found:
        one = ask(found.__getitem__, name)
        if name in arrays:  # its check sum held
            alike(one, arrays[name], f"{name} of a damaged archive")


def elements(ask: Ask) -> None:
    """Every type of element comes back bit for bit."""
    rng = ask.rng
    of = DTYPES[rng.choice([n for n, of in DTYPES.items() if of.kind != "raw"])]
    shape = (rng.randint(1, 4), rng.randint(1, 4))
    raw = patterns(of, shape, rng)
    path = put(saved(of.decode(raw)))
    found = ask.accepted(files.load_matrix, path, of)
    same(of.encode(found), raw, f"a file of {of}")


def compressed_files(ask: Ask) -> None:
    """A compressed A is taken with a width that fits it, and no other."""
    rng = ask.rng
    op = rng.choice(forms())
    rows, columns = rng.randint(1, 3), op.granularity.chunk * rng.randint(1, 3)
    sp = compress(op, op.types["a"].decode(sparse_bits(op, (rows, columns), rng)))
    width = rng.choice(
        (columns, columns, 15.9, "16", [columns], columns + 1, -1, 2**40)
    )
    values = sp.values
    if values.dtype.type.__module__ == "ml_dtypes":
        values = values.view(f"V{values.itemsize}")
    arrays = {"values": values, "indices": sp.indices, "width": np.array(width)}
    if rng.random() < 0.3:
        del arrays[rng.choice(list(arrays))]
    path = put(archived(arrays, False), "x.npz")
    right = len(arrays) == 3 and isinstance(width, int) and width in (columns, -1)
    found = ask.maybe(right, load_a, path, op)
    if found is not None:
        of = op.types["a"]
        same(of.encode(found.values), of.encode(sp.values), "stored values")


def written(ask: Ask) -> None:
    """What is saved is there, and nothing is overwritten unless that is asked."""
    rng = ask.rng
    path = folder() / rng.choice(("out.npy", "other.npy"))
    if rng.random() < 0.3:
        path.unlink(missing_ok=True)
    before = path.read_bytes() if path.exists() else None
    force, one = rng.random() < 0.5, array(rng)
    if one.dtype.kind == "V":
        return
    right = force or before is None
    ask.maybe(right, files.save_array, str(path), one, force, lambda _: None)
    if right:
        alike(np.load(path), one, "a saved file")
    else:
        expect(path.read_bytes() == before, "a file was overwritten")


# ── recordings ──────────────────────────────────────────────────────────────


@cache
def small_recording(kind: str) -> tuple[dict[str, Any], Any]:
    """A few cases of a recording, with their words."""
    found = record.load(GOLDEN / f"{kind}.npz")
    cases, words, start = [], [], 0
    for case in found.cases[:: max(1, len(found.cases) // 3)]:
        answer = np.ascontiguousarray(found.result(case)).reshape(-1).view(np.uint32)
        cases.append({**vars(case), "shape": list(case.shape), "start": start})
        words.append(answer)
        start += answer.size
    return {"made": found.made, "cases": cases}, np.concatenate(words)


ANYTHING = (
    None,
    True,
    -1,
    0,
    1,
    3,
    2**31,
    2**64,
    2**70,
    1e9,
    "",
    "sm_90a",
    "sm_80",
    [],
    [1],
    {},
    {"a": 1},
    [5, 32, 4],
    "0123456789abcdef",
    "\x1b[2J",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
)


def tampered_recordings(ask: Ask) -> None:
    """A recording that is loaded has an answer for every case it names."""
    rng = ask.rng
    kind = rng.choice(record.KINDS)
    about, words = small_recording(kind)
    changed = copy.deepcopy(about)
    for _ in range(rng.randrange(3)):
        case = rng.choice(changed["cases"]) if changed.get("cases") else {}
        if not isinstance(case, dict):
            break
        where = rng.choice((case, case, case, changed["made"], changed))
        if isinstance(case.get("variant"), dict) and rng.random() < 0.3:
            where = case["variant"]
        if isinstance(where, dict) and where:
            name = rng.choice(list(where))
            if rng.random() < 0.2:
                del where[name]
            else:
                where[name] = copy.deepcopy(rng.choice(ANYTHING))
        if not isinstance(changed.get("made"), dict) or "cases" not in changed:
            break
        if not isinstance(changed["cases"], list):
            break
    text = np.frombuffer(json.dumps(changed).encode(), np.uint8)
    path = put(archived({"about": text, "words": words}, False), "r.npz")
    # as text, for which True is not 1
    call = ask.accepted if json.dumps(changed) == json.dumps(about) else ask
    found = call(record.load, Path(path))
    for case in found.cases:
        answer = found.result(case)
        expect(answer.shape == case.shape, f"{case} has {answer.shape}")
        op = case.instruction
        expect(op.startswith("cvt") or fm.instruction(op) is not None, f"no {op}")


SURFACE = Surface(
    "files",
    {
        whole_files: 4,
        whole_archives: 2,
        damaged_files: 8,
        damaged_archives: 5,
        elements: 3,
        compressed_files: 3,
        written: 2,
        tampered_recordings: 2,
    },
    share=0.04,
)
