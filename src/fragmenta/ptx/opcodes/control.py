"""Instructions that decide what runs next: their lines in the table.

Their code is written by :mod:`fragmenta.engine.simt.control`.
"""

from __future__ import annotations

from fragmenta.ptx.opcodes.table import declare

declare("""
; name = inc dec
bra{.uni}                           l:label             ; kind = branches
brx.idx{.uni}                       a:u32, l:targets    ; kind = branches a
call{.uni}                          f:call              ; kind = calls
ret{.uni}                                               ; kind = ends
exit                                                    ; kind = ends
trap                                                    ; kind = ends
brkpt                                                   ; kind = hints
nanosleep.u32                       a                   ; ptx = 6.2 ; target = sm_70 ; kind = hints
pmevent                             a:imm               ; a = 0..15 ; kind = hints
pmevent.mask                        a:imm               ; a = 0..65535 ; kind = hints
griddepcontrol.action                                   ; action = launch_dependents wait ; ptx = 7.8 ; target = sm_90 ; kind = synchronises
setmaxnreg.action.sync.aligned.type n:imm               ; action = inc dec ; type = u32 s32 ; n = 24..256/8 ; ptx = 8.0 ; target = sm_90a 100a/f 110a/f 120a/f ; kind = manages
elect.sync                          d|p:u32, membermask:u32  ; ptx = 8.0 ; target = sm_90 ; kind = exchanges
""")
