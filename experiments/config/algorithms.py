"""Look up the algorithms that ``config.algorithms`` names.

A name is that of a factory in ``fcojax.algorithms``, a label that the experiment defines, or
``MODULE:FACTORY`` for any module that can be imported, also from the current folder.
"""

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import fcojax
from experiments.process.invocation import suggest
from experiments.study import Sweep
from fcojax.algorithms.base import Factory

_HOW = "decorate the function that builds the algorithm with fcojax.algorithms.takes(HPARAMS)"


def library() -> dict[str, Factory]:
    """Return the factories in ``fcojax.algorithms`` by name."""
    return {
        name: value for name, value in vars(fcojax.algorithms).items() if hasattr(value, "Hparams")
    }


def find(names: str | Sequence[str], sweep: Sweep) -> dict[str, Factory]:
    """Return the factory of each name, by label; raise ``ValueError`` for the first mistake.

    The label of ``MODULE:FACTORY`` is ``FACTORY``. A name may be several, separated by commas.
    """
    entries = [names] if isinstance(names, str) else list(names)
    names = [name.strip() for entry in entries for name in str(entry).split(",") if name.strip()]
    if not names:
        raise ValueError("algorithms is empty; name at least one.")
    own: Any = sweep.algorithms
    own = own if isinstance(own, Mapping) else {one.__name__: one for one in own}
    known = library() | dict(own)
    found: dict[str, Factory] = {}
    for name in dict.fromkeys(names):
        label = name.rpartition(":")[2]
        if label in found:
            raise ValueError(f"two algorithms are called {label} in rows and figures; rename one.")
        if ":" not in name and name not in known:
            raise ValueError(f"there is no algorithm {name}; {suggest(name, known)}")
        factory = _imported(name) if ":" in name else known[name]
        if not re.fullmatch(r"[\w.-]+", label):  # files are named after it
            raise ValueError(f"{label!r} cannot label an algorithm; use letters, digits and _.-")
        if not hasattr(getattr(factory, "Hparams", None), "_fields"):
            raise ValueError(f"{name} has no Hparams that are a NamedTuple of numbers; {_HOW}.")
        found[label] = factory
    return found


def _imported(name: str) -> Any:
    """Import what ``MODULE:FACTORY`` names."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        found = importlib.import_module(module)
    except (ImportError, SyntaxError, ValueError) as error:
        raise ValueError(f"{name} cannot be imported: {error}.") from None
    if not hasattr(found, attribute):
        public = [one for one in vars(found) if not one.startswith("_")]
        raise ValueError(f"{module} has no {attribute}; {suggest(attribute, public)}")
    return getattr(found, attribute)
