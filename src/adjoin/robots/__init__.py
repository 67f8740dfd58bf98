"""The robots that ship with Adjoin, without meshes; each file says in its header where its figures come from.

adjoin.robots.names()
adjoin.robots.load("go2")
adjoin.robots.load("pendulum", links=5)
"""

from importlib import resources

from adjoin.errors import InputError, ModelError, unknown_name
from adjoin.io.load import load as load_file
from adjoin.model.assemble import Lock
from adjoin.model.joint import Joint
from adjoin.model.model import Model
from adjoin.model.parts import WORLD, Body, Frame, Geometry, Keyframe

PENDULUM = "pendulum"


def names() -> tuple[str, ...]:
    """Return the names that `load` takes."""
    files = [entry.name for entry in resources.files(__name__).iterdir()]
    return tuple(sorted([PENDULUM, *(name.removesuffix(".urdf") for name in files if name.endswith(".urdf"))]))


def load(name: str, *, links: int | None = None, root: str | None = None, lock: Lock | None = None) -> Model:
    """Load an included robot.

    Robots that walk, drive or fly have a free joint at their base; to fix it, lock it:
    `load("go2", lock={"root_joint": (0, 0, 0.3, 1, 0, 0, 0)})`.

    Args:
        name: one of `names()`.
        links: how many the pendulum has; only for it.
        root: see `adjoin.load`.
        lock: see `adjoin.load`.

    Raises:
        ModelError: there is no robot of that name.
    """
    if name == PENDULUM:
        if root is not None or lock:
            raise InputError("the pendulum takes links, not root or lock")
        return pendulum(1 if links is None else links)
    if name not in names():
        raise ModelError(unknown_name("robot", "robots", name, names()))
    if links is not None:
        raise InputError(f"links is for the pendulum; {name!r} has the ones it has")
    return load_file(source(name), root=root, lock=lock)


def source(name: str) -> bytes:
    """Return the file of a robot, as it ships."""
    file = resources.files(__name__) / f"{name}.urdf"
    if name not in names() or not file.is_file():
        raise ModelError(unknown_name("robot file", "files", name, [known for known in names() if known != PENDULUM]))
    return file.read_bytes()


def look(model: Model) -> bytes | None:
    """Return the file with the visual shapes of a robot that ships; None for another model, or one that has none."""
    file = resources.files(__name__) / "looks" / f"{model.name}.urdf"
    if not model.name.isidentifier() or not file.is_file():
        return None
    shipped = {(shape.name, shape.link, shape.size) for shape in load(model.name).geometries}
    own = {(shape.name, shape.link, shape.size) for shape in model.geometries if shape.kind != "plane"}
    return file.read_bytes() if own <= shipped else None


def pendulum(links: int, *, length: float = 1.0, mass: float = 1.0, radius: float = 0.02) -> Model:
    """Build a chain of equal rods that swing in the x-z plane and hang down at q = 0.

    Args:
        links: how many; at least one.
        length: of a rod, m.
        mass: of a rod, kg, spread evenly.
        radius: of a rod, m.
    """
    if links < 1 or min(length, mass, radius) <= 0.0:
        raise InputError("a pendulum needs at least one link, of positive length, mass and radius")
    across = mass * (3.0 * radius**2 + length**2) / 12.0
    inertia = (across, 0.0, 0.0, across, 0.0, mass * radius**2 / 2.0)
    middle = (0.0, 0.0, -length / 2.0)
    bodies = [
        Body(
            f"link{index + 1}",
            index - 1 if index else WORLD,
            Joint(f"joint{index + 1}", "revolute", axis=(0.0, 1.0, 0.0)),
            position=(0.0, 0.0, -length) if index else (0.0, 0.0, 0.0),
            mass=mass,
            com=middle,
            inertia=inertia,
        )
        for index in range(links)
    ]
    frames = [Frame("world", WORLD), *(Frame(body.name, index) for index, body in enumerate(bodies))]
    frames.append(Frame("tip", links - 1, (0.0, 0.0, -length)))
    shapes = [
        Geometry(body.name, "capsule", index, body.name, (radius, length / 2.0, 0.0), middle)
        for index, body in enumerate(bodies)
    ]
    home = Keyframe("home", (0.0,) * links, (0.0,) * links)
    return Model(f"pendulum{links}", tuple(bodies), tuple(frames), tuple(shapes), keyframes=(home,))
