"""Many time steps of a sequence of maps, on any device: what a caller gives and gets."""

import math
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch

from adjoin.compiler.codegen.map_access import Access, Kind, Map
from adjoin.compiler.ir.program import TensorSpec, trace
from adjoin.compiler.maps.call import BITS, Call, Rollout, backend
from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.connectivity import IndexTable
from adjoin.compiler.maps.sequence import Adjoint, Field, StepSequence
from adjoin.compiler.runtime.map_plan import Binding, padded
from adjoin.errors import InputError


class StepRunner:
    """A sequence of maps with the sizes of its sets and its index tables, on any device and in any float format.

    Args:
        sequence: one time step.
        sizes: members of each set.
        tables: for each connection with known indices an array (members, corners); for one of particles with cells
            the offsets from a cell's first node, (corners,).
        capacity: particles that fit a cell.
    """

    def __init__(
        self, sequence: StepSequence, sizes: Mapping[str, int], tables: Mapping[str, np.ndarray], capacity: int = 64
    ):
        self.sequence, self.sizes, self.arrays = sequence, dict(sizes), dict(tables)
        self.capacity = capacity
        self._tables: dict[torch.device, dict[str, dict[str, Binding]]] = {}
        self._adjoints: dict[frozenset[str], Adjoint] = {}
        self._compiled: dict[Any, Any] = {}
        self._collectors: dict[Any, Map] = {}
        fields = [one for name, one in sequence.fields.items() if not name.endswith("'")]
        self.states = [one for one in fields if one.role == "state"]
        self.parameters = [one for one in fields if one.role == "parameter"]
        self.controls = [one for one in fields if one.role == "control"]
        self.outputs = [one for one in fields if one.role == "output"]

    # Public -----------------------------------------------------------------------------------------------------------

    def rollout(
        self,
        state: Mapping[str, torch.Tensor],
        parameters: Mapping[str, torch.Tensor] | None = None,
        controls: Mapping[str, torch.Tensor] | None = None,
        *,
        steps: int | None = None,
        keep: int | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Run steps.

        Args:
            state: for each state (*batch, members, *shape).
            parameters: for each parameter (*batch, members, *shape), or (*batch, *shape) of one that has no set;
                without batch dimensions it is the same for all.
            controls: for each control the same, with steps as its first dimension.
            steps: how many; by default as many as the controls have.
            keep: return the state at the start and after every so many steps; by default only the last.
            checkpoints: what to keep for the gradient.

        Returns:
            For each state (kept, *batch, members, *shape), or without the first dimension if only the last is kept;
            and for each output (steps, *batch, members, *shape).
        """
        parameters, controls = dict(parameters or {}), dict(controls or {})
        for what, given, fields in (
            ("state", state, self.states),
            ("parameter", parameters, self.parameters),
            ("control", controls, self.controls),
        ):
            self._check_names(what, given, fields)
        lengths = {len(control) for control in controls.values()} | ({steps} if steps is not None else set())
        if len(lengths) != 1:
            raise InputError(f"a rollout needs one number of steps, got {sorted(lengths) or 'none'}")
        (count,) = lengths
        if keep is not None and (keep < 1 or count % keep):
            raise InputError(f"keep must divide the {count} steps, got {keep}")
        first = next(iter(state.values()))
        rank = first.dim() - self._rank(self.states[0])
        batch = tuple(first.shape[:rank])
        if rank < 0:
            raise InputError(f"the state {self.states[0].name!r} must have the shape {self._expected(self.states[0])}")
        named = [(one, state[one.name], 0) for one in self.states]
        named += [(one, parameters[one.name], 0) for one in self.parameters]
        named += [(one, controls[one.name], 1) for one in self.controls]
        for one, tensor, lead in named:
            self._check(one, tensor, lead, batch, first)
        call = Call(self, batch, count, keep, checkpoints or Checkpoints(), first.dtype, first.device)
        results = Rollout.apply(call, *[tensor for _, tensor, _ in named])
        states = dict(zip([one.name for one in self.states], results, strict=False))
        outputs = dict(zip([one.name for one in self.outputs], results[len(self.states) :], strict=True))
        return states, outputs

    def operator(
        self, state: Mapping[str, torch.Tensor], parameters: Mapping[str, torch.Tensor], varying: str
    ) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
        """Return one step as a function of one parameter, for iterative solvers: what else it reads is bound once.

        The results are views of memory that the next call overwrites; there are no gradients.
        """
        first = next(iter(state.values()))
        batch = tuple(first.shape[: first.dim() - self._rank(self.states[0])])
        for one, tensor in [(one, state[one.name]) for one in self.states] + [
            (one, parameters[one.name]) for one in self.parameters
        ]:
            self._check(one, tensor, 0, batch, first)
        call = Call(self, batch, 1, None, Checkpoints(), first.dtype, first.device)
        fixed = {name: value.detach() for name, value in parameters.items()}
        changing = next(one for one in self.parameters if one.name == varying)
        assert changing.over is not None
        fixed[varying] = fixed[varying].expand(*batch, *fixed[varying].shape[-self._rank(changing) :])
        call.bind_inputs(self.parameters, [fixed[one.name] for one in self.parameters], 0)
        call.bind_temporaries()
        histories = {one.name: call.rows(one, 2) for one in self.states}
        for one in self.states:
            histories[one.name][0] = self.inside(one, state[one.name], 0)[0]
        launches = call.forward_launches(histories, 0, False, self.sequence.forward)
        place, members = call.fixed[varying].tensor, self.sizes[changing.over]
        columns = place.shape[2]

        def apply(value: torch.Tensor) -> dict[str, torch.Tensor]:
            place[0, :, :, :members] = value.reshape(-1, members, columns).transpose(-1, -2)
            call.run(launches, 0, 1, 1)
            return {one.name: self.outside(one, histories[one.name][1], batch, 0) for one in self.states}

        return apply

    def with_tables(self, sizes: Mapping[str, int], tables: Mapping[str, np.ndarray]) -> "StepRunner":
        """Return the same step with other sizes and tables of some sets; what was compiled is shared."""
        other = copy(self)
        other.sizes, other.arrays = self.sizes | dict(sizes), self.arrays | dict(tables)
        other._tables = {}
        return other

    # Checks -----------------------------------------------------------------------------------------------------------

    def _check_names(self, what: str, given: Mapping[str, Any], fields: list[Field]) -> None:
        names = [one.name for one in fields]
        for name in given:
            if name not in names:
                raise InputError(f"no {what} {name!r}; {what}s: {', '.join(names) or 'none'}")
        for name in names:
            if name not in given:
                raise InputError(f"the {what} {name!r} is missing; {what}s: {', '.join(names)}")

    def _rank(self, one: Field) -> int:
        return len(one.shape) + (one.over is not None)

    def _expected(self, one: Field) -> str:
        sizes = [*([self.sizes[one.over]] if one.over is not None else []), *one.shape]
        return f"(*batch, {', '.join(map(str, sizes))})"

    def _check(self, one: Field, tensor: torch.Tensor, lead: int, batch: tuple[int, ...], like: torch.Tensor) -> None:
        own = (*((self.sizes[one.over],) if one.over is not None else ()), *one.shape)
        if tensor.dtype not in BITS or tensor.dtype != like.dtype or tensor.device != like.device:
            raise InputError(
                f"{one.name!r} must be {like.dtype} on {like.device} like the state, got {tensor.dtype} on "
                f"{tensor.device}; float32 and float64 are supported"
            )
        shape = tuple(tensor.shape[lead:])
        if shape not in (own, (*batch, *own)):
            raise InputError(f"{one.name!r} must have the shape {self._expected(one)}, got {tuple(tensor.shape)}")

    # Memory -----------------------------------------------------------------------------------------------------------

    def inside(self, one: Field, tensor: torch.Tensor, lead: int) -> torch.Tensor:
        """Return a user's tensor as (steps, variants, columns, padded members); uniform ones as (…, columns)."""
        tensor = tensor.detach()
        steps = tensor.shape[:lead] or (1,)
        columns = math.prod(one.shape)
        if one.over is None:
            return tensor.reshape(*steps, -1, columns).contiguous()
        members = self.sizes[one.over]
        flat = tensor.reshape(*steps, -1, members, columns).transpose(-1, -2)
        result = tensor.new_zeros((*flat.shape[:-1], padded(members)))
        result[..., :members] = flat
        return result

    def outside(self, one: Field, tensor: torch.Tensor, batch: tuple[int, ...], lead: int) -> torch.Tensor:
        """Return the view of a tensor that a user sees."""
        steps = tensor.shape[:1] if lead else ()
        if one.over is None:
            return tensor.reshape((*steps, *batch, *one.shape))
        members = self.sizes[one.over]
        rows = tensor[..., :members].transpose(-1, -2)
        return rows.reshape((*steps, *batch, members, *one.shape))

    def tables(self, device: torch.device) -> dict[str, dict[str, Binding]]:
        """Return the index tables on a device."""
        if device not in self._tables:
            self._tables[device] = {
                name: IndexTable.of(name, array, self.sizes[self.sequence.connections[name].target], device).bindings()
                for name, array in self.arrays.items()
                if self.sequence.connections[name].cell is None
            }
        return self._tables[device]

    def adjoint(self, wanted: frozenset[str]) -> Adjoint:
        """Return the reverse of a step, made when first needed."""
        if wanted not in self._adjoints:
            self._adjoints[wanted] = self.sequence.adjoint(set(wanted))
        return self._adjoints[wanted]

    def compiled(self, map_: Map, dtype: torch.dtype, device: torch.device) -> Any:
        """Return a map as it runs on a device."""
        key = (map_, dtype, device)
        if key not in self._compiled:
            self._compiled[key] = backend(device).compile_map(map_, BITS[dtype], device)
        return self._compiled[key]

    def collector(self, accesses: tuple[Access, ...], columns: int) -> Map:
        """Return the map that adds up reads."""
        key = (accesses, columns)
        if key not in self._collectors:
            program, _ = trace("collect", lambda x: {"total": x}, [TensorSpec("x", (columns,))])
            self._collectors[key] = Map(program, (accesses,), (Access(Kind.LANE),))
        return self._collectors[key]
