"""Shows what a launch with numerics found."""

from __future__ import annotations

import json

from fragmenta.launch.result import Result


def numerics_fields(result: Result) -> dict[str, object]:
    """What was found, as a field of JSON; nothing without numerics."""
    if result.numerics is None:
        return {}
    found = json.loads(result.numerics.to_json())
    found["problems"] = [each.to_dict() for each in result.numerics.problems]
    return {"numerics": found}
