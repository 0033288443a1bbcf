"""FedDualAvg's averaged iterate against its bounds, and averaging of models and of duals."""

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.studies.theory.problem import SETTINGS, ball_task, l1_task, loss
from fcojax import algorithms
from fcojax.algorithms.fed_avg import PenalisedRates
from fcojax.theory import averages, fco


def study(config):
    """The rows of both figures."""
    for setting in SETTINGS:
        task = l1_task(config) if setting == "l1" else ball_task(config)
        for num_steps in config[f"{setting}_num_steps"]:
            yield from bounds(config, setting, task, num_steps)
    yield from curse(config, task)


def bounds(config, setting, task, num_steps):
    """The gap of the averaged shadow iterate, and its bounds."""
    constants = task.constants
    rates = [share * fco.largest_client_lr(constants) for share in config.rate_shares]
    chosen = averages.shadow_average(loss, task.mirror, task.squared_dual_norm)
    _, history = fcojax.sweep(
        chosen._replace(model=_all_of_the_server),
        fcojax.product(PenalisedRates, client_lr=rates, penalty_scale=[task.scale]),
        jnp.asarray(task.start), task.data, jax.random.split(jax.random.key(0), config.seeds),
        fcojax.local_steps(num_steps, 1, replace=True),
        num_rounds=config.num_rounds, eval_every=config.eval_every, observe=_shadow,
    )  # fmt: skip
    gaps = task.objective(np.asarray(history["mean"])) - task.objective(task.optimum)
    discrepancies = np.asarray(history["discrepancy"]).mean(axis=1)
    theorem = fco.gap_from_heterogeneity if setting == "l1" else fco.gap_from_gradients
    for (i, look), discrepancy in np.ndenumerate(discrepancies):
        num_rounds, seen = (look + 1) * config.eval_every, gaps[i, :, look]
        shared = (constants, rates[i], num_steps, num_rounds)
        yield {
            "part": "bound",
            "setting": setting,
            "num_steps": num_steps,
            "rate_share": config.rate_shares[i],
            "round": num_rounds,
            "gap": float(seen.mean()),
            "low": float(np.quantile(seen, 0.1)),
            "high": float(np.quantile(seen, 0.9)),
            "discrepancy": float(discrepancy),
            "lemma": fco.gap_from_discrepancy(*shared, float(discrepancy)),
            "theorem": theorem(*shared, task.far_apart),
        }


def curse(config, task):
    """The gap and the norm of FedMiD's and FedDualAvg's models on the ball."""
    shares = [share * fco.largest_client_lr(task.constants) for share in config.curse_shares]
    for name in ("fed_mid", "fed_dual_avg"):
        factory = getattr(algorithms, name)
        _, history = fcojax.sweep(
            factory(loss, task.mirror),
            fcojax.product(factory.Hparams, client_lr=shares, penalty_scale=[task.scale]),
            jnp.asarray(task.start), task.data,
            jax.vmap(jax.random.key)(jnp.asarray(config.curse_seeds)),
            fcojax.local_steps(config.curse_steps, 1, replace=True),
            num_rounds=config.curse_rounds, eval_every=config.curse_eval_every, observe=_model,
        )  # fmt: skip
        models = np.asarray(history["model"])
        gaps = task.objective(models) - task.objective(task.optimum)
        for (i, j, look), gap in np.ndenumerate(gaps):
            yield {
                "part": "curse",
                "algorithm": name,
                "rate_share": config.curse_shares[i],
                "seed": config.curse_seeds[j],
                "round": (look + 1) * config.curse_eval_every,
                "gap": float(gap),
                "norm": float(np.linalg.norm(models[i, j, look])),
            }


def _all_of_the_server(hparams, server):
    return server


def _shadow(hparams, server, context):
    return {"mean": server.mean, "discrepancy": server.discrepancy}


def _model(hparams, params, context):
    return {"model": params}
