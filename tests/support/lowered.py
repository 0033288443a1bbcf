"""Every program of the library, lowered for accelerators on a machine without one.

It runs in a separate process, because the other tests are in float64 and accelerators are not, and
prints one JSON object, the faults of each program by platform.
"""

import functools
import json
import re
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from configs import lasso
from experiments.config.settings import resolve
from experiments.execution.evaluation import observer
from experiments.execution.jobs import build
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Program
from fcojax.engine.run import advance_compiled, advance_donating, run_compiled
from fcojax.xla import rules
from tests.laws import (
    test_algorithm_laws,
    test_calculus_laws,
    test_manifold_laws,
    test_mirror_laws,
    test_penalty_laws,
    test_spectral_laws,
)
from tests.problems.families import BUILDERS, family
from tests.support import federations

# The custom calls of each platform; those of both are annotations for the compiler.
_NOTES = r"Sharding|SPMDFullToShardShape|SPMDShardToFullShape|annotate_device_placement"
KNOWN = {
    "cuda": rf"cusolver_\w+|cublas\w*|cu_\w+|{_NOTES}",
    "tpu": rf"Eigh|Qr|ProductOfElementaryHouseholderReflectors|LuDecomposition|{_NOTES}",
}


def faults(traced, platform: str) -> list[str]:
    """Return the fault of a traced program on a platform, or an empty text."""
    called = sorted(set(re.findall(r"\b(\w+_callback|debug_print)\[", str(traced.jaxpr))))
    if called:
        return [f"it calls back to the host ({', '.join(called)})"]
    try:
        text = traced.lower(lowering_platforms=(platform,)).as_text()
    except Exception as error:  # the test shows it
        return [f"it cannot be lowered: {str(error).splitlines()[0]}"]
    found = [f"{kind} in it" for kind in ("f64", "c128") if re.search(rf"[x<]{kind}\b", text)]
    calls = set(re.findall(r"custom_call @([\w$.]+)", text))
    lacking = sorted(call for call in calls if not re.fullmatch(KNOWN[platform], call))
    return found + [f"it calls {call}, which {platform} lacks" for call in lacking]


def single(tree):
    """Return the same arrays in single precision."""
    return jax.tree.map(
        lambda leaf: (
            np.asarray(leaf, np.float32)
            if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
            else leaf
        ),
        tree,
    )


@functools.cache
def _population():
    return fcojax.from_clients([single(client) for client in test_algorithm_laws.CLIENTS])


def a_round(name):
    """A plan of minibatch epochs for clients of different sizes, some of them absent."""
    chosen, hparams, data = _algorithm(name), test_algorithm_laws.rates(name), _population()
    cohort = (
        fcojax.everyone() if chosen.facts.needs_everyone else fcojax.uniform_cohort(cohort_size=3)
    )
    same_for_all = name in ("fed_gd", "prox_skip")
    work = fcojax.local_steps(1) if same_for_all else fcojax.local_epochs(1, 2)
    plan = fcojax.Plan(work, cohort)
    key, at = jax.random.key(0), test_algorithm_laws.point(name, jnp.float32)
    state = jax.eval_shape(lambda key: fcojax.start(chosen, hparams, at, data, key, plan), key)
    return advance_compiled.trace(Program(chosen, plan), as_arrays(hparams), data, state, None)


def a_sweep(name):
    """Two points and two seeds, full batches."""
    hparams = test_algorithm_laws.rates(name)
    grid = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), as_arrays(hparams))
    given = grid, test_algorithm_laws.point(name, jnp.float32), _population()
    keys = jax.random.split(jax.random.key(0), 2)
    plan = fcojax.Plan(fcojax.local_steps(2))
    return run_compiled.trace(Program(_algorithm(name), plan, None), *given, keys, None)


@functools.cache
def _algorithm(name):
    row = test_algorithm_laws.ROWS[name]
    geometry = () if row.geometry is None else (row.geometry,)
    return test_algorithm_laws.factory(name)(federations.quadratic, *geometry)


def a_prox(penalty, point):
    return jax.jit(lambda v, step: penalty.prox(v, step, step)).trace(point, np.float32(0.5))


def maps_of_a_mirror(mirror):
    def every(x, z, step):
        return mirror.to_dual(x), mirror.to_primal(z, step, step), mirror.from_dual(z)

    flat = np.full(test_mirror_laws.SIZE, 0.1, np.float32)
    point = test_mirror_laws.to_tree(jnp.asarray(flat))
    return jax.jit(every).trace(point, point, np.float32(0.5))


def maps_of_a_manifold(row):
    """Trace all maps of a manifold, and the derivative of its projection."""
    manifold = row.manifold
    point = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), row.like)
    pairs = [getattr(manifold, name) for name in ("exp", "log", "inverse_retract")]

    def every(x, v):
        first = manifold.project(x), manifold.to_tangent(x, v), manifold.retract(x, v)
        along = jax.jvp(manifold.project, (x,), (v,))[1]
        return first, along, [pair(x, v) for pair in pairs if pair]

    return jax.jit(every).trace(point, point)


def measures_and_gradient(name):
    problem = family(name).problem
    params = jax.eval_shape(problem.init, jax.random.key(0))
    rows = jax.tree.map(lambda leaf: leaf[:2], problem.train.examples)

    def every(params, rows):
        slope = jax.grad(lambda params: problem.loss(params, rows).mean())
        return problem.measures(params), slope(params)

    return jax.jit(every).trace(params, rows)


def the_launchers_block():
    """Trace rounds of a grid and an evaluation with the LASSO's observer, as in the launcher."""
    sweep, config = lasso.EXPERIMENT, lasso.get_config()
    lasso.quick(config)
    settings = resolve(config, sweep)
    problem, penalty = sweep.problem(config), sweep.penalty(config)
    entry = build(sweep, config, settings, problem, penalty)[0]
    keys = jax.random.split(jax.random.key(0), 2)
    given = entry.algorithm, entry.grid, problem.init, entry.train
    state = jax.eval_shape(lambda keys: fcojax.start(*given, keys, entry.plan), keys)
    look = observer(problem, penalty, settings.penalty_scales[0])
    program = Program(entry.algorithm, entry.plan, look, 1, settings.keys.eval_every)
    context = problem.train, problem.validation
    num_rounds = np.int32(settings.keys.eval_every)
    return advance_donating.trace(program, entry.grid, entry.train, state, context, num_rounds)


def programs():
    """Return all programs by name, as functions that trace them."""
    found = {"the launcher's block": the_launchers_block}
    for name in test_algorithm_laws.ROWS:
        found[f"{name}, a round"] = functools.partial(a_round, name)
        found[f"{name}, a sweep"] = functools.partial(a_sweep, name)
    penalties = test_penalty_laws.PENALTIES | test_calculus_laws.PENALTIES
    for name, row in (penalties | test_spectral_laws.PENALTIES).items():
        found[f"prox of {name}"] = functools.partial(a_prox, row.penalty, single(row.point))
    for name, row in test_mirror_laws.MIRRORS.items():
        found[f"mirror {name}"] = functools.partial(maps_of_a_mirror, row.mirror)
    for name, row in test_manifold_laws.ROWS.items():
        found[f"manifold {name}"] = functools.partial(maps_of_a_manifold, row)
    for name in BUILDERS:
        found[f"measures of {name}"] = functools.partial(measures_and_gradient, name)
    return found


def main(names):
    """Print the faults of some programs."""
    known, found = programs(), {}
    for name in names:
        # The rules are the same for all accelerators, so one trace serves both.
        with rules.pretend("cuda"):
            traced = known[name]()
            found[name] = {platform: faults(traced, platform) for platform in KNOWN}
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
