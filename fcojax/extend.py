"""Names for authors of further algorithms, aggregators, samplers and tools.

``import fcojax`` is for users. Packages that build on the core, such as ``fcojax.uploads``,
``fcojax.robust``, ``fcojax.privacy``, ``fcojax.selection`` and ``fcojax.flower``, import only
``fcojax``, its public packages and this module. The names here follow the library's deprecation
policy; they are documented where they are defined.
"""

# ruff: noqa: F401
# Factories and arguments.
from fcojax.algorithms.base import Factory, elapsed, uncounted
from fcojax.algorithms.fe_dual_ex import extrapolation
from fcojax.algorithms.fed_dual_avg import DualPoint, FedDualAvgHparams
from fcojax.algorithms.local_sgd import LocalSGDHparams

# Codecs and aggregators.
from fcojax.algorithms.work import Work
from fcojax.arguments import (
    at_most,
    checked_value,
    factory,
    field_annotations,
    numbers_of,
    shown,
    validated,
)
from fcojax.engine import remote
from fcojax.engine.aggregation import (
    TotalWeights,
    decoded_upload,
)
from fcojax.engine.aggregator import (
    MEAN,
    SUM,
    Aggregate,
    Allowance,
    Change,
    Collector,
    Noise,
    RoundWeights,
    Term,
    Uploads,
    mean_of,
    split,
    weighted_mean,
)

# The client loop, and sweeps by blocks, as the launcher runs them.
from fcojax.engine.blocks import Block, Placed, place, sweep_blocks
from fcojax.engine.client_loop import Rows, local_handle, through_codec
from fcojax.engine.compaction import take_points
from fcojax.engine.first_uploads import kept_for, require_fitting
from fcojax.engine.hparams import as_arrays, at_round, is_schedule, num_points, number, take
from fcojax.engine.limits import allowance_of, require_unlimited

# Optimality.
from fcojax.engine.optimality import VIOLATION, pooled_gradient, violation_at
from fcojax.engine.padding import sizes_matter

# Participation.
from fcojax.engine.participation.availability import Cyclic, Trace
from fcojax.engine.participation.base import Everyone
from fcojax.engine.participation.samplers import (
    CoinFlips,
    DerivedSampler,
    Dropout,
    UniformCohort,
)
from fcojax.engine.plan import Program, as_plan
from fcojax.engine.randomness import (
    AGGREGATE,
    BATCHES,
    CLIENT,
    ENCODE,
    SERVER,
    SHARED,
    draw_cohort,
    folded_by,
    purpose_key,
)
from fcojax.engine.round import payload_bytes, server_step
from fcojax.engine.solve import Outcome, has_failed, solve_traced
from fcojax.engine.stack import STACK, Stacked
from fcojax.engine.state import is_sweep
from fcojax.engine.stream import on_disk
from fcojax.engine.validation import (
    as_first_states,
    as_params,
    require_algorithm,
    require_hparams,
    require_run,
)
from fcojax.memo import jit_per, memoised

# Problems and geometry.
from fcojax.problems import memory
from fcojax.problems.clients import require_one_device
from fcojax.problems.fields import by_field, checked_weights, in_range
from fcojax.problems.labels import check_labels, check_splits
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.losses import Loss
from fcojax.problems.measures import at_cuts, density, on_validation
from fcojax.shuffle import Seed, permuted, words
from fcojax.transforms.manifolds.manifold import ambient_norm
from fcojax.transforms.penalties.norms import grouped
from fcojax.transforms.penalty import least_scale

# Programs for all backends.
from fcojax.xla.jaxprs import depend_on_first, inner_programs
from fcojax.xla.linalg import singular_values, symmetric_eigh
from fcojax.xla.recurrence import recurrence
from fcojax.xla.rules import backend, in_full_precision, pretend
