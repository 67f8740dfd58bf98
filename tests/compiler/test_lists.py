"""Tables, arrays of integers, lists of what is active, loops of run-time length: what contact is made of."""

import numpy as np
import pytest
import torch
from kernel_checks import check_kernel

import adjoin
from adjoin import trace as at
from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.runtime.function import Function
from adjoin.errors import TraceError


def inputs(*shapes, batch=37, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, *shape, generator=generator, dtype=torch.float64) for shape in shapes]


def compacted(x, w):
    """The sum of f(x_i) w_i over those i for which x_i < 0, found first and then visited: as contacts are."""
    weights = at.table(np.linspace(1.0, 2.0, 8))
    values = at.scratch(list(x))
    own = at.scratch(list(w))
    place, active = at.indices(8), at.scratch(8, cleared=False)

    def find(i, carry):
        count, place, active = carry
        near = values[i] < 0.0

        def claim(carry):
            count, place, active = carry
            place[count] = i
            active[count] = at.select(near, 1.0, 0.0)
            return count + 1, place, active

        return at.when(at.any_environment(near), claim, (count, place, active), detached=True)

    count, place, active = at.loop(8, find, (at.integer(0), place, active), detached=True)
    totals = at.scratch(3)

    def visit(slot, carry):
        totals, together = carry
        i = place[slot]
        on = active[slot] > 0.5
        value = at.select(on, values[i] * values[i] * at.sin(values[i]) * own[i] * weights[i], 0.0)
        totals.add(at.table([0, 1, 2, 0, 1, 2, 0, 1])[i], value)
        return totals, together + at.select(on, values[i] * together * 0.1 + 1.0, 0.0)

    totals, together = at.loop(count, visit, (totals, 0.5 * x[0]), at_most=8)
    return [totals[0], totals[1], totals[2], together]


@pytest.mark.parametrize("batch", [5, 37])
def test_a_list_of_what_is_active_is_visited(batch):
    function = Function(compacted, {"x": 8, "w": 8})
    x, w = inputs((8,), (8,), batch=batch)
    check_kernel(function.kernel, [x, w])
    weights = torch.linspace(1.0, 2.0, 8, dtype=torch.float64)
    terms = torch.where(x < 0.0, x * x * x.sin() * w * weights, 0.0)
    found = function(x, w)
    found = torch.stack(list(found), -1) if isinstance(found, tuple) else found
    expected = torch.stack([terms[:, k::3].sum(-1) for k in range(3)], -1)
    torch.testing.assert_close(found[..., :3], expected)
    together = 0.5 * x[:, 0]
    for i in range(8):
        together = torch.where(x[:, i] < 0.0, together + x[:, i] * together * 0.1 + 1.0, together)
    torch.testing.assert_close(found[..., 3], together)


def relaxed(stop_early):
    """Sweeps over records of three numbers, one for each x_i < 0, as impulses of contacts are; others take no part."""

    def function(x, w):
        values, own, place = at.scratch(list(x)), at.scratch(list(w)), at.indices(16)

        def find(i, carry):
            def claim(carry):
                count, place = carry
                place[count] = i
                return count + 1, place

            return at.when(at.any_environment(values[i] < 0.0), claim, carry, detached=True)

        count, place = at.loop(16, find, (at.integer(0), place), detached=True)
        used = (count, 3) if stop_early else None
        array, others = (at.scratch(48, checked=False, cleared=cleared, used=used) for cleared in (False, True))

        def begin(slot, array):
            for k in range(3):
                array[3 * slot + k] = own[place[slot]] * (1.0 + k)
            return array

        def sweep(_, array):
            def visit(slot, array):
                for k in range(3):
                    before = array[3 * slot + k]
                    array[3 * slot + k] = at.sin(before) * values[place[slot]] + 0.1 * others[3 * slot + k]
                return array

            return at.loop(count, visit, array, at_most=16)

        def total(slot, sums):
            active = values[place[slot]] < 0.0
            return [s + at.select(active, array[3 * slot + k], 0.0) for k, s in enumerate(sums)]

        array = at.loop(count, begin, array, at_most=16)
        array = at.loop(4, sweep, array)
        return at.loop(count, total, [x[0], 0.0 * x[0], w[0]], at_most=16)

    return Function(function, {"x": 16, "w": 16})


@pytest.mark.parametrize("share", ["none", "some", "all"])
def test_an_array_that_is_used_in_part_gives_what_it_gives_as_a_whole(share):
    x, w = inputs((16,), (16,), batch=5, seed=3)
    x = {"none": x.abs(), "some": torch.where(torch.arange(16) < 5, x, x.abs()), "all": -x.abs()}[share]
    check_kernel(relaxed(True).kernel, [x, w])
    found = []
    for stop_early in (True, False):
        leaves = [t.clone().requires_grad_() for t in (x, w)]
        outputs = relaxed(stop_early)(*leaves)
        found.append([*outputs, *torch.autograd.grad(sum(y.sin().sum() for y in outputs), leaves)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_how_far_an_array_is_used_is_the_same_in_all_environments():
    for count in (lambda x: at.to_index(x[0]), lambda x: x[0]):
        with pytest.raises(TraceError, match="records of a scratch array are used is an integer, the same in all"):
            Function(lambda x, count=count: at.scratch(6, used=(count(x), 3))[0], {"x": 1})(torch.ones(2, 1))


def rooted(a, y):
    """x with x² = a, by Newton's method until it has converged, as the solution of that equation; times y."""

    def step(_, carry):
        x, _ = carry
        following = 0.5 * (x + a / x)
        return following, abs(following - x)

    (x,) = at.implicit(
        [at.while_loop(lambda c: c[1] > 1e-12, step, (1.0 + a, 1.0), 60)[0]],
        lambda x: [x[0] * x[0] - a],
        lambda b: [b[0] / (2.0 * at.sqrt(a))],
    )
    return x * y


def test_a_loop_ends_where_it_has_converged():
    function = Function(rooted, {"a": (), "y": ()})
    a, y = inputs((), ())
    a = a.square() + 0.1
    check_kernel(function.kernel, [a, y])
    torch.testing.assert_close(function(a, y), a.sqrt() * y)


def test_a_loop_that_ends_by_itself_has_no_reverse_derivative():
    function = Function(lambda a: at.while_loop(lambda x: x > 1.0, lambda _, x: 0.5 * x, a, 50), {"a": ()})
    a = torch.tensor([3.0, 0.5], dtype=torch.float64, requires_grad=True)
    assert function(a).tolist() == [0.75, 0.5]
    with pytest.raises(TraceError, match="while_loop has no reverse derivative"):
        function(a).sum().backward()


def branched(x, c):
    """Arrays that change where a condition holds, in each environment for itself."""
    array = at.scratch([x[0], x[1], x[2]])

    def change(carry):
        array, total = carry
        array[1] = array[0] * array[2]
        array.add(2, total)
        array[at.to_index(abs(c) * 3.0)] = at.sin(array[2])
        return array, total + array[1]

    array, total = at.when(c > 0.0, change, (array, x[3]))
    return [array[0], array[1], array[2], total * array[at.to_index(2.9 * abs(at.tanh(c)))]]


def test_a_branch_may_change_arrays():
    check_kernel(Function(branched, {"x": 4, "c": ()}).kernel, inputs((4,), ()))


def in_branches(x, c):
    """An array that a loop changes inside of two branches."""

    def change(array):
        def nested(array):
            def step(i, array):
                array[i] = array[i] + 1.0
                array.add(i, 1.0)
                return array

            return at.loop(2, step, array)

        return at.when(c > 1.0, nested, array)

    array = at.when(c < 3.0, change, at.scratch(list(x)))
    return [array[0], array[1], array[2]]


def test_a_loop_inside_of_branches_changes_only_the_environments_that_take_them():
    c = torch.arange(5.0, dtype=torch.float64)
    changed = Function(in_branches, {"x": 3, "c": ()})(x=torch.zeros(5, 3, dtype=torch.float64), c=c)
    expected = torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64) * ((c > 1.0) & (c < 3.0))[:, None]
    assert (changed == expected).all()


def indexed(x, k):
    """Tables and arrays at places of each environment's own."""
    numbers, places = at.table([[0.5, -1.0, 2.0], [3.0, 0.25, -2.0]]), at.table([2, 0, 1, 2])
    i = at.to_index(abs(k) * 1.7)
    array = at.scratch(list(x))
    array.add(places[i], numbers[1, i] * x[0])
    return [array[0], array[1], array[2] * numbers[0, places[i]]]


def test_tables_are_read_where_the_data_says():
    check_kernel(Function(indexed, {"x": 3, "k": ()}).kernel, inputs((3,), ()))


def test_tables_of_numbers_that_are_known_fold():
    @adjoin.function(x=())
    def chosen(x):
        return at.table([1.0, 2.0])[1] * x + at.table([3, 4])[0]

    assert chosen(torch.tensor([2.0])).tolist() == [7.0]
    assert chosen.kernel.program.operations == 2


def swept(x, w):
    """Sweeps over an array that is read and written: its adjoint has to recall what it held."""
    array = at.scratch(list(x))

    def sweep(_, array):
        def one(i, array):
            array[i] = 0.5 * array[i] + 0.3 * at.sin(array[at.table([1, 2, 3, 0])[i]]) * w[0]
            return array

        return at.loop(4, one, array)

    array = at.loop(3, sweep, array)
    return [array[i] for i in range(4)]


def test_sweeps_over_an_array():
    check_kernel(Function(swept, {"x": 4, "w": 1}).kernel, inputs((4,), (1,), batch=19))


def test_adding_to_an_array_is_not_recalled():
    """An array that a loop only adds to takes no memory a step for the adjoint."""

    def added(x):
        def add(i, total):
            total.add(0, at.sin(x[0] * at.to_float(i)))
            return total

        return at.loop(50, add, at.scratch(200))[0]

    function = Function(added, {"x": 1})
    program, _ = vjp(function.kernel.program, [True])
    assert program.operations < 100
    check_kernel(function.kernel, inputs((1,), batch=5), second=False)


def test_large_arrays_lie_in_the_workspace():
    def large(x):
        array = at.scratch(20_000)

        def fill(i, array):
            array[i] = x[0] * at.to_float(i)
            return array

        array = at.loop(20_000, fill, array)
        return [array[19_999], array[at.to_index(abs(x[0]) * 100.0)]]

    function = Function(large, {"x": 1})
    x = torch.tensor([[1.5], [2.0], [-3.0]], dtype=torch.float64)
    for rows in ([0], [0, 1, 2]):
        found = torch.stack(list(function(x[rows])), -1) if isinstance(function(x), tuple) else function(x[rows])
        assert found.tolist() == [[v * 19_999, v * int(abs(v) * 100)] for v in x[rows, 0].tolist()]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: at.loop(at.to_index(x), lambda i, c: c, x, at_most=4), "the same in all environments"),
        (lambda x: at.loop(3, lambda i, c: at.to_index(x), 0 * at.to_index(x)), "must be the same in all"),
        (lambda x: at.indices(0), "1 to"),
        (lambda x: at.table([]), "at least one number"),
    ],
)
def test_what_cannot_be_said_is_refused(function, message):
    with pytest.raises(TraceError, match=message):
        Function(function, {"x": ()})


def test_integers_differ_nowhere():
    def wrong(x):
        places = at.indices(3)
        places[0] = at.to_index(x)
        return x

    with pytest.raises(TraceError, match="must be the same in all environments"):
        Function(wrong, {"x": ()})


def test_an_index_plus_a_number_is_an_address_with_an_offset():
    def weighted(x):
        array, numbers = at.scratch(list(x), checked=False), at.table([0.0, 3.0, 5.0, 7.0], checked=False)

        def body(i, carry):
            array, total = carry
            array[(i - 1) + 1] = array[i + 2] * 2.0  # the first part of this index is negative at first
            return array, total + array[(i + 3) + 1] * numbers[i + 1]

        array, total = at.loop(3, body, (array, 0.0))
        return [*[array[k] for k in range(7)], total]

    for batch in (1, 9):
        x = torch.randn(batch, 7, dtype=torch.float64)
        expected = x.clone()
        expected[:, 0], expected[:, 1], expected[:, 2] = 2.0 * x[:, 2], 2.0 * x[:, 3], 2.0 * x[:, 4]
        total = 3.0 * x[:, 4] + 5.0 * x[:, 5] + 7.0 * x[:, 6]
        found = adjoin.function(x=7)(weighted)(x)
        torch.testing.assert_close(found, torch.cat([expected, total[:, None]], 1))
