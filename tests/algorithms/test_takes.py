"""The declared arguments of a factory agree with its signature."""

import inspect
from typing import NamedTuple

import pytest

import fcojax
from fcojax.algorithms.base import takes

FACTORIES = {k: v for k, v in vars(fcojax.algorithms).items() if hasattr(v, "Hparams")}


@pytest.mark.parametrize("name", FACTORIES)
def test_the_geometry_that_is_named_is_what_stands_after_the_loss(name):
    parameters = inspect.signature(FACTORIES[name]).parameters.values()
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == ["loss", *FACTORIES[name].geometry]


def test_a_misspelt_piece_of_geometry_is_refused_where_it_is_written():
    with pytest.raises(ValueError, match="geometry is 'miror'"):
        takes(tuple, "miror")


class Own(NamedTuple):
    """Other hyperparameters."""

    pace: float = 0.1


def test_an_argument_called_hparams_type_chooses_the_type():
    """A wrapper of the factory overrides its declaration."""

    @takes(fcojax.algorithms.fed_avg.Hparams)
    def inner(loss, *, hparams_type=fcojax.algorithms.fed_avg.Hparams):
        return fcojax.algorithms.fed_avg(loss)

    @takes(fcojax.algorithms.fed_mid.Hparams)
    def outer(loss):
        return inner(loss, hparams_type=Own)

    assert inner(None).hparams_type is fcojax.algorithms.fed_avg.Hparams
    assert inner(None, hparams_type=Own).hparams_type is Own
    assert outer(None).hparams_type is fcojax.algorithms.fed_mid.Hparams
