"""The uplink that a config writes as ``top_k:0.01,ef21``: a compressor and its error feedback."""

from collections.abc import Callable
from typing import Any

from experiments.process.errors import suggest
from fcojax import uploads
from fcojax.engine.uploads.uplink import Uplink
from fcojax.uploads import Compressor


def _count_or_share(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)


def _words(text: str) -> str:
    return text.replace("_", " ")


# How each compressor is written, the type of its argument, and its factory.
_COMPRESSORS: dict[str, tuple[str, Callable[[str], Any] | None, Callable[..., Compressor]]] = {
    "rand_k": ("rand_k:NUMBER or rand_k:SHARE", _count_or_share, uploads.rand_k),
    "top_k": ("top_k:NUMBER or top_k:SHARE", _count_or_share, uploads.top_k),
    "qsgd": ("qsgd:LEVELS", int, uploads.qsgd),
    "terngrad": ("terngrad", None, uploads.terngrad),
    "natural": ("natural", None, uploads.natural),
    "sign": ("sign", None, uploads.sign),
    "drive": ("drive:unbiased or drive:least_error", _words, uploads.drive),
    "eden": ("eden:BITS", int, uploads.eden),
    "power": ("power:RANK", int, uploads.power),
    "half": ("half", None, uploads.half),
}
_FEEDBACK: dict[str, tuple[str, Callable[[str], Any] | None, Callable[..., Uplink]]] = {
    "ef14": ("ef14", None, uploads.ef14),
    "ef21": ("ef21", None, uploads.ef21),
    "ef21_sgdm": ("ef21_sgdm:MOMENTUM", float, uploads.ef21_sgdm),
    "econtrol": ("econtrol:RATE", float, uploads.econtrol),
    "diana": ("diana:RATE", float, uploads.diana),
}


def uplink(text: str) -> Uplink:
    """Return an uplink.

    Args:
      text: as the config writes it: a compressor, or two joined by ``+``, and behind a comma the
        error feedback.

    Example:
      >>> uplink("top_k:0.01+half,ef21") is uploads.ef21(
      ...     uploads.compose(uploads.top_k(0.01), uploads.half()))
      True
    """
    chain, comma, feedback = text.partition(",")
    first, plus, second = chain.partition("+")
    compressor = _made(first, _COMPRESSORS, "compressor", text)
    if plus and not first.strip().startswith(("top_k", "rand_k")):
        raise ValueError(f"uplink is {text!r}; the first of two is top_k or rand_k.")
    if plus:
        compressor = uploads.compose(compressor, _made(second, _COMPRESSORS, "compressor", text))
    if not comma:
        return uploads.compressed(compressor)
    return _made(feedback, _FEEDBACK, "error feedback", text, compressor)


def _made(text: str, known: dict[str, Any], what: str, whole: str, *given: Compressor) -> Any:
    """Call the factory that a part of the text names."""
    name, colon, argument = text.strip().partition(":")
    if name not in known:
        raise ValueError(
            f"uplink is {whole!r}: there is no {what} {name!r}; {suggest(name, known)}"
        )
    form, kind, factory = known[name]
    wrong = ValueError(f"uplink is {whole!r}; write {form}.")
    if not colon:
        try:
            return factory(*given)
        except TypeError:
            raise wrong from None
    if kind is None:
        raise wrong
    try:
        value = kind(argument)
    except ValueError:
        raise wrong from None
    return factory(*given, value)
