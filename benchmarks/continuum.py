"""Continua: laser power, heat treatment, soft walkers; what is reached, how fast, and beside whom.

    python benchmarks/continuum.py [--sections laser,speed,...] [--quick] [--device cuda] [--json] [--out FILE]

laser                   the power of a laser for a wanted temperature history of a wall (Mozaffar et al., 2021)
speed                   time of a step of that wall, forward and backward; its gradient against finite differences
treatment               the shortest heat treatment that holds a temperature
thermal_identification  conductivity, specific heat, convection and power from noisy temperatures
steady                  a thermal problem of 4.2 million unknowns on a GPU, and the gradient of its solution
walker                  the soft walker of DiffTaichi
pareto                  stiffness against mass of a soft arm: 20 compromises in one batch
panda                   a Panda lifts a soft cube by friction; how stiff is it?
walker3d                a soft walker in three dimensions
taichi                  the same beside Taichi (`pip install 'adjoin[benchmarks]'`), on a CPU
"""

from report import run_sections

SECTIONS = {
    "laser": "heat_experiments.laser",
    "speed": "heat_experiments.speed",
    "treatment": "heat_experiments.treatment",
    "thermal_identification": "heat_experiments.identification",
    "steady": "heat_experiments.steady",
    "walker": "particle_experiments.walker",
    "pareto": "solid_experiments.pareto",
    "panda": "coupling_experiments.panda",
    "walker3d": "particle_experiments.walker3d",
    "taichi": "particle_experiments.taichi",
}

if __name__ == "__main__":
    run_sections("continuum", __doc__, SECTIONS, on_device=tuple(name for name in SECTIONS if name != "taichi"))
