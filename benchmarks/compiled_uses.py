"""What the launcher, studies, solvers, streams and networks of others compile.

A use is run once with the engine's programs replaced by zeros of the shapes that they return: their
arguments are kept, nothing is computed by them, and a study that does not bear zeros ends early.
"""

import functools
import importlib
import pathlib
import sys
import types
import unittest.mock
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

import fcojax
from benchmarks import compiled_programs, emnist_cnn, emnist_models
from benchmarks.compiled_programs import Compilable
from benchmarks.settings import plan
from benchmarks.workloads import WORKLOADS
from experiments.config.settings import resolve
from experiments.execution.evaluation import observer
from experiments.execution.jobs import build
from experiments.study import Sweep
from fcojax import memo, networks
from fcojax.engine.program import Program
from fcojax.engine.stepper import advance_traced
from fcojax.transforms import grassmann, l1, stiefel, trend_filter
from fcojax.xla.rules import pretend

CONFIGS = sorted(
    path.stem for path in (pathlib.Path(__file__).parent.parent / "configs").glob("[a-z]*.py")
)


def recorded(use: Callable[[], object], x64: bool = False) -> dict[str, Compilable]:
    """Return the engine's programs that a use would run, by name."""
    found: dict[str, Compilable] = {}

    def jit(function, **options):
        compiled, forms = jax.jit(function, **options), set()

        def call(*args):
            if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(args)):
                return compiled(*args)
            shapes = jax.tree.map(lambda leaf: (np.shape(leaf), str(jnp.result_type(leaf))), args)
            if str(shapes) not in forms:
                forms.add(str(shapes))
                name = f"{function.__name__.removesuffix('_traced')} {len(found) + 1}"
                found[name] = Compilable(function, args, 1, x64=x64)
            return jax.tree.map(_zeros, jax.eval_shape(compiled, *args))

        for name in ("trace", "lower", "eval_shape"):
            setattr(call, name, getattr(compiled, name))
        return call

    stand_in = types.SimpleNamespace(jit=jit, Array=jax.Array)
    replaced = unittest.mock.patch.object(memo, "jax", stand_in)
    with replaced, jax.enable_x64(x64), pretend("cuda", int(1.4e11)):
        try:
            use()
        except Exception as error:
            if not found:
                raise
            print(f"# recorded until {type(error).__name__}: {error}", file=sys.stderr)
    return found


def _zeros(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), leaf.shape)
    return jnp.zeros(leaf.shape, leaf.dtype)


def of_config(name: str, quick: bool = True) -> dict[str, Compilable]:
    """Return the programs of a config file: of a sweep its blocks, one for each algorithm."""
    file = importlib.import_module(f"configs.{name}")
    experiment, config = file.EXPERIMENT, file.get_config()
    if quick:
        file.quick(config)
    if not isinstance(experiment, Sweep):
        return recorded(lambda: list(experiment.rows(config)), experiment.x64)
    with jax.enable_x64(experiment.x64):
        settings = resolve(config, experiment)
        problem, penalty = experiment.problem(config), experiment.penalty(config)
        look = observer(problem, penalty, settings.penalty_scales[0])
        keys = jax.random.split(jax.random.key(0), len(config.seeds))
        found = {}
        for job in build(experiment, config, settings, problem, penalty):

            def begin(keys, job=job):
                init = problem.init
                return fcojax.start(job.algorithm, job.grid, init, job.train, keys, job.plan)

            program = Program(job.algorithm, job.plan, look, 1, settings.eval_every)
            state = jax.eval_shape(begin, keys)
            arguments = job.grid, job.train, state, (problem.train, problem.validation)
            block = functools.partial(_block, program)
            found[job.label] = Compilable(block, arguments, settings.eval_every, x64=experiment.x64)
    return found


def _block(program, grid, data, state, context):
    return advance_traced(program, grid, data, state, context)


def _least_squares(num_clients: int = 64):
    """The population of W1, in memory."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_clients * 128, 1024), dtype=np.float32)
    return fcojax.from_rows({"x": x, "y": x[:, 0]}, [128] * num_clients)


def _solved(of: Callable) -> dict[str, Compilable]:
    chosen = compiled_programs.made("fed_dual_avg", compiled_programs.least_squares)
    how, start = fcojax.Plan(*plan(WORKLOADS["W1"])), jnp.zeros(1024, jnp.float32)
    return recorded(lambda: of(chosen, start, _least_squares(), jax.random.key(0), how))


def solved() -> dict[str, Compilable]:
    """Return the programs of ``solve`` on W1."""
    return _solved(
        lambda chosen, start, *others: fcojax.solve(
            chosen,
            chosen.hparams_type(),
            start,
            *others,
            max_rounds=100,
            eval_every=10,
            certificate=fcojax.kkt(compiled_programs.least_squares, l1()),
        )
    )


def along_a_path() -> dict[str, Compilable]:
    """Return the programs of a path of strengths on the data of W1."""
    problem = fcojax.problems.lasso(num_clients=64, num_examples=128, dim=1024)
    return recorded(lambda: fcojax.path(problem, l1(), strengths=5))


def estimated() -> dict[str, Compilable]:
    """Return the program of confidence intervals in float64."""

    def use():
        x = np.random.default_rng(0).standard_normal((60, 8))
        problem = fcojax.problems.least_squares(fcojax.from_rows({"x": x, "y": x[:, 0]}, [40, 20]))
        fcojax.selection.intervals(problem, jnp.zeros(8))

    return recorded(use, x64=True)


def linear_systems() -> Compilable:
    """Return the maps of the library that solve linear systems, in float64."""
    manifolds = (
        stiefel(),
        stiefel(retraction="qr"),
        grassmann(),
    )

    def run(x, y, signal):
        inverses = [manifold.inverse_retract for manifold in manifolds]
        tangents = [inverse(x, y) for inverse in inverses if inverse is not None]
        return tangents, trend_filter().prox(signal, 1.0, 0.1)

    frame = _wide(12, 3)
    return Compilable(run, (frame, frame, _wide(20)), 1, x64=True)


def _wide(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float64)


def streamed() -> dict[str, Compilable]:
    """Return the programs of a stream's blocks on W1."""

    def use(chosen, start, data, key, how):
        stream = fcojax.Stream(data, how, eval_every=10)
        hparams = chosen.hparams_type()
        state = stream.start(chosen, hparams, start, key)
        stream.advance(chosen, hparams, state, num_rounds=20)

    return _solved(use)


def of_others(name: str, loss_by_hand: bool = False) -> Compilable:
    """Return W7 with the network as one writes it in another library.

    Args:
      name: the library.
      loss_by_hand: whether one writes the loss too, or takes ``networks.network``.
    """
    workload, rows = WORKLOADS["W7"], {"x": [(28, 28, 1), jnp.float32], "y": [(), jnp.int32]}
    params, logits = emnist_models.MODELS[name](emnist_cnn.start())

    def by_hand(params, rows):
        score = logits(params, rows["x"])
        picked = jnp.take_along_axis(score, rows["y"][:, None], 1)[:, 0]
        return jax.nn.logsumexp(score, -1) - picked

    functions = networks.Functions(lambda key: params, lambda params, x, key: logits(params, x))
    few = {name: np.zeros((2, *sides), dtype) for name, (sides, dtype) in rows.items()}
    task = networks.network(functions, fcojax.from_rows(few, [1, 1]), num_classes=62)
    data = compiled_programs.population(workload.num_clients, workload.num_examples, **rows)
    chosen = fcojax.algorithms.fed_avg(by_hand if loss_by_hand else task.loss)
    how = fcojax.Plan(*plan(workload))
    return compiled_programs.rounds_of(chosen, params, data, how, rounds=10)


def in_float64(name: str, algorithm: str) -> Compilable:
    """Return the rounds of a linear workload in float64."""
    program = compiled_programs.of_workload(name, algorithm)

    def wide(leaf):
        if hasattr(leaf, "dtype") and leaf.dtype == jnp.float32:
            return _wide(*jnp.shape(leaf))
        return leaf

    return program._replace(arguments=jax.tree.map(wide, program.arguments), x64=True)


def uses() -> dict[str, Callable[[], Compilable | dict[str, Compilable]]]:
    """Return all of them by name; some are several programs."""
    found: dict[str, Callable] = {
        "W9": functools.partial(of_config, "lasso", quick=False),
        "solve": solved,
        "path": along_a_path,
        "stream": streamed,
        "float64, W1 fed_dual_avg": functools.partial(in_float64, "W1", "fed_dual_avg"),
        "float64, intervals": estimated,
        "float64, linear systems": linear_systems,
    }
    for name in ("linen", "nnx", "haiku", "equinox"):
        found[f"W7 in {name}"] = functools.partial(of_others, name)
    found["W7, a loss by hand"] = functools.partial(of_others, "linen", loss_by_hand=True)
    return found | {f"config {name}": functools.partial(of_config, name) for name in CONFIGS}
