"""All that is known about an instruction as plain values, for JSON.

``op.to_dict()``, ``fragmenta show --json`` and ``fragmenta list --full --json`` give
this record.  ``docs/reference/instruction.schema.json`` describes it.  ``SCHEMA`` is
its version: a key that is removed or changes its meaning makes it one larger, a new key
does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from fragmenta.errors import Error, LayoutError
from fragmenta.frontends.api.calls import call_line
from fragmenta.reference.isa.instruction import Instruction, Operand
from fragmenta.reference.isa.possible import possible_shapes, possible_types, types_of
from fragmenta.reference.isa.sass import sass
from fragmenta.reference.isa.tables import tcgen05_mma
from fragmenta.reference.isa.tables.wgmma import operands_from
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.tensor_fragment import TensorFragment

SCHEMA = 1
"""The version of the record."""

Record = dict[str, object]


def brief(op: Instruction) -> Record:
    """The keys of the record that cost nothing to find out.

    >>> import fragmenta as fm
    >>> found = brief(fm.mma("m16n8k16", a="f16", d="f32"))
    >>> found["shape"], found["size"], found["requires"]
    ('m16n8k16', {'m': 16, 'n': 8, 'k': 16}, {'ptx': '7.0', 'targets': 'sm_80+'})
    """
    targets = op.requires.targets
    return {
        "instruction": str(op),
        "family": op.family,
        "shape": op.values.get("shape") or None,
        "size": dict(op.shape._asdict()) if has_shape(op) else None,
        "types": types_of(op),
        "requires": {"ptx": str(op.requires.ptx), "targets": op.requires.text},
        "targets": {each: str(op.requires.ptx_on(each)) for each in targets},
    }


def record(op: Instruction) -> Record:
    """The whole record of an instruction as users have it.

    >>> import fragmenta as fm
    >>> found = record(fm.mma("m16n8k16", a="f16", d="f32"))
    >>> found["schema"], list(found["fragments"])
    (1, ['A', 'B', 'C', 'D'])
    """
    # A list of instructions needs none of it.
    from fragmenta.reference.execution.summing import sums

    targets = op.requires.targets
    forms = {**operand_forms(op), **_extra(op)}
    found = {
        "schema": SCHEMA,
        **brief(op),
        "native": [each for each in targets if op.native_on(each)],
        "expanded": {e: to for e in targets if (to := op.expanded_to(e)) is not None},
        "sass": {each: sass(op, each).to_dict() for each in targets},
        "sparsity": _sparsity(op),
        "operands": {name: [asdict(e) for e in some] for name, some in forms.items()},
        "fragments": {n: _fragment(part) for n, part in op.fragments.items()},
        "python": python_calls(op),
        "notes": list(op.notes),
        "sums": [each.to_dict() for each in sums(op)] if multiplies(op) else None,
        "certainty": certainty(op) or None,
        "possible": _possible(op),
        "descriptor": _descriptor(op),
    }
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: object) -> object:
    """The same with lists for tuples, as JSON reads it back."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def has_shape(op: Instruction) -> bool:
    """Whether M, N and K are known: a descriptor may be needed, a move has none."""
    return bool(op.fragments) and "shape" in op.values


def multiplies(op: Instruction) -> bool:
    """Whether it multiplies matrices of a known shape."""
    return op.multiplies and has_shape(op)


def _sparsity(op: Instruction) -> Record | None:
    found = op.granularity if has_shape(op) else None
    return None if found is None else {**vars(found), "selectors": op.selectors}


def operand_forms(op: Instruction) -> Mapping[str, Iterable[Operand]]:
    """The operand lists: two where A may be in registers or in shared memory."""
    if op.tensor_memory:
        shifted = bool(op.values.get("ashift"))
        tensor = {"A in tensor memory": tcgen05_mma.operands_from(op, tensor_a=True)}
        shared = {"A in shared memory": tcgen05_mma.operands_from(op)}
        return tensor if shifted else shared | tensor
    if not op.warpgroup:
        return {"operands": op.operands}
    return {
        "A in shared memory": operands_from(op, registers=False),
        "A in registers": operands_from(op, registers=True),
    }


def optional_operands(op: Instruction) -> list[Operand]:
    """The operands of a ``tcgen05.mma`` that may be left out."""
    if not op.tensor_memory:
        return []
    needed = {each.name for each in op.operands}
    every = {each.name: each for each in tcgen05_mma.lists(op)[-1]}
    return [each for name, each in every.items() if name not in needed]


def _extra(op: Instruction) -> dict[str, list[Operand]]:
    optional = optional_operands(op)
    return {"optional": optional} if optional else {}


def _fragment(part: Fragment) -> Record:
    sizes: Record = {
        "registers": part.registers,
        "register_bits": part.register_bits,
        "elements_per_register": part.elements,
    }
    if isinstance(part, TensorFragment):
        sizes = {"columns": part.columns, "elements_per_cell": part.elements}
        sizes["ctas"] = 2 if part.pair else 1
    return {
        "type": part.dtype.name,
        "shape": list(part.shape),
        "lanes": part.lanes,
        **sizes,
        "selectors": {name: part.layout.sizes[name] for name in part.selectors},
        "layout": str(part.layout),
        "formula": part.formula(),
        "cute": part.to_cute(),
        "linear_layout": linear_layout(part),
        "observed": part.observed or None,
    }


def linear_layout(part: Fragment) -> dict[str, list[tuple[int, ...]]] | None:
    """The linear layout, or None if a size is not a power of two."""
    try:
        return part.to_linear_layout()
    except LayoutError:
        return None


def python_calls(op: Instruction) -> dict[str, str]:
    """How the methods of a public instruction are called."""
    found = {"execute": call_line(op)}
    if multiplies(op):
        found |= {
            "matrices": call_line(op, "__call__"),
            "explain": call_line(op, "explain"),
        }
    return {name: call for name, call in found.items() if call}


def certainty(op: Instruction) -> dict[str, str]:
    """How sure each statement about a ``tcgen05`` is, the numbers included."""
    found = {name: str(each) for name, each in op.certainty.items()}
    if op.descriptor is not None:
        from fragmenta.reference.execution.mma import numeric_model

        try:
            found["numbers"] = numeric_model(op, op.requires.targets[0]).source
        except Error as why:
            found["numbers"] = f"open: {why}"
    return found


def _possible(op: Instruction) -> Record | None:
    """The types and shapes that a descriptor may give the mnemonic."""
    if not op.tensor_memory or op.descriptor is not None:
        return None
    shapes = [str(each) for each in possible_shapes(op)]
    return {"types": list(possible_types(op)), "shapes": shapes}


def _descriptor(op: Instruction) -> Record | None:
    """What the instruction descriptor says."""
    if op.descriptor is None:
        return None
    return {
        "word": f"{op.idesc:#010x}",
        "layout_letter": op.layout_letter,
        "cta_group": op.cta_group,
        "fields": {each.name: each.value for each in op.descriptor.fields()},
    }
