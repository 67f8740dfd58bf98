"""`adjoin cache`: where compiled kernels are kept, and kernels compiled ahead of time."""

import argparse
import re
import time
from typing import TYPE_CHECKING, Any

from adjoin.cli.output import show, size
from adjoin.cli.setup import add_setup, make
from adjoin.errors import InputError

if TYPE_CHECKING:
    from adjoin.cli.setup import Setup

EXAMPLES = """\
examples:
  adjoin cache size
  adjoin cache clear
  adjoin cache prebuild go2 --gpu sm_90

The folder is $ADJOIN_CACHE_DIR, or adjoin in $XDG_CACHE_HOME or ~/.cache; ADJOIN_CACHE_DIR=off keeps nothing.
"""
PREBUILD_EXAMPLES = """\
examples:
  adjoin cache prebuild robot.urdf                   for this CPU
  adjoin cache prebuild go2 --gpu sm_90 --touching FL_foot FR_foot RL_foot RR_foot

Compiles forward kinematics, RNEA, CRBA and ABA with their gradients; steps and rollouts, and the gradient of rollouts
to their controls; all for batches. A GPU need not be there, but NVIDIA's ptxas must. A kernel is for one model, step
and choice of contacts: give those that will be used.
"""


def add(commands: Any) -> None:
    """Register the command and what it can do."""
    parser = commands.add_parser("cache", help="show, clear or fill the cache of compiled kernels", epilog=EXAMPLES)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    for name, does, what in (
        ("path", _path, "print where the cache is"),
        ("size", _size, "print how many kernels it has, and their size"),
        ("clear", _clear, "delete all kernels"),
        ("prebuild", _prebuild, "compile the kernels of a robot ahead of time"),
    ):
        action = actions.add_parser(
            name, help=what, description=f"{what[0].upper()}{what[1:]}.", formatter_class=parser.formatter_class
        )
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(run=does)
        if name == "prebuild":
            add_setup(action)
            action.epilog = PREBUILD_EXAMPLES
            action.add_argument("--gpu", metavar="sm_NN", help="such as sm_90 for an H100 or H200; else this CPU")


def _path(arguments: argparse.Namespace) -> int:
    from adjoin.compiler.runtime.cache import Cache

    folder = Cache().folder
    show(arguments, {"path": folder}, "off" if folder is None else str(folder))
    return 0


def _size(arguments: argparse.Namespace) -> int:
    from adjoin.compiler.runtime.cache import Cache

    usage = {"kernels": len(Cache().entries()), "bytes": Cache().size()}
    show(arguments, usage, f"{usage['kernels']} kernels, {size(usage['bytes'])}")
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    from adjoin.compiler.runtime.cache import Cache

    removed = Cache().clear()
    show(arguments, {"removed": removed}, f"removed {removed} kernels")
    return 0


def _prebuild(arguments: argparse.Namespace) -> int:
    import torch

    from adjoin.compiler.runtime.backend import find_target, prebuild
    from adjoin.compiler.runtime.cache import Cache
    from adjoin.compiler.runtime.kernel import BITS, launched
    from adjoin.progress import Progress

    cache = Cache()
    if not re.fullmatch(r"sm_\d+", arguments.gpu or "sm_0"):
        raise InputError(f"--gpu {arguments.gpu!r} must be an architecture such as sm_90")
    if cache.folder is None:
        raise InputError("the cache is off; set ADJOIN_CACHE_DIR to a folder, or unset it")
    processor = find_target(arguments.gpu or "host")
    meta, dtype = torch.device("meta"), torch.float64 if arguments.double else torch.float32
    before, began = cache.entries(), time.perf_counter()
    setup = make(arguments, 2, meta)
    _call_everything(setup)
    programs = sorted(launched(meta, dtype), key=lambda program: program.operations)
    bar = Progress(len(programs), not arguments.json, "kernels")
    for index, _ in bar:
        bar.note = programs[index].name
        prebuild(programs[index], BITS[dtype], processor, cache)
    new = {key: length for key, length in cache.entries().items() if key not in before}
    names, target, seconds = [p.name for p in programs], arguments.gpu or "this CPU", time.perf_counter() - began
    data = {"target": target, "kernels": names, "new": len(new), "bytes": sum(new.values()), "seconds": seconds}
    text = f"{len(names)} kernels for {target}: {len(new)} new, {size(sum(new.values()))}, in {seconds:.0f} s"
    show(arguments, data, text)
    return 0


def _call_everything(setup: "Setup") -> None:
    """Call on the meta device, where nothing runs, what is to be compiled."""
    import torch

    import adjoin

    sim, state, model = setup.sim, setup.start, setup.model
    q = state.q.detach().clone().requires_grad_()
    v, a = (q.new_zeros(len(q), model.nv).requires_grad_() for _ in range(2))
    for result in (
        adjoin.forward_kinematics(model, q),
        adjoin.rnea(model, q, v, a),
        adjoin.crba(model, q),
        adjoin.aba(model, q, v, a),
    ):
        torch.autograd.backward([part.sum() for part in (result if isinstance(result, tuple) else (result,))])
    controls = setup.control.expand(2, len(q), -1).clone().requires_grad_(model.nu > 0)
    sim.step(state, controls[0].detach(), setup.params)
    path = sim.rollout(state, controls, setup.params)
    if model.nu:
        path.q.sum().backward(retain_graph=True)
        (path.q.sum() + path.v.sum()).backward()
    if sim.contact_names:
        sim.contacts(state, controls[0].detach(), setup.params)
