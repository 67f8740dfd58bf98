# pyright: reportInvalidTypeForm=false
"""The soft walker in three dimensions with Taichi (wheel `taichi`), a peer of continuum.py's section walker3d.

The same particles, material, walls and loss as ours, differentiated by Taichi's own reverse mode as in DiffTaichi's
diffmpm3d.py: states of all steps are kept, and the grid of each step is computed again before its reverse.

Taichi differentiates what it has unrolled, and takes minutes for the 27 nodes around a particle. So deformation,
stress and the grid are kernels of their own, and a lane has a particle and one of three slices of its nodes. Of the
forms that compile within a minute this one runs fastest: all nodes unrolled take over three minutes to compile, a loop
over nodes runs three to five times longer, a lane for each node twice as long.
"""

import importlib
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
        shear: float,
        first: float,
        gravity: float,
        wall: int = 3,
    ):
        ti: Any = importlib.import_module("taichi")  # its types do not describe kernels
        self.ti, self.steps, self.start = ti, steps, x
        count, nodes, h = len(x), n + 1, 1.0 / n

        def vectors(*shape: int) -> Any:
            return ti.Vector.field(3, ti.f32, shape=shape, needs_grad=True)

        def matrices(*shape: int) -> Any:
            return ti.Matrix.field(3, 3, ti.f32, shape=shape, needs_grad=True)

        xs, vs, Cs = vectors(steps + 1, count), vectors(steps + 1, count), matrices(steps + 1, count)
        Fs, affine = matrices(steps + 1, count), matrices(count)
        mass = ti.field(ti.f32, shape=(nodes,) * 3, needs_grad=True)
        momentum, velocity = vectors(nodes, nodes, nodes), vectors(nodes, nodes, nodes)
        activation = ti.field(ti.f32, shape=(steps, muscles), needs_grad=True)
        loss = ti.field(ti.f32, shape=(), needs_grad=True)
        of = ti.field(ti.i32, shape=count)
        of.from_numpy(muscle.astype(np.int32))
        self.x, self.v, self.C, self.F = xs, vs, Cs, Fs
        self.activation, self.loss = activation, loss

        @ti.kernel
        def clear():
            for node in ti.grouped(mass):
                mass[node] = 0.0
                momentum[node] = ti.Vector.zero(ti.f32, 3)

        @ti.kernel
        def clear_adjoints():
            for node in ti.grouped(mass):
                mass.grad[node] = 0.0
                momentum.grad[node] = ti.Vector.zero(ti.f32, 3)
                velocity.grad[node] = ti.Vector.zero(ti.f32, 3)
            for p in affine:
                affine.grad[p] = ti.Matrix.zero(ti.f32, 3, 3)

        @ti.kernel
        def deform(step: ti.i32):
            for p in range(count):
                Fs[step + 1, p] = Fs[step, p] + dt * Cs[step, p] @ Fs[step, p]

        @ti.kernel
        def strain(step: ti.i32):
            for p in range(count):
                # the Kirchhoff stress of our neo-Hookean material, and the fiber of a muscle along the last axis
                deformed = Fs[step + 1, p]
                stress = shear * (deformed @ deformed.transpose() - ti.Matrix.identity(ti.f32, 3))
                stress += first * ti.log(deformed.determinant()) * ti.Matrix.identity(ti.f32, 3)
                if of[p] >= 0:
                    fiber = ti.Vector([deformed[0, 2], deformed[1, 2], deformed[2, 2]])
                    stress += activation[step, ti.max(of[p], 0)] * fiber.outer_product(fiber)
                affine[p] = Cs[step, p] - (4.0 * dt / (h * h)) * stress

        @ti.func
        def weight(i, f):
            return ti.select(
                i == 0, 0.5 * (1.5 - f) ** 2, ti.select(i == 1, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2)
            )

        @ti.kernel
        def to_grid(step: ti.i32):
            for p, i in ti.ndrange(count, 3):
                base = ti.cast(xs[step, p] / h - 0.5, ti.i32)
                f = xs[step, p] / h - ti.cast(base, ti.f32)
                w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
                slice_weight = weight(i, f[0])
                a = h * affine[p]
                slice_momentum = vs[step, p] + a @ (ti.Vector([ti.cast(i, ti.f32), 0.0, 0.0]) - f)
                for j, k in ti.static(ti.ndrange(3, 3)):
                    node = base + ti.Vector([i, j, k])
                    w_jk = slice_weight * w[j][1] * w[k][2]
                    across = ti.Vector(
                        [a[0, 1] * j + a[0, 2] * k, a[1, 1] * j + a[1, 2] * k, a[2, 1] * j + a[2, 2] * k]
                    )
                    momentum[node] += w_jk * (slice_momentum + across)
                    mass[node] += w_jk

        @ti.kernel
        def move_grid():
            for node in ti.grouped(mass):
                v = ti.Vector.zero(ti.f32, 3)
                if mass[node] > 1e-10:  # of the mass of a particle, as DiffTaichi has it: its square must not vanish
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
            for p, i in ti.ndrange(count, 3):
                base = ti.cast(xs[step, p] / h - 0.5, ti.i32)
                f = xs[step, p] / h - ti.cast(base, ti.f32)
                w = [0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2]
                slice_weight = weight(i, f[0])
                v = ti.Vector.zero(ti.f32, 3)
                C = ti.Matrix.zero(ti.f32, 3, 3)
                for j, k in ti.static(ti.ndrange(3, 3)):
                    offset = ti.Vector([i, j, k])
                    part = slice_weight * w[j][1] * w[k][2] * velocity[base + offset]
                    v += part
                    C += part.outer_product(ti.cast(offset, ti.f32) - f)
                vs[step + 1, p] += v
                Cs[step + 1, p] += (4.0 / h) * C

        @ti.kernel
        def move(step: ti.i32):
            for p in range(count):
                xs[step + 1, p] = xs[step, p] + dt * vs[step + 1, p]

        @ti.kernel
        def measure():
            for p in range(count):
                loss[None] += -xs[steps, p][0] / count

        self.grid = (clear, deform, strain, to_grid, move_grid)
        self.clear_adjoints, self.from_grid, self.move, self.measure = clear_adjoints, from_grid, move, measure

    def iterate(self, activation: np.ndarray) -> tuple[float, np.ndarray, float]:
        """Return the loss, its gradient to the activations (steps, muscles), and seconds of processor time."""
        count = len(self.start)
        first = np.zeros((self.steps + 1, count, 3), np.float32)
        first[0] = self.start
        self.x.from_numpy(first)
        deformed = np.zeros((self.steps + 1, count, 3, 3), np.float32)
        deformed[0] = np.eye(3)
        self.F.from_numpy(deformed)
        self.activation.from_numpy(activation.astype(np.float32))
        self.v.fill(0.0)
        self.C.fill(0.0)
        for one in (self.x, self.v, self.C, self.F, self.activation):
            one.grad.fill(0.0)
        self.loss[None], self.loss.grad[None] = 0.0, 1.0
        clear, deform, strain, to_grid, move_grid = self.grid
        self.ti.sync()
        begin = time.process_time()
        for step in range(self.steps):
            clear()
            deform(step)
            strain(step)
            to_grid(step)
            move_grid()
            self.from_grid(step)
            self.move(step)
        self.measure()
        self.measure.grad()
        for step in reversed(range(self.steps)):
            clear()
            self.clear_adjoints()
            strain(step)
            to_grid(step)
            move_grid()
            self.move.grad(step)
            self.from_grid.grad(step)
            move_grid.grad()
            to_grid.grad(step)
            strain.grad(step)
            deform.grad(step)
        self.ti.sync()
        seconds = time.process_time() - begin
        return float(self.loss[None]), self.activation.grad.to_numpy(), seconds
