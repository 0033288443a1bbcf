"""Arguments that run and sweep refuse before tracing."""

import jax
import jax.numpy as jnp
import pytest

import fcojax
from fcojax.algorithms import Facts
from fcojax.engine.plan import Plan
from fcojax.engine.validation import require_run
from fcojax.problems import from_clients
from tests.support import federations


def refuses_to_be_traced(*args):
    raise AssertionError("something was traced")


def needing_everyone():
    chosen = federations.algorithm("fed_avg")
    return chosen._replace(client_update=refuses_to_be_traced, facts=Facts(needs_everyone=True))


def test_a_cohort_of_all_in_another_order_is_everyone():
    """The mean does not depend on the order, so neither does the check."""
    data, rates = from_clients(federations.clients()), federations.hparams("fed_avg")
    for size, chosen in ((5, needing_everyone()), (4, federations.algorithm("fed_avg"))):
        plan = Plan(fcojax.local_steps(1), fcojax.uniform_cohort(cohort_size=size))
        require_run(chosen, plan, rates, data, jax.random.key(0))


@jax.tree_util.register_pytree_node_class
class Line:
    """A model that is a pytree and a function of its input, like Equinox's modules."""

    def __init__(self, slope):
        self.slope = slope

    def __call__(self, x):
        return self.slope * x

    def tree_flatten(self):
        return (self.slope,), None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


def test_a_pytree_that_can_be_called_is_a_start_point():
    data = from_clients([{"x": jnp.array([1.0]), "y": jnp.array([2.0])}] * 2)
    algorithm = fcojax.algorithms.fed_avg(lambda line, rows: (line(rows["x"]) - rows["y"]) ** 2 / 2)
    hparams, plan = algorithm.hparams_type(client_lr=0.5), fcojax.local_steps(1)
    key = jax.random.key(0)
    line, _ = fcojax.run(algorithm, hparams, Line(jnp.zeros(())), data, key, plan, num_rounds=2)
    assert isinstance(line, Line) and float(line.slope) == 1.5
    state = fcojax.start(algorithm, hparams, Line(jnp.zeros(())), data, key, plan)
    assert float(fcojax.read_model(algorithm, hparams, state).slope) == 0.0
    with pytest.raises(TypeError, match="not a valid JAX array type"):
        fcojax.run(algorithm, hparams, lambda key: 0.0, data, key, plan, num_rounds=2)
