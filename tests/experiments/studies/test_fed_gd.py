import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file

from experiments.report.rows import column, select
from experiments.studies.fed_gd.rows import clients_of
from fcojax.theory import least_squares

pytestmark = pytest.mark.slow


def test_distances_agree_with_an_independent_computation(found):
    _, _, rows, _ = found
    expected = {0.5: (0, 8.390e-2, 0.2863, 0.6417, 0.8775), 1.5: (0, 0.43, 0.6014, 0.8009, 0.9923)}
    for share, distances in expected.items():
        own = {r["num_steps"]: r["distance"] for r in select(rows, part="limit", step_share=share)}
        np.testing.assert_allclose([own[e] for e in (1, 2, 5, 20, 100)], distances, atol=5e-5)


def test_rounds_to_the_limit_agree_with_iteration(found):
    _, config, rows, _ = found
    *_, clients = clients_of(config)
    for entry in select(rows, part="limit", step_share=0.5)[:3]:
        one = least_squares.round_map(clients, 0.5 / clients.smoothness, entry["num_steps"])
        x, rounds = np.zeros(config.dim), 0
        first = np.linalg.norm(x - one.fixed_point)
        while np.linalg.norm(x - one.fixed_point) > config.near_limit * first:
            x, rounds = one.matrix @ x + one.offset, rounds + 1
        assert entry["rounds"] == rounds > 1


def test_the_bound_falls_like_one_over_the_steps(found):
    _, config, rows, _ = found
    for name in config.sgd_problems:
        for num_steps in config.sgd_num_steps:
            seen = select(rows, part="bound", problem=name, num_steps=num_steps)
            shifted = column(seen, "limit") / column(seen, "bound")
            np.testing.assert_allclose(shifted, shifted[0], rtol=1e-12)
            assert (column(seen, "low") <= column(seen, "gap")).all()


def test_credit_is_read_from_libsvm_text_and_from_its_arrays(tmp_path, found):
    """Each client's quadratic equals that of its rows, with a constant feature."""
    x = csr_array(np.random.default_rng(0).standard_normal((30, 3)).round(2))
    labels = np.repeat([-1, 1], 15)
    text, packed = tmp_path / "text", tmp_path / "packed"
    for folder in (text, packed):
        folder.mkdir()
    dump_svmlight_file(x, labels, str(text / "german.numer_scale"), zero_based=False)
    arrays = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": x.shape}
    named = {f"train_{name}": values for name, values in arrays.items()}
    np.savez(packed / "german_numer_scale.npz", train_labels=labels, **named)
    config = found[1].copy_and_resolve_references()
    read = []
    for folder in (text, packed):
        config.data_dir = str(folder)
        features, targets, _ = clients_of(config)
        assert len(features) == len(config.sizes) and all((a[:, -1] == 1).all() for a in features)
        read.append(np.column_stack([np.concatenate(features), np.concatenate(targets)]))
    np.testing.assert_allclose(*read, rtol=1e-6)
    rows = np.column_stack([x.toarray(), np.ones(30), labels])
    np.testing.assert_allclose(np.sort(read[1], axis=0), np.sort(rows, axis=0), rtol=1e-6)
