"""Users' algorithms and problems outside the repository, through the whole launcher."""

import collections
import json
import sys

import pytest

from configs import lasso
from experiments.config import algorithms
from experiments.config.settings import resolve
from experiments.execution import jobs
from experiments.report import rows as tidy
from fcojax.algorithms import fed_avg, takes
from fcojax.transforms import entropy, sphere
from tests.experiments.test_run import ROOT, TOY, launch

# Server momentum; with momentum zero it is FedAvg with a server rate of one.
MINE = """
from typing import NamedTuple

import jax

from fcojax.algorithms import fed_avg, takes


class Rates(NamedTuple):
    client_lr: float
    momentum: float
    server_lr: float = 1.0


@takes(Rates)
def heavy_ball(loss):
    averaging = fed_avg(loss)

    def init(hparams, params):
        return (params, jax.tree.map(lambda leaf: 0 * leaf, params)), ()

    def server_update(hparams, server, mean_upload, fraction, key):
        point, speed = server
        speed = jax.tree.map(lambda v, d: hparams.momentum * v + d, speed, mean_upload)
        return jax.tree.map(lambda w, v: w + v, point, speed), speed

    return averaging._replace(
        init=init,
        broadcast=lambda hparams, server: server[0],
        server_update=server_update,
        model=lambda hparams, server: server[0],
    )


def scheme(loss):
    return heavy_ball(loss)


built = heavy_ball(None)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.slow
def test_an_algorithm_of_a_module_has_rows_a_best_point_a_model_and_a_line(folder):
    """Without momentum its rows equal those of FedAvg."""
    arguments = [argument.replace("configs/", f"{ROOT}/configs/") for argument in TOY]
    arguments += ["--config.algorithms=mine:heavy_ball,fed_avg", "--config.momentum=0.0,0.5"]
    arguments += ["--config.criterion=objective", "--config.criterion_goal=min"]
    done = launch(*arguments, "--workdir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    rows = tidy.load(folder / "run" / "rows.jsonl")
    theirs = [row for row in rows if row["algorithm"] == "heavy_ball"]
    assert {row["momentum"] for row in theirs} == {0.0, 0.5} and len(theirs) == 2 * 2 * 5
    plain = [row["objective"] for row in theirs if row["momentum"] == 0]
    ours = [row["objective"] for row in rows if row["algorithm"] == "fed_avg"]
    assert plain == pytest.approx(ours, rel=1e-5)  # in float32, by different programs
    summary = json.loads((folder / "run" / "summary.json").read_text())["algorithms"]
    assert summary["heavy_ball"]["best"].keys() == {"client_lr", "momentum", "server_lr"}
    assert summary["heavy_ball"]["best"]["momentum"] == 0.5
    assert (folder / "run" / "models" / "heavy_ball.npz").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine:heavi_ball", "mine has no heavi_ball; did you mean heavy_ball?"),
        ("mine:built", "mine:built has no Hparams"),
        ("scheme", "scheme has no Hparams"),
    ],
)
def test_a_name_that_is_no_factory_is_refused(name, message, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    own = sweep({"heavy": fed_avg, "scheme": lambda loss: fed_avg(loss)})
    with pytest.raises(ValueError, match=r"^[^\n]*$") as error:
        algorithms.find([name], own)
    assert message in str(error.value)


def test_a_hyperparameter_is_in_the_config_or_has_a_default_and_is_no_column_of_the_rows():
    config = lasso.get_config()
    config.algorithms = ("fresh",)
    for field, message in (("momentum", "fresh needs momentum"), ("round", "a column of that")):
        hparams = collections.namedtuple("Rates", ["client_lr", field])
        with pytest.raises(ValueError, match=message):
            resolve(config, sweep({"fresh": takes(hparams)(lambda loss: fed_avg(loss))}))


def test_a_factory_makes_an_algorithm():
    with pytest.raises(ValueError, match="maker returned a function, not an Algorithm"):
        built({"maker": takes(fed_avg.Hparams)(lambda loss: fed_avg)})


def test_a_sweep_hands_its_own_geometry_to_the_factories_that_name_it():
    given = []

    @takes(fed_avg.Hparams, "manifold", "mirror")
    def both(loss, manifold, mirror):
        given.extend((manifold, mirror))
        return fed_avg(loss)

    manifold, mirror = sphere(), entropy()
    job = built([both], manifold=lambda config: manifold, mirror=lambda config, penalty: mirror)
    assert job.label == "both" and given[0] is manifold and given[1] is mirror


def sweep(algorithms):
    return lasso.EXPERIMENT._replace(algorithms=algorithms)


def built(algorithms, **changes):
    """Return the job of the only algorithm of a sweep."""
    own, config = sweep(algorithms)._replace(**changes), lasso.get_config()
    lasso.quick(config)
    config.algorithms = tuple(one if isinstance(one, str) else one.__name__ for one in algorithms)
    problem, penalty = own.problem(config), own.penalty(config)
    (job,) = jobs.build(own, config, resolve(config, own), problem, penalty)
    return job
