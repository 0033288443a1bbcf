"""Names for authors of further algorithms, aggregators, samplers and tools.

``import fcojax`` is for users. What builds on the core from outside, as ``fcojax.uploads``,
``fcojax.robust``, ``fcojax.privacy``, ``fcojax.selection`` and ``fcojax.flower`` do, imports
``fcojax``, its public packages and this module, and nothing else. The names here are under the
deprecation policy of the library; they are documented where they are defined.
"""

# ruff: noqa: F401
# Factories and arguments.
from fcojax.algorithms.base import Factory, elapsed
from fcojax.algorithms.fe_dual_ex import extrapolation
from fcojax.algorithms.fed_dual_avg import DualPoint, FedDualAvgHparams
from fcojax.algorithms.local_sgd import LocalSGDHparams
from fcojax.arguments import (
    at_most,
    checked_value,
    field_annotations,
    numbers_of,
    shown,
    validated,
)

# Rounds, from their parts.
from fcojax.engine.client_loop import RoundContext, Rows, is_admitted, local_handle, received
from fcojax.engine.grid import num_points, take
from fcojax.engine.hparams import as_arrays, at_round, is_schedule
from fcojax.engine.limits import require_unlimited

# Optimality.
from fcojax.engine.optimality import VIOLATION, pooled_gradient, violation_at
from fcojax.engine.padding import sizes_matter

# Participation.
from fcojax.engine.participation.availability import Cyclic, Markov
from fcojax.engine.participation.recorded import Trace
from fcojax.engine.participation.samplers import CoinFlips, Dropout, Everyone, UniformCohort
from fcojax.engine.plan import as_plan
from fcojax.engine.program import Program
from fcojax.engine.randomness import BATCHES, CLIENT, ENCODE, draw_cohort, purpose_key
from fcojax.engine.round import server_step
from fcojax.engine.solve import Outcome, solve_traced
from fcojax.engine.state import is_sweep
from fcojax.engine.tally import added, empty_tally, merged
from fcojax.engine.uploads.collect import WEIGHTED_SUM, WHOLE_COHORT, Cohort
from fcojax.engine.uploads.outliers import bound_after
from fcojax.engine.uploads.uplink import (
    NO_UPLINK,
    Limit,
    RoundWeights,
    as_given,
    counted_fraction,
    forgetful,
    no_memory,
    plain_mean,
    require_fitting,
    split,
    unchanged,
)
from fcojax.engine.validation import (
    as_first_states,
    as_params,
    require_algorithm,
    require_hparams,
    require_run,
)
from fcojax.factories import factory, memoised
from fcojax.memo import jit_per

# Problems and geometry.
from fcojax.problems.clients import require_one_device
from fcojax.problems.fields import SPLITS, by_field, check_labels, check_splits
from fcojax.problems.least_squares import half_squared_error
from fcojax.problems.measures import at_cuts, density, on_validation
from fcojax.problems.problem import Loss
from fcojax.problems.second_moments import row_weights
from fcojax.problems.weights import checked_weights, in_range
from fcojax.shuffle import permuted, words
from fcojax.transforms.bisection import least_scale
from fcojax.transforms.manifolds.manifold import ambient_norm
from fcojax.transforms.penalties.norms import grouped

# Programs for all backends.
from fcojax.xla.jaxprs import depend_on_first, inner_programs
from fcojax.xla.linalg import singular_values, symmetric_eigh
from fcojax.xla.recurrence import recurrence
from fcojax.xla.rules import backend, in_full_precision, rules
