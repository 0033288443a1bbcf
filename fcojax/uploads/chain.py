"""Chains of transforms, in an order that is not wrong."""

from collections.abc import Callable
from typing import Any

from fcojax.arguments import checked_value
from fcojax.memo import memoised
from fcojax.uploads.contract import UploadChain
from fcojax.uploads.transform import NOTHING, UploadTransform


@memoised
def chain(*transforms: UploadChain) -> UploadTransform:
    """Return the chain of some transforms, for ``Plan(uploads=...)``.

    The first one is nearest to the algorithm, the last one to the network: attacks, momentum,
    compression, clipping with noise or a bound on norms, weights 1/q, losses.

    Args:
      *transforms: transforms or chains of them; none for uploads that are sent unchanged.

    Example:
      >>> import fcojax
      >>> from fcojax import uploads
      >>> both = chain(uploads.ef14(uploads.top_k(0.01)), fcojax.dropout(0.1))
    """
    for given in transforms:
        checked_value("a transform", given, UploadChain)
    found = tuple(one for given in transforms for one in given.transforms)
    _require_order(found)
    name = f"chain({', '.join(one.name for one in found)})"
    return UploadTransform(name, parts=found) if found else NOTHING


# What a chain does once at most.
_ONCE: dict[str, Callable[[UploadTransform], Any]] = {
    "compresses": lambda one: one.decode is not None,
    "adds noise": lambda one: one.facts.noisy,
    "estimates the mean over all clients": lambda one: one.facts.estimates_all,
    "needs the sum": lambda one: one.facts.needs_sum,
}


def _require_order(transforms: tuple[UploadTransform, ...]) -> None:
    """Raise ``ValueError`` for transforms that would run in this order and be wrong."""
    for does, is_such in _ONCE.items():
        such = [one.name for one in transforms if is_such(one)]
        if len(such) > 1:
            raise ValueError(
                f"the chain {does} twice, by {such[0]} and {such[1]}; pass one of them, or "
                "uploads.compose(...) of two compressors."
            )
    for index, one in enumerate(transforms):
        before, later = transforms[:index], transforms[index + 1 :]
        changing = [x.name for x in before if x.open is not None and not x.facts.leaves_out]
        if one.facts.noisy and changing:
            raise ValueError(
                f"{changing[0]} is before {one.name} in the chain, so the server would apply it to "
                "clipped uploads, which could then be longer than the norm; pass it after."
            )
        if one.decode is None:
            continue
        looking = [each.name for each in transforms if each.open is not None and each is not one]
        if one.facts.needs_sum and looking:
            raise ValueError(
                f"{one.name} shows the server a sum alone, but {looking[0]} looks at each upload; "
                "pass one of them."
            )
        noisy = [each.name for each in before if each.facts.noisy]
        if noisy:
            raise ValueError(
                f"the chain has {noisy[0]} before {one.name}; compress first, then clip and add "
                "noise to what the server decodes."
            )
        if one.facts.estimates_all and any(each.facts.noisy for each in later):
            raise ValueError(
                f"{one.name} adds up changes on both sides, which differ once the server clips and "
                "adds noise; pass uploads.compressed(...) or uploads.ef14(...) before noise."
            )
