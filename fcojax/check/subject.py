"""What is checked: a factory, the geometry it is given, and hyperparameters to try it at."""

import difflib
import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

import fcojax.algorithms
from fcojax.algorithms.base import Algorithm, Factory
from fcojax.engine.check import check_hparams
from fcojax.problems.problem import Loss
from fcojax.transforms import Mirror, Penalty, euclidean, flat, l1, sphere

# Rates by which a server scales what it has heard; clients do not know them.
NOT_OF_CLIENTS = ("server_lr",)

_BUILT = "an algorithm that has been built"


class Finding(NamedTuple):
    """What came of one law.

    Attributes:
      holds: whether it holds, or ``None`` if it does not apply.
      sentence: what was found, for a reader.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_split)
      >>> fcojax.check.limits(subject, num_rounds=20)["half the clients"]
      Finding(holds=None, sentence='it needs every client in every round')
    """

    holds: bool | None
    sentence: str


class Subject(NamedTuple):
    """An algorithm, as it is checked.

    Attributes:
      name: what it is called.
      build: ``(loss) -> Algorithm``, with a penalty or on a manifold if it takes one.
      in_plain_space: the same, with the flat manifold in place of a curved one.
      counting: the same, with proxes that can be told in a traced program by their name.
      numbers: hyperparameters by name; the others have their defaults.
      takes: which geometry it takes: ``penalty``, ``mirror``, ``manifold`` or nothing.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_dual_avg)
      >>> subject.name, subject.takes, subject.composite
      ('fed_dual_avg', ('mirror',), True)
    """

    name: str
    build: Callable[[Loss | None], Algorithm]
    in_plain_space: Callable[[Loss | None], Algorithm]
    counting: Callable[[Loss | None], Algorithm]
    numbers: dict[str, float]
    takes: tuple[str, ...]

    @property
    def composite(self) -> bool:
        """Whether it minimises a penalty as well."""
        return bool({"penalty", "mirror"} & {*self.takes})

    def hparams(self, **numbers: float) -> Any:
        """Its hyperparameters at these numbers, as far as it has them."""
        kind = self.build(None).hparams_type
        known = {name: value for name, value in numbers.items() if name in kind._fields}
        return kind(**(known | self.numbers))


def subject_of(factory: Factory, geometry: Any = None, /, **numbers: float) -> Subject:
    """The subject that a factory makes.

    Args:
      factory: decorated with ``takes``.
      geometry: what it is given after the loss; by default what it says that it takes: an l1 norm,
        its Euclidean mirror, or the sphere.
      numbers: hyperparameters to check it at.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(
      ...     fcojax.algorithms.scaffold, fcojax.transforms.elastic_net(0.5), client_lr=0.05)
      >>> subject.hparams()
      PenalisedRates(client_lr=0.05, server_lr=1.0, penalty_scale=0.1)
    """
    _refuse_no_factory(factory)
    wanted = tuple(getattr(factory, "geometry", ()))
    given: dict[str, Any] = {"penalty": l1(), "mirror": euclidean(l1()), "manifold": sphere()}
    pieces = [given[name] for name in wanted]
    pieces = pieces if geometry is None else [geometry]
    plain = [
        flat() if name == "manifold" else one for name, one in zip(wanted, pieces, strict=True)
    ]
    unknown = [name for name in numbers if name not in factory.Hparams._fields]  # pyright: ignore
    if unknown:
        fields = ", ".join(factory.Hparams._fields)  # pyright: ignore
        raise ValueError(f"there is no hyperparameter {unknown[0]}; pass some of {fields}.")
    return Subject(
        getattr(factory, "__name__", "algorithm"),
        lambda loss: factory(loss, *pieces),
        lambda loss: factory(loss, *plain),
        lambda loss: factory(loss, *map(_counted, pieces)),
        numbers,
        wanted,
    )


def _refuse_no_factory(given: Any) -> None:
    """Raises ``ValueError`` at an algorithm, a name, or anything else that cannot be called."""
    wanted = "pass its factory, the function that builds it from a loss"
    if isinstance(given, Algorithm):
        raise ValueError(f"subject_of was given {_BUILT}; {wanted}.")
    if isinstance(given, str):
        raise ValueError(f"subject_of was given the name {given!r}; {wanted}.")
    if not callable(given):
        raise ValueError(f"subject_of was given a {type(given).__name__}; {wanted}.")


COUNTED = "prox_to_be_counted"


def _counted(piece: Any) -> Any:
    """The same penalty or mirror, whose prox is a function of this name in traced programs."""
    field = {Penalty: "prox", Mirror: "to_primal"}.get(type(piece))
    if field is None:
        return piece
    function = getattr(piece, field)

    def prox(v, step, scale):
        return function(v, step, scale)

    prox.__name__ = COUNTED
    return piece._replace(**{field: jax.jit(prox)})


def found_factory(name: str) -> Factory:
    """The factory that a name in ``fcojax.algorithms``, or ``MODULE:FACTORY``, means."""
    module_name, colon, attribute = name.rpartition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").replace(os.sep, ".")
        raise ValueError(f"{name} names a file; write it without .py, as {dotted}:{attribute}.")
    try:
        module = importlib.import_module(module_name) if colon else fcojax.algorithms
    except Exception as error:  # whatever a stranger's module raises
        raise ValueError(f"{name} cannot be imported: {_why_not(error, module_name)}") from None
    if not hasattr(module, attribute):
        known = [known for known in vars(module) if not known.startswith("_")]
        close = difflib.get_close_matches(attribute, known, n=1)
        own = "" if colon else " For one of your own write MODULE:FACTORY, as in mine:scaffold."
        advice = f"did you mean {close[0]}?" if close else "name one of its factories."
        raise ValueError(f"{module.__name__} has no {attribute}; {advice}{own}")
    factory = getattr(module, attribute)
    if isinstance(factory, Algorithm):
        raise ValueError(f"{name} is {_BUILT}; name its factory.")
    if not callable(factory) or not hasattr(getattr(factory, "Hparams", None), "_fields"):
        raise ValueError(
            f"{name} is no factory with Hparams; decorate the function that builds the algorithm "
            "with fcojax.algorithms.takes(HPARAMS)."
        )
    if not inspect.signature(factory).parameters:
        raise ValueError(f"{name} takes no loss; give it one as its first argument.")
    return factory  # pyright: ignore[reportReturnType]


def _why_not(error: Exception, module_name: str) -> str:
    """What a module that cannot be imported lacks."""
    package = module_name.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name in (package, module_name):
        return f"there is no module {error.name}; run it in the folder that {error.name}.py is in."
    return str(error) if isinstance(error, SyntaxError) else located(error)


def refuse_what_cannot_be_built(subject: Subject) -> None:
    """Raises ``ValueError`` unless the factory builds an algorithm whose numbers are all fit.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_avg)
      >>> refuse_what_cannot_be_built(subject._replace(build=lambda loss: None))
      Traceback (most recent call last):
      ValueError: fed_avg returned a NoneType; return a fcojax.algorithms.Algorithm.
    """
    try:
        built = subject.build(None)
    except Exception as error:  # whatever a stranger's factory raises
        raise ValueError(f"{subject.name} cannot be built: {located(error)}") from None
    if not isinstance(built, Algorithm):
        raise ValueError(
            f"{subject.name} returned a {type(built).__name__}; return a "
            "fcojax.algorithms.Algorithm."
        )
    kind = built.hparams_type
    known = {*kind._field_defaults, *subject.numbers, "client_lr"}
    missing = [name for name in kind._fields if name not in known]
    if missing:
        raise ValueError(
            f"{subject.name} needs {missing[0]}, which has no default; pass --{missing[0]}=NUMBER."
        )
    check_hparams(subject.hparams(client_lr=0.05))


def located(error: BaseException) -> str:
    """The error in a line, with the last line of its own code that a stranger can change."""
    frames = traceback.extract_tb(error.__traceback__)
    installed = (sysconfig.get_paths()[name] for name in _INSTALLED)
    ours = (os.path.dirname(fcojax.__file__), "<frozen", *installed)
    theirs = [frame for frame in frames if not frame.filename.startswith(ours)] or frames
    where = f" in {os.path.basename(theirs[-1].filename)}, line {theirs[-1].lineno}"
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}{where}: {said[0] if said else 'no message'}"


_INSTALLED = ("stdlib", "purelib", "platlib")
