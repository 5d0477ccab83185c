"""The race detector: accesses that nothing orders, reads that are too early, and work
that is never waited for.

Happens-before is kept as vector clocks, one for each warp and one for each proxy.  One
:class:`~fragmenta.watch.races.order.Order` for each cluster has them; its compiled half
is
:mod:`fragmenta.watch.races.shadow.order`.  Four detectors use it, each with a shadow of
its own: shared memory (:mod:`~fragmenta.watch.races.shared_shadow`), global memory
(:mod:`~fragmenta.watch.races.global_watch`), tensor memory
(:mod:`~fragmenta.watch.races.tmem_shadow`), and registers of work in flight
(:mod:`~fragmenta.watch.races.register_watch`).

A watched launch has instrumentation in its code (:mod:`~fragmenta.watch.races.probes`),
which checks loads and stores.  An :class:`~fragmenta.watch.races.observer.Observer` at
the port of the units sees all other events.  Compiled code notes problems in one table
(:mod:`~fragmenta.watch.races.shadow.problem_table`);
:mod:`~fragmenta.watch.races.report` puts them into words.

Known limits for shared memory; each of them may hide a race, and none invents one:

- A word has one record of writes: bytes that another warp wrote before are forgotten.
- Lanes of a warp that learned something alone share what they know.
- What different lanes of a warp did with different bytes of a word may be known early.
- Lanes that execute one store again count as one instruction.
- After an unordered atomic operation, only the last one is compared.
- An agent with very many epochs, or very many sets of readers, is partly forgotten.
"""
