"""Which modules carry out events?"""

from __future__ import annotations

from fragmenta.ptx.asynchronous import clusters, copying, mbarriers

PARTS = (clusters, copying, mbarriers)
