"""Flower's FedAvg and FedProx with soft thresholding, on a Flower grid in this process.

Flower's strategies choose the clients, make the messages and compute the weighted mean. This file
has the sites' steps and the prox after each mean.
"""

import logging

import numpy as np
from flwr.app import (  # pyright: ignore[reportMissingImports]
    ArrayRecord,
    ConfigRecord,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import strategy as flower  # pyright: ignore[reportMissingImports]
from flwr.supercore.task_identity import TaskIdentity  # pyright: ignore[reportMissingImports]

from benchmark_utils.by_hand import NUM_STEPS

NEAR = 0.1  # FedProx's term, as a fraction of the smoothness


class Thresholded:
    """One of Flower's strategies, run round by round."""

    def __init__(self, problem, rate: float, name: str):
        """Make the strategy and start at zero."""
        logging.getLogger("flwr").setLevel(logging.ERROR)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.problem, self.rate = problem, rate
        given = {"proximal_mu": NEAR / (2 * rate)} if name == "FedProx" else {}
        sizes = {"min_train_nodes": len(problem.sites), "min_available_nodes": len(problem.sites)}
        self.strategy = getattr(flower, name)(fraction_evaluate=0.0, **sizes, **given)
        self.model = np.zeros(problem.sites[0][0].shape[1])
        self.rounds = self.sent = 0

    def get_node_ids(self) -> list[int]:
        """Return the sites, as Flower's grid does."""
        return list(range(1, len(self.problem.sites) + 1))

    def round(self) -> None:
        """Run one round of Flower's strategy, and apply the prox for the steps taken."""
        self.rounds += 1
        asked = self.strategy.configure_train(
            self.rounds, ArrayRecord([self.model]), ConfigRecord(), self
        )
        arrays, _ = self.strategy.aggregate_train(self.rounds, [self._at(one) for one in asked])
        (mean,) = arrays.to_numpy_ndarrays()
        self.model = self.problem.prox(mean, NUM_STEPS * self.rate)

    def _at(self, message):
        """Return the reply of a site: full gradient steps, for FedProx with its quadratic term."""
        node = message.metadata.dst_node_id
        x, y = self.problem.sites[node - 1]
        (start,) = message.content["arrays"].to_numpy_ndarrays()
        near = dict(message.content["config"]).get("proximal-mu", 0.0)
        w = start
        for _ in range(NUM_STEPS):
            w = w - self.rate * (self.problem.slope(w, x, y) + near * (w - start))
        self.sent += start.nbytes + w.nbytes
        content = {"arrays": ArrayRecord([w]), "metrics": MetricRecord({"num-examples": len(y)})}
        message.metadata.__dict__["_message_id"] = f"{self.rounds} {node}"
        reply = Message(RecordDict(content), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = node
        return reply
