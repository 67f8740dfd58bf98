"""The implicit function theorem on listed contacts: a residual in the change of velocity alone.

With the impulses p* that were found, their trials t = p* - g u and the slopes P of `project` there, an impulse near the
solution is p = p* + G⁻¹ (project(t) - project(t*)), where G = 1 - P (1 - g softness). Then H dv - rhs - Jᵀ p = 0 has
the derivative A = H + Jᵀ W J with W = G⁻¹ P g: what sticks is a spring of 1 / softness. Joint friction that sticks has
no softness: there u = 0 takes the place of the balance of its coordinate.

A is solved with the factor of H and of the springs of joint limits, in the half-solved coordinates in which that is the
identity. Each contact then takes its part out of the inverse, as a measurement does from a covariance (Sherman,
Morrison and Woodbury). Added to H, stiff springs would drown the inertia in rounding; the inverse only loses what they
hold.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from adjoin.constraints.blocks import Block, JointFrictionBlock, Row, Rows
from adjoin.constraints.contact_rows import ContactFrame
from adjoin.constraints.half_solved import HalfSolvedContacts
from adjoin.constraints.listed_sweeps import Impulses, listed_solution
from adjoin.constraints.solver import ListedSolution
from adjoin.constraints.system import System
from adjoin.dynamics.linear import Factor, dot, eliminate, is_zero
from adjoin.spatial.scalar import Scalar
from adjoin.trace import Scratch, detach, implicit, loop, maximum, scratch, select

STIFFEST = 1e-12  # the least softness of a spring


class ListedLinearization:
    """A step near its solution.

    Args:
        contacts: The contacts.
        others: The equations with the other constraints.
        found: The solution, without derivatives.
    """

    def __init__(self, contacts: HalfSolvedContacts, others: System, found: Impulses):
        self.contacts, self.others, self.found = contacts, others, found
        self.rows, self.nv = contacts.rows, contacts.nv
        half = [found.velocity[i] for i in range(self.nv)]
        self.change = detach(others.factor.finish_half_solve(half))
        self.other_impulses = detach(found.others)
        self.gains = detach(others.gain)
        self.blocks = list(zip(others.blocks, others.first_rows, strict=True))
        # Of each contact: the projected impulses, G⁻¹ and P.
        self.width = self.rows * (1 + 2 * self.rows)
        blank = contacts.contacts.blank(self.width)
        twists = contacts.motions.twist_array(self.change)
        self.linear = contacts.each(lambda contact, array: self._linearize(contact, twists, array), blank, True)

    def solution(self, warm: bool) -> ListedSolution:
        """Return the outcome of the step, with its derivatives; warm if the next step starts from its impulses."""
        change = implicit(self.change, self.residual, self.solve, self.solve_transposed)
        twists = self.contacts.motions.twist_array(change)

        def impulses(slot: Any) -> list[Scalar]:
            return self.impulses(self.contacts.contact(slot), twists)

        others = [p for block, place in self.blocks for p in self._other_impulses(block, place, change)]
        return listed_solution(self.contacts, self.others, change, impulses, others, warm)

    # The residual

    def residual(self, dv: Sequence[Scalar]) -> list[Scalar]:
        """Return H dv - rhs - Jᵀ p, and u where joint friction sticks."""
        contacts, others = self.contacts, self.others
        twists = contacts.motions.twist_array(dv)

        def act(contact: ContactFrame, wrenches: Scratch) -> Scratch:
            masked, _ = contacts.masked(contact.slot)
            contacts.add_wrench(wrenches, masked, self.impulses(contact, twists))
            return wrenches

        pushed = contacts.motions.generalized(contacts.each(act, contacts.motions.wrench_array()))
        rest = [r - p for r, p in zip(contacts.free.residual(dv), pushed, strict=True)]
        for block, place in self.blocks:
            for i, p in enumerate(self._other_impulses(block, place, dv), place):
                jacobian = others.rows[i].jacobian
                rest = [r if is_zero(x) else r - x * p for r, x in zip(rest, jacobian, strict=True)]
        for i, sticks in self.sticking.items():
            rest[i] = select(sticks > 0.5, contacts.state.v[i] + dv[i], rest[i])
        return rest

    def impulses(self, contact: ContactFrame, twists: Scratch) -> list[Scalar]:
        """Return the impulses of a contact near the solution, at the twists of a change of velocity."""
        projected = self.contacts.block(contact.pair).project(self._trials(contact, twists))
        moved = [x - self.linear[contact.slot * self.width + k] for k, x in enumerate(projected)]
        return [
            p + dot(line, moved)
            for p, line in zip(self._settled(contact.slot), self._matrix(contact.slot, 0), strict=True)
        ]

    def _settled(self, slot: Any) -> list[Scalar]:
        return [self.found.contacts[slot * self.rows + k] for k in range(self.rows)]

    def _trials(self, contact: ContactFrame, twists: Scratch) -> list[Scalar]:
        """p* - g (u + softness p*) of a contact."""
        masked, active = self.contacts.masked(contact.slot)
        speeds = self.contacts.rates(masked, twists)
        offsets = self.contacts.offsets(masked, active, self.contacts.away(masked.slot))
        gains = self.contacts.gains(contact.slot)
        parts = zip(
            self._settled(contact.slot), gains, speeds, offsets, self.contacts.present_rows(contact.pair), strict=True
        )
        return [p - g * (there * speed + offset + self.contacts.softness * p) for p, g, speed, offset, there in parts]

    def _linearize(self, contact: ContactFrame, twists: Scratch, array: Scratch) -> Scratch:
        trials, block = self._trials(contact, twists), self.contacts.block(contact.pair)
        gains, slopes = self.contacts.gains(contact.slot), block.slopes(trials)
        matrix = _loosened(slopes, gains, self.contacts.softness)
        size = range(self.rows)
        inverse = _transposed([eliminate(matrix, [1.0 if i == k else 0.0 for i in size]) for k in size])
        numbers = [*block.project(trials), *[x for row in (*inverse, *slopes) for x in row]]
        for k, x in enumerate(numbers):
            array[contact.slot * self.width + k] = x
        return array

    def _matrix(self, slot: Any, which: int) -> Rows:
        """G⁻¹ of a contact, or P."""
        size = range(self.rows)
        first = slot * self.width + self.rows * (1 + which * self.rows)
        return [[self.linear[first + i * self.rows + k] for k in size] for i in size]

    # Limits, friction and equalities of joints and tendons

    def _other_trials(self, place: int, count: int, dv: Sequence[Scalar]) -> list[Scalar]:
        others = self.others
        return [
            self.other_impulses[i]
            - self.gains[i]
            * (others.offsets[i] + dot(others.rows[i].jacobian, dv) + others.softness[i] * self.other_impulses[i])
            for i in range(place, place + count)
        ]

    def _other_impulses(self, block: Block, place: int, dv: Sequence[Scalar]) -> list[Scalar]:
        count = len(block.rows)
        projected = block.project(self._other_trials(place, count, dv))
        settled = detach(block.project(self._other_trials(place, count, self.change)))
        moved = [x - y for x, y in zip(projected, settled, strict=True)]
        parts = enumerate(zip(self.other_impulses[place:], moved, strict=False), place)
        return [p + (x / self.springs[i][1] if i in self.springs else x) for i, (p, x) in parts]

    def _slopes(self, block: Block, place: int) -> list[Scalar]:
        slopes = block.slopes(self._other_trials(place, len(block.rows), self.change))
        return detach([row[i] for i, row in enumerate(slopes)])

    @cached_property
    def sticking(self) -> dict[int, Scalar]:
        """Return of each coordinate with joint friction whether it sticks, 1 or 0."""
        return {
            _coordinates(block.rows[0])[0]: self._slopes(block, place)[0]
            for block, place in self.blocks
            if _is_joint_friction(block)
        }

    @cached_property
    def springs(self) -> dict[int, tuple[Scalar, Scalar]]:
        """Return P g and G of all other rows; friction of tendons that sticks is as soft as a contact."""
        found = {}
        for block, place in self.blocks:
            if _is_joint_friction(block):
                continue
            for i, slope in enumerate(self._slopes(block, place), place):
                rubs = isinstance(block, JointFrictionBlock)
                (softness,) = detach([maximum(self.contacts.softness if rubs else self.others.softness[i], STIFFEST)])
                found[i] = slope * self.gains[i], 1.0 - slope * (1.0 - self.gains[i] * softness)
        return found

    # The solve

    @cached_property
    def moving(self) -> list[Scalar]:
        """Return of each coordinate 0 if joint friction holds it, else 1."""
        return [1.0 - self.sticking[i] if i in self.sticking else 1.0 for i in range(self.nv)]

    @cached_property
    def factor(self) -> Factor:
        """Return the factor of H and of the springs of joint limits, among the coordinates that move."""
        inertia = [list(row) for row in self.others.inertia]
        for place, (answer, loose) in self.springs.items():
            dofs, jacobian = _coordinates(self.others.rows[place]), self.others.rows[place].jacobian
            if len(dofs) == 1:
                stiffness = answer / loose * jacobian[dofs[0]] * jacobian[dofs[0]]
                inertia[dofs[0]][dofs[0]] = inertia[dofs[0]][dofs[0]] + stiffness
        if self.sticking:
            for i in range(self.nv):
                for j in range(i + 1):
                    if not is_zero(inertia[i][j]) and (i in self.sticking or j in self.sticking):
                        inertia[i][j] = inertia[i][j] * self.moving[i] * self.moving[j]
                inertia[i][i] = inertia[i][i] + (1.0 - self.moving[i])
        return Factor(inertia)

    @cached_property
    def inverse(self) -> Scratch:
        """Return A⁻¹ in half-solved coordinates, nv + 1 rows; the last is of the coordinate that does not exist."""
        size = self.nv + 1
        inverse = scratch([1.0 if i == j else 0.0 for i in range(size) for j in range(size)], checked=False)
        for place, (answer, loose) in self.springs.items():
            row = self.others.rows[place]
            if len(_coordinates(row)) > 1:
                jacobian = [0.0 if is_zero(x) else x * free for x, free in zip(row.jacobian, self.moving, strict=True)]
                half = self.factor.half_solve(jacobian)
                dofs = [k for k, x in enumerate(half) if not is_zero(x)]
                inverse = self._reduce(inverse, dofs, [[half[k] for k in dofs]], [[answer]], [[loose]])
        lower, roots = self.contacts.entries_of(self.factor)
        return self.contacts.each(lambda contact, array: self._take(contact, lower, roots, array), inverse)

    def _take(self, contact: ContactFrame, lower: Scratch, roots: Scratch, inverse: Scratch) -> Scratch:
        """Take what a contact holds out of the inverse."""
        contacts = self.contacts
        masked, _ = contacts.masked(contact.slot)
        dofs, columns = contacts.dofs(contact.pair), contacts.jacobian(masked)
        if self.sticking:
            free = scratch([*self.moving, 0.0], checked=False)
            columns = [[x * free[dof] for x in column] for dof, column in zip(dofs, columns, strict=True)]
        half = contacts.half_solve(columns, dofs, lower, roots)
        slopes, gains = self._matrix(contact.slot, 1), contacts.gains(contact.slot)
        answers = [[p * g for p, g in zip(line, gains, strict=True)] for line in slopes]
        return self._reduce(inverse, dofs, half, answers, _loosened(slopes, gains, contacts.softness))

    def _reduce(self, inverse: Scratch, dofs: Sequence[Any], half: Rows, answers: Rows, loose: Rows) -> Scratch:
        """Take rows out of the inverse.

        Args:
            inverse: In half-solved coordinates.
            dofs: The coordinates of the rows.
            half: The half-solved rows.
            answers: P g.
            loose: G.
        """
        size, rows = self.nv + 1, len(half)
        sides = scratch(2 * rows * size, checked=False, cleared=False)

        def products(i: Any, sides: Scratch) -> Scratch:
            line = [inverse[i * size + dof] for dof in dofs]
            column = [inverse[dof * size + i] for dof in dofs]
            for r, row in enumerate(half):
                sides[i * (2 * rows) + r] = dot(line, row)
                sides[i * (2 * rows) + rows + r] = dot(column, row)
            return sides

        sides = loop(size, products, sides)
        across = [[dot(row, [sides[dof * (2 * rows) + s] for dof in dofs]) for s in range(rows)] for row in half]
        matrix = [
            [loose[i][k] + dot(answers[i], [line[k] for line in across]) for k in range(rows)] for i in range(rows)
        ]
        weights = _transposed([eliminate(matrix, column) for column in _transposed(answers)])

        def line(i: Any, inverse: Scratch) -> Scratch:
            left = [sides[i * (2 * rows) + r] for r in range(rows)]
            pulled = _times_matrix(_transposed(weights), left)

            def entry(j: Any, inverse: Scratch) -> Scratch:
                right = [sides[j * (2 * rows) + rows + r] for r in range(rows)]
                inverse.add(i * size + j, -dot(pulled, right))
                return inverse

            return loop(size, entry, inverse)

        return loop(size, line, inverse)

    def solve(self, b: Sequence[Scalar]) -> list[Scalar]:
        """Return A⁻¹ b, with the equations of what sticks."""
        held = [x * (1.0 - free) for x, free in zip(b, self.moving, strict=True)]
        if self.sticking:
            b = [(x - y) * free for x, y, free in zip(b, self._times(held), self.moving, strict=True)]
        found = self._times_inverse(b, False)
        return [x + y for x, y in zip(found, held, strict=True)] if self.sticking else found

    def solve_transposed(self, b: Sequence[Scalar]) -> list[Scalar]:
        """Return A⁻ᵀ b, with the equations of what sticks."""
        found = self._times_inverse([x * free for x, free in zip(b, self.moving, strict=True)], True)
        if not self.sticking:
            return found
        held = [(x - y) * (1.0 - free) for x, y, free in zip(b, self._times(found, True), self.moving, strict=True)]
        return [x * free + y for x, free, y in zip(found, self.moving, held, strict=True)]

    def _times_inverse(self, b: Sequence[Scalar], transposed: bool) -> list[Scalar]:
        size, half = self.nv + 1, self.factor.half_solve(list(b))
        array, inverse = scratch([*half, 0.0], checked=False), self.inverse

        def line(i: Any, result: Scratch) -> Scratch:
            def entry(j: Any, total: Scalar) -> Scalar:
                return total + inverse[j * size + i if transposed else i * size + j] * array[j]

            result[i] = loop(self.nv, entry, 0.0 * array[0])
            return result

        solved = loop(self.nv, line, scratch(self.nv, checked=False, cleared=False))
        return self.factor.finish_half_solve([solved[i] for i in range(self.nv)])

    def _times(self, x: Sequence[Scalar], transposed: bool = False) -> list[Scalar]:
        """A x."""
        contacts, others = self.contacts, self.others
        twists = contacts.motions.twist_array(x)

        def act(contact: ContactFrame, wrenches: Scratch) -> Scratch:
            masked, _ = contacts.masked(contact.slot)
            loose, slopes = (self._matrix(contact.slot, which) for which in (0, 1))
            gains, present = contacts.gains(contact.slot), contacts.present_rows(contact.pair)
            force = [rate * there for rate, there in zip(contacts.rates(masked, twists), present, strict=True)]
            if transposed:
                force = _times_matrix(_transposed(slopes), _times_matrix(_transposed(loose), force))
                force = [g * x for g, x in zip(gains, force, strict=True)]
            else:
                force = _times_matrix(loose, _times_matrix(slopes, [g * x for g, x in zip(gains, force, strict=True)]))
            contacts.add_wrench(wrenches, masked, [x * there for x, there in zip(force, present, strict=True)])
            return wrenches

        total = contacts.motions.generalized(contacts.each(act, contacts.motions.wrench_array()))
        line = others.inertia
        inertial = [dot([line[max(i, j)][min(i, j)] for j in range(self.nv)], x) for i in range(self.nv)]
        total = [a + b for a, b in zip(total, inertial, strict=True)]
        for i, (answer, loose) in self.springs.items():
            pull = answer / loose * dot(others.rows[i].jacobian, x)
            total = [t if is_zero(a) else t + a * pull for t, a in zip(total, others.rows[i].jacobian, strict=True)]
        return total


def _coordinates(row: Row) -> list[int]:
    return [i for i, x in enumerate(row.jacobian) if not is_zero(x)]


def _is_joint_friction(block: Block) -> bool:
    """Whether a block is the friction of one coordinate, not of a tendon."""
    return isinstance(block, JointFrictionBlock) and len(_coordinates(block.rows[0])) == 1


def _loosened(slopes: Rows, gains: Sequence[Scalar], softness: Scalar) -> Rows:
    """G = 1 - P (1 - g softness)."""
    soft = maximum(softness, STIFFEST)
    size = range(len(gains))
    return [[(1.0 if i == k else 0.0) - slopes[i][k] * (1.0 - gains[k] * soft) for k in size] for i in size]


def _transposed(matrix: Sequence[Sequence[Scalar]]) -> Rows:
    return [list(column) for column in zip(*matrix, strict=True)]


def _times_matrix(matrix: Rows, x: Sequence[Scalar]) -> list[Scalar]:
    return [dot(row, x) for row in matrix]
