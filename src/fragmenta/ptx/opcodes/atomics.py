"""Atomic instructions: their lines in the table.

Their code is written by :mod:`fragmenta.engine.simt.atomics`.
"""

from __future__ import annotations

from fragmenta.ptx.opcodes.table import TABLE, declare

_WORDS = """
; scope = cta cluster gpu sys ; kind = updates
"""

declare(
    _WORDS
    + """
; sem = relaxed acquire release acq_rel ; space = global shared shared::cta shared::cluster
atom{.sem}{.scope}{.space}.op{.L2::cache_hint}.type             d, [a], b, {policy:b64}         ; op = and or xor exch ; type = b32 b64
atom{.sem}{.scope}{.space}.exch{.L2::cache_hint}.type           d, [a], b, {policy:b64}         ; type = b128 ; ptx = 8.3 ; target = sm_90
atom{.sem}{.scope}{.space}.cas.type                             d, [a], b, c                    ; type = b16 b32 b64
atom{.sem}{.scope}{.space}.cas.type                             d, [a], b, c                    ; type = b128 ; ptx = 8.3 ; target = sm_90
atom{.sem}{.scope}{.space}.op{.L2::cache_hint}.type             d, [a], b, {policy:b64}         ; op = inc dec ; type = u32
atom{.sem}{.scope}{.space}.op{.L2::cache_hint}.type             d, [a], b, {policy:b64}         ; op = min max ; type = u32 s32 u64 s64
atom{.sem}{.scope}{.space}.add{.L2::cache_hint}.type            d, [a], b, {policy:b64}         ; type = u32 s32 u64 f32 f64
atom{.sem}{.scope}{.space}.add.noftz{.L2::cache_hint}.type      d, [a], b, {policy:b64}         ; type = f16 f16x2 bf16 bf16x2 ; ptx = 6.2 ; target = sm_70
atom{.sem}{.scope}{.space}.add{.L2::cache_hint}.vec.type        d*vec, [a], b*vec, {policy:b64} ; space = global ; vec = v2 v4 ; type = f32 ; ptx = 8.1 ; target = sm_90
atom{.sem}{.scope}{.space}.op.noftz{.L2::cache_hint}.vec.type   d*vec, [a], b*vec, {policy:b64} ; space = global ; op = add min max ; vec = v2 v4 v8 ; type = f16 bf16 ; ptx = 8.1 ; target = sm_90
atom{.sem}{.scope}{.space}.op.noftz{.L2::cache_hint}.vec.type   d*vec, [a], b*vec, {policy:b64} ; space = global ; op = add min max ; vec = v2 v4 ; type = f16x2 bf16x2 ; ptx = 8.1 ; target = sm_90
"""
)

declare(
    _WORDS
    + """
; sem = relaxed release ; space = global shared shared::cta shared::cluster
red{.sem}{.scope}{.space}.op{.L2::cache_hint}.type              [a], b, {policy:b64}        ; op = and or xor ; type = b32 b64
red{.sem}{.scope}{.space}.op{.L2::cache_hint}.type              [a], b, {policy:b64}        ; op = inc dec ; type = u32
red{.sem}{.scope}{.space}.op{.L2::cache_hint}.type              [a], b, {policy:b64}        ; op = min max ; type = u32 s32 u64 s64
red{.sem}{.scope}{.space}.add{.L2::cache_hint}.type             [a], b, {policy:b64}        ; type = u32 s32 u64 f32 f64
red{.sem}{.scope}{.space}.add.noftz{.L2::cache_hint}.type       [a], b, {policy:b64}        ; type = f16 f16x2 bf16 bf16x2 ; ptx = 6.2 ; target = sm_70
red{.sem}{.scope}{.space}.add{.L2::cache_hint}.vec.type         [a], b*vec, {policy:b64}    ; space = global ; vec = v2 v4 ; type = f32 ; ptx = 8.1 ; target = sm_90
red{.sem}{.scope}{.space}.op.noftz{.L2::cache_hint}.vec.type    [a], b*vec, {policy:b64}    ; space = global ; op = add min max ; vec = v2 v4 v8 ; type = f16 bf16 ; ptx = 8.1 ; target = sm_90
red{.sem}{.scope}{.space}.op.noftz{.L2::cache_hint}.vec.type    [a], b*vec, {policy:b64}    ; space = global ; op = add min max ; vec = v2 v4 ; type = f16x2 bf16x2 ; ptx = 8.1 ; target = sm_90
"""
)

declare("""
; space = shared::cluster ; ptx = 8.1 ; target = sm_90 ; name = async ; kind = updates
red.async.relaxed.cluster{.space}.mbarrier::complete_tx::bytes.op.type      [a], b, [mbar]  ; op = inc dec ; type = u32
red.async.relaxed.cluster{.space}.mbarrier::complete_tx::bytes.op.type      [a], b, [mbar]  ; op = min max ; type = u32 s32
red.async.relaxed.cluster{.space}.mbarrier::complete_tx::bytes.op.type      [a], b, [mbar]  ; op = and or xor ; type = b32
red.async.relaxed.cluster{.space}.mbarrier::complete_tx::bytes.op.type      [a], b, [mbar]  ; op = add ; type = u32 s32 u64 s64
red.async.mmio.release.sys{.space}.op.type                                  [a], b          ; op = add ; space = global ; type = u32 s32 u64 s64 ; ptx = 8.7 ; target = sm_100
red.async.release.scope{.space}.op.type                                     [a], b          ; op = add ; scope = gpu sys ; space = global ; type = u32 s32 u64 s64 ; ptx = 8.7 ; target = sm_100
""")

_AFTER_SPACE = 3
OPERATIONS = tuple(
    dict.fromkeys(
        word for line in TABLE.lines["atom"] for word in line.pieces[_AFTER_SPACE].words
    )
)
"""What is done with the value in memory: ``add``, ``exch`` and so on."""
