"""Find the first number that is not finite: its round, its grid point and its client."""

import jax
import numpy as np

from experiments.execution.jobs import Job
from experiments.process.errors import UserError
from fcojax import State
from fcojax.extend import Block, find_first_nonfinite, take
from fcojax.problems.clients import ids_of


def refuse_nonfinite(job: Job, block: Block, before: State) -> None:
    """Raise ``UserError`` if a block of rounds had numbers that were not finite.

    Args:
      job: the job.
      block: one of its blocks.
      before: the state at its start.
    """
    found = block.history
    bad = (found["dropped"] > 0) | (found["refused"] > 0) | ~np.isfinite(found["objective"])
    if not bad.any():
        return
    place, seed = (int(index) for index in np.argwhere(bad)[0])
    hparams = take(job.grid, int(block.points[place]))
    runs = before.server, before.clients, before.residuals, before.memory
    server, clients, residuals, memory = jax.tree.map(lambda leaf: leaf[place, seed], runs)
    state = State(server, clients, residuals, before.round, before.key[seed], memory)
    rounds = block.rounds - int(state.round)
    first = find_first_nonfinite(
        job.algorithm, hparams, state, job.train, job.plan, num_rounds=rounds
    )
    named = zip(hparams._fields, map(float, hparams), strict=True)
    where = f"{job.label} at {', '.join(f'{field} = {value:g}' for field, value in named)}"
    if first is None:
        raise UserError(
            f"{where}: the objective is not finite by round {block.rounds}, but all uploads are."
        )
    whose = "the server" if first.client is None else f"client {ids_of(job.train)[first.client]}"
    raise UserError(
        f"{where}: the first number that is not finite is in round {first.round}, of {whose}, in "
        f"{first.leaf}."
    )
