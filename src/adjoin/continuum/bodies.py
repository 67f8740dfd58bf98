"""Bodies of nodes with masses that forces move: what solids and cloth share."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.compiler.maps.sequence import Field, Read, Stage
from adjoin.continuum import attachments
from adjoin.continuum import colliders as contact
from adjoin.continuum.attachments import Attachment
from adjoin.continuum.colliders import Collider, Motion
from adjoin.continuum.ranges import NOT_NEGATIVE, POSITIVE, check_ranges
from adjoin.continuum.step_parts import Inputs, Runner
from adjoin.errors import InputError

RANGES = {"mass": POSITIVE._replace(member="node"), "drag": NOT_NEGATIVE}


@dataclass(frozen=True)
class BodyState:
    """Nodes at a time.

    Attributes:
        x: positions, (*batch, nodes, 3), m.
        v: velocities, (*batch, nodes, 3), m/s.
        wrench: force and torque on every collider about its origin, in each step, (steps, *batch, colliders, 6); None
            if there are no colliders, and of a start.
    """

    x: torch.Tensor
    v: torch.Tensor
    wrench: torch.Tensor | None = None

    @classmethod
    def of(
        cls, nodes: np.ndarray, x: torch.Tensor | None = None, v: torch.Tensor | None = None, dtype: Any = torch.float64
    ) -> "BodyState":
        """Return nodes at rest where a mesh has them, unless positions and velocities are given."""
        x = torch.tensor(nodes, dtype=dtype) if x is None else x
        return cls(x, torch.zeros_like(x) if v is None else v)


@dataclass(frozen=True)
class Carried:
    """What links of a robot, or the caller, carry through the world of a body of nodes.

    Attributes:
        colliders: rigid shapes that push.
        attachments: nodes that are held; their carriers come after the colliders.
    """

    colliders: tuple[Collider, ...]
    attachments: tuple[Attachment, ...] = ()

    def __len__(self) -> int:
        return len(self.colliders) + len(self.attachments)


def node_fields(carried: Carried, linked: bool) -> list[Field]:
    """Return the fields of nodes."""
    return [
        Field("x", "nodes", (3,), "state"),
        Field("v", "nodes", (3,), "state"),
        Field("mass", "nodes", (), "parameter"),
        Field("free", "nodes", (), "parameter"),
        Field("load", "nodes", (3,), "parameter"),
        Field("gravity", None, (3,), "parameter"),
        Field("drag", None, (), "parameter"),
        Field("rest", "nodes", (3,), "parameter"),
        *attachments.fields(carried.attachments),
        *contact.fields(len(carried), "nodes" if linked else None),
    ]


def move_stage(carried: Carried, dt: float, forces: Mapping[str, str], linked: bool) -> Stage:
    """Return the stage that moves nodes: semi-implicit Euler under forces, gravity, drag, contact and attachments.

    Args:
        carried: what pushes and holds nodes.
        dt: s.
        forces: connections by the field whose contributions come through them.
        linked: whether links of a robot carry the colliders.
    """
    colliders = carried.colliders

    def move(x: Any, v: Any, mass: Any, free: Any, load: Any, gravity: Any, drag: Any, **others: Any) -> dict[str, Any]:
        force = load + mass * gravity
        for name in forces:
            force = force + others[name]
        moving = contact.of_point(others, linked)
        touching = contact.touches(colliders, x, v, moving)
        pushes = [touch.pressing * touch.normal for touch in touching]
        holds, arms = attachments.forces(carried.attachments, x, v, mass, dt, moving, len(colliders))
        after = free * (v + dt * sum([*pushes, *holds], force) / mass) / (1.0 + dt * drag)
        result: dict[str, Any] = {}
        if len(carried):
            rubbed, frictions = contact.rub(touching, after, mass, dt)
            after = free * rubbed
            felt = [push + friction for push, friction in zip(pushes, frictions, strict=True)]
            arms = [*[touch.arm for touch in touching], *arms]
            result["wrench"] = contact.wrenches(arms, [*felt, *holds], linked)
        return result | {"v'": after, "x'": x + dt * after}

    names = ("x", "v", "mass", "free", "load", "gravity", "drag")
    reads = {name: Read(name) for name in names} | {name: Read(name, via) for name, via in forces.items()}
    reads |= attachments.reads(carried.attachments)
    return Stage("move", "nodes", move, reads | contact.reads(len(carried), linked))


def body_inputs(
    state: BodyState,
    dt: float,
    parameters: dict[str, torch.Tensor],
    carried: Carried,
    fixed: torch.Tensor | None,
    given: Mapping[str, torch.Tensor],
    names: tuple[str, ...],
) -> Inputs:
    """Return what a step of a body of nodes takes; `parameters` are its own, `given` those of the caller."""
    x = state.x
    place = {"dtype": x.dtype, "device": x.device}
    nodes = x.shape[-2]
    defaults = {"load": torch.zeros((nodes, 3), **place), "gravity": torch.tensor([0.0, 0.0, -9.81], **place)}
    parameters = defaults | parameters
    allowed = (*names, "load", "gravity", "drag", "mass")
    for name in given:
        if name not in allowed:
            raise InputError(f"no parameter {name!r}; parameters: {', '.join(allowed)}")
    check_ranges("body", given, RANGES, x, nodes)
    parameters |= given
    lightest = parameters["mass"].min().item()
    for i, collider in enumerate(carried.colliders):
        if collider.stiffness * dt * dt > lightest or collider.damping * dt > lightest:
            raise InputError(
                f"collider {i}: a node of {lightest:.3g} kg and steps of {dt:g} s allow a stiffness of at most "
                f"{lightest / dt**2:.3g} N/m and a damping of at most {lightest / dt:.3g} N s/m, got "
                f"{collider.stiffness:g} and {collider.damping:g}"
            )
    parameters |= attachments.inputs(carried.attachments, parameters["mass"], dt, x)
    free = torch.ones(nodes, **place)
    if fixed is not None:
        free = torch.where(fixed.to(x.device), torch.zeros((), **place), free)
    return Inputs({"x": x, "v": state.v}, parameters | {"free": free}, {})


def run_body(
    runner: Runner,
    inputs: Inputs,
    carried: Carried,
    motion: Motion | None,
    steps: int | None,
    keep: int | None,
    checkpoints: Checkpoints | None,
) -> BodyState:
    """Run steps of a body of nodes."""
    states, parameters, controls = inputs
    controls = controls | dict(contact.controls(len(carried), motion, steps, states["x"]))
    found, outputs = runner.rollout(states, parameters, controls, steps=steps, keep=keep, checkpoints=checkpoints)
    return BodyState(found["x"], found["v"], outputs.get("wrench"))
