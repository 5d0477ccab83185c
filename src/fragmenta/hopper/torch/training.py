"""Trains the kept values of sparse weights; the mask stays as it is.

A trained weight is two tensors: ``values``, the kept values row by row, with half the
columns of the weight, and ``codes``, their places.  An optimiser sees only the values.

    forward     the values are packed, and the sparse product reads them
    dX = dY W   the sparse product with W^T, if the mask is sparse in both directions;
                else a dense product
    dW = dY^T X a dense product of PyTorch; only its kept places are returned

Packing takes one pass over the values, so it is done in every call.  Nothing is kept
that a change of the values could leave behind, whoever changes them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fragmenta.errors import (
    BadMetadata,
    NotSparse,
    ShapeError,
    UnknownType,
    ValueRangeError,
    one_of,
)
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.kept import CODES, TRAINED, start_kept, units
from fragmenta.hopper.kernels.packing import pack, packed_shape
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    bytes_of,
    codes_of,
    column_table,
    granularity_of,
    matrix_of,
    packed_of,
    rows_aligned,
)
from fragmenta.reference.sparse.compression import Compressed

_PIECE = 1 << 16  # blocks whose sums are in memory at once


# ── which values are kept ───────────────────────────────────────────────────


def check_trained(element_type: str) -> None:
    """Refuse weights that cannot be trained.

    >>> check_trained("e4m3")
    Traceback (most recent call last):
    fragmenta.errors.UnknownType: weights of bf16, f16 or tf32 can be trained; given \
e4m3
    """
    if element_type not in TRAINED:
        raise UnknownType(
            f"weights of {one_of(TRAINED)} can be trained; given {element_type}"
        )


@lru_cache(maxsize=2)
def transposable_patterns(chunk: int) -> Tensor:
    """Every block whose rows and columns all keep half: 90 for 2:4, two for 1:2.

    >>> transposable_patterns(4).shape, transposable_patterns(2).int().tolist()
    (torch.Size([90, 4, 4]), [[[0, 1], [1, 0]], [[1, 0], [0, 1]]])
    """
    bits = np.arange(1 << chunk * chunk, dtype=np.uint32)[:, None]
    blocks = (bits >> np.arange(chunk * chunk, dtype=np.uint32) & 1).astype(bool)
    blocks = blocks.reshape(-1, chunk, chunk)
    half = chunk // 2
    fits = (blocks.sum(1) == half).all(1) & (blocks.sum(2) == half).all(1)
    return torch.from_numpy(blocks[fits])


def transposable_mask(weight: Tensor, chunk: int = 4) -> Tensor:
    """The mask that is 2:4 along rows and along columns and keeps the most magnitude.

    Each block of 4 x 4 (``chunk=2``: 2 x 2) is compared with every pattern that keeps
    half of each row and column.  So the choice is the best there is: the sums are of
    float64, and the first of equal patterns is taken.

    >>> rows = [9.0, 8, 1, 1], [9, 8, 7, 1], [1, 6, 7, 1], [9, 1, 7, 5]
    >>> transposable_mask(torch.tensor(rows)).int()
    tensor([[1, 1, 0, 0],
            [0, 1, 1, 0],
            [0, 0, 1, 1],
            [1, 0, 0, 1]], dtype=torch.int32)
    """
    patterns = transposable_patterns(chunk).to(weight.device)
    flat = patterns.flatten(1)
    blocks = _blocks(weight, chunk)
    best = torch.empty(len(blocks), dtype=torch.long, device=weight.device)
    sums = flat.double().T
    for at in range(0, len(blocks), _PIECE):  # 90 sums for each block: not all at once
        part = blocks[at : at + _PIECE].abs().double()
        best[at : at + _PIECE] = (part @ sums).argmax(dim=1)
    rows, columns = weight.shape
    tall, wide = -(-rows // chunk), -(-columns // chunk)
    kept = flat[best].reshape(tall, wide, chunk, chunk).swapaxes(1, 2)
    return kept.reshape(tall * chunk, wide * chunk)[:rows, :columns].contiguous()


def _blocks(weight: Tensor, chunk: int) -> Tensor:
    """The square blocks of a matrix, each a row; zeros fill up the last ones."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight, (0, -columns % chunk, 0, -rows % chunk))
    tall, wide = (size // chunk for size in padded.shape)
    blocks = padded.reshape(tall, chunk, wide, chunk).swapaxes(1, 2)
    return blocks.reshape(tall * wide, chunk * chunk)


def kept_codes(weight: Tensor, element_type: str, transposable: bool) -> Tensor:
    """The codes of the places that are kept: uint8, two codes in each.

    >>> weight = torch.tensor([[1, 2, 3, 4]], dtype=torch.bfloat16)
    >>> kept_codes(weight, "bf16", False)[0, 0].item() & 15  # columns 2 and 3
    14
    """
    if transposable:
        if not weight.isfinite().all():
            raise ValueRangeError(
                "a mask that is sparse in both directions is chosen among finite "
                "weights; this one has NaN or infinity"
            )
        mask = transposable_mask(weight, granularity_of(element_type).chunk)
        weight = mask.to(DTYPES[element_type])
    packed = packed_of(weight.to(DTYPES[element_type]), element_type, True)
    return row_codes(packed, element_type, (weight.shape[0], weight.shape[1]))


def row_codes(packed: Tensor, element_type: str, shape: tuple[int, int]) -> Tensor:
    """The codes in packed bytes of a matrix, row by row: uint8, two codes in each.

    >>> from fragmenta.hopper.torch.matrix import empty_packed
    >>> row_codes(empty_packed("bf16", 2, 20), "bf16", (2, 20)).shape
    torch.Size([2, 4])
    """
    rows, columns = shape
    found = codes_of(packed, element_type)
    return found[:rows, : CODES * units(element_type, columns)].contiguous()


def kept_columns(codes: Tensor, element_type: str, columns: int) -> Tensor:
    """The column of every kept value; some of the last chunk may not exist.

    >>> weight = torch.tensor([[1, 2, 3, 4]], dtype=torch.bfloat16)
    >>> kept_columns(kept_codes(weight, "bf16", False), "bf16", 4)
    tensor([[2, 3]])
    """
    granularity = granularity_of(element_type)
    chunks = -(-columns // granularity.chunk)
    pairs = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)[:, :chunks].long()
    found = column_table(granularity, codes.device)[pairs]
    first = granularity.chunk * torch.arange(chunks, device=codes.device)
    return (first[:, None] + found).flatten(1)


def check_codes(codes: Tensor, element_type: str) -> None:
    """Refuse codes that name no places, or one place twice.

    >>> check_codes(torch.zeros(2, 2, dtype=torch.uint8), "bf16")
    Traceback (most recent call last):
    fragmenta.errors.BadMetadata: 8 of 8 codes of a trained weight are illegal
    """
    legal = torch.zeros(16, dtype=torch.bool, device=codes.device)
    legal[list(granularity_of(element_type).codes())] = True
    good = torch.stack((legal[(codes & 15).long()], legal[(codes >> 4).long()]))
    if wrong := int((~good).sum()):
        raise BadMetadata(
            f"{wrong} of {good.numel()} codes of a trained weight are illegal"
        )


def check_transposable(codes: Tensor, element_type: str, columns: int) -> None:
    """Refuse places that are sparse along rows, but not along columns.

    >>> weight = torch.tensor([[1, 2, 0, 0]] * 3, dtype=torch.bfloat16)
    >>> check_transposable(kept_codes(weight, "bf16", False), "bf16", 4)
    Traceback (most recent call last):
    fragmenta.errors.NotSparse: 2 of 4 chunks of columns keep more than 2:4; the \
places of a transposable layer must be sparse in both directions
    """
    granularity = granularity_of(element_type)
    chunk, rows = granularity.chunk, len(codes)
    columns = -(-columns // chunk) * chunk
    kept = torch.zeros((rows, columns), dtype=torch.int32, device=codes.device)
    kept.scatter_(1, kept_columns(codes, element_type, columns), 1)
    padded = torch.nn.functional.pad(kept, (0, 0, 0, -rows % chunk))
    counts = padded.reshape(-1, chunk, columns).sum(1)
    if wrong := int((counts > granularity.kept).sum()):
        raise NotSparse(
            f"{wrong} of {counts.numel()} chunks of columns keep more than "
            f"{granularity}; the places of a transposable layer must be sparse in "
            "both directions"
        )


def kept_width(element_type: str, columns: int) -> int:
    """How many values of a row are kept.

    >>> kept_width("bf16", 10), kept_width("tf32", 10)
    (6, 5)
    """
    granularity = granularity_of(element_type)
    return -(-columns // granularity.chunk) * granularity.kept


# ── operators ───────────────────────────────────────────────────────────────


def _check_kept(values: Tensor, codes: Tensor, element_type: str, columns: int) -> None:
    check_trained(element_type)
    wanted = (len(values), kept_width(element_type, columns))
    places = (len(values), CODES * units(element_type, columns))
    if values.shape != wanted or values.dtype != DTYPES[element_type]:
        raise ShapeError(
            f"the kept values of {columns} columns of {element_type} must be "
            f"{DTYPES[element_type]} of shape {wanted}; given {values.dtype} of shape "
            f"{tuple(values.shape)}"
        )
    if (
        codes.shape != places
        or codes.dtype != torch.uint8
        or codes.device != values.device
    ):
        raise ShapeError(
            f"their codes must be uint8 of shape {places} on {values.device}; given "
            f"{codes.dtype} of shape {tuple(codes.shape)} on {codes.device}"
        )


def pack_kept_fake(
    values: Tensor, codes: Tensor, element_type: str, columns: int, transposed: bool
) -> Tensor:
    """The shape of the packed bytes."""
    _check_kept(values, codes, element_type, columns)
    sizes = (columns, len(values)) if transposed else (len(values), columns)
    return values.new_empty(packed_shape(element_type, *sizes), dtype=torch.uint8)


def pack_kept_on_cuda(
    values: Tensor, codes: Tensor, element_type: str, columns: int, transposed: bool
) -> Tensor:
    """One launch, which reads the values once."""
    packed = pack_kept_fake(values, codes, element_type, columns, transposed)
    name = "pack_transposed" if transposed else "pack"
    given = rows_aligned(values.detach().resolve_neg())
    start_kept(name, element_type, given, codes.contiguous(), columns, packed)
    return packed


def pack_kept_on_cpu(
    values: Tensor, codes: Tensor, element_type: str, columns: int, transposed: bool
) -> Tensor:
    """The same bytes, from :func:`fragmenta.hopper.kernels.packing.pack`.

    >>> weight = torch.tensor([[0, 1, 2, 0]], dtype=torch.bfloat16)
    >>> packed = packed_of(weight, "bf16", True)
    >>> codes = row_codes(packed, "bf16", (1, 4))
    >>> values = torch.tensor([[1, 2]], dtype=torch.bfloat16)
    >>> torch.equal(pack_kept_on_cpu(values, codes, "bf16", 4, False), packed)
    True
    """
    _check_kept(values, codes, element_type, columns)
    if transposed:
        values, codes, columns = _transposed(values, codes, element_type, columns)
    granularity = granularity_of(element_type)
    chunks = -(-columns // granularity.chunk)
    pairs = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)[:, :chunks]
    stored = matrix_of(values, element_type)
    sp = Compressed(stored, bytes_of(pairs), granularity, columns)
    return torch.from_numpy(pack(Kernel(element_type).instruction, sp).data)


def _transposed(
    values: Tensor, codes: Tensor, element_type: str, columns: int
) -> tuple[Tensor, Tensor, int]:
    """The values and codes of the transpose; the mask must be sparse there, too."""
    marks = kept_to_dense_on_cpu(torch.ones_like(values), codes, element_type, columns)
    dense = kept_to_dense_on_cpu(values, codes, element_type, columns)
    other = kept_codes(marks.T.contiguous(), element_type, False)
    rows = len(values)
    return gather_kept_on_cpu(dense.T, other, element_type), other, rows


def kept_to_dense_fake(
    values: Tensor, codes: Tensor, element_type: str, columns: int
) -> Tensor:
    """The shape of the dense matrix."""
    _check_kept(values, codes, element_type, columns)
    return values.new_empty((len(values), columns))


def kept_to_dense_on_cuda(
    values: Tensor, codes: Tensor, element_type: str, columns: int
) -> Tensor:
    """One launch, which writes every element of the dense matrix."""
    _check_kept(values, codes, element_type, columns)
    per = 16 // values.itemsize
    room = values.new_empty((len(values), -(-columns // per) * per))
    given = rows_aligned(values.detach().resolve_neg())
    start_kept("to_dense", element_type, given, codes.contiguous(), columns, room)
    return room[:, :columns].contiguous()


def kept_to_dense_on_cpu(
    values: Tensor, codes: Tensor, element_type: str, columns: int
) -> Tensor:
    """The dense matrix of kept values.

    >>> codes = kept_codes(torch.tensor([[0.0, 1, 2, 0]]).half(), "f16", False)
    >>> kept_to_dense_on_cpu(torch.tensor([[5.0, 6.0]]).half(), codes, "f16", 4)
    tensor([[0., 5., 6., 0.]], dtype=torch.float16)
    """
    _check_kept(values, codes, element_type, columns)
    chunk = granularity_of(element_type).chunk
    dense = values.new_zeros((len(values), -(-columns // chunk) * chunk))
    dense.scatter_(1, kept_columns(codes, element_type, columns), values)
    return dense[:, :columns].contiguous()


def gather_kept_fake(dense: Tensor, codes: Tensor, element_type: str) -> Tensor:
    """The shape of the kept values."""
    return dense.new_empty((len(dense), kept_width(element_type, dense.shape[1])))


def gather_kept_on_cuda(dense: Tensor, codes: Tensor, element_type: str) -> Tensor:
    """One launch, which reads the dense matrix once."""
    rows, columns = dense.shape
    width = kept_width(element_type, columns)
    per = 16 // dense.itemsize
    room = dense.new_empty((rows, -(-width // per) * per))
    given = rows_aligned(dense.resolve_neg())
    _check_kept(room[:, :width], codes, element_type, columns)
    start_kept("gather", element_type, room, codes.contiguous(), columns, given)
    return room[:, :width].contiguous()


def gather_kept_on_cpu(dense: Tensor, codes: Tensor, element_type: str) -> Tensor:
    """The values of a dense matrix at the kept places.

    >>> codes = kept_codes(torch.tensor([[0.0, 1, 2, 0]]).half(), "f16", False)
    >>> gather_kept_on_cpu(torch.tensor([[5.0, 6, 7, 8]]).half(), codes, "f16")
    tensor([[6., 7.]], dtype=torch.float16)
    """
    columns = kept_columns(codes, element_type, dense.shape[1])
    chunk = granularity_of(element_type).chunk
    padded = torch.nn.functional.pad(dense, (0, -dense.shape[1] % chunk))
    return padded.gather(1, columns)
