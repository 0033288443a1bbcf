"""Odd calls of every public function: each ends in an error, or is right.

A seeded generator takes the call in a function's own example, puts odd values in place of one or
two of its arguments, and makes the call. Then ``judged`` says what was wrong with how it ended.
"""

import ast
import contextlib
import doctest
import inspect
import io
import pathlib
import random
import signal
import sys
import tempfile
import traceback
import typing
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fcojax
from fcojax import theory

NUM_CALLS = 1000
SECONDS = 30  # of the processor, that one call may take
LIBRARY = str(pathlib.Path(fcojax.__file__).parent)


class OddClass:
    """A class that takes no arguments."""


def odd_function(one, two, three, four, five, six, seven):
    """A function of more arguments than anything passes."""


ODD = {
    "None": None,
    "a text": "odd",
    "bytes": b"odd",
    "NaN": float("nan"),
    "infinity": float("inf"),
    "-1": -1,
    "0": 0,
    "1e300": 1e300,
    "10**12": 10**12,
    "a half": 0.5,
    "True": True,
    "1j": 1j,
    "an object": object(),
    "a function": odd_function,
    "a class": OddClass,
    "no list": [],
    "no dict": {},
    "a dict": {"odd": np.ones(2)},
    "a list": [1.0, 2.0],
    "a ragged list": [[1], [1, 2]],
    "a list of texts": ["odd", "odd"],
    "a long tuple": (1, 2, 3, 4, 5, 6, 7),
    "rank 3": np.ones((2, 3, 2)),
    "no rows": np.zeros((0, 2)),
    "NaNs": np.full(3, np.nan),
    "complex numbers": np.array([1j, 2j]),
    "objects": np.array([None, "odd"], object),
    "texts": np.array(["odd", "odd"]),
    "dates": np.array(["2000-01-01"], "datetime64[D]"),
    "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
    "a scalar of JAX": jnp.float32(-3.0),
    "a key": jax.random.key(3),
    "an old key": jax.random.PRNGKey(3),
    "a plan of nothing": fcojax.Plan(None),  # pyright: ignore[reportArgumentType]
}

# What no number, no array, no function, ... can be.
NOT_NUMBERS = {
    "None",
    "a text",
    "bytes",
    "an object",
    "a function",
    "a class",
    "a list of texts",
    "objects",
    "texts",
    "dates",
    "masked",
    "1j",
    "complex numbers",
    "a plan of nothing",
    "a key",
}
NOT_FUNCTIONS = set(ODD) - {"a function", "a class"}
NOT_A_NUMBER = {"NaN", "NaNs"}

# Run inside compiled programs, on arrays that the library has made: JAX's own words are enough.
INSIDE = {
    "dense_kernels",
    "distance",
    "factored_loss",
    "key_of_fold",
    "linear_steps",
    "riemannian_gradient",
    "soft_threshold",
    "transport",
}

# Odd arguments that are right, and why.
MEANT = {
    ("transforms.penalties.norms.group_l2", "axis"): "counts from the end",
    ("transforms.penalties.norms.sparse_group", "axis"): "counts from the end",
    ("theory.least_squares.powers", "z"): "any number",
    ("engine.placement.chunk_size.sized", "params"): "only its shape is read",
    ("engine.placement.mesh.spread", "params"): "only its shape is read",
    ("problems.partition.by_column", "column"): "texts are values too",
    ("problems.partition.dirichlet", "labels"): "texts are values too",
    ("problems.partition.label_shards", "labels"): "texts are values too",
    ("problems.partition.similarity", "labels"): "texts are values too",
    ("problems.clients.from_rows", "weights"): "a number is a power of the sizes",
    ("problems.clients.from_clients", "weights"): "a number is a power of the sizes",
    ("datasets.pooled.by_client", "weights"): "a number is a power of the sizes",
}
# Functions whose documentation says when a result is NaN.
MAY_BE_NAN = {"problems.fmri.on_grid"}


def surface():
    """Every public function, and the classes that users make, by full name."""
    found = {}

    def walk(module):
        names = getattr(module, "__all__", ())
        for name in names or [name for name in vars(module) if name[0] != "_"]:
            value = getattr(module, name)
            own = names or getattr(value, "__module__", "") == module.__name__
            if inspect.ismodule(value) and names:
                if value.__name__ != "fcojax.extend":
                    walk(value)
            elif own and (inspect.isfunction(value) or value in MADE_BY_USERS):
                found.setdefault(value, f"{value.__module__}.{name}".removeprefix("fcojax."))

    walk(fcojax)
    walk(theory)
    return {name: function for function, name in found.items() if function.__name__ not in INSIDE}


# The calls of functions whose own examples are of something else, or need a file.
CALLS = {
    "algorithms.base.takes": "takes(tuple, 'penalty')",
    "algorithms.local_solvers.gd": "gd(warm_start=False)",
    "algorithms.local_solvers.proxgd": "proxgd(ZERO)",
    "algorithms.local_solvers.variance_reduced": "variance_reduced(refresh_every=2)",
    "problems.partition.dirichlet": "dirichlet([0, 1, 0, 1, 1, 0], 2, 0.5)",
    "problems.partition.iid": "iid(6, 2)",
    "problems.partition.label_shards": "label_shards([0, 1, 0, 1, 1, 0], 2)",
    "problems.partition.similarity": "similarity([0, 1, 0, 1, 1, 0], 2, 0.5)",
    "reference.fista": "fista(lambda w, _: jnp.sum(w**2), ZERO, 0.1, jnp.ones(2))",
    "rows.read": "read('nowhere')",
}

# Other classes are results, or tuples that are judged where they are used.
MADE_BY_USERS = (
    fcojax.Stream,
    fcojax.problems.SparseRows,
)


class _FoundError(Exception):
    """Ends an example at the call that was looked for."""


class _Spied(ast.NodeTransformer):
    def visit_Call(self, node):
        self.generic_visit(node)
        spy = ast.Name("spied_", ast.Load())
        return ast.copy_location(ast.Call(spy, [node.func, *node.args], node.keywords), node)


def example_of(function):
    """The arguments of the call of a function in its own example, by name; ``None`` if none is."""
    own = CALLS.get(f"{function.__module__}.{function.__name__}".removeprefix("fcojax."))
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    examples = [doctest.Example(own, "")] if own else examples

    def spied_(called, *args, **kwargs):
        if called is function:
            raise _FoundError(args, kwargs)
        return called(*args, **kwargs)

    names = dict(vars(sys.modules[function.__module__]))
    names |= {"spied_": spied_, "ZERO": fcojax.transforms.zero()}
    try:
        for example in examples:
            if not example.exc_msg:
                tree = ast.fix_missing_locations(_Spied().visit(ast.parse(example.source)))
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(tree, "<example>", "exec"), names)
    except _FoundError as found:
        bound = inspect.signature(function).bind(*found.args[0], **found.args[1])
        return bound.arguments
    return None


class Call(typing.NamedTuple):
    """A function and its arguments by name, of which some are odd: ``name -> kind``."""

    name: str
    function: Callable
    arguments: dict
    usual: dict
    odd: dict

    def __str__(self):
        odd = ", ".join(f"{name} = {kind}" for name, kind in self.odd.items())
        return f"{self.name}: {odd}"

    def make(self):
        parameters = inspect.signature(self.function).parameters
        args, kwargs, by_name = [], {}, False
        for name, parameter in parameters.items():
            if name not in self.arguments:
                by_name = by_name or parameter.kind is not parameter.POSITIONAL_ONLY
                continue
            value = self.arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += value
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs |= value
            elif by_name or parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = value
            else:
                args.append(value)
        return self.function(*args, **kwargs)


def odd_calls(seed, num_calls=NUM_CALLS):
    """A generator of odd calls, the same for a seed."""
    draw = random.Random(seed)
    functions, examples = surface(), {}
    while num_calls:
        name = draw.choice(sorted(functions))
        function = functions[name]
        parameters = inspect.signature(function).parameters
        if name not in examples:
            examples[name] = example_of(function) if parameters else None
        if examples[name] is None:
            continue
        usual = dict(examples[name])
        arguments, odd = dict(usual), {}
        num_odd = min(len(parameters), draw.choice([1, 1, 1, 1, 2]))
        for argument in draw.sample(list(parameters), num_odd):
            kind = draw.choice(list(ODD))
            arguments[argument] = changed(arguments.get(argument), parameters[argument], kind, draw)
            odd[argument] = kind
        num_calls -= 1
        yield Call(name, function, arguments, usual, odd)


def changed(value, parameter, kind, draw):
    """An argument made odd: it, one of several, or now and then one of its parts."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return (ODD[kind], *(value or ())[1:])
    if parameter.kind is parameter.VAR_KEYWORD:
        name = draw.choice(sorted(value)) if value else "odd"
        return {**(value or {}), name: ODD[kind]}
    plain = isinstance(value, dict | list) or "Hparams" in type(value).__name__
    if plain and value and draw.random() < 0.5:
        if isinstance(value, dict):
            return value | {draw.choice(list(value)): ODD[kind]}
        if isinstance(value, list):
            return [ODD[kind], *value[1:]]
        return value._replace(**{draw.choice(value._fields): ODD[kind]})
    return ODD[kind]


def judged(call):
    """What is wrong with how a call ends, or ``None``."""
    usual_way = contextlib.ExitStack()
    usual_way.enter_context(jax.numpy_rank_promotion("allow"))
    usual_way.enter_context(jax.numpy_dtype_promotion("standard"))
    usual_way.enter_context(warnings.catch_warnings())
    usual_way.enter_context(contextlib.redirect_stdout(io.StringIO()))
    with usual_way:
        warnings.simplefilter("ignore")
        try:
            with ended_after(SECONDS):
                result = call.make()
        except Exception as error:
            return shown(error) if isinstance(error, TimeoutError) else None
        return silent(call, result)


@contextlib.contextmanager
def ended_after(seconds):
    def end(*_):
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def shown(error):
    last = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(LIBRARY)]
    where = f" ({last[-1].filename[len(LIBRARY) + 1 :]}:{last[-1].lineno})" if last else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}{where}"


def silent(call, result):
    """What shows that a call should not have been accepted, or ``None``."""
    parameters = inspect.signature(call.function).parameters
    for name, kind in call.odd.items():
        parameter = parameters[name]
        usual = call.usual.get(name, parameter.default)
        judged = call.arguments[name] is ODD[kind] and (call.name, name) not in MEANT
        if judged and no_such(parameter, usual, kind, result):
            return f"{name} takes {kind} for {' '.join(repr(usual).split())[:60]}"
    if (
        call.name not in MAY_BE_NAN
        and is_finite(call.arguments, np.isfinite)
        and not is_finite(result)
    ):
        return "NaN from finite arguments"
    return None


def no_such(parameter, usual, kind, result):
    """Whether an odd value that was taken can mean nothing in place of the usual one."""
    given, annotation = ODD[kind], str(parameter.annotation)
    if given is None and (parameter.default is None or "None" in annotation):
        return False
    if callable(given) and ("Callable" in annotation or "Any" in annotation):
        return False
    if isinstance(usual, bool | str) or type(usual).__module__.startswith("fcojax."):
        return not isinstance(given, type(usual))
    if inspect.isfunction(usual):
        return kind in NOT_FUNCTIONS
    if not is_numbers(usual):
        return False
    if kind in NOT_A_NUMBER:
        return is_finite(result)
    # Annotations that say which numbers they allow are tested in test_arguments.py.
    known = "Numbers(" in annotation or not isinstance(usual, int | float)
    return kind in NOT_NUMBERS or (kind == "-1" and not known and usual > 0)


def is_numbers(value):
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return bool(value) and all(is_numbers(entry) for entry in value)
    if isinstance(value, np.ndarray | jax.Array):
        return jnp.issubdtype(value.dtype, jnp.number)
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def is_finite(tree, math=lambda leaf: ~np.isnan(leaf)):
    """Whether no number in it is NaN."""
    for leaf in jax.tree.leaves(tree):
        if is_numbers(leaf) and not np.all(math(np.asarray(leaf, np.float64))):
            return False
    return True


def wrong_calls(seed, num_calls=NUM_CALLS):
    """``the call -> what is wrong`` for each of a seed's calls that ends wrongly."""
    found = {}
    elsewhere = tempfile.TemporaryDirectory()  # for files that a call writes
    with elsewhere as folder, contextlib.chdir(folder), jax.enable_x64(False):
        for call in odd_calls(seed, num_calls):
            wrong = judged(call)
            if wrong:
                found[str(call)] = wrong
    return found


@pytest.mark.slow
def test_odd_calls_are_refused_or_right():
    wrong = wrong_calls(seed=0)
    assert not wrong, "\n".join(f"{call}: {how}" for call, how in wrong.items())


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        for call, how in wrong_calls(seed).items():
            print(f"{call}: {how}")
