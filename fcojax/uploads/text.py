"""A transform from a config's text, ``top_k:0.01,ef21``: a compressor and feedback."""

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from fcojax.arguments import validated
from fcojax.uploads import feedback, low_rank, quantise, rotation, sparse
from fcojax.uploads.coding import compressed
from fcojax.uploads.compressor import Compressor, compose, contractive
from fcojax.uploads.transform import UploadTransform, chain


def _count_or_share(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _words(text: str) -> str:
    return text.replace("_", " ")


def _ef21_sgdm(compressor: Compressor, beta: float = 0.9) -> UploadTransform:
    return chain(feedback.momentum(beta), feedback.ef21(compressor))


# How each compressor is written, the type of its argument, and its factory.
_COMPRESSORS: dict[str, tuple[str, Callable[[str], Any] | None, Callable[..., Compressor]]] = {
    "rand_k": ("rand_k:NUMBER or rand_k:SHARE", _count_or_share, sparse.rand_k),
    "top_k": ("top_k:NUMBER or top_k:SHARE", _count_or_share, sparse.top_k),
    "qsgd": ("qsgd:LEVELS", int, quantise.qsgd),
    "terngrad": ("terngrad", None, quantise.terngrad),
    "natural": ("natural", None, quantise.natural),
    "sign": ("sign", None, quantise.sign),
    "drive": ("drive:unbiased or drive:least_error", _words, rotation.drive),
    "eden": ("eden:BITS", int, rotation.eden),
    "power": ("power:RANK", int, low_rank.power),
    "half": ("half", None, quantise.half),
}
_FEEDBACK: dict[str, tuple[str, Callable[[str], Any] | None, Callable[..., Any]]] = {
    "ef14": ("ef14", None, feedback.ef14),
    "ef21": ("ef21", None, feedback.ef21),
    "ef21_sgdm": ("ef21_sgdm:MOMENTUM", float, _ef21_sgdm),
    "econtrol": ("econtrol:RATE", float, feedback.econtrol),
    "diana": ("diana:RATE", float, feedback.diana),
    "marina": ("marina:PROBABILITY", float, feedback.marina),
}


@validated
def from_text(text: str, name: str = "codec") -> UploadTransform:
    """Return the transform that a text names.

    Args:
      text: a compressor, or two joined by ``+``, and after a comma the error feedback. An unbiased
        compressor is made ``contractive`` for a feedback that needs it.
      name: the name of the text in messages.

    Example:
      >>> from fcojax import uploads
      >>> from_text("top_k:0.01+half,ef21") == uploads.ef21(
      ...     uploads.compose(uploads.top_k(0.01), uploads.half()))
      True
    """
    chain, comma, remedy = text.partition(",")
    given = f"{name} is {text!r}"
    compressor = _compressor(chain, given)
    if not comma:
        return compressed(compressor)
    if compressor.variance is not None and not remedy.strip().startswith(("diana", "marina")):
        compressor = contractive(compressor)
    return _made(remedy, _FEEDBACK, "error feedback", given, compressor)


@validated
def compressor_from_text(text: str, name: str = "compressor") -> Compressor:
    """Return the compressor that a text names, as ``from_text`` without feedback.

    Args:
      text: a compressor, or two joined by ``+``.
      name: the name of the text in messages.

    Example:
      >>> compressor_from_text("top_k:0.01").name
      'top_k(0.01)'
    """
    return _compressor(text, f"{name} is {text!r}")


def _compressor(text: str, given: str) -> Compressor:
    first, plus, second = text.partition("+")
    compressor = _made(first, _COMPRESSORS, "compressor", given)
    if plus and not first.strip().startswith(("top_k", "rand_k")):
        raise ValueError(f"{given}; the first of two is top_k or rand_k.")
    if plus:
        compressor = compose(compressor, _made(second, _COMPRESSORS, "compressor", given))
    return compressor


def _made(text: str, known: dict[str, Any], what: str, whole: str, *inner: Compressor) -> Any:
    """Call the factory that a part of the text names."""
    name, colon, argument = text.strip().partition(":")
    if name not in known:
        close = difflib.get_close_matches(name, list(known), n=1)
        advice = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}."
        raise ValueError(f"{whole}: there is no {what} {name!r}; {advice}")
    form, kind, factory = known[name]
    try:
        values = (kind(argument),) if colon else ()  # a kind of None takes no argument
        inspect.signature(factory).bind(*inner, *values)
    except (TypeError, ValueError):
        raise ValueError(f"{whole}; write {form}.") from None
    return factory(*inner, *values)
