"""What is refused before anything is traced, for run and sweep alike."""

from typing import NamedTuple

import jax
import pytest

import fcojax
from fcojax.engine.plan import Plan
from fcojax.engine.validation import require_hparams, require_run
from fcojax.problems import from_clients
from fcojax.types import NonNegative, Positive, Probability, Real
from tests.support import federations


class Numbers(NamedTuple):
    """One field of each kind, by its annotation."""

    client_lr: Positive = 0.1
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.0
    skip_probability: Probability = 0.0
    shift: Real = 0.0
    factor: float = 0.0


def refuses_to_be_traced(*args):
    raise AssertionError("something was traced")


def needing_everyone():
    chosen = federations.algorithm("fed_avg")
    return chosen._replace(client_update=refuses_to_be_traced, needs_everyone=True)


def test_a_cohort_of_all_in_another_order_is_everyone():
    """The mean does not mind the order, so neither does the check."""
    data, rates = from_clients(federations.clients()), federations.hparams("fed_avg")
    for size, chosen in ((5, needing_everyone()), (4, federations.algorithm("fed_avg"))):
        plan = Plan(fcojax.local_steps(1), fcojax.uniform_cohort(cohort_size=size))
        require_run(chosen, plan, rates, data, jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prox_step": 0.0}, "prox_step is 0.0; pass a finite number above 0"),
        ({"penalty_scale": -0.1}, "penalty_scale is -0.1; pass a finite number, 0 or more"),
        ({"skip_probability": 1.0}, "skip_probability is 1.0; pass a number of at least 0 and"),
        ({"skip_probability": fcojax.schedule([0.5, 1.5])}, "skip_probability is"),
        ({"shift": float("nan")}, "shift is nan"),
        ({"factor": float("inf")}, "factor is inf"),
        ({"factor": [0.1, 0.2]}, "factor has shape (2,)"),
    ],
)
def test_an_annotation_gives_the_range_of_a_number(changes, message):
    require_hparams(Numbers())
    with pytest.raises(ValueError) as error:
        require_hparams(Numbers(**changes))
    assert message in str(error.value)
