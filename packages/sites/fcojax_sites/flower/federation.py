"""The agreement between the server and the sites of a federation, and how a difference is found.

Both build the same ``Federation`` from the same code. Before the first round they compare versions,
the names and numbers in the algorithm and the plan, and the program of a site.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from fcojax.algorithms import Algorithm
from fcojax.extend import as_arrays, as_plan, at_round, checked_value, is_schedule, shown
from fcojax.problems.losses import Loss
from fcojax.transforms import Penalty
from fcojax.types import Params, PyTree

VERSION = "1"  # the version of the messages


@dataclasses.dataclass(frozen=True, eq=False)
class Federation:
    """An algorithm and a plan for sites that keep their rows.

    The server and all sites build it from the same code.

    Attributes:
      algorithm: the algorithm that the server and the sites run.
      plan: how rounds are run: a ``Plan``, or a ``Work`` if all sites take part.
      hparams: its hyperparameters. Only the server's values are used; it sends them in every round.
      params: the start point. Only the server's values are used; sites use the shapes.
      loss: one loss per example, for the certificate; ``None`` without one.
      penalty: psi, for the certificate.
      weights: the p_m; only the server's are used. With a dict by the names of the sites, no other
        site takes part; all other forms are as for ``fcojax.from_rows``, in the order of the sites'
        names. ``"examples"`` uses the numbers of rows that the sites state.
      sums: functions ``(rows, given) -> arrays`` by name, which sum over the rows of a site, with
        arrays by name ``given`` by the server; see ``Sums``.

    Example:
      >>> import fcojax, fcojax_sites, jax.numpy as jnp
      >>> from fcojax.transforms import euclidean, l1
      >>> loss = lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2
      >>> algorithm = fcojax.algorithms.fed_dual_avg(loss, euclidean(l1()))
      >>> federation = fcojax_sites.flower.Federation(
      ...     algorithm, fcojax.local_steps(5), algorithm.hparams_type(), jnp.zeros(20), loss, l1())
      >>> federation.plan.work.num_steps
      5
    """

    example: ClassVar[str] = "fcojax_sites.flower.Federation(algorithm, plan, hparams, params)"

    algorithm: Algorithm
    plan: Any
    hparams: Any
    params: Params
    loss: Loss | None = None
    penalty: Penalty | None = None
    weights: Any = None
    sums: Any = None

    def __post_init__(self):
        checked_value("algorithm", self.algorithm, Algorithm)
        if (self.loss is None) != (self.penalty is None):
            raise ValueError(
                "the certificate needs both the loss and the penalty; pass both, or neither."
            )
        plan = as_plan(self.plan)
        object.__setattr__(self, "plan", plan)
        object.__setattr__(self, "hparams", as_arrays(self.hparams))
        object.__setattr__(self, "params", jax.tree.map(jnp.asarray, self.params))
        if self.plan.work.by_round is not None:
            raise ValueError("real sites do not know the round; pass local steps without by_round.")

    def hparams_at(self, index: int) -> PyTree:
        """Return the hyperparameters of a round."""
        short = [leaf.values for leaf in self.hparams if is_schedule(leaf)]
        if any(len(values) <= index for values in short):
            raise ValueError(
                f"a schedule of the hyperparameters ends before round {index + 1}; make it longer."
            )
        return at_round(self.hparams, index)

    @functools.cached_property
    def description(self) -> dict[str, str]:
        """The facts that must be equal at the server and at all sites, by name."""
        facts = {
            "messages": VERSION,
            "fcojax": fcojax.__version__,
            "fcojax-sites": importlib.import_module("fcojax_sites").__version__,
            "jax": jax.__version__,
            "precision": str(jnp.result_type(float)),
            # Before its parts, whose names say less.
            "method": getattr(self.algorithm.facts.factory, "__name__", ""),
        }
        parts = {
            "algorithm": self.algorithm,
            "plan": self.plan,
            "loss": self.loss,
            "penalty": self.penalty,
            "hparams": type(self.hparams),
            "params": jax.tree.map(_form, self.params),
            "sums": self.sums,
        }
        return facts | dict(described(parts, "", set()))

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the description."""
        return _hash(json.dumps(self.description, sort_keys=True))


def described(value: Any, path: str, above: set[int]) -> Iterator[tuple[str, str]]:
    """Yield the names of functions and the numbers in a value, each with its place.

    Numbers in the closure of a function are included; its code is not, since it differs between
    versions of Python.

    Args:
      value: anything; functions, named tuples, dataclasses, containers and arrays are entered.
      path: the place of the value.
      above: ids of the values that contain it, which are not entered again.

    Example:
      >>> def power(exponent):
      ...     return lambda x: x**exponent
      >>> dict(described(power(3), "loss", set()))
      {'loss': 'power.<locals>.<lambda>', 'loss.exponent': '3'}
    """
    if id(value) in above:
        return
    above = above | {id(value)}

    def inside(parts: Any) -> Iterator[tuple[str, str]]:
        for name, part in parts:
            yield from described(part, f"{path}.{name}" if path else str(name), above)

    if value is None or isinstance(value, bool | int | float | str | bytes | np.dtype):
        yield path, repr(value)
    elif isinstance(value, jax.Array | np.ndarray | np.generic):
        array = np.asarray(value)
        shown_value = _hash(array.tobytes())[:12] if array.ndim else array
        yield path, f"{_form(array)} {shown_value}"
    elif isinstance(value, type):
        yield path, value.__qualname__
    elif isinstance(value, functools.partial):
        yield from inside([("function", value.func), *enumerate(value.args)])
        yield from inside(sorted(value.keywords.items()))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield path, type(value).__qualname__
        fields: Any = type(value)
        yield from inside(zip(fields._fields, value, strict=True))
    elif isinstance(value, list | tuple):
        yield from inside(enumerate(value))
    elif isinstance(value, dict):
        yield from inside(sorted((str(name), part) for name, part in value.items()))
    elif dataclasses.is_dataclass(value):
        yield path, type(value).__qualname__
        yield from inside((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    elif hasattr(value, "__wrapped__"):  # jitted, memoised or checked: what is inside of it
        yield from described(value.__wrapped__, path, above)
    elif hasattr(value, "__code__"):
        yield path, value.__qualname__
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        yield from inside((name, _contents(cell)) for name, cell in cells)
        yield from inside(sorted((value.__kwdefaults__ or {}).items()))
        yield from inside(enumerate(value.__defaults__ or ()))
    elif hasattr(value, "__func__"):  # a method
        yield from inside([("method", value.__func__), ("of", value.__self__)])
    else:
        yield path, type(value).__qualname__


def difference(here: dict[str, str], there: dict[str, str], where: str) -> str | None:
    """Return the first difference between two descriptions in words, or ``None``.

    Args:
      here: the current description, or the server's.
      there: the other description.
      where: the place of the first, in words.
    """
    for place in [*here, *(place for place in there if place not in here)]:
        ours, theirs = here.get(place, "absent"), there.get(place, "absent")
        if ours != theirs:
            return f"{place} is {shown(theirs)} there and {shown(ours)} {where}"
    return None


def program_hash(function: Any, *args: Any) -> str:
    """Return a hash of the program that JAX traces of a function, with the backend it is for.

    Args:
      function: any function that JAX can trace.
      *args: its arguments, or their shapes.
    """
    traced = jax.make_jaxpr(function)(*args)
    text = re.sub(r"0x[0-9a-f]+", "", str(traced))
    constants = [np.asarray(constant).tobytes() for constant in traced.consts]
    return f"{jax.default_backend()} {_hash(text.encode() + b''.join(constants))}"


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the function is not complete yet
        return None


def _form(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _hash(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()
