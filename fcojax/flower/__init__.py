"""Federations of real sites: an algorithm, a plan and hyperparameters as Flower's two apps.

Sites run the same algorithm, plan and hyperparameters as ``fcojax.run``. Messages are bytes, so
everything but the two apps also runs without Flower, in one process.
"""

from fcojax.flower.apps import client_app, over_grid, server_app
from fcojax.flower.federation import Federation
from fcojax.flower.joining import admitted, invitation
from fcojax.flower.loop import Transport, coordinate, in_process
from fcojax.flower.newton import Regression, regress
from fcojax.flower.server import Server
from fcojax.flower.site import answer
from fcojax.flower.strengths import path, select
from fcojax.flower.sums import Sums
from fcojax.flower.tabular import Statistics, judged, statistics, survival, tabular

__all__ = [
    "Federation",
    "Regression",
    "Server",
    "Statistics",
    "Sums",
    "Transport",
    "admitted",
    "answer",
    "client_app",
    "coordinate",
    "in_process",
    "invitation",
    "over_grid",
    "judged",
    "path",
    "regress",
    "select",
    "server_app",
    "statistics",
    "survival",
    "tabular",
]
