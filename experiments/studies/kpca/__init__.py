"""Principal components on the Stiefel manifold: Zhang, Hu, So and Johansson (NeurIPS 2024)."""

from experiments.studies.kpca import claims, figures, rows
from experiments.study import Study

EXPERIMENT = Study(
    title=figures.TITLE,
    rows=rows.study,
    summarise=rows.summarise,
    claims=claims.claims,
    remarks=(
        "On MNIST by digit the gradient is at 1.09e-5 after 500 rounds and still falls, by 0.984 a "
        "round: the local rate is set by the largest eigenvalue of any digit, 71.6, and the gap "
        "between the fifth and the sixth of the mean is 0.51, which with ten steps gives 0.986. By "
        "writer the largest is 45.4. RFedSVRG, exact as well, is at 9.8e-6; 20 steps a round lead "
        "to 1.4e-9, and a server step of sqrt(10) at half the local rate to 1.5e-7."
    ),
    figures=figures.draw,
    x64=True,
)
