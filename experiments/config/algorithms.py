"""Look up the algorithms that ``config.algorithms`` names.

A name is that of a factory in ``fcojax.algorithms``, a label that the experiment defines, or
``MODULE:FACTORY`` for any module that can be imported, also from the current folder.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import fcojax
from experiments.process.errors import suggest
from experiments.study import Sweep
from fcojax.algorithms import Algorithm
from fcojax.algorithms.base import Factory
from fcojax.problems.losses import Loss

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
    known = library() | _labelled(sweep.algorithms)
    found: dict[str, Factory] = {}
    named: dict[str, str] = {}
    for name in names:
        label = name.rpartition(":")[2]
        if named.setdefault(label, name) != name:
            raise ValueError(
                f"{named[label]} and {name} are both called {label} in rows and figures; "
                "give one of them another name."
            )
        if ":" in name:
            thing = imported(name)
        elif name in known:
            thing = known[name]
        else:
            raise ValueError(f"there is no algorithm {name}; {suggest(name, known)}")
        found[label] = _checked(name, thing)
    return found


def build(label: str, factory: Factory, loss: Loss, known: Mapping[str, Any]) -> Algorithm:
    """Call a factory with the loss and the geometry that it declares."""
    # A factory whose Hparams were set without takes() is called with only the loss.
    names: tuple[str, ...] = getattr(factory, "geometry", ())
    given = [loss, *(known[name] for name in names)]
    try:
        inspect.signature(factory).bind(*given)
    except TypeError as error:
        raise ValueError(
            f"{label} cannot be called with {', '.join(('the loss', *names))}: {error}; name the "
            "geometry it takes after the loss, as in takes(HPARAMS, 'mirror')."
        ) from None
    algorithm = factory(*given)
    if not isinstance(algorithm, Algorithm):
        raise ValueError(
            f"{label} returned a {type(algorithm).__name__}, not an Algorithm; if it returns a "
            "factory, call it in your module and name the result."
        )
    return algorithm


def _labelled(algorithms: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return an experiment's own algorithms by label; the label of a listed one is its name."""
    if not isinstance(algorithms, Mapping):
        unnamed = [one for one in algorithms if not hasattr(one, "__name__")]
        if unnamed:
            raise ValueError(
                f"an algorithm of the experiment is a {type(unnamed[0]).__name__} without a name; "
                "list factories, or pass a dict with their labels."
            )
        algorithms = {one.__name__: one for one in algorithms}
    for label in algorithms:
        if not re.fullmatch(r"[\w.-]+", label):  # files are named after it
            raise ValueError(f"{label!r} cannot label an algorithm; use letters, digits and _.-")
    return dict(algorithms)


def imported(name: str) -> Any:
    """Import what ``MODULE:FACTORY`` names."""
    if not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
        raise ValueError(f"{name!r} names no algorithm; write MODULE:FACTORY, as in mine:scaffold.")
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"{name} cannot be imported: {error}.") from None
    if not hasattr(module, attribute):
        public = [one for one in vars(module) if not one.startswith("_")]
        raise ValueError(f"{module_name} has no {attribute}; {suggest(attribute, public)}")
    return getattr(module, attribute)


def _checked(name: str, factory: Any) -> Factory:
    """Return the factory; raise ``ValueError`` if the object is not one."""
    if isinstance(factory, Algorithm):
        raise ValueError(
            f"{name} is an algorithm that has been built already; name its factory, which the "
            "launcher calls with the problem's loss."
        )
    if not callable(factory):
        raise ValueError(f"{name} is not a factory (its type is {type(factory).__name__}); {_HOW}.")
    if not hasattr(factory, "Hparams"):
        raise ValueError(f"{name} has no Hparams; {_HOW}.")
    if not hasattr(factory.Hparams, "_fields"):
        raise ValueError(f"the Hparams of {name} must be a NamedTuple of numbers.")
    return factory  # pyright: ignore[reportReturnType]
