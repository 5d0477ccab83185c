"""Zero-column masks against runs written out one after the other."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fragmenta as fm

Mask = fm.tensor_memory.ZeroColumnMask
bytes_ = st.tuples(*[st.integers(0, 255)] * 4)
bits = st.tuples(*[st.integers(0, 1)] * 4)


def runs(skip, use, first_zero, start, count):
    """Zeros and ones in turn, the first ``start`` of them left out."""
    pair = [[1] * skip, [0] * use]
    endless = itertools.chain.from_iterable(
        itertools.chain.from_iterable(
            itertools.repeat(pair if first_zero else pair[::-1])
        )
    )
    return list(itertools.islice(endless, start, start + count))


@given(
    st.integers(1, 256),
    st.integers(1, 256),
    bytes_,
    bits,
    st.sampled_from([64, 128, 256]),
    st.sampled_from([32, 64, 128]),
)
def test_each_part_has_its_runs(skip, use, starts, firsts, n, m):
    mask = Mask(skip, use, starts, firsts)
    parts = {128: 1, 64: 2, 32: 4}[m]
    wanted = [runs(skip, use, firsts[i], starts[i], n // parts) for i in range(parts)]
    found = mask.columns(n, m)
    assert found.shape == (n,)
    assert found.astype(int).tolist() == [bit for part in wanted for bit in part]


@given(
    st.integers(1, 256),
    st.integers(1, 256),
    bytes_,
    bits,
    st.integers(0, 32),
    st.booleans(),
)
def test_the_word_is_these_bits(skip, use, starts, firsts, shift, enabled):
    mask = Mask(skip, use, starts, firsts, shift, enabled)
    word = sum(start << 8 * i for i, start in enumerate(starts))
    word |= sum(first << 32 + i for i, first in enumerate(firsts))
    word |= enabled << 39 | skip - 1 << 40 | use - 1 << 48 | shift << 56
    assert mask.encode() == word
    assert Mask.decode(np.uint64(word)) == mask


BY_HAND = [
    # skip 4, use 4, zeros first: columns 0-3 and 8-11 …
    (Mask(4, 4, first_zero=(1, 1, 1, 1)), 128, "1111 0000 1111 0000"),
    # two of the four zeros are left out
    (Mask(4, 4, (2, 0, 0, 0), (1, 0, 0, 0)), 128, "1100 0011 1100 0011"),
    # B first: one zero after every three columns
    (Mask(1, 3), 128, "0001 0001 0001 0001"),
    # three columns of the pattern left out: the zero is at the edge
    (Mask(1, 3, (3, 0, 0, 0)), 128, "1000 1000 1000 1000"),
]


@pytest.mark.parametrize(("mask", "m", "wanted"), BY_HAND)
def test_masks_by_hand(mask, m, wanted):
    found = "".join(map(str, mask.columns(64, m).astype(int)))
    assert found.startswith(wanted.replace(" ", ""))


def test_skip_is_the_run_of_zeros_and_bit_39_makes_the_mask():
    """Where statements contradict each other: 3 zeros of every 4 columns, not 1."""
    word = 1 << 39 | 2 << 40 | 0 << 48
    assert Mask.decode(word).columns(64, 128).sum() == 48
    assert not Mask.decode(word ^ 1 << 39).columns(64, 128).any()


REFUSED = [
    ({"skip_span": 0}, "skip_span must be 1 to 256; given 0"),
    ({"use_span": 257}, "use_span must be 1 to 256"),
    ({"shift": 33}, "shift must be 0 to 32"),
    ({"start_count": (0, 0, 0, 256)}, "start_count must be 0 to 255"),
    ({"start_count": 3}, "start_count must be 4 whole numbers"),
    ({"first_zero": (0, 2, 0, 0)}, "first_zero must be 0 to 1"),
    ({"skip_span": 1.5}, "skip_span must be whole numbers"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_limits(fields, message):
    with pytest.raises(fm.Error, match=message):
        Mask(**fields)


def test_what_is_no_mask_is_refused():
    with pytest.raises(fm.Error, match="bit 36 and 63 must be 0"):
        Mask.decode(1 << 36 | 1 << 63)
    with pytest.raises(fm.Error, match="64 bits"):
        Mask.decode(-1)
    with pytest.raises(fm.Error, match="a whole number"):
        Mask.decode("mask")
    with pytest.raises(fm.Error, match="at most 16 for M = 32; given 17"):
        Mask(shift=17).columns(64, 32)
    with pytest.raises(fm.Error, match="column shift of 8 is not known"):
        Mask(shift=8).columns(64, 128)
    with pytest.raises(fm.errors.ShapeError, match=r"M of \.ws is 128, 64 or 32"):
        Mask().columns(64, 256)
    with pytest.raises(fm.errors.ShapeError, match=r"N of \.ws is 64, 128 or 256"):
        Mask().columns(96, 128)
