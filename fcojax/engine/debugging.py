"""Find the first non-finite number of a run by repeating rounds one client at a time.

For debugging: slow, on one device, and not for use under ``jit``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.engine.client_loop import RoundContext, Rows, client_function
from fcojax.engine.hparams import as_arrays, at_round
from fcojax.engine.placement.chunk_size import with_chunk_size
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.randomness import draw_cohort
from fcojax.engine.state import State
from fcojax.engine.stepper import advance
from fcojax.memo import jit_per
from fcojax.problems.clients import ClientData
from fcojax.types import PyTree


class NonFinite(NamedTuple):
    """The first number that was not finite.

    Attributes:
      round: number of the round, from 1.
      client: index of the client, from 0; ``None`` if it was the server's step.
      leaf: path in the client's upload or state, or in the server's state.
    """

    round: int
    client: int | None
    leaf: str


def find_first_nonfinite(
    algorithm: Algorithm,
    hparams: PyTree,
    state: State,
    data: ClientData,
    plan: Plan,
    *,
    num_rounds: int,
) -> NonFinite | None:
    """Return the first non-finite upload, client state or server step; ``None`` if there is none.

    Args:
      algorithm: the algorithm of the run.
      hparams: its hyperparameters.
      state: the state of one run, not of a sweep.
      data: the clients, on one device.
      plan: how rounds are run.
      num_rounds: number of rounds to repeat.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([4.0])}])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: jnp.sqrt(2 - rows["a"]) * w)
      >>> hparams, plan = fed_avg.hparams_type(client_lr=0.5), fcojax.Plan(fcojax.local_steps(1))
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> find_first_nonfinite(fed_avg, hparams, state, data, plan, num_rounds=3)
      NonFinite(round=1, client=1, leaf='upload')
    """
    plan, hparams = as_plan(plan), as_arrays(hparams)
    # Choose the chunks that the run chose: another order of summation rounds differently, and the
    # number that overflowed there might stay finite here.
    plan = with_chunk_size(plan, algorithm, hparams, data, state)
    for _ in range(num_rounds):
        cohort = draw_cohort(plan, data, state.key, state.round)
        for client in cohort.indices[cohort.present].tolist():
            # The index is traced, so one program serves all clients.
            bad = _of_client(algorithm, plan, hparams, data, state, jnp.asarray(client, jnp.int32))
            leaf = _first_name(bad)
            if leaf is not None:
                return NonFinite(int(state.round) + 1, client, leaf)
        state, history = advance(algorithm, hparams, state, data, plan, num_rounds=1)
        # All uploads were finite but the server's step was not.
        if int(history["refused"][0]):
            return NonFinite(int(state.round), None, "the server's state")
    return None


@jit_per(num_static=2)
def _of_client(algorithm, plan, hparams, data, state, client) -> PyTree:
    """Return which leaves of one client's upload and state are not finite."""
    now = at_round(hparams, state.round)
    # Only aggregators use the noise key, and none runs here.
    context = RoundContext(algorithm, plan, now, data, state.key, state.round, state.key)
    one_client = client_function(context, algorithm.broadcast(now, state.server), 0)
    before = jax.tree.map(lambda leaf: leaf[client], Rows(state.clients, state.residuals))
    result, _ = one_client(client, before)
    found = {"upload": result.upload, "state": result.state}
    return jax.tree.map(lambda leaf: ~jnp.all(jnp.isfinite(leaf)), found)


def _first_name(bad: PyTree) -> str | None:
    """Return the path of the first leaf that is true; uploads come before states."""
    found = jax.tree_util.tree_flatten_with_path({"upload": bad["upload"]})[0]
    found += jax.tree_util.tree_flatten_with_path({"state": bad["state"]})[0]
    for path, leaf in found:
        if bool(leaf):
            return jax.tree_util.keystr(path, simple=True, separator=".")
    return None
