"""The rows and the summary of a quick sweep, computed without the launcher."""

import importlib

import jax
import numpy as np

import fcojax
from fcojax.problems import population_loss
from fcojax.report.summary import Criterion, summarise
from fcojax.transforms import euclidean


def quick_config(name):
    """The module of a config and its quick config."""
    module = importlib.import_module(f"configs.{name}")
    config = module.get_config()
    module.quick(config)
    return module, config


def quick_sweep(module, config, labels):
    """Rows and summary as the launcher would hand them to ``claims``, for some of the labels."""
    problem, penalty = module.problem(config), module.penalty(config)
    criterion = Criterion(config.criterion, config.criterion_goal, config.criterion_rounds)
    rows, entries = [], {}
    for label in labels:
        own = {}
        if label in getattr(module, "VARIANTS", {}):
            own = module.variant(label, config, problem, penalty)
        factory = getattr(fcojax.algorithms, getattr(module, "VARIANTS", {}).get(label, label))
        geometry = penalty if label == "fed_avg_subgradient" else euclidean(penalty)
        grid = fcojax.product(
            factory.Hparams,
            client_lr=config.client_lr,
            server_lr=config.server_lr,
            penalty_scale=config.penalty_scale,
        )

        def observe(hparams, params, train):
            loss = population_loss(problem.loss, params, train)
            objective = loss + penalty.value(params, hparams.penalty_scale)
            return {"objective": objective, "loss": loss} | problem.measures(params)

        train = own.get("train", problem.train)
        _, history = fcojax.sweep(
            factory(problem.loss, geometry),
            grid,
            problem.init(jax.random.key(0)),
            train,
            jax.random.split(jax.random.key(0), len(config.seeds)),
            num_rounds=config.num_rounds,
            work=own.get("work", fcojax.local_steps(config.num_steps, config.batch_size)),
            cohort=own.get("cohort", fcojax.uniform_cohort(config.cohort_size)),
            observe=observe,
            context=train,
            eval_every=config.eval_every,
        )
        history = {name: np.asarray(values) for name, values in history.items()}
        mine = [
            {
                "algorithm": label,
                **{name: float(column[point]) for name, column in grid._asdict().items()},
                "seed": config.seeds[seed],
                "status": "",
                **{name: values[point, seed, look].item() for name, values in history.items()},
            }
            for point, seed, look in np.ndindex(history["round"].shape)
        ]
        entries[label] = summarise(mine, grid._fields, criterion)
        rows += mine
    return rows, {"algorithms": entries}
