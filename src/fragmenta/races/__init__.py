"""What is unordered, early, or left over while a kernel runs?

Watch              what is known about one cluster: clocks, accesses, problems
watched(access)    the routine that checks a load or a store of shared memory

Shared memory, what is missed on purpose, so that nothing is reported that is right:
a word has one record of writes, so bytes that another warp wrote before are forgotten;
lanes of a warp that learned something alone share what they know; what different lanes
of a warp did with different bytes of a word may be known too early; lanes that execute
one store again count as one instruction; after an unordered atomic operation only the
last one is compared; an agent with very many epochs, or very many sets of readers, is
partly forgotten.
"""
