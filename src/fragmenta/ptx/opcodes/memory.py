"""Loads, stores, and instructions about addresses: their lines in the table.

Their code is written by :mod:`fragmenta.engine.simt.accessing`.  Where a word excludes another one (a cache
operator excludes ``.volatile``), there are two lines.
"""

from __future__ import annotations

from fragmenta.ptx.opcodes.table import declare

# ── ld and st ───────────────────────────────────────────────────────────────

_WORDS = """
; type = b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 ; vec = v2 v4 v8 ; scope = cta cluster gpu sys
; L1 = L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate
; L2 = L2::evict_normal L2::evict_first L2::evict_last ; prefetch = L2::64B L2::128B L2::256B
"""

declare(
    _WORDS
    + """
; kind = loads
ld{.weak}{.space}{.cop}{.L2::cache_hint}{.prefetch}{.vec}.type               d*vec, [a], {policy:b64} ; space = global ; cop = ca cg cs lu cv
ld{.weak}.space{.cop}{.vec}.type                                         d*vec, [a]               ; space = const local param param::entry param::func shared shared::cta shared::cluster ; cop = ca cg cs lu cv
ld{.weak}{.space}.L1{.L2::cache_hint}{.prefetch}{.vec}.type                d*vec, [a], {policy:b64} ; space = global ; ptx = 7.4 ; target = sm_70
ld{.weak}{.space}{.L1}.L2{.L2::cache_hint}{.prefetch}.v8.type              d*8, [a], {policy:b64}   ; space = global ; type = b32 u32 s32 f32 ; ptx = 8.8 ; target = sm_100
ld{.weak}{.space}{.L1}.L2{.L2::cache_hint}{.prefetch}.v4.type              d*4, [a], {policy:b64}   ; space = global ; type = b64 u64 s64 f64 ; ptx = 8.8 ; target = sm_100
ld.volatile{.space}{.prefetch}{.vec}.type                                    d*vec, [a]               ; space = global
ld.volatile.space{.vec}.type                                             d*vec, [a]               ; space = shared shared::cta shared::cluster local
ld.sem.scope{.space}{.L1}{.L2::cache_hint}{.prefetch}{.vec}.type             d*vec, [a], {policy:b64} ; sem = relaxed acquire ; space = global ; ptx = 6.0 ; target = sm_70
ld.sem.scope{.space}{.L1}.L2{.L2::cache_hint}{.prefetch}.v8.type           d*8, [a], {policy:b64}   ; sem = relaxed acquire ; space = global ; type = b32 u32 s32 f32 ; ptx = 8.8 ; target = sm_100
ld.sem.scope{.space}{.L1}.L2{.L2::cache_hint}{.prefetch}.v4.type           d*4, [a], {policy:b64}   ; sem = relaxed acquire ; space = global ; type = b64 u64 s64 f64 ; ptx = 8.8 ; target = sm_100
ld.sem.scope.space{.vec}.type                                            d*vec, [a]               ; sem = relaxed acquire ; space = shared shared::cta shared::cluster ; ptx = 6.0 ; target = sm_70
ld.mmio.sem.sys{.space}.type                                             d, [a]                   ; sem = relaxed acquire ; space = global ; ptx = 8.2 ; target = sm_70
ld.space{.cop}.nc{.L2::cache_hint}{.prefetch}{.vec}.type                     d*vec, [a], {policy:b64} ; space = global ; cop = ca cg cs
ld.space.nc.L1{.L2::cache_hint}{.prefetch}{.vec}.type                      d*vec, [a], {policy:b64} ; space = global ; ptx = 7.4 ; target = sm_70
ld.space.nc{.L1}.L2{.L2::cache_hint}{.prefetch}.v8.type                    d*8, [a], {policy:b64}   ; space = global ; type = b32 u32 s32 f32 ; ptx = 8.8 ; target = sm_100
ld.space.nc{.L1}.L2{.L2::cache_hint}{.prefetch}.v4.type                    d*4, [a], {policy:b64}   ; space = global ; type = b64 u64 s64 f64 ; ptx = 8.8 ; target = sm_100
ldu{.space}{.vec}.type                                                   d*vec, [a]               ; space = global ; vec = v2 v4
"""
)

declare(
    _WORDS
    + """
; name = async bulk ; kind = stores
st{.weak}{.space}{.cop}{.L2::cache_hint}{.vec}.type                      [a], b*vec, {policy:b64} ; space = global ; cop = wb cg cs wt
st{.weak}.space{.cop}{.vec}.type                                         [a], b*vec               ; space = local param param::func shared shared::cta shared::cluster ; cop = wb cg cs wt
st{.weak}{.space}.L1{.L2::cache_hint}{.vec}.type                       [a], b*vec, {policy:b64} ; space = global ; ptx = 7.4 ; target = sm_70
st{.weak}{.space}{.L1}.L2{.L2::cache_hint}.v8.type                     [a], b*8, {policy:b64}   ; space = global ; type = b32 u32 s32 f32 ; ptx = 8.8 ; target = sm_100
st{.weak}{.space}{.L1}.L2{.L2::cache_hint}.v4.type                     [a], b*4, {policy:b64}   ; space = global ; type = b64 u64 s64 f64 ; ptx = 8.8 ; target = sm_100
st.volatile{.space}{.vec}.type                                           [a], b*vec               ; space = global shared shared::cta shared::cluster local
st.sem.scope{.space}{.L1}{.L2::cache_hint}{.vec}.type                    [a], b*vec, {policy:b64} ; sem = relaxed release ; space = global ; ptx = 6.0 ; target = sm_70
st.sem.scope{.space}{.L1}.L2{.L2::cache_hint}.v8.type                  [a], b*8, {policy:b64}   ; sem = relaxed release ; space = global ; type = b32 u32 s32 f32 ; ptx = 8.8 ; target = sm_100
st.sem.scope{.space}{.L1}.L2{.L2::cache_hint}.v4.type                  [a], b*4, {policy:b64}   ; sem = relaxed release ; space = global ; type = b64 u64 s64 f64 ; ptx = 8.8 ; target = sm_100
st.sem.scope.space{.vec}.type                                            [a], b*vec               ; sem = relaxed release ; space = shared shared::cta shared::cluster ; ptx = 6.0 ; target = sm_70
st.mmio.sem.sys{.space}.type                                             [a], b                   ; sem = relaxed release ; space = global ; ptx = 8.2 ; target = sm_70
st.async{.weak}{.space}.mbarrier::complete_tx::bytes{.vec}.type          [a], b*vec, [mbar]       ; space = shared::cluster ; vec = v2 v4 ; type = b32 b64 u32 u64 s32 s64 f32 f64 ; ptx = 8.1 ; target = sm_90
st.async.mmio.release.sys{.space}.type                                   [a], b                   ; space = global ; type = b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 ; ptx = 8.7 ; target = sm_100
st.async.release.scope{.space}.type                                      [a], b                   ; space = global ; type = b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 ; scope = gpu sys ; ptx = 8.7 ; target = sm_100
st.bulk{.weak}{.space}                                                   [a], size:u64, zero:imm  ; space = shared::cta ; size = 0..16777216/8 ; zero = 0 ; ptx = 8.6 ; target = sm_100
"""
)

# ── multimem ────────────────────────────────────────────────────────────────

declare("""
; scope = cta cluster gpu sys ; space = global ; acc = acc::f32 ; ptx = 8.1 ; target = sm_90 ; name = ld_reduce st red ; kind = loads
multimem.ld_reduce{.weak}{.space}.op.type                       d, [a]        ; op = min max ; type = u32 s32 u64 s64
multimem.ld_reduce.sem.scope{.space}.op.type                    d, [a]        ; op = min max ; type = u32 s32 u64 s64 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.add.type                      d, [a]        ; type = u32 s32 u64
multimem.ld_reduce.sem.scope{.space}.add.type                   d, [a]        ; type = u32 s32 u64 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.op.type                       d, [a]        ; op = and or xor ; type = b32 b64
multimem.ld_reduce.sem.scope{.space}.op.type                    d, [a]        ; op = and or xor ; type = b32 b64 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.add{.vec}.type                d*vec, [a]    ; vec = v2 v4 ; type = f32
multimem.ld_reduce.sem.scope{.space}.add{.vec}.type             d*vec, [a]    ; vec = v2 v4 ; type = f32 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.add.type                      d, [a]        ; type = f64
multimem.ld_reduce.sem.scope{.space}.add.type                   d, [a]        ; type = f64 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.add{.acc}{.vec}.type          d*vec, [a]    ; vec = v2 v4 ; type = f16x2 bf16x2
multimem.ld_reduce.sem.scope{.space}.add{.acc}{.vec}.type       d*vec, [a]    ; vec = v2 v4 ; type = f16x2 bf16x2 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.op{.vec}.type                 d*vec, [a]    ; op = min max ; vec = v2 v4 ; type = f16x2 bf16x2
multimem.ld_reduce.sem.scope{.space}.op{.vec}.type              d*vec, [a]    ; op = min max ; vec = v2 v4 ; type = f16x2 bf16x2 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.add{.acc}.vec.type            d*vec, [a]    ; vec = v2 v4 v8 ; type = f16 bf16
multimem.ld_reduce.sem.scope{.space}.add{.acc}.vec.type         d*vec, [a]    ; vec = v2 v4 v8 ; type = f16 bf16 ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.op.vec.type                   d*vec, [a]    ; op = min max ; vec = v2 v4 v8 ; type = f16 bf16
multimem.ld_reduce.sem.scope{.space}.op.vec.type                d*vec, [a]    ; op = min max ; vec = v2 v4 v8 ; type = f16 bf16 ; sem = relaxed acquire
multimem.st{.weak}{.space}.type                                 [a], b        ; type = b32 b64 u32 u64 s32 s64 f64 ; kind = stores
multimem.st.sem.scope{.space}.type                              [a], b        ; type = b32 b64 u32 u64 s32 s64 f64 ; sem = relaxed release ; kind = stores
multimem.st{.weak}{.space}{.vec}.type                           [a], b*vec    ; vec = v2 v4 ; type = f32 f16x2 bf16x2 ; kind = stores
multimem.st.sem.scope{.space}{.vec}.type                        [a], b*vec    ; vec = v2 v4 ; type = f32 f16x2 bf16x2 ; sem = relaxed release ; kind = stores
multimem.st{.weak}{.space}{.acc}.vec.type                             [a], b*vec    ; vec = v2 v4 v8 ; type = f16 bf16 ; kind = stores
multimem.st.sem.scope{.space}{.acc}.vec.type                          [a], b*vec    ; vec = v2 v4 v8 ; type = f16 bf16 ; sem = relaxed release ; kind = stores
multimem.red{.space}.op.type                                    [a], b        ; op = min max ; type = u32 s32 u64 s64 ; kind = updates
multimem.red.sem.scope{.space}.op.type                          [a], b        ; op = min max ; type = u32 s32 u64 s64 ; sem = relaxed release ; kind = updates
multimem.red{.space}.op.type                                    [a], b        ; op = and or xor ; type = b32 b64 ; kind = updates
multimem.red.sem.scope{.space}.op.type                          [a], b        ; op = and or xor ; type = b32 b64 ; sem = relaxed release ; kind = updates
multimem.red{.space}.add.type                                   [a], b        ; type = u32 s32 u64 f64 ; kind = updates
multimem.red.sem.scope{.space}.add.type                         [a], b        ; type = u32 s32 u64 f64 ; sem = relaxed release ; kind = updates
multimem.red{.space}.add{.vec}.type                             [a], b*vec    ; vec = v2 v4 ; type = f32 ; kind = updates
multimem.red.sem.scope{.space}.add{.vec}.type                   [a], b*vec    ; vec = v2 v4 ; type = f32 ; sem = relaxed release ; kind = updates
multimem.red{.space}.add.type                                   [a], b        ; type = f16x2 bf16x2 ; kind = updates
multimem.red.sem.scope{.space}.add.type                         [a], b        ; type = f16x2 bf16x2 ; sem = relaxed release ; kind = updates
multimem.red{.space}.op{.acc}.vec.type                                [a], b*vec    ; op = add min max ; vec = v2 v4 ; type = f16x2 bf16x2 ; kind = updates
multimem.red.sem.scope{.space}.op{.acc}.vec.type                      [a], b*vec    ; op = add min max ; vec = v2 v4 ; type = f16x2 bf16x2 ; sem = relaxed release ; kind = updates
multimem.red{.space}.op{.acc}.vec.type                                [a], b*vec    ; op = add min max ; vec = v2 v4 v8 ; type = f16 bf16 ; kind = updates
multimem.red.sem.scope{.space}.op{.acc}.vec.type                      [a], b*vec    ; op = add min max ; vec = v2 v4 v8 ; type = f16 bf16 ; sem = relaxed release ; kind = updates
""")

declare("""
; space = global ; ptx = 8.6 ; target = 100a/f 110a/f sm_120a sm_121a ; name = ld_reduce st ; kind = loads
; acc = acc::f16 ; scope = cta cluster gpu sys ; sem = relaxed acquire
multimem.ld_reduce{.weak}{.space}.op{.vec}.type                 d*vec, [a]    ; op = min max ; vec = v2 v4 ; type = e5m2x4 e4m3x4
multimem.ld_reduce{.weak}{.space}.add{.acc}{.vec}.type          d*vec, [a]    ; vec = v2 v4 ; type = e5m2x4 e4m3x4
multimem.ld_reduce{.weak}{.space}.op.vec.type                   d*vec, [a]    ; op = min max ; vec = v2 v4 v8 ; type = e5m2x2 e4m3x2
multimem.ld_reduce{.weak}{.space}.add{.acc}.vec.type            d*vec, [a]    ; vec = v2 v4 v8 ; type = e5m2x2 e4m3x2
multimem.ld_reduce.sem.scope{.space}.op{.vec}.type              d*vec, [a]    ; op = min max ; vec = v2 v4 ; type = e5m2x4 e4m3x4
multimem.ld_reduce.sem.scope{.space}.add{.acc}{.vec}.type       d*vec, [a]    ; vec = v2 v4 ; type = e5m2x4 e4m3x4
multimem.ld_reduce.sem.scope{.space}.op.vec.type                d*vec, [a]    ; op = min max ; vec = v2 v4 v8 ; type = e5m2x2 e4m3x2
multimem.ld_reduce.sem.scope{.space}.add{.acc}.vec.type         d*vec, [a]    ; vec = v2 v4 v8 ; type = e5m2x2 e4m3x2
multimem.st{.weak}{.space}{.vec}.type                           [a], b*vec    ; vec = v2 v4 ; type = e5m2x4 e4m3x4 ; kind = stores
multimem.st{.weak}{.space}.vec.type                             [a], b*vec    ; vec = v2 v4 v8 ; type = e5m2x2 e4m3x2 ; kind = stores
""")

# ── caches ──────────────────────────────────────────────────────────────────

declare("""
; name = range ; kind = hints
prefetch{.space}.level                                  [a]                             ; space = global local ; level = L1 L2
prefetch{.space}.level                                  [a]                             ; space = global ; level = L2::evict_last L2::evict_normal ; ptx = 7.4 ; target = sm_80
prefetch{.space}.tensormap                              [a]                             ; space = const param ; ptx = 8.0 ; target = sm_90
prefetchu.L1                                            [a]
applypriority{.space}.L2::evict_normal                  [a], size:imm                   ; space = global ; size = 128 ; ptx = 7.4 ; target = sm_80
discard{.space}.L2                                      [a], size:imm                   ; space = global ; size = 128 ; ptx = 7.4 ; target = sm_80
createpolicy.range{.space}.primary{.secondary}.b64      d, [a], first:u32, total:u32    ; space = global ; primary = L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged ; secondary = L2::evict_first L2::evict_unchanged ; ptx = 7.4 ; target = sm_80 ; kind = manages
""")

declare(
    """
; name = fractional cvt ; kind = computes
createpolicy.fractional.primary{.secondary}.b64         d, {fraction:f32}               ; primary = L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged ; secondary = L2::evict_first L2::evict_unchanged ; ptx = 7.4 ; target = sm_80
createpolicy.cvt.L2.b64                                 d, a                            ; ptx = 7.4 ; target = sm_80
"""
)

# ── addresses ───────────────────────────────────────────────────────────────

declare(
    """
; space = const global local param param::entry shared shared::cta shared::cluster ; name = to ; kind = computes
cvta.space.type                     d, a                    ; type = u32 u64
cvta.to.space.type                  d, a                    ; type = u32 u64
isspacep.space                      p:pred, a:address
mapa{.space}.type                   d, a, b:u32             ; space = shared::cluster ; type = u32 u64 s32 s64 ; ptx = 7.8 ; target = sm_90
getctarank{.space}.type             d:u32, a                ; space = shared::cluster ; type = u32 u64 s32 s64 ; ptx = 7.8 ; target = sm_90
"""
)

declare("""
; kind = manages
alloca.type                         d, a, {align:imm}       ; type = u32 u64 ; ptx = 7.3 ; target = sm_70
stacksave.type                      d                       ; type = u32 u64 ; ptx = 7.3 ; target = sm_70
stackrestore.type                   a                       ; type = u32 u64 ; ptx = 7.3 ; target = sm_70
""")

declare("""
; bits = h200 ; space = global shared::cta ; ptx = 8.3 ; target = sm_90a 100a/f 110a/f 120a/f ; name = replace cp_fenceproxy ; kind = manages
tensormap.replace.tile.global_address{.space}.b1024.b64     [a], b
tensormap.replace.tile.rank{.space}.b1024.b32               [a], b
tensormap.replace.tile.field{.space}.b1024.b32              [a], n:imm, b       ; field = box_dim global_dim element_stride ; n = 0..4
tensormap.replace.tile.global_stride{.space}.b1024.b64      [a], n:imm, b       ; n = 0..4
tensormap.replace.tile.elemtype{.space}.b1024.b32           [a], b:imm          ; b = 0..15
tensormap.replace.tile.interleave_layout{.space}.b1024.b32  [a], b:imm          ; b = 0..2
tensormap.replace.tile.swizzle_mode{.space}.b1024.b32       [a], b:imm          ; b = 0..4
tensormap.replace.tile.swizzle_atomicity{.space}.b1024.b32  [a], b:imm          ; b = 0..3 ; ptx = 8.6 ; target = 100a/f 110a/f 120a/f
tensormap.replace.tile.fill_mode{.space}.b1024.b32          [a], b:imm          ; b = 0..1
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.scope.sync.aligned  [a], [b], size:imm  ; scope = cta cluster gpu sys ; size = 128 ; target = sm_90
""")
