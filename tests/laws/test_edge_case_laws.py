"""Every penalty at edge cases: derivatives at zeros and ties, numbers of any size and dtype."""

import pytest

from tests.laws.edge_case_laws import DERIVATIVE_LAWS, PRECISION_LAWS, SIZES
from tests.laws.penalty_laws import pairs
from tests.laws.test_penalty_laws import ALL, REPRESENTATIVES
from tests.support.tables import with_gate

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("law, name", with_gate(pairs(DERIVATIVE_LAWS, ALL), REPRESENTATIVES))
def test_derivative_law(law, name):
    law(ALL[name])


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("law, name", pairs(PRECISION_LAWS, ALL))
def test_precision_law(law, name, dtype):
    law(ALL[name], dtype)
