"""Every instruction has a place in the explorer, or is known to have none."""

from __future__ import annotations

from fragmenta.inspect.view.explorer_data import holding
from fragmenta.inspect.view.explorer_links import others
from fragmenta.reference.isa.families import catalogue


def test_every_name_of_the_catalogue_is_known() -> None:
    held = holding()
    found = others(held)
    names = {str(op) for op in catalogue()}
    assert names <= {str(op) for op in held} | set(found)
    for name, at in found.items():
        if at >= 0:
            shown = str(held[at])
            assert shown.split(".")[:2] == name.split(".")[:2]
            assert (".sp." in name) == (".sp." in shown)
    assert found["tcgen05.mma.cta_group::1.kind::f16.collector::a::fill"] >= 0
    assert found["tcgen05.wait::ld.sync.aligned"] == -1
