"""Heat, solids, particles and cloth: physics of one element, node or particle, mapped over all of them."""

from adjoin.compiler.maps.checkpoints import Checkpoints
from adjoin.continuum.attachments import Attachment
from adjoin.continuum.bodies import BodyState
from adjoin.continuum.cloth import Cloth, ClothMaterial, square_cloth
from adjoin.continuum.colliders import Collider, Motion
from adjoin.continuum.files import read_mesh, write_vtk, write_vtk_series
from adjoin.continuum.heat import Heat, HeatMaterial, HeatPath, Laser
from adjoin.continuum.implicit import ConjugateGradients, NotConverged
from adjoin.continuum.implicit_heat import ImplicitHeat
from adjoin.continuum.implicit_solids import ImplicitSolid, InvertedElement
from adjoin.continuum.mesh import Mesh, box_mesh
from adjoin.continuum.particle_materials import ParticleMaterial
from adjoin.continuum.particles import Particles, ParticleState
from adjoin.continuum.self_contact import SelfContact
from adjoin.continuum.solids import Solid, SolidMaterial

__all__ = [
    "Attachment",
    "BodyState",
    "Checkpoints",
    "Cloth",
    "ClothMaterial",
    "Collider",
    "ConjugateGradients",
    "Heat",
    "HeatMaterial",
    "HeatPath",
    "ImplicitHeat",
    "ImplicitSolid",
    "InvertedElement",
    "Laser",
    "Mesh",
    "Motion",
    "NotConverged",
    "ParticleMaterial",
    "ParticleState",
    "Particles",
    "SelfContact",
    "Solid",
    "SolidMaterial",
    "box_mesh",
    "read_mesh",
    "square_cloth",
    "write_vtk",
    "write_vtk_series",
]
