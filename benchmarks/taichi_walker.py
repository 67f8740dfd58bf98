"""The soft walker in three dimensions with Taichi (wheel `taichi`), a peer of continuum.py's section walker3d.

The same particles, material, walls and loss as ours, differentiated by Taichi's own reverse mode: states of all steps
are kept, and the grid of each step is computed again before its reverse.
"""

import time
from typing import Any

import numpy as np


class TaichiWalker:
    """Particles of a neo-Hookean material with muscles along the last axis, in a grid of n³ cells.

    Args:
        x: positions, (particles, 3), float32.
        muscle: of each particle, -1 for none.
        muscles: how many there are.
        steps: of a rollout.
        n: cells along an axis.
        dt: of a step.
        volume: of a particle.
        shear: modulus.
        first: Lamé's first parameter.
        gravity: along the last axis.
        wall: cells from the border within which the walls hold what moves outward.
    """

    def __init__(
        self,
        x: np.ndarray,
        muscle: np.ndarray,
        muscles: int,
        steps: int,
        n: int,
        dt: float,
        volume: float,
        shear: float,
        first: float,
        gravity: float,
        wall: int = 3,
    ):
        import taichi as ti  # pyright: ignore[reportMissingImports]

        self.ti, self.steps, self.muscles = ti, steps, muscles
        count, nodes, h = len(x), n + 1, 1.0 / n

        def vectors(*shape: int) -> Any:
            return ti.Vector.field(3, ti.f32, shape=shape, needs_grad=True)

        def matrices(*shape: int) -> Any:
            return ti.Matrix.field(3, 3, ti.f32, shape=shape, needs_grad=True)

        self.x, self.v = vectors(steps + 1, count), vectors(steps + 1, count)
        self.C, self.F = matrices(steps + 1, count), matrices(steps + 1, count)
        self.mass = ti.field(ti.f32, shape=(nodes,) * 3, needs_grad=True)
        self.momentum, self.velocity = vectors(nodes, nodes, nodes), vectors(nodes, nodes, nodes)
        self.activation = ti.field(ti.f32, shape=(steps, muscles), needs_grad=True)
        self.loss = ti.field(ti.f32, shape=(), needs_grad=True)
        of = ti.field(ti.i32, shape=count)
        of.from_numpy(muscle.astype(np.int32))
        xs, vs, Cs, Fs = self.x, self.v, self.C, self.F
        mass, momentum, velocity, activation, loss = (
            self.mass,
            self.momentum,
            self.velocity,
            self.activation,
            self.loss,
        )

        @ti.kernel
        def clear():
            for node in ti.grouped(mass):
                mass[node] = 0.0
                momentum[node] = ti.Vector.zero(ti.f32, 3)
                mass.grad[node] = 0.0
                momentum.grad[node] = ti.Vector.zero(ti.f32, 3)
                velocity.grad[node] = ti.Vector.zero(ti.f32, 3)

        @ti.kernel
        def to_grid(step: ti.i32):
            for p in range(count):
                base = ti.cast(xs[step, p] / h - 0.5, ti.i32)
                f = xs[step, p] / h - ti.cast(base, ti.f32)
                w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
                deformed = Fs[step, p] + dt * Cs[step, p] @ Fs[step, p]
                Fs[step + 1, p] = deformed
                # the Kirchhoff stress of our neo-Hookean material, and the fiber of a muscle along the last axis
                left = deformed @ deformed.transpose()
                stress = shear * (left - ti.Matrix.identity(ti.f32, 3))
                stress += first * ti.log(deformed.determinant()) * ti.Matrix.identity(ti.f32, 3)
                if of[p] >= 0:
                    fiber = deformed @ ti.Vector([0.0, 0.0, 1.0])
                    stress += activation[step, ti.max(of[p], 0)] * fiber.outer_product(fiber)
                affine = volume * Cs[step, p] - (4.0 * dt / (h * h)) * volume * stress
                for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                    offset = ti.Vector([i, j, k])
                    distance = (ti.cast(offset, ti.f32) - f) * h
                    weight = w[i][0] * w[j][1] * w[k][2]
                    momentum[base + offset] += weight * (volume * vs[step, p] + affine @ distance)
                    mass[base + offset] += weight * volume

        @ti.kernel
        def move_grid():
            for node in ti.grouped(mass):
                v = ti.Vector.zero(ti.f32, 3)
                if mass[node] > 0.0:
                    v = momentum[node] / mass[node]
                v[2] += dt * gravity
                for axis in ti.static(range(3)):
                    if node[axis] < wall and v[axis] < 0.0:
                        v = ti.Vector.zero(ti.f32, 3)
                    if node[axis] > n - wall and v[axis] > 0.0:
                        v = ti.Vector.zero(ti.f32, 3)
                velocity[node] = v

        @ti.kernel
        def from_grid(step: ti.i32):
            for p in range(count):
                base = ti.cast(xs[step, p] / h - 0.5, ti.i32)
                f = xs[step, p] / h - ti.cast(base, ti.f32)
                w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
                v = ti.Vector.zero(ti.f32, 3)
                C = ti.Matrix.zero(ti.f32, 3, 3)
                for i, j, k in ti.static(ti.ndrange(3, 3, 3)):
                    offset = ti.Vector([i, j, k])
                    part = w[i][0] * w[j][1] * w[k][2] * velocity[base + offset]
                    v += part
                    C += (4.0 / h) * part.outer_product(ti.cast(offset, ti.f32) - f)
                vs[step + 1, p] = v
                xs[step + 1, p] = xs[step, p] + dt * v
                Cs[step + 1, p] = C

        @ti.kernel
        def measure():
            for p in range(count):
                loss[None] += -xs[steps, p][0] / count

        self.clear, self.to_grid, self.move_grid, self.from_grid, self.measure = (
            clear,
            to_grid,
            move_grid,
            from_grid,
            measure,
        )
        self.start = x

    def iterate(self, activation: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Return the loss, its gradient with respect to the activations (steps, muscles), and the seconds."""
        count = len(self.start)
        first = np.zeros((self.steps + 1, count, 3), np.float32)
        first[0] = self.start
        self.x.from_numpy(first)
        deformed = np.zeros((self.steps + 1, count, 3, 3), np.float32)
        deformed[0] = np.eye(3)
        self.F.from_numpy(deformed)
        self.activation.from_numpy(activation.astype(np.float32))
        for one in (self.x, self.v, self.C, self.F, self.activation):
            one.grad.fill(0.0)
        self.loss[None], self.loss.grad[None] = 0.0, 1.0
        self.ti.sync()
        begin = time.perf_counter()
        for step in range(self.steps):
            self.clear()
            self.to_grid(step)
            self.move_grid()
            self.from_grid(step)
        self.measure()
        self.measure.grad()
        for step in reversed(range(self.steps)):
            self.clear()
            self.to_grid(step)
            self.move_grid()
            self.from_grid.grad(step)
            self.move_grid.grad()
            self.to_grid.grad(step)
        self.ti.sync()
        seconds = time.perf_counter() - begin
        return float(self.loss[None]), self.activation.grad.to_numpy(), seconds
