"""Crocoddyl on reaching problems, on one core, in a process of its own: `crocoddyl_peer.py` runs it.

    python benchmarks/crocoddyl_solve.py < PROBLEMS.json

It reads one JSON object (see `crocoddyl_peer.problems`) and prints another: for each of Crocoddyl's solvers the costs,
the numbers of iterations, and the seconds of processor time of each problem, the best of several repetitions.
"""

import importlib
import json
import sys
import time
from typing import Any


def main(asked: dict[str, Any]) -> dict[str, Any]:
    modules: list[Any] = [importlib.import_module(name) for name in ("numpy", "pinocchio", "crocoddyl")]
    numpy, pinocchio, crocoddyl = modules
    model = pinocchio.buildModelFromXML(asked["urdf"])
    state = crocoddyl.StateMultibody(model)
    actuation = crocoddyl.ActuationModelFull(state)
    start = numpy.concatenate([asked["q"], numpy.zeros(model.nv)])
    frame, weights, steps = model.getFrameId(asked["frame"]), asked["weights"], asked["steps"]

    def action(own: dict[str, float], target: Any, dt: float) -> Any:
        costs = crocoddyl.CostModelSum(state)
        residuals = {
            "reach": crocoddyl.ResidualModelFrameTranslation(state, frame, target),
            "state": crocoddyl.ResidualModelState(state, start),
            "control": crocoddyl.ResidualModelControl(state),
        }
        for name, weight in own.items():
            costs.addCost(name, crocoddyl.CostModelResidual(state, residuals[name]), weight)
        free = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
        return crocoddyl.IntegratedActionModelEuler(free, dt)

    found: dict[str, Any] = {"version": f"Crocoddyl {crocoddyl.__version__}, Pinocchio {pinocchio.__version__}"}
    for name in ("SolverFDDP", "SolverDDP"):
        found[name] = {"cost": [], "iterations": [], "seconds": []}
        for target in asked["targets"]:
            running = action(weights["running"], numpy.array(target), asked["dt"])
            problem = crocoddyl.ShootingProblem(
                start, [running] * steps, action(weights["terminal"], numpy.array(target), 0.0)
            )
            states = [start] * (steps + 1)
            controls = list(problem.quasiStatic(states[:-1]))
            seconds = []
            for _ in range(asked["repetitions"]):
                solver = getattr(crocoddyl, name)(problem)
                solver.th_stop = asked["tolerance"]
                begun = time.process_time()
                solver.solve(states, controls, asked["iterations"], False)
                seconds.append(time.process_time() - begun)
            found[name]["seconds"].append(min(seconds))
            found[name]["cost"].append(solver.cost)
            found[name]["iterations"].append(solver.iter + 1)
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
