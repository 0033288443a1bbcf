"""The networks of the text study predict the characters of every text."""

import jax
import numpy as np
import pytest

from tests.experiments.studies.quick_sweeps import quick_config


@pytest.mark.parametrize(
    "network", ["transformer", pytest.param("char_lstm", marks=pytest.mark.slow)]
)
def test_a_fresh_network_is_as_good_as_a_guess(network):
    sweep, config = quick_config("text")
    config.network = network
    problem = sweep.problem(config)
    loss = problem.measures(problem.init(jax.random.key(0)))["validation_loss"]
    # Padding and 12 letters have nearly equal probabilities.
    assert float(loss) == pytest.approx(np.log(13), rel=0.2)
