"""Heat, solids, particles and cloth: physics of one element, node or particle, mapped over all of them."""

from adjoin.compiler.maps.rollout import Checkpoints
from adjoin.continuum.heat import Heat, HeatMaterial, HeatPath, Laser
from adjoin.continuum.mesh import Mesh, box_mesh

__all__ = ["Checkpoints", "Heat", "HeatMaterial", "HeatPath", "Laser", "Mesh", "box_mesh"]
