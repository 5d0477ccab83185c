"""Instructions that wait, exchange values or copy asynchronously: their lines.

Handlers in :mod:`fragmenta.engine.simt` write their code.
"""

from __future__ import annotations

from fragmenta.ptx.opcodes.table import declare

# ── barriers ────────────────────────────────────────────────────────────────

declare("""
; a = 0..15 ; name = warp cluster arrive wait ; kind = synchronises
bar{.cta}.sync                              a:u32, {b:u32}
bar{.cta}.arrive                            a:u32, b:u32
bar{.cta}.red.popc.u32                      d, a:u32, {b:u32}, c:pred
bar{.cta}.red.op.pred                       p, a:u32, {b:u32}, c:pred   ; op = and or
barrier{.cta}.sync{.aligned}                a:u32, {b:u32}              ; ptx = 6.0
barrier{.cta}.arrive{.aligned}              a:u32, b:u32                ; ptx = 6.0
barrier{.cta}.red.popc{.aligned}.u32        d, a:u32, {b:u32}, c:pred   ; ptx = 6.0
barrier{.cta}.red.op{.aligned}.pred         p, a:u32, {b:u32}, c:pred   ; op = and or ; ptx = 6.0
bar.warp.sync                               membermask:u32              ; ptx = 6.0
barrier.cluster.arrive{.sem}{.aligned}                                  ; sem = release relaxed ; ptx = 7.8 ; target = sm_90
barrier.cluster.wait{.acquire}{.aligned}                                ; ptx = 7.8 ; target = sm_90
""")

declare("""
; scope = cta cluster gpu sys ; name = proxy ; kind = synchronises
membar.level                                                                    ; level = cta gl sys
membar.proxy.alias                                                              ; ptx = 7.5
membar.proxy.async                                                              ; ptx = 8.0 ; target = sm_90
fence{.sem}.scope                                                               ; sem = sc acq_rel acquire release ; ptx = 6.0 ; target = sm_70
fence.acquire.sync_restrict::shared::cluster.cluster                            ; ptx = 8.6 ; target = sm_90
fence.release.sync_restrict::shared::cta.cluster                                ; ptx = 8.6 ; target = sm_90
fence.mbarrier_init.release.cluster                                             ; ptx = 8.0 ; target = sm_90
fence.proxy.alias                                                               ; ptx = 7.5 ; target = sm_70
fence.proxy.async                                                               ; ptx = 8.0 ; target = sm_90
fence.proxy.async.space                                                         ; space = global shared::cta shared::cluster ; ptx = 8.0 ; target = sm_90
fence.proxy.tensormap::generic.release.scope                                    ; ptx = 8.3 ; target = sm_90
fence.proxy.tensormap::generic.acquire.scope                [a], size:imm       ; size = 128 ; ptx = 8.3 ; target = sm_90
fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster       ; ptx = 8.6 ; target = sm_90
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster           ; ptx = 8.6 ; target = sm_90
""")

# ── warps ───────────────────────────────────────────────────────────────────

declare("""
; kind = exchanges
vote.sync.mode.pred                 p, a:pred, membermask:u32           ; mode = all any uni ; ptx = 6.0
vote.sync.ballot.b32                d, a:pred, membermask:u32           ; ptx = 6.0
match.any.sync.type                 d:b32, a, membermask:u32            ; type = b32 b64 ; ptx = 6.0 ; target = sm_70
match.all.sync.type                 d|p:b32, a, membermask:u32          ; type = b32 b64 ; ptx = 6.0 ; target = sm_70
activemask.b32                      d                                   ; ptx = 6.2
redux.sync.op.type                  d, a, membermask:u32                ; op = add min max ; type = u32 s32 ; ptx = 7.0 ; target = sm_80
redux.sync.op.b32                   d, a, membermask:u32                ; op = and or xor ; ptx = 7.0 ; target = sm_80
redux.sync.op{.abs}{.NaN}.f32       d, a, membermask:u32                ; op = min max ; ptx = 8.6 ; target = 100a/f
shfl.sync.mode.b32                  d|p, a, b:b32, c:b32, membermask:u32  ; mode = up down bfly idx ; ptx = 6.0
""")

# ── mbarrier ────────────────────────────────────────────────────────────────
# The bits of a state are not documented.  Here they are other bits.

declare("""
; scope = cta cluster ; target = sm_80 ; ptx = 7.0 ; name = init inval expect_tx complete_tx arrive arrive_drop test_wait parity try_wait pending_count ; kind = synchronises
mbarrier.init{.space}.b64                                       [a], n:u32              ; space = shared shared::cta ; n = 1..1048575
mbarrier.inval{.space}.b64                                      [a]                     ; space = shared shared::cta
mbarrier.expect_tx{.space}.b64                                  [a], n:u32              ; space = shared shared::cta shared::cluster ; ptx = 8.0 ; target = sm_90
mbarrier.expect_tx.relaxed.scope{.space}.b64                    [a], n:u32              ; space = shared shared::cta shared::cluster ; ptx = 8.0 ; target = sm_90
mbarrier.complete_tx{.space}.b64                                [a], n:u32              ; space = shared shared::cta shared::cluster ; ptx = 8.0 ; target = sm_90
mbarrier.complete_tx.relaxed.scope{.space}.b64                  [a], n:u32              ; space = shared shared::cta shared::cluster ; ptx = 8.0 ; target = sm_90
mbarrier.arrive{.space}.b64                                     d, [a], {n:u32}         ; space = shared shared::cta ; bits = modelled ; n = 1..4294967295
mbarrier.arrive.sem.scope{.space}.b64                           d, [a], {n:u32}         ; space = shared shared::cta ; sem = release relaxed ; ptx = 8.0 ; bits = modelled ; n = 1..4294967295
mbarrier.arrive.space.b64                                       sink, [a], {n:u32}      ; space = shared::cluster ; ptx = 8.0 ; target = sm_90 ; n = 1..4294967295
mbarrier.arrive.sem.scope.space.b64                             sink, [a], {n:u32}      ; space = shared::cluster ; sem = release relaxed ; ptx = 8.0 ; target = sm_90 ; n = 1..4294967295
mbarrier.arrive.expect_tx{.space}.b64                           d, [a], n:u32           ; space = shared shared::cta ; ptx = 8.0 ; target = sm_90 ; bits = modelled
mbarrier.arrive.expect_tx.sem.scope{.space}.b64                 d, [a], n:u32           ; space = shared shared::cta ; sem = release relaxed ; ptx = 8.0 ; target = sm_90 ; bits = modelled
mbarrier.arrive.expect_tx.space.b64                             sink, [a], n:u32        ; space = shared::cluster ; ptx = 8.0 ; target = sm_90
mbarrier.arrive.expect_tx.sem.scope.space.b64                   sink, [a], n:u32        ; space = shared::cluster ; sem = release relaxed ; ptx = 8.0 ; target = sm_90
mbarrier.arrive.noComplete{.space}.b64                          d, [a], n:u32           ; space = shared shared::cta ; bits = modelled ; n = 1..4294967295
mbarrier.arrive.noComplete.release.cta{.space}.b64              d, [a], n:u32           ; space = shared shared::cta ; ptx = 8.0 ; bits = modelled ; n = 1..4294967295
mbarrier.arrive_drop{.space}.b64                                d, [a], {n:u32}         ; space = shared shared::cta ; bits = modelled ; n = 1..4294967295
mbarrier.arrive_drop.sem.scope{.space}.b64                      d, [a], {n:u32}         ; space = shared shared::cta ; sem = release relaxed ; ptx = 8.0 ; bits = modelled ; n = 1..4294967295
mbarrier.arrive_drop.space.b64                                  sink, [a], {n:u32}      ; space = shared::cluster ; ptx = 8.0 ; target = sm_90 ; n = 1..4294967295
mbarrier.arrive_drop.sem.scope.space.b64                        sink, [a], {n:u32}      ; space = shared::cluster ; sem = release relaxed ; ptx = 8.0 ; target = sm_90 ; n = 1..4294967295
mbarrier.arrive_drop.expect_tx{.space}.b64                      d, [a], n:u32           ; space = shared shared::cta ; ptx = 8.0 ; target = sm_90 ; bits = modelled
mbarrier.arrive_drop.expect_tx.sem.scope{.space}.b64            d, [a], n:u32           ; space = shared shared::cta ; sem = release relaxed ; ptx = 8.0 ; target = sm_90 ; bits = modelled
mbarrier.arrive_drop.expect_tx.space.b64                        sink, [a], n:u32        ; space = shared::cluster ; ptx = 8.0 ; target = sm_90
mbarrier.arrive_drop.expect_tx.sem.scope.space.b64              sink, [a], n:u32        ; space = shared::cluster ; sem = release relaxed ; ptx = 8.0 ; target = sm_90
mbarrier.arrive_drop.noComplete{.space}.b64                     d, [a], n:u32           ; space = shared shared::cta ; bits = modelled ; n = 1..4294967295
mbarrier.arrive_drop.noComplete.release.cta{.space}.b64         d, [a], n:u32           ; space = shared shared::cta ; ptx = 8.0 ; bits = modelled ; n = 1..4294967295
mbarrier.test_wait{.space}.b64                                  p:pred, [a], state:b64  ; space = shared shared::cta
mbarrier.test_wait.sem.scope{.space}.b64                        p:pred, [a], state:b64  ; space = shared shared::cta ; sem = acquire relaxed ; ptx = 8.0
mbarrier.test_wait.parity{.space}.b64                           p:pred, [a], phase:u32  ; space = shared shared::cta ; phase = 0 1 ; ptx = 7.1
mbarrier.test_wait.parity.sem.scope{.space}.b64                 p:pred, [a], phase:u32  ; space = shared shared::cta ; phase = 0 1 ; sem = acquire relaxed ; ptx = 8.0
mbarrier.try_wait{.space}.b64                                   p:pred, [a], state:b64, {time:u32}      ; space = shared shared::cta ; ptx = 7.8 ; target = sm_90
mbarrier.try_wait.sem.scope{.space}.b64                         p:pred, [a], state:b64, {time:u32}      ; space = shared shared::cta ; sem = acquire relaxed ; ptx = 8.0 ; target = sm_90
mbarrier.try_wait.parity{.space}.b64                            p:pred, [a], phase:u32, {time:u32}     ; space = shared shared::cta ; phase = 0 1 ; ptx = 7.8 ; target = sm_90
mbarrier.try_wait.parity.sem.scope{.space}.b64                  p:pred, [a], phase:u32, {time:u32}     ; space = shared shared::cta ; phase = 0 1 ; sem = acquire relaxed ; ptx = 8.0 ; target = sm_90
mbarrier.pending_count.b64                                      d:u32, a
""")

# ── copies ──────────────────────────────────────────────────────────────────

declare("""
; prefetch = L2::64B L2::128B L2::256B ; space = shared shared::cta ; target = sm_80 ; ptx = 7.0 ; name = async commit_group wait_group wait_all mbarrier arrive ; kind = copies
cp.async.cop.space.global{.L2::cache_hint}{.prefetch}   [d], [a], size:imm, {ignore:src}, {policy:b64}  ; cop = ca ; size = 4 8 16
cp.async.cop.space.global{.L2::cache_hint}{.prefetch}   [d], [a], size:imm, {ignore:src}, {policy:b64}  ; cop = cg ; size = 16
cp.async.commit_group  ; kind = synchronises
cp.async.wait_group                                     n:imm  ; kind = synchronises
cp.async.wait_all  ; kind = synchronises
cp.async.mbarrier.arrive{.noinc}{.space}.b64            [a]  ; kind = synchronises
""")

declare("""
; ptx = 8.0 ; target = sm_90 ; size = 0..1048560/16 ; name = async bulk prefetch commit_group wait_group reduce ; kind = copies
cp.async.bulk.dst.global.mbarrier::complete_tx::bytes{.multicast::cluster}{.L2::cache_hint}  [d], [a], size:u32, [mbar], {mask:b16}, {policy:b64}  ; dst = shared::cluster ; mask = 0..65535
cp.async.bulk.dst.global.mbarrier::complete_tx::bytes{.L2::cache_hint}              [d], [a], size:u32, [mbar], {policy:b64}                        ; dst = shared::cta ; ptx = 8.6
cp.async.bulk.dst.global.mbarrier::complete_tx::bytes.ignore_oob{.L2::cache_hint}   [d], [a], size:u32, left:u32, right:u32, [mbar], {policy:b64}   ; dst = shared::cta ; left = 0..15 ; right = 0..15 ; ptx = 9.2 ; bits = modelled
cp.async.bulk.dst.shared::cta.mbarrier::complete_tx::bytes                          [d], [a], size:u32, [mbar]                          ; dst = shared::cluster
cp.async.bulk.dst.shared::cta.bulk_group{.L2::cache_hint}                           [d], [a], size:u32, {policy:b64}                    ; dst = global
cp.async.bulk.dst.shared::cta.bulk_group{.L2::cache_hint}.cp_mask                   [d], [a], size:u32, {policy:b64}, mask:b16          ; dst = global ; ptx = 8.6 ; target = sm_100 ; bits = modelled
cp.async.bulk.prefetch.L2.global{.L2::cache_hint}                                   [a], size:u32, {policy:b64}  ; kind = hints
cp.async.bulk.commit_group  ; kind = synchronises
cp.async.bulk.wait_group{.read}                                                     n:imm  ; kind = synchronises
cp.reduce.async.bulk.dst.shared::cta.mbarrier::complete_tx::bytes.op.type           [d], [a], size:u32, [mbar]      ; dst = shared::cluster ; op = add ; type = u32 s32 u64 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.mbarrier::complete_tx::bytes.op.type           [d], [a], size:u32, [mbar]      ; dst = shared::cluster ; op = min max ; type = u32 s32 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.mbarrier::complete_tx::bytes.op.type           [d], [a], size:u32, [mbar]      ; dst = shared::cluster ; op = inc dec ; type = u32 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.mbarrier::complete_tx::bytes.op.type           [d], [a], size:u32, [mbar]      ; dst = shared::cluster ; op = and or xor ; type = b32 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.bulk_group{.L2::cache_hint}.op.type            [d], [a], size:u32, {policy:b64}    ; dst = global ; op = add ; type = u32 s32 u64 f32 f64 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.bulk_group{.L2::cache_hint}.op.noftz.type      [d], [a], size:u32, {policy:b64}    ; dst = global ; op = add ; type = f16 bf16 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.bulk_group{.L2::cache_hint}.op.type            [d], [a], size:u32, {policy:b64}    ; dst = global ; op = min max ; type = u32 s32 u64 s64 f16 bf16 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.bulk_group{.L2::cache_hint}.op.type            [d], [a], size:u32, {policy:b64}    ; dst = global ; op = inc dec ; type = u32 ; bits = h200
cp.reduce.async.bulk.dst.shared::cta.bulk_group{.L2::cache_hint}.op.type            [d], [a], size:u32, {policy:b64}    ; dst = global ; op = and or xor ; type = b32 b64 ; bits = h200
""")

declare("""
; bits = h200 ; dim = 1d 2d 3d 4d 5d ; mask = 0..65535 ; group = cta_group::1 cta_group::2 ; ptx = 8.0 ; target = sm_90 ; name = async bulk tensor reduce prefetch ; kind = copies
cp.async.bulk.tensor.dim.dst.global{.mode}.mbarrier::complete_tx::bytes{.multicast::cluster}{.group}{.L2::cache_hint}  [d], [a:tensor], [mbar], {mask:b16}, {policy:b64}                  ; dst = shared::cluster ; mode = tile
cp.async.bulk.tensor.dim.dst.global.mode.mbarrier::complete_tx::bytes{.multicast::cluster}{.group}{.L2::cache_hint}    [d], [a:tensor], [mbar], offsets:im2col, {mask:b16}, {policy:b64}  ; dst = shared::cluster ; mode = im2col ; dim = 3d 4d 5d
cp.async.bulk.tensor.dim.dst.global{.mode}.mbarrier::complete_tx::bytes{.group}{.L2::cache_hint}    [d], [a:tensor], [mbar], {policy:b64}                   ; dst = shared::cta ; mode = tile ; ptx = 8.6
cp.async.bulk.tensor.dim.dst.global.mode.mbarrier::complete_tx::bytes{.group}{.L2::cache_hint}      [d], [a:tensor], [mbar], offsets:im2col, {policy:b64}   ; dst = shared::cta ; mode = im2col ; dim = 3d 4d 5d ; ptx = 8.6
cp.async.bulk.tensor.dim.dst.shared::cta{.mode}.bulk_group{.L2::cache_hint}                         [a:tensor], [b], {policy:b64}                           ; dst = global ; mode = tile
cp.async.bulk.tensor.dim.dst.shared::cta.mode.bulk_group{.L2::cache_hint}                           [a:tensor], [b], {policy:b64}                           ; dst = global ; mode = im2col_no_offs ; dim = 3d 4d 5d
cp.reduce.async.bulk.tensor.dim.dst.shared::cta.op{.mode}.bulk_group{.L2::cache_hint}               [a:tensor], [b], {policy:b64}                           ; dst = global ; op = add min max inc dec and or xor ; mode = tile
cp.reduce.async.bulk.tensor.dim.dst.shared::cta.op.mode.bulk_group{.L2::cache_hint}                 [a:tensor], [b], {policy:b64}                           ; dst = global ; op = add min max inc dec and or xor ; mode = im2col_no_offs ; dim = 3d 4d 5d
cp.async.bulk.prefetch.tensor.dim.L2.global{.mode}{.L2::cache_hint}                                 [a:tensor], {policy:b64}                                ; mode = tile ; kind = hints
cp.async.bulk.prefetch.tensor.dim.L2.global.mode{.L2::cache_hint}                                   [a:tensor], offsets:im2col, {policy:b64}                ; mode = im2col ; dim = 3d 4d 5d ; kind = hints
""")

declare("""
; group = cta_group::1 cta_group::2 ; dim = 3d 4d 5d ; mask = 0..65535 ; ptx = 8.6 ; target = 100a/f 110a/f ; name = async bulk tensor prefetch ; kind = copies
cp.async.bulk.tensor.dim.dst.global.mode.mbarrier::complete_tx::bytes{.multicast::cluster}{.group}{.L2::cache_hint}    [d], [a:tensor], [mbar], offsets:im2col, {mask:b16}, {policy:b64}  ; dst = shared::cluster ; mode = im2col::w im2col::w::128
cp.async.bulk.tensor.dim.dst.global.mode.mbarrier::complete_tx::bytes{.group}{.L2::cache_hint}      [d], [a:tensor], [mbar], offsets:im2col, {policy:b64}   ; dst = shared::cta ; mode = im2col::w ; target = sm_100
cp.async.bulk.tensor.dim.dst.global.mode.mbarrier::complete_tx::bytes{.group}{.L2::cache_hint}      [d], [a:tensor], [mbar], offsets:im2col, {policy:b64}   ; dst = shared::cta ; mode = im2col::w::128
cp.async.bulk.prefetch.tensor.dim.L2.global.mode{.L2::cache_hint}                                   [a:tensor], offsets:im2col, {policy:b64}                ; mode = im2col::w im2col::w::128 ; kind = hints
cp.async.bulk.tensor.2d.dst.global.tile::gather4.mbarrier::complete_tx::bytes{.multicast::cluster}{.group}{.L2::cache_hint}  [d], [a:tensor], [mbar], {mask:b16}, {policy:b64}  ; dst = shared::cluster ; bits = modelled
cp.async.bulk.tensor.2d.dst.global.tile::gather4.mbarrier::complete_tx::bytes{.group}{.L2::cache_hint}  [d], [a:tensor], [mbar], {policy:b64}  ; dst = shared::cta ; target = sm_100 ; bits = modelled
cp.async.bulk.tensor.2d.dst.shared::cta.tile::scatter4.bulk_group{.L2::cache_hint}                  [a:tensor], [b], {policy:b64}  ; dst = global ; bits = modelled
cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4{.L2::cache_hint}                           [a:tensor], {policy:b64} ; bits = modelled ; kind = hints
""")

# ── clusters that take over the work of others ──────────────────────────────

declare("""
; ptx = 8.6 ; target = sm_100 ; bits = modelled ; name = try_cancel query_cancel ; kind = manages
clusterlaunchcontrol.try_cancel.async{.space}.mbarrier::complete_tx::bytes{.multicast::cluster::all}.b128   [a], [mbar]     ; space = shared::cta
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128                                                     p:pred, a:b128
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128                                               d*4:b32, a:b128
clusterlaunchcontrol.query_cancel.part.b32.b128     d:b32, a:b128       ; part = get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z
""")
