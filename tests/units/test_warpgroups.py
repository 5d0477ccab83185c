"""A warpgroup computes the bits of ``op.execute``, at once or late."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.engine.simt.layout import IN_FLIGHT, POISON
from fragmenta.engine.simt.wgmma_operands import LaneOperand, describe
from fragmenta.engine.units.warpgroups import Warpgroup, WgmmaError
from fragmenta.errors import Error
from fragmenta.inspect.evidence.variants import Variant
from fragmenta.reference.shared.descriptor import Descriptor
from tests.units.warpgroups import (
    START,
    Machine,
    json_again,
    parsed,
    statement,
    tiles,
)

DENSE, SPARSE = "wgmma.mma_async.sync.aligned", "wgmma.mma_async.sp.sync.aligned"
FORMS = [
    (f"{DENSE}.m64n40k16.f32.f16.f16", Variant(False, None, -1, 1, 1, 1)),
    (f"{DENSE}.m64n64k16.f16.f16.f16", Variant(True, None, 1, -1, 0, 1)),
    (f"{DENSE}.m64n8k16.f32.bf16.bf16", Variant(False, None, 1, -1, 1, 0)),
    (f"{DENSE}.m64n24k8.f32.tf32.tf32", Variant(True, None, -1, -1)),
    (f"{DENSE}.m64n72k32.f16.e4m3.e5m2", Variant(False, None, -1, 1)),
    (f"{DENSE}.m64n48k32.satfinite.s32.s8.u8", Variant(False)),
    (f"{DENSE}.m64n32k32.s32.u8.u8", Variant(True)),
    (f"{DENSE}.m64n8k256.s32.b1.b1.and.popc", Variant(True)),
    (f"{DENSE}.m64n256k16.f32.f16.f16", Variant(False)),
    (f"{SPARSE}.m64n16k32.f32.f16.f16", Variant(False, 1, 1, -1, 1, 1)),
    (f"{SPARSE}.m64n16k32.f32.f16.f16", Variant(True, 0)),
    (f"{SPARSE}.m64n24k16.f32.tf32.tf32", Variant(False, 0, -1, 1)),
    (f"{SPARSE}.m64n8k64.f32.e5m2.e5m2", Variant(True, 0, 1, -1)),
    (f"{SPARSE}.m64n32k64.satfinite.s32.s8.s8", Variant(False, 0)),
]
PLAIN = fm.find(f"{DENSE}.m64n8k16.f32.f16.f16")
SHARED, IN_REGISTERS = Variant(False), Variant(True)


def machine(op: fm.Instruction, way: Variant, scale_d: str = "p0", **how) -> Machine:
    return Machine(statement(op, way, scale_d), 1 << 16, **how)


@pytest.mark.parametrize("text, way", FORMS)
def test_the_bits_of_execute_at_once_and_late(text: str, way: Variant) -> None:
    op = fm.find(text)
    for late in (False, True):
        made = machine(op, way, late=late)
        made.located[0] = json_again(made.located[0])
        for given, want in tiles(op, way):
            made.load(given)
            work = made.issue()
            assert work is not None
            if not late:
                work.finish()
                assert (made.result(op) == want).all()
            else:
                assert (made.result(op) == POISON).all()
            made.wait()
            assert (made.result(op) == want).all()


@pytest.mark.parametrize("scale_d, kept", [("1", 1), ("0", 0), ("!p0", -1)])
def test_scale_d_as_a_constant_and_negated(scale_d: str, kept: int) -> None:
    made = machine(PLAIN, SHARED, scale_d)
    for given, _ in tiles(PLAIN, SHARED):
        made.load(given)
        keeps = 1 - int(given["scale_d"]) if kept < 0 else kept
        a, b = (int(given[name]) for name in "ab")
        image = given["image"]
        want = PLAIN.execute(given["c"], a, b, smem=image, scale_d=keeps)
        made.issue().finish()
        assert (made.result(PLAIN) == want).all()


def test_vectors_and_constants() -> None:
    """D is a vector variable; A and the descriptor have constants."""
    word = Descriptor(START, 128, 256, 0).encode()
    body = f"{PLAIN} v, {{r3, 5, r1, 0}}, {word}, 1, 1, 1, 0;"
    function, laid_out = parsed(body, ".reg .v4 .f32 v;")
    places = laid_out.units["k"].registers
    form = describe(function.instructions[0])
    found = form.located(lambda register: places[register.number])
    assert np.diff(found.d).tolist() == [128] * 3
    assert found.a[1::2] == (LaneOperand(-1, 5), LaneOperand(-1, 0))
    assert found.descriptors == (LaneOperand(-1, word),)
    # All lanes or some: the same instruction.
    assert json_again(found) is json_again(found)
    made = machine(PLAIN, IN_REGISTERS, "1")
    ((given, _),) = tiles(PLAIN, IN_REGISTERS, 1)
    made.load(given)
    made.located[0] = replace(
        made.located[0],
        a=(made.located[0].a[0], LaneOperand(-1, 0x3C003C00), *made.located[0].a[2:]),
        descriptors=(LaneOperand(-1, int(given["b"]) + (START >> 4)),),
    )
    made.issue().finish()
    given["a"][:, 1] = 0x3C003C00
    want = PLAIN.execute(given["c"], given["a"], int(given["b"]), smem=given["image"])
    assert (made.result(PLAIN) == want).all()


@pytest.mark.parametrize("late", [False, True])
def test_registers_in_any_place(late: bool) -> None:
    """Registers have their places in the order in which they are first used."""
    body = statement(PLAIN, IN_REGISTERS).replace("f0, f1, f2, f3", "f3, f0, f2, f1")
    first = "add.f32 f0, f1, f2; add.f32 f3, f3, f3; add.u32 r3, r1, r0;\n"
    made = Machine(first + body, 1 << 16, late=late)
    assert np.diff(made.located[0].d).tolist() != [128] * 3
    for given, want in tiles(PLAIN, IN_REGISTERS):
        made.load(given)
        order = ("f3", "f0", "f2", "f1")
        for name, values in zip(order, given["c"].T, strict=True):
            made.put(name, values)
        made.issue().finish()
        found = np.stack([made.get(name) for name in order], axis=1)
        assert (found == want).all()


def chain(machine: Machine) -> np.ndarray:
    """Four products on one D, two in each group; images are not changed between."""
    for number in range(4):
        machine.issue(number, order=(2, 0, 3, 1))
        if number % 2:
            for warp in machine.warps:
                machine.group.commit(warp)
    machine.wait(commit=False)
    return machine.result(PLAIN)


def test_chains_are_the_same_late() -> None:
    ((given, _),) = tiles(PLAIN, SHARED, 1)
    texts = [statement(PLAIN, SHARED, each) for each in ("0", "1", "1", "1")]
    results = []
    for late in (False, True):
        made = Machine("\n".join(texts), 1 << 16, late=late)
        made.load(given)
        results.append(chain(made))
    want = given["c"]
    for kept in (0, 1, 1, 1):
        a, b = int(given["a"]), int(given["b"])
        want = PLAIN.execute(want, a, b, smem=given["image"], scale_d=kept)
    assert (results[0] == want).all()
    assert (results[1] == want).all()


def test_wait_group_1_leaves_the_newest_group() -> None:
    """Two accumulators: the first is done, the second is poison."""
    first = statement(PLAIN, SHARED, "1")
    second = first.replace("f0, f1, f2, f3", "f4, f5, f6, f7")
    (given, want), (other, _) = tiles(PLAIN, SHARED, 2)
    made = Machine(first + second, 1 << 16, late=True)
    made.load(given)
    for number, values in enumerate(other["c"].T):
        made.put(f"f{number + 4}", values)
    want = PLAIN.execute(
        given["c"], int(given["a"]), int(given["b"]), smem=given["image"]
    )
    counts = [warp.memory[IN_FLIGHT:].view(np.int32) for warp in made.warps]
    for number in (0, 1):
        made.issue(number)
        for warp in made.warps:
            made.group.commit(warp)
    assert [count[0] for count in counts] == [2] * 4
    assert made.group.wait(made.warps[0], 2)  # nothing to wait for
    assert made.group.ran == 0
    for warp in made.warps:
        assert made.group.wait(warp, 1)
    assert made.group.groups == 1
    assert [made.group.in_flight(warp) for warp in made.warps] == [1] * 4
    assert [count[0] for count in counts] == [1] * 4
    assert (made.result(PLAIN) == want).all()
    assert (made.get("f4") == POISON).all()
    made.wait(commit=False)
    assert (made.get("f4") != POISON).any()
    assert [count[0] for count in counts] == [0] * 4


def test_shared_memory_a_and_metadata_are_read_when_it_runs() -> None:
    op = fm.find(f"{SPARSE}.m64n8k64.s32.s8.s8")
    way = Variant(True, 0)
    (one, _), (two, _) = tiles(op, way, 2)
    made = machine(op, way, "0", late=True)
    made.load(one)
    made.issue()
    hidden = made.result(op)
    made.load({**two, "c": hidden, "scale_d": np.zeros(())})
    made.put("x1", one["b"] + np.uint64(START >> 4), 64)
    made.wait()
    want = op.execute(
        two["c"],
        two["a"],
        int(one["b"]),
        smem=two["image"],
        metadata=two["metadata"],
        scale_d=0,
    )
    assert (made.result(op) == want).all()


def test_a_group_that_is_not_committed_is_not_waited_for() -> None:
    made = machine(PLAIN, SHARED, late=True)
    ((given, _),) = tiles(PLAIN, SHARED, 1)
    made.load(given)
    made.issue()
    made.wait(commit=False)
    assert (made.result(PLAIN) == POISON).all()


def test_two_warpgroups_and_waiting_for_the_other_warps() -> None:
    (one, want), (two, other) = tiles(PLAIN, SHARED, 2)
    groups = [machine(PLAIN, SHARED, late=True, first=first) for first in (0, 4)]
    for made, given in zip(groups, (one, two), strict=True):
        made.load(given)
    left, right = groups
    for number in range(4):
        assert left.group.issue(left.warps[number], left.located[0], 0) is None or (
            number == 3
        )
        left.group.commit(left.warps[number])
        if number < 3:
            # Not all warps have issued it: the product cannot run.
            assert not left.group.wait(left.warps[number], 0)
            assert not left.group.waiting
    assert len(left.group.waiting) == 1
    right.issue()
    left.wait(commit=False)
    assert (left.result(PLAIN) == want).all()
    assert (right.result(PLAIN) == POISON).all()
    right.wait()
    assert (right.result(PLAIN) == other).all()


def test_products_run_in_order_at_any_moment() -> None:
    texts = [statement(PLAIN, SHARED, each) for each in ("0", "1")]
    ((given, _),) = tiles(PLAIN, SHARED, 1)
    made = Machine("".join(texts), 1 << 16, late=True)
    made.load(given)
    first, second = made.issue(0), made.issue(1)
    assert (first.group, second.group, second.index) == (0, 0, 1)
    second.finish()  # the one before it, too
    assert first.done
    assert second.done
    first.finish()  # nothing more happens
    want = given["c"]
    for kept in (0, 1):
        a, b = int(given["a"]), int(given["b"])
        want = PLAIN.execute(want, a, b, smem=given["image"], scale_d=kept)
    assert (made.result(PLAIN) == want).all()
    (_, a_units, owner), (name, b_units, all_) = second.reads()
    assert (a_units.size, owner.size, name, b_units.size, all_) == (
        128,
        128,
        "B",
        16,
        None,
    )


# ── mistakes ────────────────────────────────────────────────────────────────


def expect(rule: str, call, *given) -> str:
    with pytest.raises(WgmmaError) as caught:
        call(*given)
    assert caught.value.rule.name == rule
    assert isinstance(caught.value, Error)
    return str(caught.value)


def ready(text: str, **how) -> Machine:
    ((given, _),) = tiles(PLAIN, SHARED, 1)
    made = Machine(text, 1 << 16, **how)
    made.load(given)
    return made


def test_warps_that_differ_are_told() -> None:
    text = statement(PLAIN, SHARED)
    made = ready(text + text.replace("p0", "1"))
    group, (one, two, *_) = made.group, made.warps
    group.issue(one, made.located[0], 0)
    said = expect("divergent-aligned", group.issue, two, made.located[1], 1)
    assert said.startswith("wgmma number 0 of warp 1 is another instruction than")
    two.register(made.at("x1"), 64)[:] += 1
    said = expect("divergent-aligned", group.issue, two, made.located[0], 0)
    assert "has the descriptor 0x" in said
    two.register(made.at("x1"), 64)[:] -= 1
    two.memory[made.at("p0") : made.at("p0") + 4] ^= 255
    said = expect("divergent-aligned", group.issue, two, made.located[0], 0)
    assert "has scale-d" in said
    group.commit(one)
    said = expect("divergent-aligned", group.commit, two)
    assert "commits a group after 0 wgmma" in said


def test_lanes_that_differ_are_told() -> None:
    made = ready(statement(PLAIN, SHARED))
    one = made.warps[0]
    issue = made.group.issue
    said = expect("divergent-aligned", issue, one, made.located[0], 0, 0xFFFF)
    assert "0x0000ffff" in said
    one.register(made.at("x0"), 64)[7] += 1
    said = expect("divergent-aligned", issue, one, made.located[0], 0)
    assert said == "a descriptor of wgmma is not the same in all lanes of warp 0"
    one.register(made.at("x0"), 64)[7] -= 1
    one.memory[made.at("p0")] ^= 1
    assert "scale-d" in expect("divergent-aligned", issue, one, made.located[0], 0)


def test_bad_descriptors_and_metadata_are_told() -> None:
    made = ready(statement(PLAIN, SHARED))
    made.put("x0", np.uint64(1 << 14), 64)
    said = expect("bad-descriptor", made.issue)
    assert "bit 14 must be 0" in said
    op, way = fm.find(f"{SPARSE}.m64n8k64.s32.s8.s8"), Variant(True, 0)
    ((given, _),) = tiles(op, way, 1)
    made = machine(op, way)
    made.load(given)
    made.put("r8", 0)
    work = made.issue()
    said = expect("illegal-metadata", work.write)
    assert re.search(r"warp \d, lane \d+, nibble \d \(row \d+, chunk \d+\): code", said)


def test_a_warpgroup_must_be_whole() -> None:
    made = ready(statement(PLAIN, SHARED))
    part = Warpgroup(made.warps[:2], made.shared)
    said = expect("divergent-aligned", part.issue, made.warps[0], made.located[0], 0)
    assert said.endswith("warp 0 and those after it are only 2")


def test_accumulators_that_overlap() -> None:
    """Late: D of other registers is told; once nothing is in flight it is no matter."""
    wide = fm.find(f"{DENSE}.m64n16k16.f32.f16.f16")
    text = statement(PLAIN, SHARED) + statement(wide, SHARED)
    made = ready(text, late=True)
    made.group.issue(made.warps[0], made.located[0], 0)
    said = expect(
        "wgmma-registers-in-flight", made.group.issue, made.warps[0], made.located[1], 1
    )
    assert "undefined in PTX" in said
    made = ready(text, late=True)
    made.issue(0)
    made.issue(1)  # the first has run by now
    made.wait()
    again = ready(text)
    again.issue(0).finish()
    again.issue(1).finish()
    assert (made.result(wide) == again.result(wide)).all()


def test_what_is_no_product_is_refused() -> None:
    function, _ = parsed("wgmma.fence.sync.aligned;")
    with pytest.raises(Error, match="does not multiply"):
        describe(function.instructions[0])
