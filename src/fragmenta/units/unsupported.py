"""Which asynchronous instructions are not carried out, and why?"""

from __future__ import annotations

from fragmenta.ptx.effects import not_run
from fragmenta.units import registry
from fragmenta.units.copy_operands import form
from fragmenta.units.events import UNKNOWN, carrier
from fragmenta.units.tensor_maps import REPLACED
from fragmenta.units.work import CopyFault

assert registry  # each of these carries out some instructions


def refusal(mnemonic: str) -> str:
    """Why a kernel that reaches this instruction is stopped; nothing if it is not.

    >>> refusal("mbarrier.init.shared.b64")
    ''
    >>> refusal("tcgen05.shift.cta_group::1.down")
    'tcgen05.shift.cta_group::1.down: the direction in which rows move is not known'
    """
    words = mnemonic.split(".")
    run = carrier(words)
    if run is UNKNOWN:
        return f"{mnemonic} is not supported"
    if words[0] == "tcgen05":
        return not_run(mnemonic)
    if words[:2] == ["tensormap", "replace"] and words[3] not in REPLACED:
        return f"tensormap.replace on sm_90a does not change {words[3]}"
    if run is carrier(["cp", "async", "bulk"]):
        try:
            form(mnemonic)
        except CopyFault as fault:
            return str(fault)
    return ""
