"""Subjects of a check: a factory, the geometry it is given, and hyperparameters."""

import contextlib
import difflib
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

import fcojax.algorithms
from fcojax import Sampler
from fcojax.algorithms import Algorithm
from fcojax.algorithms.base import Factory
from fcojax.arguments import field_annotations, numbers_of, shown, validated
from fcojax.engine.hparams import as_arrays
from fcojax.problems.losses import Loss
from fcojax.transforms import Manifold, Mirror, Penalty, euclidean, flat, l1, sphere
from fcojax.types import Positive
from fcojax.uploads import Compressor


class Finding(NamedTuple):
    """The result of one law.

    Attributes:
      holds: whether it holds, or ``None`` if it does not apply.
      sentence: the result in words.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_split)
      >>> fcojax.check.limits(subject, num_rounds=20)["half the clients"]
      Finding(holds=None, sentence='it needs every client in every round')
    """

    holds: bool | None
    sentence: str


class Subject(NamedTuple):
    """An algorithm with the geometry and the hyperparameters at which it is checked.

    Attributes:
      name: the factory's name.
      build: ``(loss) -> Algorithm``, with its penalty, mirror or manifold.
      in_plain_space: the same, with Euclidean space in place of a manifold.
      counting: the same, with proxes that have a name in a traced program, to count them.
      numbers: hyperparameters by name; the others have their defaults.
      takes: the geometry that it takes: ``penalty``, ``mirror``, ``manifold`` or nothing.

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
        """Whether the objective has a penalty."""
        return bool({"penalty", "mirror"} & {*self.takes})

    @property
    def client_rates(self) -> list[str]:
        """The hyperparameters that are rates or steps of the clients.

        They are the fields annotated ``Positive`` and, in any case, ``client_lr``; not
        ``server_lr``, which only the server uses.
        """
        kind = self.build(None).hparams_type
        kinds = (kind, *getattr(kind, "extends", ()))
        positive = {
            name
            for annotations in map(field_annotations, kinds)
            for name, annotation in annotations.items()
            if numbers_of(annotation) == numbers_of(Positive)
        }
        rates = (positive | {"client_lr"}) - {"server_lr"}
        return [name for name in kind._fields if name in rates]

    def hparams(self, **numbers: float) -> Any:
        """Return the hyperparameters at these numbers; names that it lacks are ignored.

        Args:
          numbers: hyperparameters by name; those of the subject take precedence.
        """
        kind = self.build(None).hparams_type
        known = {name: value for name, value in numbers.items() if name in kind._fields}
        return kind(**(known | self.numbers))


@validated
def subject_of(
    factory: Factory, geometry: Penalty | Mirror | Manifold | None = None, /, **numbers: float
) -> Subject:
    """Return a factory's algorithms as a subject of checks.

    Args:
      factory: the function that builds the algorithm from a loss, decorated with ``takes``.
      geometry: its argument after the loss; by default an l1 norm, the Euclidean mirror of one, or
        the sphere, depending on what the factory takes.
      numbers: hyperparameters by name; the others have their defaults.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(
      ...     fcojax.algorithms.scaffold, fcojax.transforms.elastic_net(0.5), client_lr=0.05)
      >>> subject.hparams()
      ScaffoldHparams(client_lr=0.05, server_lr=1.0, penalty_scale=0.1)
    """
    takes = tuple(getattr(factory, "geometry", ()))
    defaults: dict[str, Any] = {"penalty": l1(), "mirror": euclidean(l1()), "manifold": sphere()}
    pieces = [defaults[name] for name in takes] if geometry is None else [geometry]
    if len(pieces) != len(takes):
        raise ValueError(f"factory takes {len(takes)} pieces of geometry; pass geometry for one.")
    plain = [
        flat() if name == "manifold" else piece for name, piece in zip(takes, pieces, strict=True)
    ]
    return Subject(
        getattr(factory, "__name__", "algorithm"),
        lambda loss: factory(loss, *pieces),
        lambda loss: factory(loss, *plain),
        lambda loss: factory(loss, *map(_with_named_prox, pieces)),
        numbers,
        takes,
    )


COUNTED = "prox_to_be_counted"


def _with_named_prox(piece: Any) -> Any:
    """Return a penalty or mirror whose prox is called ``COUNTED`` in traced programs."""
    field = {Penalty: "prox", Mirror: "to_primal"}.get(type(piece))
    if field is None:
        return piece
    function = getattr(piece, field)

    def prox(v, step, scale):
        return function(v, step, scale)

    prox.__name__ = COUNTED
    return piece._replace(**{field: jax.jit(prox)})


PIECES = (Penalty, Mirror, Manifold, Sampler, Compressor)


def found_piece(name: str) -> Any:
    """Return what is named: a factory, a piece, or a function whose piece is returned."""
    found = _named(name)
    if callable(found) and not hasattr(found, "Hparams") and not isinstance(found, PIECES):
        with contextlib.suppress(Exception):  # code of the user may raise anything
            made = found()
            found = made if isinstance(made, PIECES) else found
    if isinstance(found, PIECES) or (
        callable(found) and hasattr(getattr(found, "Hparams", None), "_fields")
    ):
        return found
    raise ValueError(
        f"{name} is {shown(found)}; pass a factory, a function (loss, ...) -> Algorithm that is "
        "decorated with fcojax.algorithms.takes(HPARAMS), or a penalty, mirror map, manifold, "
        "sampler or compressor."
    )


def _named(name: str) -> Any:
    """Return the object called ``name`` in ``fcojax.algorithms``, or given as ``MODULE:NAME``."""
    module_name, colon, attribute = name.rpartition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name) if colon else fcojax.algorithms
    except (Exception, SystemExit) as error:  # a module of the user may raise anything
        raise ValueError(f"{name} cannot be imported: {_why_not(error, module_name)}") from None
    if not hasattr(module, attribute):
        known = [known for known in vars(module) if not known.startswith("_")]
        close = difflib.get_close_matches(attribute, known, n=1)
        own = "" if colon else " For one of your own pass MODULE:FACTORY, as in mine:scaffold."
        factories = [key for key in known if hasattr(getattr(module, key), "Hparams")]
        others = f"pass one of {', '.join(factories)}." if factories else "it has no factory."
        advice = f"did you mean {close[0]}?" if close else others
        raise ValueError(f"{module.__name__} has no {attribute}; {advice}{own}")
    return getattr(module, attribute)


def _why_not(error: BaseException, module_name: str) -> str:
    """Return the reason why a module cannot be imported."""
    package = module_name.partition(".")[0]
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").replace(os.sep, ".")
        return f"it is a file; pass its module, {dotted}."
    if isinstance(error, ModuleNotFoundError) and error.name in (package, module_name):
        return f"there is no module {error.name}; run it in the folder that {error.name}.py is in."
    return str(error) if isinstance(error, SyntaxError) else located(error)


def check_buildable(subject: Subject) -> None:
    """Raise ``ValueError`` unless the factory builds an algorithm with valid hyperparameters.

    Example:
      >>> import fcojax
      >>> subject = fcojax.check.subject_of(fcojax.algorithms.fed_avg)
      >>> check_buildable(subject._replace(build=lambda loss: None))
      Traceback (most recent call last):
      ValueError: fed_avg returned a NoneType; return a fcojax.algorithms.Algorithm.
    """
    try:
        built = subject.build(None)
    except Exception as error:  # a factory of the user may raise anything
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
    as_arrays(subject.hparams(client_lr=0.05))


def located(error: BaseException) -> str:
    """Return an error in one line, with the innermost line of the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    installed = (sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    libraries = (os.path.dirname(fcojax.__file__), "<frozen", *installed)
    own = [frame for frame in frames if not frame.filename.startswith(libraries)] or frames
    line = f"{os.path.basename(own[-1].filename)}, line {own[-1].lineno}"
    message = str(error).strip().splitlines()
    return f"{type(error).__name__} in {line}: {message[0] if message else 'no message'}"
