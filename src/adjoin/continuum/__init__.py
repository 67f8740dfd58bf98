"""Heat, solids, particles and cloth: physics of one element, node or particle, mapped over all of them."""

from adjoin.compiler.maps.rollout import Checkpoints
from adjoin.continuum.heat import Heat, HeatMaterial, HeatPath, Laser
from adjoin.continuum.mesh import Mesh, box_mesh
from adjoin.continuum.particles import ParticleMaterial, Particles, ParticleState

__all__ = [
    "Checkpoints",
    "Heat",
    "HeatMaterial",
    "HeatPath",
    "Laser",
    "Mesh",
    "ParticleMaterial",
    "ParticleState",
    "Particles",
    "box_mesh",
]
