"""Calls that would run and give a wrong result raise an error that names the argument."""

import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
import fcojax_sites
from fcojax import problems
from fcojax.transforms import l1
from fcojax_sites import flower, safetensors, selection
from fcojax_sites.selection import nonzeros

DATA = fcojax.from_rows({"x": np.ones((4, 3)), "y": np.array([0.0, 1.0, 0.0, 2.0])}, [2, 2])
PROBLEM = problems.least_squares(DATA)
FED_AVG = fcojax.algorithms.fed_avg(lambda w, rows: (w - rows["y"]) ** 2)


def path(**changes):
    return fcojax_sites.path(PROBLEM, l1(), **changes)


def federation(**changes):
    rates, start = FED_AVG.hparams_type(), jnp.zeros(())
    return flower.Federation(FED_AVG, fcojax.local_steps(1), rates, start, **changes)


CALLS = {
    "groups of columns of a vector": (
        lambda: path(nonzeros=nonzeros(3, of="groups", axis=1)),
        "axis",
    ),
    "no strength": (lambda: path(strengths=0), "strengths"),
    "a strength of NaN": (lambda: path(strengths=[1.0, np.nan]), "strengths"),
    "a share above one": (lambda: path(least=2.0), "least"),
    "a tolerance of NaN": (lambda: path(tolerance=np.nan), "tolerance"),
    "no rounds": (lambda: path(max_rounds=0), "max_rounds"),
    "minus three nonzeros": (lambda: nonzeros(-3), "count"),
    "nonzeros of what": (lambda: nonzeros(3, of="words"), "of"),
    "one fold": (lambda: selection.by_client(1), "num_folds"),
    "a strength and no penalty": (lambda: fcojax_sites.select(PROBLEM, 3.0), "penalty"),
    "a loss without a penalty": (lambda: federation(loss=lambda w, rows: w), "penalty"),
    "bytes of no model": (lambda: safetensors.loads(b"PK"), "safetensors"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_names_its_argument(name):
    call, named = CALLS[name]
    with pytest.raises((ValueError, TypeError, AttributeError), match=named):
        call()
