"""One time step as a sequence of maps over sets, and its adjoint, which is one again.

Fields live on sets (nodes, elements, particles) or are one for all. A stage is a function of one member of a set: it
reads fields of its own member, of the members that a connection names, or the sum of what others contributed to it.
The adjoint of a gather is an ordered sum through the same connection, and the other way round.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from adjoin.compiler.autodiff.derivatives import vjp
from adjoin.compiler.codegen.contributions import columns_of
from adjoin.compiler.codegen.map_access import Access, Kind, Map
from adjoin.compiler.ir.graph import uncollected
from adjoin.compiler.ir.program import Program, TensorSpec, trace
from adjoin.errors import TraceError

Role = Literal["state", "parameter", "control", "output", "temporary", "index"]


@dataclass(frozen=True)
class Field:
    """A quantity of every member of a set, or one for a whole variant.

    Attributes:
        name: how stages and callers know it.
        over: the set; None for one value a variant.
        shape: of one member's value.
        role: "state" is carried from step to step; "parameter" does not change; "control" has a value a step; "output"
            is returned for every step; "temporary" lives within a step; "index" is a temporary of whole numbers.
        via: of a temporary: the connection to whose members the values are contributions, `shape` for each of them.
    """

    name: str
    over: str | None
    shape: tuple[int, ...] = ()
    role: Role = "temporary"
    via: str | None = None


@dataclass(frozen=True)
class Connection:
    """An index table: for every member of one set, some members of another.

    Attributes:
        name: how stages know it.
        source: the set whose members have indices.
        target: the set that they point into.
        corners: how many each has.
        cell: for particles in a grid: the index field with the first node of each particle's cell. The others are at
            fixed offsets from it.
        atomic: contributions are added in any order by atomic operations, so that the last bits differ from run to
            run, instead of in the order of the members.
    """

    name: str
    source: str
    target: str
    corners: int
    cell: str | None = None
    atomic: bool = False

    def access(self, kind: Kind) -> Access:
        """Return a way to reach a tensor through it."""
        return Access(kind, self.name, self.corners, self.cell is not None)


@dataclass(frozen=True)
class Read:
    """What an argument of a stage is.

    Attributes:
        field: which; `after(name)` is a state as the step leaves it.
        via: a connection: of a gather its source is the stage's set; of a sum its target.
    """

    field: str
    via: str | None = None


@dataclass(frozen=True)
class Stage:
    """A function of one member of a set.

    Attributes:
        name: for messages.
        over: the set.
        function: takes the arguments by name, traced; returns a dict of field names and values.
        reads: what each argument is.
    """

    name: str
    over: str
    function: Callable[..., Mapping[str, Any]]
    reads: Mapping[str, Read]


@dataclass(frozen=True)
class Sort:
    """A stage that sorts the particles of a connection into their cells."""

    via: str


def after(state: str) -> str:
    """Return the name under which stages know a state as the step leaves it."""
    return f"{state}'"


@dataclass(frozen=True)
class Place:
    """Which memory an access uses.

    Attributes:
        buffer: the name of a field, or of a cotangent.
        carried: from the step that was differentiated before.
    """

    buffer: str
    carried: bool = False


@dataclass(frozen=True, eq=False)
class Task:
    """A map with the memory that its accesses use, or a sort of particles into cells."""

    over: str
    map: Map | None
    places: tuple[Place, ...] = ()
    sort: str | None = None


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory that the adjoint needs.

    Attributes:
        over: the set of its rows; None for sums over lanes.
        columns: numbers a row.
        keep: "carry" alternates between steps, "add" gathers over all steps, "step" has every step, "replay" the steps
            that are computed again at once, "" one step.
        lanes: of a sum over lanes, the set that it was over.
    """

    over: str | None
    columns: int
    keep: str = ""
    lanes: str = ""


@dataclass(eq=False)
class Adjoint:
    """The reverse of one step, and how gradients are read off at the end.

    Attributes:
        replay: what is computed again before, in order; it needs the states alone, so several steps can be at once.
        tasks: in order.
        buffers: what they write.
        gradients: of each wanted field the reads whose sum is its gradient.
    """

    replay: list[Task] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    gradients: dict[str, list[tuple[Access, Place]]] = field(default_factory=dict)


class StepSequence:
    """Stages that make one time step; see the module.

    Args:
        fields: every quantity.
        connections: every index table.
        stages: in order.
    """

    def __init__(self, fields: Sequence[Field], connections: Sequence[Connection], stages: Sequence[Stage | Sort]):
        self.fields: dict[str, Field] = {}
        for one in fields:
            self.fields[one.name] = one
            if one.role == "state":
                self.fields[after(one.name)] = one
        self.connections = {one.name: one for one in connections}
        self.stages = list(stages)
        self.programs: list[Program | None] = []
        with uncollected():
            for stage in self.stages:
                self.programs.append(None if isinstance(stage, Sort) else self._trace(stage))
        written = {name for program in self.programs if program is not None for name in self._outputs(program)}
        missing = [one.name for one in fields if one.role == "state" and after(one.name) not in written]
        if missing:
            raise TraceError(f"no stage writes the next value of the state {missing[0]!r}, {after(missing[0])!r}")
        self._vjps: dict[Any, tuple[Program, Any]] = {}
        self.forward = [task for i in range(len(self.stages)) for task in self._tasks(i, None)]
        self.replay = self._again({after(one.name) for one in fields if one.role == "state"})

    # Tracing ----------------------------------------------------------------------------------------------------------

    def _trace(self, stage: Stage) -> Program:
        specs = []
        for name, read in stage.reads.items():
            one = self._field(stage, read.field)
            access = self.access(stage, read)
            corners = (access.corners,) if access.kind == Kind.GATHER else ()
            specs.append(TensorSpec(name, (*corners, *one.shape)))

        def function(**arguments: Any) -> Any:
            values = stage.function(**arguments)
            if not isinstance(values, dict):
                raise TraceError(f"stage {stage.name!r} must return a dict of fields, got {type(values).__name__}")
            return values

        program, _ = trace(stage.name, function, specs)
        for spec in program.outputs:
            one = self._field(stage, spec.name)
            shape = (self.connections[one.via].corners, *one.shape) if one.via is not None else one.shape
            if spec.shape != shape:
                raise TraceError(f"stage {stage.name!r}: {spec.name!r} has the shape {shape}, got {spec.shape}")
            cell = self.connections[one.via].cell if one.via is not None and self.connections[one.via].atomic else None
            if cell is not None and cell in self._outputs(program):
                raise TraceError(f"stage {stage.name!r}: a stage before must write {cell!r} for atomic contributions")
        return program

    def _field(self, stage: Stage, name: str) -> Field:
        if name not in self.fields:
            raise TraceError(f"stage {stage.name!r}: no field {name!r}; fields: {', '.join(self.fields)}")
        return self.fields[name]

    def access(self, stage: Stage, read: Read) -> Access:
        """Return how a stage reaches what it reads."""
        one = self._field(stage, read.field)
        if read.via is None:
            if one.over not in (None, stage.over):
                raise TraceError(f"stage {stage.name!r} is over {stage.over!r}, {read.field!r} over {one.over!r}")
            return Access(Kind.UNIFORM if one.over is None else Kind.LANE)
        if read.via not in self.connections:
            raise TraceError(f"stage {stage.name!r}: no connection {read.via!r}; {', '.join(self.connections)}")
        connection = self.connections[read.via]
        kind = Kind.GATHER if one.via is None else Kind.SUM
        ends = (one.over, stage.over) if kind == Kind.SUM else (stage.over, one.over)
        if ends != (connection.source, connection.target) or (kind == Kind.SUM and one.via != read.via):
            raise TraceError(f"stage {stage.name!r}: {read.field!r} cannot be read through {read.via!r} there")
        return Access(Kind.LANE) if kind == Kind.SUM and connection.atomic else connection.access(kind)

    def _outputs(self, program: Program) -> list[str]:
        return [spec.name for spec in program.outputs]

    def write(self, name: str) -> Access:
        """Return how a stage writes a field."""
        if name not in self.fields:
            return Access(Kind.LANE)  # a sum
        one = self.fields[name]
        if one.over is None:
            return Access(Kind.REDUCE)
        if one.role == "index":
            return Access(Kind.INDEX)
        if one.via is None:
            return Access(Kind.LANE)
        connection = self.connections[one.via]
        return connection.access(Kind.SCATTER) if connection.atomic else Access(Kind.LANE, corners=connection.corners)

    def rows(self, one: Field) -> tuple[str | None, int]:
        """Return the set that a field has rows of in memory, and the numbers of a row."""
        size = math.prod(one.shape)
        if one.via is None:
            return one.over, size
        connection = self.connections[one.via]
        if connection.atomic:
            return connection.target, size
        return one.over, columns_of(size, connection.corners)

    def _tasks(self, i: int, only: set[str] | None) -> list[Task]:
        """Return a stage as it runs forwards, or only some of its outputs; before it what sets to zero.

        Sums among these outputs (`_sum_name`) are arguments of the stage, which it writes for its adjoint.
        """
        stage, program = self.stages[i], self.programs[i]
        if isinstance(stage, Sort):
            connection = self.connections[stage.via]
            return [] if connection.atomic else [Task(connection.source, None, sort=stage.via)]
        assert program is not None
        if only is not None:
            kept = [j for j, name in enumerate(self._outputs(program)) if name in only]
            computation = program.computation
            targets = tuple(computation.targets[j] for j in kept)
            smooth = computation.smooth[0], tuple(computation.smooth[1][j] for j in kept)
            outputs = tuple(program.outputs[j] for j in kept)
            sums = [j for j, argument in enumerate(stage.reads) if _sum_name(stage, argument) in only]
            nodes = tuple(computation.sources[j] for j in sums)
            targets, smooth = (*targets, *nodes), (smooth[0], (*smooth[1], *nodes))
            specs = [(list(stage.reads)[j], program.inputs[j].shape) for j in sums]
            outputs = (*outputs, *[TensorSpec(_sum_name(stage, name), shape) for name, shape in specs])
            program = replace(
                program, outputs=outputs, computation=replace(computation, targets=targets, smooth=smooth)
            )
        reads = tuple((self.access(stage, read),) for read in stage.reads.values())
        names = self._outputs(program)
        places = [Place(read.field) for read in stage.reads.values()] + [Place(name) for name in names]
        task = Task(stage.over, Map(program, reads, tuple(self.write(name) for name in names)), tuple(places))
        added = [self.fields[name] for name in names if self.write(name).kind == Kind.SCATTER]
        return [*_clear([(Place(one.name), *self.rows(one)) for one in added]), task]

    # The adjoint ------------------------------------------------------------------------------------------------------

    def adjoint(self, wanted: set[str]) -> Adjoint:
        """Return the reverse of one step.

        Args:
            wanted: the parameters and controls whose gradients are asked for; those of states always are.
        """
        states = [name for name, one in self.fields.items() if one.role == "state" and not name.endswith("'")]
        seeds: dict[str, list[tuple[Access, Place]]] = {}
        for name, one in self.fields.items():
            if one.role == "output":
                kind = Kind.UNIFORM if one.over is None else Kind.LANE
                seeds[name] = [(Access(kind), Place(f"seed.{name}"))]
        for state in states:
            seeds[after(state)] = [(Access(Kind.LANE), Place(f"seed.{state}"))]
        result = self._reverse(seeds, wanted)
        # What the step after contributes to a state is only known once the step has been reversed.
        for state in states:
            carried = [(access, replace(place, carried=True)) for access, place in result.gradients.get(state, [])]
            seeds[after(state)] = seeds[after(state)] + carried
        result = self._reverse(seeds, wanted)
        again = self._replayed(set[str]().union(*[self._temporaries_read(task) for task in result.tasks]))
        names = {stage.name for i, stage in enumerate(self.stages) if i in again and isinstance(stage, Stage)}
        result = self._reverse(seeds, wanted, names)
        for state in states:
            carried = [(access, replace(place, carried=True)) for access, place in result.gradients.get(state, [])]
            result.gradients[state] = [(Access(Kind.LANE), Place(f"seed.{state}")), *carried]
        read = set[str]().union(*[self._temporaries_read(task) for task in result.tasks])
        result.replay = self._again(read)
        return result

    def _reverse(
        self, seeds: dict[str, list[tuple[Access, Place]]], wanted: set[str], replayed: set[str] | None = None
    ) -> Adjoint:
        """Return the reverse of all stages; those that are computed again leave the sums that they read."""
        cotangents = {name: list(reads) for name, reads in seeds.items()}
        active = {name for name, one in self.fields.items() if name in wanted or one.role == "state"}
        for stage, program in zip(self.stages, self.programs, strict=True):
            if isinstance(stage, Stage) and any(read.field in active for read in stage.reads.values()):
                assert program is not None
                active.update(name for name in self._outputs(program) if self.fields[name].role != "index")
        result = Adjoint()
        for stage, program in reversed(list(zip(self.stages, self.programs, strict=True))):
            if isinstance(stage, Stage):
                assert program is not None
                self._reverse_stage(stage, program, cotangents, active, result, stage.name in (replayed or ()))
        result.gradients = {
            name: cotangents.get(name, [])
            for name, one in self.fields.items()
            if name in wanted or (one.role == "state" and not name.endswith("'"))
        }
        return result

    def _reverse_stage(
        self,
        stage: Stage,
        program: Program,
        cotangents: dict[str, list[tuple[Access, Place]]],
        active: set[str],
        result: Adjoint,
        keeps_sums: bool,
    ) -> None:
        outputs = self._outputs(program)
        seeded = [bool(cotangents.get(name)) and self.fields[name].role != "index" for name in outputs]
        reads = list(stage.reads.items())
        asked = [read.field in active and self.fields[read.field].role != "index" for _, read in reads]
        if not any(seeded) or not any(asked):
            return
        key = (stage.name, tuple(asked), tuple(seeded))
        if key not in self._vjps:
            with uncollected():
                self._vjps[key] = vjp(program, asked, seeded)
        reverse, present = self._vjps[key]
        if not present:
            return
        accesses: list[tuple[Access, ...]] = [(self.access(stage, read),) for _, read in reads]
        places = [Place(read.field) for _, read in reads]
        for i, (argument, _) in enumerate(reads if keeps_sums else []):
            if accesses[i][0].kind == Kind.SUM:
                name = _sum_name(stage, argument)
                accesses[i], places[i] = (Access(Kind.LANE),), Place(name)
                result.buffers[name] = Buffer(stage.over, program.inputs[i].size, "replay")
        for name, has_seed in zip(outputs, seeded, strict=True):
            if has_seed:
                accesses.append(tuple(access for access, _ in cotangents[name]))
                places += [place for _, place in cotangents[name]]
        writes: list[Access] = []
        cleared: list[tuple[Place, str, int]] = []
        for position in present:
            argument, read = reads[position]
            one, access = self.fields[read.field], self.access(stage, read)
            buffer = f"grad.{stage.name}.{argument}"
            carry = one.role == "state" and not read.field.endswith("'")
            keep = {"parameter": "add", "control": "step"}.get(one.role, "carry" if carry else "")
            columns = reverse.outputs[len(writes)].size
            back, over, lanes = access, stage.over, ""
            write = Access(Kind.ADD if keep == "add" else Kind.LANE)
            if one.via is not None:  # a sum of contributions
                back = self.connections[one.via].access(Kind.GATHER)
            elif access.kind == Kind.UNIFORM:
                write, over, lanes = Access(Kind.REDUCE), None, stage.over
            elif access.kind == Kind.GATHER and self.connections[access.via].atomic:
                connection = self.connections[access.via]
                write, back, over = connection.access(Kind.SCATTER), Access(Kind.LANE), connection.target
                columns //= access.corners
                if keep in ("carry", ""):
                    cleared.append((Place(buffer), over, columns))
            elif access.kind == Kind.GATHER:
                write, back = replace(write, corners=access.corners), replace(access, kind=Kind.SUM)
                columns = columns_of(columns // access.corners, access.corners)
            cotangents.setdefault(read.field, []).append((back, Place(buffer)))
            writes.append(write)
            result.buffers[buffer] = Buffer(over, columns, keep, lanes)
            places.append(Place(buffer))
        result.tasks += _clear(cleared)
        result.tasks.append(Task(stage.over, Map(reverse, tuple(accesses), tuple(writes)), tuple(places)))

    def _again(self, needed: set[str]) -> list[Task]:
        """Return the forward tasks that compute some fields and sums."""
        return [task for _, tasks in sorted(self._replayed(needed).items()) for task in tasks]

    def _replayed(self, needed: set[str]) -> dict[int, list[Task]]:
        """Return the same by the number of the stage."""
        needed = set(needed)
        chosen: dict[int, list[Task]] = {}
        for i in reversed(range(len(self.stages))):
            stage, program = self.stages[i], self.programs[i]
            if isinstance(stage, Sort):
                if f"sort {stage.via}" in needed:
                    chosen[i] = self._tasks(i, None)
                    needed.add(self.connections[stage.via].cell or "")
                continue
            assert program is not None
            sums = [_sum_name(stage, argument) for argument in stage.reads]
            only = needed.intersection([*self._outputs(program), *sums])
            if only:
                chosen[i] = self._tasks(i, only)
                needed |= self._temporaries_read(chosen[i][-1])
        return chosen

    def _temporaries_read(self, task: Task) -> set[str]:
        if task.map is None:
            return set()
        live = set(task.map.program.schedule.order)
        found = {self.connections[write.via].cell or "" for write in task.map.writes if write.cells}
        places = iter(task.places)
        for reads, nodes in zip(task.map.reads, task.map.program.sources, strict=True):
            used = not live.isdisjoint(nodes)
            for access, place in zip(reads, list(_take(places, len(reads))), strict=True):
                if used and access.cells:
                    found.add(self.connections[access.via].cell or "")
                    if access.kind == Kind.SUM:
                        found.add(f"sort {access.via}")
                one = self.fields.get(place.buffer)
                if used and (place.buffer.startswith(_SUM) or (one is not None and one.role in ("temporary", "index"))):
                    found.add(place.buffer)
        return found


_SUM = "sum."


def _sum_name(stage: Stage, argument: str) -> str:
    """Return the name of the sum that an argument of a stage is, where the stage leaves it for its adjoint."""
    return f"{_SUM}{stage.name}.{argument}"


def _take(items: Any, count: int) -> list[Any]:
    return [next(items) for _ in range(count)]


def _clear(buffers: Sequence[tuple[Place, str | None, int]]) -> list[Task]:
    """Return what sets memory to zero that atomic operations add to: places, their sets, and the numbers of a row."""
    tasks = []
    for over in dict.fromkeys(over for _, over, _ in buffers):
        own = [(place, columns) for place, other, columns in buffers if other == over]
        zeros = {f"zero{i}": np.zeros(columns) for i, (_, columns) in enumerate(own)}
        program, _ = trace("clear", lambda zeros=zeros: zeros, [])
        map_ = Map(program, (), (Access(Kind.LANE),) * len(own))
        tasks.append(Task(str(over), map_, tuple(place for place, _ in own)))
    return tasks
