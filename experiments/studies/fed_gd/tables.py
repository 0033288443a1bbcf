"""Distances by local steps, the worst differences, and gap and bound at the end."""

from experiments.report.rows import column, select


def summarise(config, rows):
    """Distances by E, the worst differences, and gap and bound at the end."""
    rounds = select(rows, part="rounds")
    last = max(row["step"] for row in select(rows, part="bound"))
    return {
        "distance of the limit": {
            f"s L = {share:g}": {
                row["num_steps"]: row["distance"]
                for row in select(rows, part="limit", step_share=share)
            }
            for share in config.step_shares
        },
        "largest difference of closed form and simulation": {
            num_steps: float(column(select(rounds, num_steps=num_steps), "difference").max())
            for num_steps in config.simulated_steps
        },
        "Local SGD at the last look": select(rows, part="bound", step=last),
    }
