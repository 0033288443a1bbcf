"""A quick run of the study that a test module is named after."""

import pytest

from tests.experiments.studies.quick_studies import quick_study


@pytest.fixture(scope="module")
def found(request):
    """Return the study, its quick config, the rows and the summary."""
    return quick_study(request.module.__name__.rpartition("test_")[2])
