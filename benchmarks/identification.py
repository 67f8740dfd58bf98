"""Identification: what is recovered from noisy data, how fast, and beside whom.

    python benchmarks/identification.py [--sections masses,drm,contact,augmentation] [--quick] [--json] [--out FILE]

masses        link masses of an arm of seven joints from torques with 5 % noise, over ten seeds, beside BARD
drm           an epoch of differentiable-robot-model's forward-dynamics example, beside that library
contact       friction and base mass of a Laikago that is pushed and dropped, from noisy states
augmentation  a double pendulum with friction and a coupling that its model lacks, beside that model and a pure network
"""

from report import run_sections

SECTIONS = {
    "masses": "mass_identification.section",
    "drm": "drm_peer.section",
    "contact": "contact_identification.section",
    "augmentation": "augmentation.section",
}

if __name__ == "__main__":
    run_sections("identification", __doc__, SECTIONS)
