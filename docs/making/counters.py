"""The tables of metrics, and how they compare with Nsight Compute's."""

from __future__ import annotations

import sys

from making.markdown import ROOT, table

sys.path.insert(0, str(ROOT))

from fragmenta.values.counters.metrics import EVERY
from tests.counters import nsight


def metrics() -> str:
    """Every metric, what it counts, and Nsight's if that has another name."""
    rows = [
        [f"`{each.name}`", each.what, "" if each.traffic else f"`{each.nsight}`"]
        for each in EVERY.values()
    ]
    return table(["metric", "what", "machine instructions"], rows)


def compared() -> str:
    """How each metric compares with the GPU's."""
    rows = []
    for each in nsight.compared(nsight.FITTED):
        if not each.launches:
            continue
        apart = (
            ""
            if each.equal == each.launches
            else f"{each.least:.2f} to {each.most:.2f}"
        )
        row = [f"`{each.metric.name}`", str(each.launches), str(each.equal), apart]
        rows.append(row)
    head = ["metric", "launches", "equal", "ours divided by the GPU's"]
    return table(head, rows)


def reasons() -> str:
    """Why counts differ, and on how many launches each."""
    found: dict[str, set[str]] = {}
    rows_of = [nsight.report(each)["launches"] for each in _BOTH]
    for name, row in (row for each in rows_of for row in each.items()):
        for metric, (ours, its) in row["metrics"].items():
            if its is not None and ours != its and EVERY[metric].traffic:
                why = nsight.reason(name, metric) or "not known"
                found.setdefault(why, set()).add(name)
    rows = [
        [why[0].upper() + why[1:], ", ".join(f"`{each}`" for each in sorted(names))]
        for why, names in found.items()
    ]
    return table(["reason", "launches"], rows)


_BOTH = (nsight.FITTED, nsight.HELD_OUT)


def held_out() -> str:
    """How predictions compare with what the GPU counted afterwards."""
    said = nsight.predictions()
    launches = nsight.report(nsight.HELD_OUT)["launches"]
    now = sum(
        ours == its
        for row in launches.values()
        for name, (ours, its) in row["metrics"].items()
        if EVERY[name].traffic and its is not None
    )
    gone = len(said) - sum(
        EVERY[name].traffic and its is not None
        for row in launches.values()
        for name, (_, its) in row["metrics"].items()
    )  # counts that are 0 here and there by now
    equal = sum(map(sum, groups().values()))
    blocks = sum(row["blocks"][0] == row["blocks"][1] for row in launches.values())
    rows = [[name, str(len(each)), str(sum(each))] for name, each in groups().items()]
    head = (
        f"{len(launches)} other launches were counted here first, and then by the GPU. "
        f"Of {len(said)} counts of traffic, {equal} were predicted rightly "
        f"({100 * equal / len(said):.1f} %); of blocks that fit on a processor, "
        f"{blocks} of {len(launches)}. After what they showed was mended, "
        f"{now + gone} are equal."
    )
    table_of = table(["counts", "predicted", "equal"], rows)
    return f"{head}\n\n{table_of}"


def groups() -> dict[str, list[bool]]:
    """What was predicted, by what it is about: whether each count was right."""
    found: dict[str, list[bool]] = {}
    for _, metric, ours, its in nsight.predictions():
        found.setdefault(_group(metric), []).append(ours == its)
    return found


def _group(metric: str) -> str:
    """What a metric is about, in a word or two."""
    for part, name in (
        ("bank_conflicts", "bank conflicts"),
        ("mem_shared", "passes of shared memory"),
        ("tensor", "operations of Tensor Cores"),
        ("tma", "bytes of bulk copies"),
        ("op_ld", "loads: requests and sectors, `cp.async`, `ldmatrix`"),
        ("op_st", "stores: requests and sectors"),
    ):
        if part in metric:
            return name
    return "atomics: requests and sectors"


def sentence() -> str:
    """What was compared, when and where."""
    report = nsight.report()
    launches = report["launches"].values()
    pairs = [
        both
        for row in launches
        for name, both in row["metrics"].items()
        if EVERY[name].traffic and both[1] is not None
    ]
    equal = sum(ours == its for ours, its in pairs)
    blocks = sum(row["blocks"][0] == row["blocks"][1] for row in launches)
    made = report["made"]
    return (
        f"{len(report['launches'])} launches were counted on {made['date']} by Nsight "
        f"Compute ({made['ncu']}) on an {made['gpu'].partition(',')[0]}. Of the "
        f"{len(pairs)} counts of traffic that are not 0, {equal} are equal "
        f"({100 * equal / len(pairs):.1f} %). The blocks that fit on a processor are "
        f"the same for {blocks} of {len(report['launches'])}."
    )
