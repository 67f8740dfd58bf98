"""Reinforcement learning: throughput with a policy in the loop, learning curves, and dynamics in the loop.

    python benchmarks/rl.py [--sections throughput,shac,...] [--device cuda] [--quick] [--json] [--out FILE]

throughput  4,096 ants: collection (policy, simulation, rewards, resets) and SHAC's gradient, each one CUDA graph
shac        DiffRL's ant by SHAC, 64 and 512 environments, beside its published returns
tasks       the other tasks by SHAC: returns before and after
dynamics    inverse dynamics, mass matrix and operational-space inertia of the G1 for every environment in every step,
            beside Pinocchio in two processes
ppo         the same tasks by PPO of rsl_rl, as a control
ppo_ant     the ant alone by PPO of rsl_rl
go2         the Go2 walks on command on random terrain, by PPO of rsl_rl
pendulum    policy enhancement on n-link pendulums (Table 4 of Qiao et al., ICML 2021)
samples     sample enhancement, MBPO, SAC and PPO on their ant (Figure 5)
transfer    policies trained here act in MuJoCo (Table 5)
processes   two processes against one, on two cores
"""

from report import run_sections

SECTIONS = {
    "throughput": "rl_throughput.throughput",
    "shac": "rl_learning.shac",
    "tasks": "rl_learning.tasks",
    "dynamics": "rl_throughput.dynamics",
    "ppo": "rl_ppo.ppo",
    "ppo_ant": "rl_ppo.ppo_ant",
    "go2": "rl_ppo.go2",
    "pendulum": "rl_pendulum.policy_enhancement",
    "samples": "rl_samples.sample_enhancement",
    "transfer": "rl_transfer.transfer",
    "processes": "rl_processes.two_processes",
}

if __name__ == "__main__":
    run_sections("rl", __doc__, SECTIONS, ["throughput", "shac"], list(SECTIONS))
