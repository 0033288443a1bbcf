"""Exclude clients with non-finite results from the mean, and from every derivative of the run.

A mask keeps NaN out of values, but not out of reverse mode, where a zero cotangent meets the
client's infinite Jacobian. So the derivative is gated at the client's inputs: an excluded client
has zero derivative with respect to all inputs. A run from which all are excluded warns.
"""

import atexit
import contextlib
import itertools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero

from fcojax import tree
from fcojax.types import Array, PyTree


def guarded(
    function: Callable[..., Any], checked: Callable[[Any], PyTree]
) -> Callable[..., tuple[Any, Array]]:
    """Return the function with a second result: whether its first one is finite.

    ``checked`` selects the part of the result that has to be finite. If it is not, all derivatives
    of the result are zero, in forward and in reverse mode. The function must not close over
    anything that is being differentiated.

    Example:
      >>> half = guarded(lambda x: jnp.sqrt(x), lambda root: root)
      >>> jax.grad(lambda x: jnp.where(*half(x)[::-1], 0.0))(-1.0).item()
      0.0
    """

    def with_check(*args):
        return check(function(*args))

    def check(result):
        leaves = [
            jnp.asarray(leaf)
            for leaf in jax.tree.leaves(checked(result))
            if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
        ]
        finite = tree.all_finite(leaves)
        # A no-op that makes every part of the result depend on `finite`, as the derivatives do. If
        # vmap maps one and not the other, JAX cannot transpose the rule below.
        return tree.where(finite, result, result), finite

    call = jax.custom_jvp(with_check)

    def derivative(primals, tangents):
        leaves, structure = jax.tree.flatten(primals)
        moving = [not isinstance(tangent, SymbolicZero) for tangent in jax.tree.leaves(tangents)]

        def of_moving(*given):
            source = iter(given)
            filled = [next(source) if moves else x for x, moves in zip(leaves, moving, strict=True)]
            return function(*jax.tree.unflatten(structure, filled))

        def pick(everything):
            return list(itertools.compress(jax.tree.leaves(everything), moving))

        result, pushforward = jax.linearize(of_moving, *pick(primals))
        result, finite = check(result)
        moved = pushforward(*_where_real(finite, pick(tangents)))
        no_tangent = np.zeros(jnp.shape(finite), jax.dtypes.float0)
        return (result, finite), (_where_real(finite, moved), no_tangent)

    call.defjvp(derivative, symbolic_zeros=True)  # pyright: ignore[reportArgumentType]: float0
    return call


def _where_real(condition: Array, tangents: PyTree) -> PyTree:
    """Return the tangents where the condition holds, else zero; float0 tangents are unchanged."""
    return jax.tree.map(
        lambda t: t if t.dtype == jax.dtypes.float0 else jnp.where(condition, t, jnp.zeros_like(t)),
        tangents,
    )


# Counts of runs that have not been read, with the lines that called them and their filters.
_unread: list[tuple[list[Any], tuple, list]] = []


def remember(history: dict[str, Array]) -> None:
    """Keep the counts of a run for ``warn_of_nonfinite``, unless they are traced or elsewhere."""
    counts = [history[name] for name in ("participants", "dropped", "refused", "round")]
    if not any(isinstance(one, Tracer) or not one.is_fully_addressable for one in counts):
        caller = sys._getframe(2)  # of run or sweep
        names, line = caller.f_globals, (caller.f_code.co_filename, caller.f_lineno)
        where = *line, names.get("__name__"), names.setdefault("__warningregistry__", {})
        _unread.append((counts, where, list(warnings.filters)))


@atexit.register
def warn_of_nonfinite(wait: bool = False) -> None:
    """Warn of each run that has ended, if at some time no upload, or no server step, was finite.

    Nothing waits for a run, unless ``wait``. The warning names the line that called the run, and
    obeys the filters that were in force there.
    """
    runs, _unread[:] = _unread[:], []
    for run in runs:
        counts, where, filters = run
        if any(one.is_deleted() for one in counts):
            continue
        if not (wait or all(one.is_ready() for one in counts)):
            _unread.append(run)
        elif text := _verdict(*map(np.asarray, counts)):
            # Entering other filters makes Python forget of which lines it has warned.
            others = filters != warnings.filters
            with warnings.catch_warnings() if others else contextlib.nullcontext():
                warnings.filters = filters if others else warnings.filters
                warnings.warn_explicit(text, UserWarning, *where)


def _verdict(participants, dropped, refused, rounds) -> str:
    """Return what a warning says of these counts; nothing if it is not needed."""
    # An empty cohort is not a failure: coin flips may leave everybody out.
    failed = ((participants > 0) & (dropped >= participants)) | (refused > 0)
    if not failed.any():
        return ""
    first, of_runs, which = int(rounds[failed].min()), failed.any(axis=-1), "the run"
    if of_runs.ndim:
        points = [str(point) for point in np.flatnonzero(of_runs.any(axis=-1))]
        some = ", ".join(points[:3]) + ", ..." * (len(points) > 3)
        which = f"{of_runs.sum()} of {of_runs.size} runs (of the points {some})"
    return (
        f"{which} became non-finite: by round {first} no upload, or no server step, was finite any "
        "more, and such rounds change nothing; pass smaller rates."
    )
