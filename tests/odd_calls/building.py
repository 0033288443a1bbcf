"""Odd algorithms, penalties and reference solves: factories called with the wrong things."""

import functools

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

import fcojax
from fcojax import algorithms, problems, reference, selection, transforms
from fcojax.algorithms import local_solvers
from fcojax.problems import loaders
from fcojax.transforms import euclidean, group_l2, l1, l2, nuclear, sphere
from tests.odd_calls.table import DATA, FED_AVG, RATES, ZERO, gives, ran, says, squares

PROBLEM = problems.Problem(squares, DATA, None, lambda key: ZERO)


def optimised(*penalty, **options):
    """The model after a round of FedOpt with FedOpt's own hyperparameters."""
    chosen = algorithms.fed_opt(squares, *penalty, **options)
    return ran(algorithm=chosen, hparams=algorithms.fed_opt.Hparams(0.5))


FACTORIES = {
    "no loss": says(lambda: algorithms.fed_avg(), "call fed_avg(loss)"),
    "a loss of None": says(
        lambda: ran(algorithm=algorithms.fed_avg(None)), "loss is None; pass a function"
    ),
    "a number as loss": says(lambda: algorithms.fed_avg(3), "loss is 3; pass a function (params,"),
    "the value of a loss": says(
        lambda: algorithms.fed_avg(squares(ZERO, {"a": ZERO})), "pass a function (params, examples)"
    ),
    "a problem as loss": says(lambda: algorithms.fed_avg(PROBLEM), "pass problem.loss"),
    "a loss of one argument": says(
        lambda: algorithms.fed_avg(lambda w: w), "pass a function (params, examples)"
    ),
    "a loss that was cached": gives(
        lambda: ran(algorithm=algorithms.fed_avg(functools.partial(squares))), 1.0
    ),
    "a penalty too many": says(
        lambda: algorithms.fed_avg(squares, l1()), "too many positional arguments; call fed_avg(los"
    ),
    "an option that is not there": says(
        lambda: algorithms.fed_avg(squares, momentum=0.9), "'momentum'; call fed_avg(loss)"
    ),
    "a penalty for a mirror": says(
        lambda: algorithms.fed_mid(squares, l1()), "mirror is a Penalty; pass a mirror, as in eucli"
    ),
    "a penalty for a mirror in FedDualAvg": says(
        lambda: algorithms.fed_dual_avg(squares, l1()), "mirror is a Penalty; pass a mirror"
    ),
    "a mirror for a penalty": says(
        lambda: algorithms.fed_avg_subgradient(squares, euclidean(l1())),
        "penalty is a Mirror; pass a penalty, as in l1()",
    ),
    "a mirror for FedDyn's penalty": says(
        lambda: algorithms.fed_dyn(squares, euclidean(l1())), "penalty is a Mirror"
    ),
    "a mirror for FedPD's penalty": says(
        lambda: algorithms.fed_pd(squares, euclidean(l1())), "penalty is a Mirror"
    ),
    "no mirror": says(lambda: algorithms.fed_mid(squares), "call fed_mid(loss, mirror"),
    "a mirror of None": says(lambda: algorithms.fed_mid(squares, None), "mirror is None; pass a m"),
    "a penalty that was not called": says(
        lambda: algorithms.fed_avg_subgradient(squares, l1), "call it: l1("
    ),
    "a mirror that was not called": says(
        lambda: algorithms.fed_mid(squares, euclidean), "call it: euclidean("
    ),
    "no manifold": says(lambda: algorithms.r_fed_avg(squares), "call r_fed_avg(loss, manifold"),
    "a penalty for a manifold": says(
        lambda: algorithms.fed_manifold(squares, l1()), "manifold is a Penalty; pass a manifold"
    ),
    "a manifold for a penalty": says(
        lambda: algorithms.fed_dyn(squares, sphere()), "penalty is a Manifold; pass a penalty"
    ),
    "a manifold that was not called": says(
        lambda: algorithms.r_fed_svrg(squares, sphere), "call it: sphere("
    ),
    "other maps": says(lambda: algorithms.r_fed_avg(squares, sphere(), maps="log"), "maps is"),
    "no penalty for FedDyn": gives(
        lambda: algorithms.fed_dyn(squares) is algorithms.fed_dyn(squares), True
    ),
    "another report": says(lambda: algorithms.fed_dyn(squares, report="x"), "report is 'x'; pass"),
    "a solver that was not called": says(
        lambda: algorithms.fed_dyn(squares, solver=local_solvers.gd), "call it: gd("
    ),
    "a number as solver": says(
        lambda: algorithms.fed_pd(squares, solver=3), "solver is 3; pass a local solver, as in gd()"
    ),
    "a prox that is nowhere": says(
        lambda: algorithms.scaffold(squares, prox="both"), "prox is 'both'; pass one of client, "
    ),
    "another control": says(
        lambda: algorithms.scaffold(squares, control="I"), "control is 'I'; pass one of steps, grad"
    ),
    "another way to count steps": says(
        lambda: algorithms.prox_skip(squares, steps="random"), "steps is 'random'; pass one of all"
    ),
    "unequal steps for ProxSkip": says(
        lambda: ran(
            algorithm=algorithms.prox_skip(squares), hparams=algorithms.prox_skip.Hparams(),
            plan=fcojax.local_epochs(1, 1),
        ),
        "clients take different numbers of steps, but prox_skip needs the same of all; pass",
    ),
    "another report of FedExP": says(
        lambda: algorithms.fed_exp(squares, report="server"), "report is 'server'; pass one of aver"
    ),
    "a negative delay": says(
        lambda: algorithms.fed_dr(squares, max_delay=-1), "max_delay is -1; pass a whole number of "
    ),
    "a penalty for a vertex": says(
        lambda: algorithms.fed_fw(squares, vertex=l1()), "pass a function such as l1_vertex"
    ),
    "a vertex of no matrix": says(
        lambda: transforms.nuclear_vertex(jnp.ones(2), 1.0), "met a leaf of shape (2,); pass a tree"
    ),
    "an optimiser that was built": says(
        lambda: algorithms.fed_opt(squares, server=optax.adam(0.1)),
        "pass a function of hparams, as in server=lambda h: optax.adam(h.server_lr)",
    ),
    "an optimiser of optax as it is": says(
        lambda: algorithms.fed_opt(squares, client=optax.adam),
        "client is adam, a function of a rate; pass a function of hparams",
    ),
    "an optimiser of numbers that are not there": says(
        lambda: optimised(server=lambda h: optax.adam(h.server_lr, b1=h.b1)),
        "server= cannot be made of PenalisedRates(client_lr, server_lr, penalty_scale)",
    ),
    "a number for an optimiser": says(
        lambda: optimised(client=lambda h: h.client_lr), "client= returned"
    ),
    "a penalty beside an optimiser of optax": says(
        lambda: optimised(l1(), server=lambda h: optax.adam(h.server_lr)),
        "whose metric nobody can tell",
    ),
    "clients of their own beside a server's prox": says(
        lambda: optimised(l1(), client=lambda h: optax.adam(h.client_lr)),
        "pass server_prox=False",
    ),
    "a penalty that nobody applies": says(
        lambda: algorithms.fed_opt(squares, l1(), server_prox=False), "neither client_prox nor"
    ),
    "a penalty for clients with an optimiser of optax": says(
        lambda: optimised(
            l1(), client=lambda h: optax.adam(h.client_lr), client_prox=True, server_prox=False
        ),
        "or client_prox=False",
    ),
    "a term without its strength": says(
        lambda: algorithms.fed_opt(squares, proximal_term=True),
        "PenalisedRates has no field prox_scale, which these arguments need",
    ),
    "values for a type of hyperparameters": says(
        lambda: algorithms.fed_opt(squares, hparams=RATES(0.5)), "pass the type of the hyperparam"
    ),
    "hyperparameters of another type": says(
        lambda: optimised(hparams=algorithms.fed_adam.Hparams),
        "but this algorithm takes AdaptiveRates(",
    ),
    "a norm for FedAdam": says(
        lambda: algorithms.fed_adam(squares, l2()), "fed_adam was given a penalty that couples"
    ),
    "a norm of matrices for FedYogi": says(
        lambda: algorithms.fed_yogi(squares, nuclear()), "that does not act entry by entry"
    ),
    "a norm for FedAvgM": gives(lambda: ran(algorithm=algorithms.fed_avg_m(squares, l2()),
        hparams=algorithms.fed_avg_m.Hparams(0.5, penalty_scale=0.0)), 1.0
    ),
    "no refreshment": says(
        lambda: local_solvers.variance_reduced(refresh_every=0), "refresh_every is 0; pass a whole"
    ),
    "refreshment of numpy's": gives(
        lambda: isinstance(
            local_solvers.variance_reduced(refresh_every=np.int64(2)), local_solvers.Solver
        ),
        True,
    ),
    "the geometry before the hyperparameters": says(
        lambda: algorithms.takes("penalty", RATES), "takes was given 'penalty' as the type of the"
    ),
    "a function for a geometry's name": says(
        lambda: algorithms.takes(RATES, "prox"), "there is no geometry 'prox'; pass names out of"
    ),
    "an algorithm that returns two things": says(
        lambda: ran(
            algorithm=FED_AVG._replace(client_update=lambda h, m, client, local, key: (client, m))
        ),
        "client_update returned (",
    ),
    "an algorithm whose init returns one": says(
        lambda: ran(algorithm=FED_AVG._replace(init=lambda hparams, params: params)),
        "init returned",
    ),
    "an algorithm whose server changes its form": says(
        lambda: ran(
            algorithm=FED_AVG._replace(server_update=lambda h, s, u, c, k: jnp.stack([s, u]))
        ),
        "server_update returned a state of another form",
    ),
    "an algorithm whose clients change their form": says(
        lambda: ran(
            algorithm=FED_AVG._replace(
                client_update=lambda h, m, client, local, key: algorithms.ClientResult(m, m, {})
            )
        ),
        "client_update returned a state of another form",
    ),
}  # fmt: skip

PENALTIES = {
    "labels as an array": gives(
        lambda: group_l2(labels=np.array([0, 0])).prox(jnp.array([3.0, 4.0]), 1.0, 2.5).tolist(),
        [1.5, 2.0],
    ),
    "labels as JAX's array": gives(
        lambda: group_l2(labels=jnp.array([0, 0])).prox(jnp.array([3.0, 4.0]), 1.0, 2.5).tolist(),
        [1.5, 2.0],
    ),
    "no groups": says(lambda: group_l2(), "exactly one"),
    "a negative label": says(lambda: group_l2(labels=np.array([-1])), "integers from 0"),
    "a negative strength": says(lambda: l1().prox(ZERO, 1.0, -1.0), "l1 was given scale -1.0"),
    "a negative step": says(lambda: l1().prox(ZERO, -1.0, 1.0), "l1 was given step -1.0"),
    "a negative weight": says(lambda: transforms.weighted_l1(np.array([-1.0])), "weight of -1.0"),
    "an empty box": says(lambda: transforms.box(1.0, 0.0), "empty"),
    "half a nonzero": says(lambda: transforms.l0_ball(1.5), "integer"),
    "a strength below zero": says(
        lambda: reference.optimum(PROBLEM, l1(), -1.0), "scale is -1.0, but the strength"
    ),
    "a strength that is NaN": says(
        lambda: reference.optimum(PROBLEM, l1(), float("nan")), "scale is nan"
    ),
    "a penalty of a subtree that was not called": says(
        lambda: transforms.on_subtree(l1, transforms.named("kernel")),
        "on_subtree was given the function l1; call it: l1().",
    ),
    "a mirror of a penalty that was not called": says(
        lambda: euclidean(l1), "euclidean was given the function l1; call it: l1()."
    ),
    "a mirror of a box that was not called": says(
        lambda: euclidean(transforms.box), "the function box; call it: box(...)."
    ),
    "a penalty for each leaf that was not called": says(
        lambda: transforms.per_leaf(l1), "per_leaf was given the function l1; call it"
    ),
    "a mirror of a mirror": says(
        lambda: euclidean(euclidean(l1())), "euclidean was given a Mirror; pass its .penalty"
    ),
    "a metric of a penalty that was not called": says(
        lambda: transforms.diagonal(1.0, l1), "diagonal was given the function l1; call it"
    ),
    "a mirror for an optimum": says(
        lambda: reference.optimum(PROBLEM, euclidean(l1()), 0.1),
        "optimum was given a Mirror; pass its .penalty",
    ),
    "a number for a penalty": says(
        lambda: reference.optimum(PROBLEM, 0.1, 0.1), "was given a float; pass a penalty, as in l1"
    ),
    "a name for a predicate": says(
        lambda: transforms.on_subtree(l1(), "kernel"), "pass named('kernel')"
    ),
    "a name for a mirror's predicate": says(
        lambda: transforms.side_by_side("kernel", euclidean(l1()), euclidean(l1())),
        "side_by_side was given 'kernel' for its predicate; pass named('kernel')",
    ),
    "a list of names": says(
        lambda: transforms.named(["kernel", "bias"]), "as strings: named('kernel', 'bias')"
    ),
    "labels as a list of numbers": says(
        lambda: group_l2(labels=[0, 0, 1]), "labels as lists of numbers; pass jnp.array(labels)"
    ),
    "labels as lists of numbers": says(
        lambda: group_l2(labels=[[0, 0, 1]]), "pass arrays in a list, as in [jnp.array([0, 0, 1])]"
    ),
    "labels of a subtree that are not in a list": says(
        lambda: transforms.on_subtree(
            group_l2(labels=np.array([0, 0])), transforms.named("w")
        ).value({"w": jnp.ones(2), "bias": ZERO}, 1.0),
        "pass a list, with one array for each touched leaf",
    ),
    "a predicate that was not called": says(
        lambda: transforms.on_subtree(l1(), transforms.named).value({"bias": ZERO}, 1.0),
        "on_subtree was given the function named; call it: named('kernel')",
    ),
    "a predicate that returns another": says(
        lambda: transforms.on_subtree(l1(), lambda path, leaf: transforms.named("kernel")).value(
            {"bias": ZERO}, 1.0
        ),
        "returned a function for ['bias']; return True or False",
    ),
    "a predicate that does not answer": says(
        lambda: transforms.on_subtree(l1(), lambda path, leaf: None).value({"bias": ZERO}, 1.0),
        "returned a NoneType for ['bias']; return True or False",
    ),
}

CAPITALS = fcojax.from_rows({"X": np.ones((2, 3)), "y": np.array([0, 1])}, [1, 1])
COLUMN = fcojax.from_rows({"x": np.ones(2), "y": np.array([0, 1])}, [1, 1])
ROWS = fcojax.from_rows({"x": np.ones((2, 3), np.float32), "y": np.array([0, 1])}, [1, 1])


class Net(linen.Module):
    """One layer."""

    @linen.compact
    def __call__(self, x):
        return linen.Dense(2)(x)


PROBLEMS = {
    f"{make.__name__} of rows in capitals": says(
        functools.partial(make, CAPITALS), "has fields X, y; the problem needs x and "
    )
    for make in (
        problems.linear, problems.least_squares, problems.logistic, problems.poisson, problems.cox,
        problems.huber_regression, problems.quantile_regression, problems.squared_hinge,
    )
} | {
    "softmax of rows in capitals": says(
        lambda: problems.softmax(CAPITALS, num_classes=2), "has fields X, y; the problem needs x a"
    ),
    "a column for the features": says(
        lambda: problems.logistic(COLUMN), "x has shape (2,); pass [rows, features]"
    ),
    "a column for the features of least squares": says(
        lambda: problems.least_squares(COLUMN), "x has shape (2,); pass [rows, features]"
    ),
    "a column for the features of counts": says(
        lambda: problems.poisson(COLUMN), "x has shape (2,); pass [rows, features]"
    ),
    "rows for a population": says(
        lambda: problems.logistic({"x": np.ones((2, 3)), "y": np.array([0, 1])}),
        "pass a population made by fcojax.from_clients",
    ),
    "the clients before the network": says(
        lambda: problems.networks.network(ROWS, Net(), num_classes=2),
        "pass the model first, then the clients",
    ),
    "pooled arrays without names": says(
        lambda: loaders.by_client(loaders.Pooled(np.ones((2, 3)), np.ones(2))),
        "pass Pooled({'x': x, 'y': y}, client)",
    ),
    "a dictionary for pooled arrays": says(
        lambda: loaders.by_client({"x": np.ones((2, 3))}, np.ones(2)),
        "pass Pooled({'x': x, 'y': y}, client)",
    ),
    "a dictionary without its incomplete rows": says(
        lambda: loaders.drop_incomplete({"x": np.ones((2, 3))}), "pass Pooled({'x': x"
    ),
    "rows that have no name": says(
        lambda: problems.linear(fcojax.from_rows(np.ones((2, 3)), [1, 1])), "has no fields by name"
    ),
    "the class of a network": says(
        lambda: problems.networks.network(Net, ROWS, num_classes=2), "the class Net; call it: Net()"
    ),
    "a way to split that was not called": says(
        lambda: selection.select(problems.logistic(ROWS), l1(), by=selection.by_client),
        "by is the function by_client; call it: by_client()",
    ),
    "a criterion that was not called": says(
        lambda: selection.select(problems.logistic(ROWS), l1(), by=selection.aic),
        "by is the function aic; call it: aic()",
    ),
}  # fmt: skip

TABLE = {
    f"{place}: {name}": odd
    for place, rows in (("factory", FACTORIES), ("penalty", PENALTIES), ("problem", PROBLEMS))
    for name, odd in rows.items()
}
