"""Code for a part of the lanes is compiled when lanes first diverge, and only then."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.base.jit import compiler
from fragmenta.engine.simt import library
from fragmenta.engine.simt.compiled import Compiled
from fragmenta.errors import Error
from fragmenta.launch.kernel import Loaded

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry split(.param .u64 at, .param .u32 most)
{
    .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p<2>;
    ld.param.u64 %rd0, [at];
    ld.param.u32 %r0, [most];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 64, %r1;
    mul.wide.u32 %rd1, %r3, 4;
    add.u64 %rd2, %rd0, %rd1;
    mov.u32 %r4, 1;
    setp.ge.u32 %p1, %r1, %r0;
    @%p1 bra OVER;
    add.u32 %r4, %r4, %r3;
OVER:
    st.global.u32 [%rd2], %r4;
    ret;
}
"""


def launched(module: Loaded, most: int, blocks: int = 1) -> Compiled:
    """Launch it: lanes below ``most`` add their number; what it was compiled to."""
    found = np.zeros(64 * blocks, np.uint32)
    module.kernels["split"].launch(blocks, 64, [found, most], watch=False)
    lanes = np.arange(64 * blocks)
    assert (found == 1 + lanes * (lanes % 64 < most)).all()
    (made,) = module._compiled.values()
    return made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    return tmp_path


def test_lanes_that_stay_together_need_none(cache: Path) -> None:
    library._KEPT.clear()
    made = launched(ptx.parse(TEXT), 64)
    assert made.code.rest.address == 0
    whole = {name for names in made.routines for name in names}
    assert not [name for name in whole if name.startswith("add.u32") and "mask" in name]
    assert launched(ptx.parse(TEXT), 32).code.rest.address == 0  # whole warps go on


def test_lanes_that_diverge_have_it_in_all_later_launches(cache: Path) -> None:
    module = ptx.parse(TEXT)
    made = launched(module, 64)
    files = len(list(cache.iterdir()))
    assert launched(module, 7) is made
    where = made.code.rest.address
    assert where != 0
    assert made.code.partial == where
    assert len(list(cache.iterdir())) > files
    launched(module, 40, blocks=300)
    assert made.code.rest.address == where


def test_it_is_kept_in_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launched(ptx.parse(TEXT), 64)
    assert launched(ptx.parse(TEXT), 7).code.rest.address  # the kernel was kept

    def refuse(*given: object, **options: object) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "object_code", refuse)
    assert launched(ptx.parse(TEXT), 7).code.rest.address


@pytest.mark.parametrize("blocks", [1, 300])
@pytest.mark.parametrize("why", [MemoryError(), Error("no such thing"), KeyError(1)])
def test_a_failure_is_an_error_of_the_launch(
    cache: Path, monkeypatch: pytest.MonkeyPatch, why: Exception, blocks: int
) -> None:
    module = ptx.parse(TEXT)
    launched(module, 64)

    def fail(*given: object, **options: object) -> bytes:
        raise why

    with monkeypatch.context() as broken:
        broken.setattr(compiler, "object_code", fail)
        with pytest.raises((type(why), Error)) as found:
            launched(module, 7, blocks)
    assert str(why.args[0] if why.args else "memory") in str(found.value)
    launched(module, 7, blocks)
