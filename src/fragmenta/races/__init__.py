"""The race detector: finds accesses that nothing orders, reads that are too early, and
work that nobody waits for.

A launch that is watched has probes in its code (:mod:`~fragmenta.races.probes`), which
keep a shadow of each memory (:mod:`~fragmenta.races.shadow`), and an
:class:`~fragmenta.races.observer.Observer` at the port of the units.  Happens-before is
kept as vector clocks, one for each warp and one for each proxy.

Shared memory, what is missed on purpose, so that nothing is reported that is right:
a word has one record of writes, so bytes that another warp wrote before are forgotten;
lanes of a warp that learned something alone share what they know; what different lanes
of a warp did with different bytes of a word may be known too early; lanes that execute
one store again count as one instruction; after an unordered atomic operation only the
last one is compared; an agent with very many epochs, or very many sets of readers, is
partly forgotten.
"""
