"""What a config says as text, ``NAME:NUMBER,NUMBER``: codecs, samplers, clocks, schedules."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import optax

import fcojax
from experiments.process.invocation import suggest
from fcojax import uploads
from fcojax.clock import Clock, by_size, log_normal
from fcojax.extend import checked_value
from fcojax.types import Array, Count, NonNegative, Positive
from fcojax.uploads import Compressor, UploadTransform


def _number(annotation: Any, kind: type = float) -> Callable[[str], Any]:
    return lambda text: checked_value("the number", kind(text), annotation)


def _count_or_share(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _words(text: str) -> str:
    return text.replace("_", " ")


_COUNT, _POSITIVE, _NOT_NEGATIVE = _number(Count, int), _number(Positive), _number(NonNegative)

# By name a function, and how its numbers are read, some of which may be left out.
Forms = Mapping[str, tuple[Callable[..., Any], *tuple[Callable[[str], Any], ...]]]
COMPRESSORS: Forms = {
    "rand_k": (uploads.rand_k, _count_or_share),
    "top_k": (uploads.top_k, _count_or_share),
    "qsgd": (uploads.qsgd, int),
    "natural": (uploads.natural,),
    "sign": (uploads.sign,),
    "drive": (uploads.drive, _words),
    "half": (uploads.half,),
}
# Of the compressor; the text of EF21 with momentum is that of both.
FEEDBACK: Forms = {
    "ef14": (uploads.ef14,),
    "ef21": (uploads.ef21,),
    "ef21_sgdm": (
        lambda inner, beta=0.9: uploads.chain(uploads.momentum(beta), uploads.ef21(inner)),
        float,
    ),
    "econtrol": (uploads.econtrol, float),
    "diana": (uploads.diana, float),
    "marina": (uploads.marina, float),
}
# Of the size of the cohort, ``None`` for all that are available. Coin flips have none.
SAMPLERS: Forms = {
    "uniform": (lambda n: fcojax.uniform_cohort(cohort_size=n) if n else fcojax.everyone(),),
    "weighted": (lambda n, power: fcojax.weighted_cohort(cohort_size=n, power=power), float),
    "coin_flips": (lambda n, probability: fcojax.coin_flips(probability), float),
    "cyclic": (lambda n, groups: fcojax.cyclic(num_groups=groups, cohort_size=n), int),
}
# Of the clients; in seconds of a step and of a byte.
CLOCKS: Forms = {
    "constant": (lambda data, step, byte: Clock(step, byte, byte), *[_NOT_NEGATIVE] * 2),
    "log_normal": (
        lambda data, step, spread, byte: Clock(
            log_normal(data.num_clients, median=step, spread=spread), byte, byte
        ),
        *[_NOT_NEGATIVE] * 3,
    ),
    "by_size": (
        lambda data, step, byte: Clock(by_size(data, step), byte, byte),
        *[_NOT_NEGATIVE] * 2,
    ),
}
# Factors of a rate. All begin at one, except for the warm-up, which ends there: the rate of a grid
# is the largest. Where optax has the schedule, it is optax's.
SCHEDULES: Forms = {
    "constant": (lambda: optax.constant_schedule(1.0),),
    "exponential": (
        lambda rounds, factor: optax.exponential_decay(1.0, rounds, factor),
        _COUNT,
        _POSITIVE,
    ),
    "staircase": (
        lambda rounds, factor: optax.exponential_decay(1.0, rounds, factor, staircase=True),
        _COUNT,
        _POSITIVE,
    ),
    "inverse": (lambda rounds: lambda t: 1 / (1 + t / rounds), _POSITIVE),
    "inverse_sqrt": (lambda rounds: lambda t: 1 / (1 + t / rounds) ** 0.5, _POSITIVE),
    "warm_up": (
        lambda rounds: optax.linear_schedule(1 / rounds, 1.0, max(rounds - 1, 1)),
        _COUNT,
    ),
}


def chosen(key: str, text: str, forms: Forms, *inner: Any) -> Callable[..., Any]:
    """Return the function that a part of a key's text names, with its numbers.

    It takes as many arguments as ``inner``, which are in front of the numbers.
    """
    name, _, rest = text.strip().partition(":")
    if name not in forms:
        raise ValueError(f"there is no {key} {name!r}; {suggest(name, list(forms))}")
    build, *kinds = forms[name]
    texts = rest.split(",") if rest else []
    try:
        if len(texts) > len(kinds):
            raise ValueError
        numbers = [kind(one) for kind, one in zip(kinds, texts, strict=False)]
        inspect.signature(build).bind(*inner, *numbers)
    except (TypeError, ValueError):
        names = list(inspect.signature(build).parameters)[len(inner) :]
        form = f"{name}:{','.join(names).upper()}" if kinds else name
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
