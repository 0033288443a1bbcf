"""The methods of fcojax on the problems of this benchmark."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmark_utils.by_hand import NUM_STEPS
from benchmark_utils.problem import GROUP, rate
from fcojax.transforms import euclidean, group_l2, l1

METHODS = ("fed_dual_avg", "fed_mid_osp", "composite_fl", "scaffold", "prox_skip")


def logistic(w, rows):
    """Return the logistic loss of a row with target -1 or 1."""
    return jnp.logaddexp(0, -rows["y"] * (rows["x"] @ w.ravel()))


def half_square(w, rows):
    """Return half the squared error of a row."""
    return (rows["x"] @ w.ravel() - rows["y"]) ** 2 / 2


class Ours:
    """A run of one method, ten rounds at a time."""

    def __init__(self, problem, method: str):
        """Place the rows on the device and start at zero, in float64."""
        jax.config.update("jax_enable_x64", True)
        penalty = group_l2(axis=1) if problem.kind == "group_lasso" else l1()
        loss = logistic if problem.kind == "logistic" else half_square
        given = {"scaffold": {"prox": "feedback"}}.get(method, {})
        make = getattr(fcojax.algorithms, method)
        needs = euclidean(penalty) if make.geometry == ("mirror",) else penalty
        self.algorithm = make(loss, needs, **given)
        hparams = self.algorithm.hparams_type(
            client_lr=rate(problem), penalty_scale=problem.strength
        )
        self.hparams = jax.tree.map(lambda x: jnp.asarray(x, "float64"), hparams)
        clients = [{"x": x, "y": np.asarray(y, "float64")} for x, y in problem.sites]
        self.data = fcojax.from_clients(clients, weights="examples")
        dim = problem.sites[0][0].shape[1]
        self.start = jnp.zeros((dim // GROUP, GROUP) if problem.kind == "group_lasso" else dim)
        self.plan = fcojax.local_steps(NUM_STEPS)
        self.restart()

    def restart(self) -> None:
        """Set the model to zero."""
        self.state = fcojax.start(
            self.algorithm, self.hparams, self.start, self.data, jax.random.key(0), self.plan
        )
        self.rounds = self.sent = 0

    def advance(self, num_rounds: int) -> None:
        """Run some rounds, and wait for them."""
        self.state, history = fcojax.advance(
            self.algorithm,
            self.hparams,
            self.state,
            self.data,
            self.plan,
            num_rounds=num_rounds,
            eval_every=num_rounds,
        )
        self.rounds += num_rounds
        self.sent += float(history["bytes_up"][-1] + history["bytes_down"][-1])

    @property
    def model(self) -> np.ndarray:
        """The model as a vector."""
        found = fcojax.read_model(self.algorithm, self.hparams, self.state)
        return np.asarray(found).ravel()
