"""Federations of real sites: an algorithm, a plan and hyperparameters as Flower's two apps.

Sites run the same algorithm, plan and hyperparameters as ``fcojax.run``. Messages are bytes, so
everything but the two apps also runs without Flower, in one process.
"""

from fcojax_sites.flower.apps import client_app, over_grid, server_app
from fcojax_sites.flower.federation import Federation
from fcojax_sites.flower.joining import admitted, invitation
from fcojax_sites.flower.loop import Transport, coordinate, in_process
from fcojax_sites.flower.newton import Regression, regress
from fcojax_sites.flower.server import Server
from fcojax_sites.flower.site import answer
from fcojax_sites.flower.strengths import path, select
from fcojax_sites.flower.sums import Sums
from fcojax_sites.flower.tabular import Statistics, judged, statistics, survival, tabular

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
