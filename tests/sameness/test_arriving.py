"""Orders of arrival and races: what depends on them is never the same."""

import numpy as np
import pytest

from fragmenta import ptx
from tests.asking import ask

BLOCKS = 6
HEAD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u64 lock, .param .u64 part)
{{
    .reg .b32 %r<12>; .reg .b64 %rd<12>; .reg .f32 %f<8>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [lock]; ld.param.u64 %rd4, [part];
    mov.u32 %r1, {number}; mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd1, %rd5; add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    {body}
    ret;
}}"""
ADD = """
    ld.volatile.global.f32 %f2, [%rd2]; add.f32 %f2, %f2, %f1;
    st.volatile.global.f32 [%rd2], %f2;
"""
LAST = """
    st.global.f32 [%rd7], %f1; fence.acq_rel.gpu;
    atom.acq_rel.gpu.global.inc.u32 %r2, [%rd3], 99;
    setp.ne.u32 %p1, %r2, 5; @%p1 ret;
    fence.acq_rel.gpu;
    mov.f32 %f3, {begin}; mov.u32 %r3, 0;
next:
    ld.relaxed.gpu.global.f32 %f4, [%rd4]; add.f32 %f3, %f3, %f4; add.s64 %rd4, %rd4, 4;
    add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, 6; @%p1 bra next;
    st.global.f32 [%rd2], %f3;
"""
BODIES = {
    # a spin lock: blocks add in the order in which they get it
    "spin": f"""
again:
    atom.acquire.gpu.global.cas.b32 %r2, [%rd3], 0, 1;
    setp.ne.u32 %p1, %r2, 0; @%p1 bra again;
    {ADD}
    st.release.gpu.global.u32 [%rd3], 0;
""",
    # a semaphore: each block waits for its turn
    "turn": f"""
again:
    ld.acquire.gpu.global.u32 %r2, [%rd3];
    setp.ne.u32 %p1, %r2, %r1; @%p1 bra again;
    {ADD}
    add.u32 %r3, %r1, 1; st.release.gpu.global.u32 [%rd3], %r3;
""",
    # the last block adds everything, from the first to the last
    "last": LAST.format(begin="0f00000000"),
    # the same, but it begins with its own number
    "own": LAST.format(begin="%f1"),
    "red": "red.global.add.f32 [%rd2], %f1;",
    "race": "ld.global.f32 %f2, [%rd2]; add.f32 %f2, %f2, %f1; st.global.f32 [%rd2], %f2;",
    "slow": """
        ld.global.f32 %f2, [%rd2]; mov.u32 %r2, 3000000; mov.u32 %r3, 1;
    AGAIN: mad.lo.u32 %r3, %r3, 1664525, %r2; sub.u32 %r2, %r2, 1;
        setp.ne.u32 %p1, %r2, 0; @%p1 bra AGAIN; st.global.u32 [%rd7], %r3;
        add.f32 %f2, %f2, %f1; st.global.f32 [%rd2], %f2;""",
    "alone": "st.global.f32 [%rd7], %f1;",
}
X = np.random.default_rng(0).standard_normal(BLOCKS).astype(np.float32)


def call(name, threads=1):
    """Blocks of one thread, or one block whose warps take the places of blocks."""
    number = "%ctaid.x" if threads == 1 else "%tid.x"
    body = BODIES[name]
    if threads > 1:
        number = "%tid.x; shr.u32 %r1, %r1, 5"
        body = f"and.b32 %r4, %r4, 31; setp.ne.u32 %p2, %r4, 0; @%p2 ret; {body}"
        body = f"mov.u32 %r4, %tid.x; {body}"
    text = HEAD.format(body=body, number=number)
    zeros = (
        np.zeros(1, np.float32),
        np.zeros(1, np.uint32),
        np.zeros(BLOCKS, np.float32),
    )
    kernel = ptx.parse(text).kernels["k"]
    return ptx.Call(kernel, BLOCKS if threads == 1 else 1, threads, [X, *zeros])


def asked(name, **options):
    made = call(name, **options)
    return ptx.same(made, made)


@pytest.mark.parametrize(
    "name, kind, mnemonic",
    [
        ("spin", "order", "atom.acquire.gpu.global.cas.b32"),
        ("own", "order", "atom.acq_rel.gpu.global.inc.u32"),
        ("red", "atomic", "red.global.add.f32"),
        ("race", "race", "ld.global.f32"),
    ],
)
def test_what_depends_on_arrival_is_not_the_same_as_itself(name, kind, mnemonic):
    found = asked(name)
    assert found.verdict == "unknown"
    assert not found
    named = {each.kind: each for each in reversed(found.open)}
    assert named[kind].mnemonic == mnemonic
    assert named[kind].why.startswith("not deterministic")
    assert named[kind].where.startswith("line ")
    assert "not deterministic" in str(found)


def test_a_race_between_blocks_is_no_difference_of_a_kernel_from_itself():
    """Blocks that ran in two threads lost one another's sums, each time others."""
    assert {asked("slow").verdict for _ in range(2)} == {"unknown"}


@pytest.mark.parametrize("name", ["turn", "last"])
def test_what_waits_for_its_turn_is_the_same(name):
    """In another order of blocks, the expressions are the same."""
    found = asked(name)
    assert (found.verdict, found.open) == ("same", ())
    assert {each.kind for each in found.conditions} == {"met"}


def test_a_lock_among_the_warps_of_one_block():
    assert {each.kind for each in asked("spin", threads=192).open} == {"order"}
    assert asked("turn", threads=192).verdict == "same"


def test_a_kernel_without_meetings_has_no_remarks():
    found = asked("alone")
    assert (found.verdict, found.open, found.conditions) == ("same", (), ())


def test_a_turn_is_a_chain_from_the_first_block_to_the_last():
    """A semaphore and the last block add in the same order."""
    how = {"outputs": [("y", "y")], "by_value": ["y"]}  # it begins with a zero
    found = ptx.same(call("turn"), call("last"), **how)
    assert found.verdict == "same"
    assert ptx.same(call("turn"), call("own"), **how).verdict != "same"


def test_races_are_looked_for_only_if_asked():
    made = call("race")
    assert ptx.same(made, made, watch=False).verdict == "same"
    assert ptx.classes({"a": made, "b": made}, watch=True).invariant is False


def test_the_command_says_so(tmp_path):
    text = HEAD.format(body=BODIES["spin"], number="%ctaid.x")
    (tmp_path / "spin.ptx").write_text(text)
    given = ["ones:f32:6", "zeros:f32:1", "zeros:u32:1", "zeros:f32:6"]
    words = [w for each in given for w in ("--arg", each)]
    file = str(tmp_path / "spin.ptx")
    done = ask("same", file, file, "--grid", "6", "--block", "1", *words)
    assert done.exit_code == 1
    assert (
        "not deterministic: results depend on which threads come first" in done.output
    )
