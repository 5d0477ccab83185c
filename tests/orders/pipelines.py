"""Producer and consumers with a ring of stages, as programs."""

from fragmenta.watch.orders.program import (
    Access,
    Agent,
    Barrier,
    CompleteTx,
    Event,
    Events,
    Exit,
    Issue,
    Mbarrier,
    MbarrierArrive,
    MbarrierInit,
    MbarrierWait,
    Program,
    Proxy,
    ReadDone,
    Span,
    Sync,
    Unit,
)


def pipeline(
    consumers: int = 3,
    stages: int = 3,
    iterations: int = 8,
    copies: int = 2,
    arrivals: int | None = None,
    flip: bool = False,
    early: bool = False,
) -> Program:
    """A ring of stages: one warp issues bulk copies, the others read what arrived.

    ``arrivals`` is the count of the mbarriers ``empty``; ``flip`` waits for the wrong
    parity at ``full``; ``early`` releases a stage before it is read.
    """
    full = [Mbarrier(0, 8 * each) for each in range(stages)]
    empty = [Mbarrier(0, 8 * (stages + each)) for each in range(stages)]
    count = consumers if arrivals is None else arrivals
    producer: list[Event] = []
    for stage in range(stages):
        producer += [MbarrierInit(full[stage], 1), MbarrierInit(empty[stage], count)]
    producer.append(Sync(Barrier(0, 0), 32))
    others: list[list[Event]] = [[Sync(Barrier(0, 0), 32)] for _ in range(consumers)]
    for each in range(iterations):
        stage, turn = each % stages, each // stages
        parts = [
            Span("shared:0", 4096 * stage + 512 * part, 4096 * stage + 512 * (part + 1))
            for part in range(copies)
        ]
        producer.append(MbarrierWait(empty[stage], parity=(turn & 1) ^ 1))
        producer.append(MbarrierArrive(full[stage], expect=512 * copies))
        for part, span in enumerate(parts):
            source = Access(reads=(Span("global", 0, 64),), proxy=Proxy.ASYNC)
            write = Access(writes=(span,), proxy=Proxy.ASYNC)
            events = (source, ReadDone(), write, CompleteTx(full[stage], 512))
            producer.append(Issue(Unit((each, part), "cp.async.bulk", events)))
        for one in others:
            one.append(MbarrierWait(full[stage], parity=(turn & 1) ^ flip))
            read, release = Access(reads=tuple(parts)), MbarrierArrive(empty[stage])
            one += [release, read] if early else [read, release]
    agents = [Agent("warp 0", 0, 32, Events([*producer, Exit(32)]))]
    for number, one in enumerate(others, 1):
        agents.append(Agent(f"warp {number}", 0, 32, Events([*one, Exit(32)])))
    return Program(agents)
