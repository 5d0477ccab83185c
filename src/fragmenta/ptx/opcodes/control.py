"""Which instructions decide what runs next?

The engine carries them out itself.
"""

from __future__ import annotations

from fragmenta.ptx.opcodes.table import declare

declare("""
bra{.uni}                           l:label
brx.idx{.uni}                       a:u32, l:targets
call{.uni}                          f:call
ret{.uni}
exit
trap
brkpt
nanosleep.u32                       a                   ; ptx = 6.3 ; target = sm_70
pmevent                             a:imm               ; a = 0..15
pmevent.mask                        a:imm               ; ptx = 3.0
griddepcontrol.action                                   ; action = launch_dependents wait ; ptx = 7.8 ; target = sm_90
setmaxnreg.action.sync.aligned.u32  n:imm               ; action = inc dec ; n = 24..256/8 ; ptx = 8.0 ; target = sm_90a sm_100a sm_100f sm_103a sm_103f sm_107a sm_107f sm_110a sm_110f sm_120a sm_120f sm_121a sm_121f
elect.sync                          d|p:u32, membermask:u32  ; ptx = 8.0 ; target = sm_90
""")
