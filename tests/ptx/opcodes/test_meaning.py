"""Each function of the table computes what the manual says, and what the H200 does."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.ptx.opcodes import running
from tests.ptx.opcodes.judging import bits_of_type, forms, lines
from tests.ptx.opcodes.launch import compacted
from tests.ptx.opcodes.meanings import MEANINGS
from tests.ptx.opcodes.scalars import STRIDE, chosen, decided, golden
from tests.ptx.opcodes.videos import VIDEOS

#: Every 27th input: special numbers in changing pairs, and random ones.
STEP = 27
MODULES = ("comparison", "fields", "integer", "logic", "moving", "video")
#: What these mean is stated in test_floats.py.
FLOATS = ("floating", "half", "conversion", "fp8")


@cache
def computed(module):
    """The chosen forms of a module, and their results."""
    some = chosen(module)
    return list(zip(some, running.computed(some), strict=True))


def stated(form, words):
    """The results of a form for one input, as the manual says; None where it is silent."""
    operands = []
    for slot, kind in form.operands():
        if slot.name in form.immediates:
            operands.append(form.immediates[slot.name])
        elif kind == "b128":
            operands += [words.pop(0), words.pop(0)]
        else:
            bits = 8 if kind in ("u8", "s8") else bits_of_type(kind)
            operands.append(words.pop(0) & ((1 << bits) - 1))
    opcode = form.syntax.opcode
    if opcode in VIDEOS:
        return VIDEOS[opcode](form.qualifiers, *operands)
    first = next(slot for slot in form.slots if not slot.result)
    kind = form.type_of(first)
    return MEANINGS[opcode](form.qualifiers, kind, *operands, opcode=opcode)


def differences(pairs):
    """Where results are not what the manual says: one input for each form."""
    for form, found in pairs:
        given = [[int(x) for x in each] for each in running.inputs(form)]
        for at in range(0, found.shape[1], STEP):
            words = [each[at] for each in given]
            answer = stated(form, list(words))
            expected = answer if isinstance(answer, tuple) else (answer,)
            if answer is not None and expected != tuple(int(x) for x in found[:, at]):
                shown = [hex(x) for x in words]
                yield str(form), shown, expected, found[:, at]
                break


@pytest.mark.long
@pytest.mark.parametrize("module", MODULES)
def test_the_manual_says_the_same(module):
    assert not list(differences(computed(module)))


AMOUNTS = (0, 1, 5, 31, 32, 33, 63, 64, 255, 256, 1 << 31)
SELECTIONS = (0x5410, 0x7632, 0x3210, 0x0123, 0x7654, 0x4321, 0x1032, 0x5140, 0xBA98, 0)
CONSTANTS = {
    **{name: {"b": AMOUNTS} for name in ("shl", "shr", "szext", "bmsk")},
    "shf": {"c": AMOUNTS},
    "bfe": {"b": AMOUNTS[::2], "c": AMOUNTS[1::2]},
    "bfi": {"place": AMOUNTS[::2], "count": AMOUNTS[1::2]},
    "prmt": {"c": SELECTIONS},
}


def with_constants():
    """Forms whose functions write shorter code for operands that are constants."""
    for line in (*lines("logic"), *lines("fields")):
        choices = CONSTANTS.get(line.opcode, {})
        for form in forms(line) if choices else ():
            for values in itertools.product(*choices.values()):
                constants = dict(zip(choices, values, strict=True))
                yield replace(form, immediates=constants)


def test_constant_operands_change_nothing():
    some = list(with_constants())
    assert len(some) > 300
    assert not list(differences(zip(some, running.computed(some), strict=True)))


def test_a_warp_at_once():
    """The engine computes 32 lanes at once."""
    some = [next(forms(line)) for module in MODULES[:5] for line in lines(module)]
    eight, all_lanes = running.computed(some), running.computed(some, 32)
    for form, one, other in zip(some, eight, all_lanes, strict=True):
        assert np.array_equal(one, other), str(form)


@pytest.mark.long
@pytest.mark.parametrize("module", MODULES + FLOATS)
def test_the_h200_computes_the_same(module):
    """Recorded results: each 16th in full, checksums of the others."""
    kept, wrong = golden(module), []
    for form, found in computed(module):
        if not decided(form.syntax):
            continue
        if compacted(found) != kept[str(form)]:
            head = np.frombuffer(kept[str(form)][: found.size // STRIDE * 8], np.uint64)
            shown = head.reshape(len(found), -1) != found[:, ::STRIDE]
            wrong.append((str(form), np.flatnonzero(shown.any(axis=0)) * STRIDE))
    assert not wrong, wrong[:5]
    assert {str(form) for form, _ in computed(module) if decided(form.syntax)} == {
        *kept
    }


def test_a_wrong_result_is_seen():
    """Each result counts, whether it is kept in full or in a checksum."""
    words = np.arange(2 * 1024, dtype=np.uint64).reshape(2, 1024)
    for place in range(0, 1024, 37):
        other = words.copy()
        other[1, place] ^= np.uint64(1)
        assert compacted(other) != compacted(words)
