"""The exact composite methods as printed, in slow numpy, with full participation.

Clients hold f_i(x) = x'A_i x/2 - c_i'x with weights p_i that sum to one, psi is lambda times the l1
norm. Each function returns the model after every round; ``Numbers`` are the steps and sizes.
"""

from typing import NamedTuple

import numpy as np


class Numbers(NamedTuple):
    """Steps eta_c, eta_s and K; eta, alpha and gamma of the splitting methods; lambda; rounds."""

    client_lr: float = 0.15
    server_lr: float = 0.9
    num_steps: int = 3
    prox_step: float = 0.5
    relaxation: float = 1.4
    scale: float = 0.25
    num_rounds: int = 12


class Problem(NamedTuple):
    curvatures: np.ndarray
    slopes: np.ndarray
    weights: np.ndarray
    start: np.ndarray

    def gradients(self, points):
        """Return grad f_i at the i-th of the points, or at one point for all."""
        points = np.broadcast_to(points, self.slopes.shape)
        return np.einsum("mij,mj->mi", self.curvatures, points) - self.slopes

    def everywhere(self, point):
        return np.tile(point, (len(self.weights), 1))


def soft(v, threshold):
    return np.sign(v) * np.maximum(np.abs(v) - threshold, 0)


def prox_gd(problem, by, step):
    """Proximal gradient descent with the step of one round with one local step."""
    x = problem.start
    for _ in range(by.num_rounds):
        x = soft(x - step * problem.weights @ problem.gradients(x), step * by.scale)
        yield x


def composite_fl(problem, by):
    """Zhang, Hu and Johansson: the correction from the broadcast before the server's prox."""
    eta, length = by.client_lr, by.server_lr * by.client_lr * by.num_steps
    x, corrections = problem.start, 0 * problem.slopes
    for _ in range(by.num_rounds):
        ambient = points = problem.everywhere(x)
        total = 0
        for t in range(by.num_steps):
            gradients = problem.gradients(points)
            total = total + gradients
            ambient = ambient - eta * (gradients + corrections)
            points = soft(ambient, (t + 1) * eta * by.scale)
        after = x + by.server_lr * (problem.weights @ ambient - x)
        corrections = (x - after) / length - total / by.num_steps
        x = soft(after, length * by.scale)
        yield x


def scaffold(problem, by, prox, control):
    """Karimireddy et al., options I and II, with c_i, c and the subgradient s."""
    eta, length = by.client_lr, by.server_lr * by.client_lr * by.num_steps
    x, controls, fed = problem.start, 0 * problem.slopes, 0 * problem.start
    for _ in range(by.num_rounds):
        common = problem.weights @ controls
        points = problem.everywhere(x)
        for _ in range(by.num_steps):
            points = points - eta * (problem.gradients(points) - controls + common + fed)
            points = soft(points, eta * by.scale) if prox == "client" else points
        steps = controls - common - fed + (x - points) / (by.num_steps * eta)
        controls = steps if control == "steps" else problem.gradients(x)
        moved = problem.weights @ points - x + eta * by.num_steps * fed
        target = x + by.server_lr * moved
        x = target if prox == "client" else soft(target, length * by.scale)
        fed = (target - x) / length if prox == "feedback" else fed
        yield x


def fed_normal_map(problem, by):
    """Steps along the normal map, corrected by the mean slopes of the last walks."""
    z, remembered = problem.start, 0 * problem.slopes
    for _ in range(by.num_rounds):
        walked, points = 0, problem.everywhere(z)
        for _ in range(by.num_steps):
            w = soft(points, by.prox_step * by.scale)
            normal = problem.gradients(w) + (points - w) / by.prox_step
            walked = walked + normal / by.num_steps
            correction = problem.weights @ remembered - remembered
            points = points - by.client_lr * (normal + correction)
        z, remembered = z + by.server_lr * (problem.weights @ points - z), walked
        yield soft(z, by.prox_step * by.scale)


def prox_skip(problem, by, p=None, numbers=None):
    """Mishchenko et al. with h_i, exchanges after ``numbers`` of steps, or after every 1/p = K."""
    gamma, p = by.client_lr, p or 1 / by.num_steps
    x, h = problem.everywhere(problem.start), 0 * problem.slopes
    for num_steps in [by.num_steps] * by.num_rounds if numbers is None else numbers:
        for _ in range(num_steps):
            x = x - gamma * (problem.gradients(x) - h)
        w = soft(problem.weights @ (x - gamma / p * h), gamma / p * by.scale)
        h = h + p / gamma * (w - x)
        x = problem.everywhere(w)
        yield w


def fed_dr(problem, by):
    """Tran-Dinh et al. with y_i, x_i and their reflections, K gradient steps for each prox."""
    y = x = problem.everywhere(problem.start)
    center = problem.start
    for _ in range(by.num_rounds):
        y = y + by.relaxation * (center - x)
        for _ in range(by.num_steps):
            x = x - by.client_lr * (problem.gradients(x) + (x - y) / by.prox_step)
        center = soft(problem.weights @ (2 * x - y), by.prox_step * by.scale)
        yield center


def fed_split(problem, by):
    """Pathak and Wainwright with z_i."""
    z = x = problem.everywhere(problem.start)
    for _ in range(by.num_rounds):
        center = problem.weights @ z
        target = 2 * center - z
        for _ in range(by.num_steps):
            x = x - by.client_lr * (problem.gradients(x) + (x - target) / by.prox_step)
        z = z + 2 * (x - center)
        yield problem.weights @ z


def mime(problem, by, momentum=0.3):
    """Karimireddy et al.: gradients at w, then K steps with a proxy; one model per round."""
    w, s = problem.start, 0 * problem.start
    for _ in range(by.num_rounds):
        there = problem.gradients(w)
        s = (1 - momentum) * problem.weights @ there + momentum * s
        x = problem.everywhere(w)
        for _ in range(by.num_steps):
            slope = (1 - momentum) * (problem.gradients(x) - there) + s
            x = soft(x - by.client_lr * slope, by.client_lr * by.scale)
        w = w + by.server_lr * (problem.weights @ x - w)
        yield w
