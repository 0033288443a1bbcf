import fcojax

RATES = fcojax.algorithms.fed_dual_avg.Hparams


def test_products_vary_the_last_field_fastest():
    points = fcojax.grid.product(RATES, client_lr=[1.0, 2.0], penalty_scale=[3.0, 4.0])
    assert points.client_lr.tolist() == [1, 1, 2, 2]
    assert points.penalty_scale.tolist() == [3, 4, 3, 4]
    assert points.server_lr.tolist() == [1, 1, 1, 1]


def test_zipped_fields_vary_together():
    points = fcojax.grid.zipped(RATES, client_lr=[1.0, 2.0, 3.0], penalty_scale=[4.0, 5.0, 6.0])
    assert points.client_lr.tolist() == [1, 2, 3]
    assert points.penalty_scale.tolist() == [4, 5, 6]
    assert points.server_lr.tolist() == [1, 1, 1]
