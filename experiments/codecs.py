"""What a config says as text, ``NAME:NUMBER``: codecs, samplers, clocks, schedules, optimisers."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import optax

import fcojax
from experiments.process.invocation import suggest
from fcojax import algorithms, uploads
from fcojax.algorithms.base import Algorithm, Factory, takes
from fcojax.clock import Clock, by_size, log_normal
from fcojax.extend import checked_value
from fcojax.types import Array, Count, Fraction, NonNegative, Positive
from fcojax.uploads import Compressor, UploadTransform


def _read(text: str) -> Any:
    """Return a whole number, another number, or else the words."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text.replace("_", " ")


# By name a function, or a tuple of it and what its numbers may be, if it does not check them.
Forms = Mapping[str, Any]
_COMPRESSORS = ("rand_k", "top_k", "qsgd", "natural", "sign", "drive", "half")
COMPRESSORS: Forms = {name: getattr(uploads, name) for name in _COMPRESSORS}
# Of the compressor; the text of EF21 with momentum is that of both.
_FEEDBACK = ("ef14", "ef21", "econtrol", "diana", "marina")
FEEDBACK: Forms = {name: getattr(uploads, name) for name in _FEEDBACK} | {
    "ef21_sgdm": lambda inner, beta=0.9: uploads.chain(uploads.momentum(beta), uploads.ef21(inner))
}
# Of the size of the cohort, ``None`` for all that are available. Coin flips have none.
SAMPLERS: Forms = {
    "uniform": lambda n: fcojax.uniform_cohort(cohort_size=n) if n else fcojax.everyone(),
    "weighted": lambda n, power: fcojax.weighted_cohort(cohort_size=n, power=float(power)),
    "coin_flips": lambda n, probability: fcojax.coin_flips(float(probability)),
    "cyclic": lambda n, groups: fcojax.cyclic(num_groups=groups, cohort_size=n),
}
# Of the clients; in seconds of a step and of a byte.
CLOCKS: Forms = {
    "constant": (lambda data, step, byte: Clock(step, byte, byte), *[NonNegative] * 2),
    "log_normal": (
        lambda data, step, spread, byte: Clock(
            log_normal(data.num_clients, median=step, spread=spread), byte, byte
        ),
        *[NonNegative] * 3,
    ),
    "by_size": (
        lambda data, step, byte: Clock(by_size(data, step), byte, byte),
        *[NonNegative] * 2,
    ),
}
# Factors of a rate. All begin at one, except for the warm-up, which ends there: the rate of a grid
# is the largest. Where optax has the schedule, it is optax's.
SCHEDULES: Forms = {
    "constant": lambda: optax.constant_schedule(1.0),
    "exponential": (
        lambda rounds, factor: optax.exponential_decay(1.0, rounds, factor),
        Count,
        Positive,
    ),
    "staircase": (
        lambda rounds, factor: optax.exponential_decay(1.0, rounds, factor, staircase=True),
        Count,
        Positive,
    ),
    "inverse": (lambda rounds: lambda t: 1 / (1 + t / rounds), Positive),
    "inverse_sqrt": (lambda rounds: lambda t: 1 / (1 + t / rounds) ** 0.5, Positive),
    "warm_up": (lambda rounds: optax.linear_schedule(1 / rounds, 1.0, max(rounds - 1, 1)), Count),
}
# With rate one, and optax's defaults.
OPTIMISERS: Forms = {
    "adagrad": (lambda eps=1e-7: optax.adagrad(1.0, eps=eps), Positive),
    "adam": (lambda eps=1e-8: optax.adam(1.0, eps=eps), Positive),
    "lamb": (lambda eps=1e-6: optax.lamb(1.0, eps=eps), Positive),
    "lars": (lambda momentum=0.9: optax.lars(1.0, momentum=momentum), Fraction),
    "sgd": (lambda momentum=None: optax.sgd(1.0, momentum), Fraction),
    "yogi": (lambda eps=1e-3: optax.yogi(1.0, eps=eps), Positive),
}


def chosen(key: str, text: str, forms: Forms, *inner: Any) -> Callable[..., Any]:
    """Return the function that a part of a key's text names, with its numbers.

    It takes as many arguments as ``inner``, which are in front of the numbers.
    """
    name, _, rest = text.strip().partition(":")
    if name not in forms:
        raise ValueError(f"there is no {key} {name!r}; {suggest(name, list(forms))}")
    build, *kinds = forms[name] if isinstance(forms[name], tuple) else (forms[name],)
    numbers = [_read(one) for one in rest.split(",")] if rest else []
    try:
        inspect.signature(build).bind(*inner, *numbers)
        for number, kind in zip(numbers, kinds, strict=False):
            checked_value(name, number, kind)
    except (TypeError, ValueError):
        names = list(inspect.signature(build).parameters)[len(inner) :]
        form = f"{name}:{','.join(names).upper()}" if names else name
        raise ValueError(f"{key} is {text.strip()!r}; write {form}.") from None
    return lambda *inner: build(*inner, *numbers)


def factors(key: str, text: str) -> Callable[[Array], Array]:
    """Return the factor of a rate as a function of the round, counted from zero.

    Example:
      >>> halving = factors("client_schedule", "staircase:2,0.5")
      >>> [float(halving(t)) for t in range(5)]
      [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    parts = [chosen(key, part, SCHEDULES)() for part in text.split("*")]
    return lambda t: jnp.prod(jnp.stack([jnp.asarray(part(t), float) for part in parts]))


def _fed_opt(loss: Any, **sides: optax.GradientTransformation) -> Algorithm:
    """Return FedAvg with optimisers of rate one, whose steps are multiplied by the rates."""

    def scaled(side: str) -> Any:
        return lambda h: optax.chain(sides[side], optax.scale(getattr(h, f"{side}_lr")))

    return algorithms.fed_opt(loss, **{side: scaled(side) for side in sides})


# By an algorithm with gradient steps, the one with optimisers in their place.
_OPTIMISED: dict[Any, Callable[..., Algorithm]] = {
    algorithms.fed_avg: _fed_opt,
    algorithms.fed_opt: _fed_opt,
    algorithms.fed_dual_avg: algorithms.fed_dual_avg_opt,
    algorithms.fed_dual_avg_osp: functools.partial(algorithms.fed_dual_avg_opt, client_prox=False),
    algorithms.fed_mid: algorithms.fed_mid_opt,
    algorithms.fed_mid_osp: functools.partial(algorithms.fed_mid_opt, client_prox=False),
}


def optimised(label: str, plain: Factory, **texts: str) -> Factory:
    """Return an algorithm's factory with optimisers in the place of gradient steps.

    Args:
      label: its name, for the message if it takes none.
      plain: the factory without optimisers; its hyperparameters stay.
      **texts: those of ``server_optimiser``, ``client_optimiser``, or both.
    """
    sides = {}
    for key, text in texts.items():
        side = key.partition("_")[0]
        # A local prox would need the metric of the optimiser.
        takers = [one for one in _OPTIMISED if side == "server" or one is not algorithms.fed_mid]
        if plain not in takers:
            names = ", ".join(one.__name__ for one in takers)
            raise ValueError(f"{key} is {text!r}, but {label} takes none; {names} do.")
        sides[side] = chosen(key, text, OPTIMISERS)()

    @takes(plain.Hparams, *plain.geometry)
    @functools.wraps(plain)
    def factory(loss, *geometry):
        return _OPTIMISED[plain](loss, *geometry, **sides)

    return factory


def codec(text: str, key: str = "codec") -> UploadTransform:
    """Return the transform that a text names: a compressor, and after a comma the error feedback.

    An unbiased compressor is made ``contractive`` for a feedback that needs it.

    Example:
      >>> codec("top_k:0.01+half,ef21").name
      'ef21(compose(top_k(0.01), half()))'
    """
    first, comma, remedy = text.partition(",")
    found = compressor(first, key)
    if not comma:
        return uploads.compressed(found)
    if found.variance is not None and not remedy.strip().startswith(("diana", "marina")):
        found = uploads.contractive(found)
    return chosen(f"error feedback of {key}", remedy, FEEDBACK, found)(found)


def compressor(text: str, key: str) -> Compressor:
    """Return the compressor that a text names: one, or two with a ``+``."""
    first, plus, second = text.partition("+")
    found = chosen(f"compressor of {key}", first, COMPRESSORS)()
    if not plus:
        return found
    if not first.strip().startswith(("top_k", "rand_k")):
        raise ValueError(f"{key} is {text!r}; the first of two is top_k or rand_k.")
    return uploads.compose(found, chosen(f"compressor of {key}", second, COMPRESSORS)())
