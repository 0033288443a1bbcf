"""From the names in ``config.algorithms`` to the factories that they stand for."""

from collections.abc import Sequence

import fcojax
from experiments.study import Sweep, Variant
from experiments.suggestions import suggest
from fcojax.algorithms.base import Factory


def library() -> dict[str, Factory]:
    """The factories in ``fcojax.algorithms`` by name."""
    return {
        name: value for name, value in vars(fcojax.algorithms).items() if hasattr(value, "Hparams")
    }


def find(names: Sequence[str], sweep: Sweep) -> dict[str, Variant]:
    """What each name stands for, by label; raises ``ValueError`` in a sentence."""
    known = library() | dict(sweep.algorithms)
    for name in names:
        if name not in known:
            raise ValueError(f"there is no algorithm {name}; {suggest(name, known)}")
    return {
        name: known[name] if isinstance(known[name], Variant) else Variant(known[name])
        for name in names
    }
