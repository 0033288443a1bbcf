"""A transform of uploads from a config's text, ``top_k:0.01,ef21``: a compressor and feedback."""

import inspect
from collections.abc import Callable
from typing import Any

from experiments.process.errors import suggest
from fcojax import uploads
from fcojax.uploads import Compressor, UploadTransform


def _count_or_share(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _words(text: str) -> str:
    return text.replace("_", " ")


def _ef21_sgdm(compressor: Compressor, beta: float = 0.9) -> UploadTransform:
    return uploads.chain(uploads.momentum(beta), uploads.ef21(compressor))


# How each is written, the type of its argument, and its factory, some of which take none.
Forms = dict[str, tuple[str, Callable[[str], Any], Callable[..., Any]]]
COMPRESSORS: Forms = {
    "rand_k": ("rand_k:NUMBER or rand_k:SHARE", _count_or_share, uploads.rand_k),
    "top_k": ("top_k:NUMBER or top_k:SHARE", _count_or_share, uploads.top_k),
    "qsgd": ("qsgd:LEVELS", int, uploads.qsgd),
    "natural": ("natural", str, uploads.natural),
    "sign": ("sign", str, uploads.sign),
    "drive": ("drive:unbiased or drive:least_error", _words, uploads.drive),
    "half": ("half", str, uploads.half),
}
FEEDBACK: Forms = {
    "ef14": ("ef14", str, uploads.ef14),
    "ef21": ("ef21", str, uploads.ef21),
    "ef21_sgdm": ("ef21_sgdm:MOMENTUM", float, _ef21_sgdm),
    "econtrol": ("econtrol:RATE", float, uploads.econtrol),
    "diana": ("diana:RATE", float, uploads.diana),
    "marina": ("marina:PROBABILITY", float, uploads.marina),
}


def codec(text: str, key: str = "codec") -> UploadTransform:
    """Return the transform that a text names: a compressor, and after a comma the error feedback.

    An unbiased compressor is made ``contractive`` for a feedback that needs it.

    Example:
      >>> codec("top_k:0.01+half,ef21").name
      'ef21(compose(top_k(0.01), half()))'
    """
    first, comma, remedy = text.partition(",")
    found = compressor(first, key, text)
    if not comma:
        return uploads.compressed(found)
    if found.variance is not None and not remedy.strip().startswith(("diana", "marina")):
        found = uploads.contractive(found)
    return _made(remedy, FEEDBACK, "error feedback", f"{key} is {text!r}", found)


def compressor(text: str, key: str, whole: str | None = None) -> Compressor:
    """Return the compressor that a text, of the ``whole`` one, names: one, or two with a ``+``."""
    given = f"{key} is {whole or text!r}"
    first, plus, second = text.partition("+")
    found = _made(first, COMPRESSORS, "compressor", given)
    if not plus:
        return found
    if not first.strip().startswith(("top_k", "rand_k")):
        raise ValueError(f"{given}; the first of two is top_k or rand_k.")
    return uploads.compose(found, _made(second, COMPRESSORS, "compressor", given))


def _made(text: str, forms: Forms, what: str, given: str, *inner: Compressor) -> Any:
    """Call the factory that a part of the text names."""
    name, colon, argument = text.strip().partition(":")
    if name not in forms:
        raise ValueError(f"{given}: there is no {what} {name!r}; {suggest(name, list(forms))}")
    form, kind, factory = forms[name]
    try:
        values = (kind(argument),) if colon else ()
        inspect.signature(factory).bind(*inner, *values)
    except (TypeError, ValueError):
        raise ValueError(f"{given}; write {form}.") from None
    return factory(*inner, *values)
