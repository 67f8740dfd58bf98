"""Motion control: the experiments of the paper that Adjoin grew from, and optimal control beside Crocoddyl.

    python benchmarks/motion_control.py [--sections throw,golf,racecar,ilqr,ilqr_gpu] [--device cuda] [--quick] [--json]
        [--out FILE]

throw     an arm with gripper throws a ball to a target; gradients beside CMA-ES, over ten seeds
golf      an arm of two links hits a ball to a target; the same
racecar   the friction with which a car gets to a target; the same
ilqr      reaching with an arm of seven joints, 256 problems at once, beside Crocoddyl; left out unless the variable
          CROCODDYL names a Python that has it
ilqr_gpu  the same problems on a GPU, up to 16,384 at once; only if asked for
"""

import os

from report import run_sections

SECTIONS = {
    "throw": "seed_experiments.throw",
    "golf": "seed_experiments.golf",
    "racecar": "seed_experiments.racecar",
    "ilqr": "crocoddyl_peer.section",
    "ilqr_gpu": "crocoddyl_peer.on_gpu",
}

if __name__ == "__main__":
    seed = ["throw", "golf", "racecar"]
    run_sections("motion_control", __doc__, SECTIONS, seed + ["ilqr"] * ("CROCODDYL" in os.environ), seed)
