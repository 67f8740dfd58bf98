"""The robot files none of us wrote: example-robot-data's URDFs, and the MJCFs in gymnasium's and mujoco's wheels."""

import importlib.metadata
from pathlib import Path

PACKAGE = "example-robot-data"


def urdf_folder() -> Path:
    files = importlib.metadata.files(PACKAGE) or []
    first = next(file for file in files if file.parts[-1].endswith(".urdf"))
    at = first.parts.index(PACKAGE)
    return Path(str(importlib.metadata.distribution(PACKAGE).locate_file("/".join(first.parts[: at + 1]))))


URDF_FOLDER = urdf_folder()
URDFS = sorted(str(path.relative_to(URDF_FOLDER / "robots")) for path in URDF_FOLDER.glob("robots/**/*.urdf"))

# What each needs by name before it loads: the flaws are really in the files, and are listed in docs/loading.md.
ACCEPT: dict[str, tuple[str, ...]] = {
    "allegro_hand_description/urdf/allegro_left_hand.urdf": ("inertia",),
    "allegro_hand_description/urdf/allegro_right_hand.urdf": ("inertia",),
    "anymal_b_simple_description/robots/anymal-kinova.urdf": ("inertia",),
    "anymal_b_simple_description/robots/anymal.urdf": ("inertia",),
    "anymal_c_simple_description/urdf/anymal.urdf": ("inertia",),
    "b1_description/urdf/b1-z1.urdf": ("inertia",),
    "b1_description/urdf/b1.urdf": ("inertia",),
    "bluevolta_description/urdf/bluevolta_bravo7_gripper.urdf": ("mass",),
    "bolt_description/robots/bolt.urdf": ("inertia",),
    "bravo7_description/urdf/bravo7_gripper.urdf": ("mass",),
    "falcon_description/urdf/falcon_bravo7_gripper.urdf": ("mass",),
    "go1_description/urdf/go1.urdf": ("inertia",),
    "human_description/robots/human.urdf": ("mass",),
    "hyq_description/robots/hyq_no_sensors.urdf": ("inertia",),
    "icub_description/robots/icub.urdf": ("inertia", "mass"),
    "icub_description/robots/icub_reduced.urdf": ("inertia", "mass"),
    "pr2_description/urdf/pr2.urdf": ("inertia",),
    "romeo_description/urdf/romeo.urdf": ("mass",),
    "romeo_description/urdf/romeo_laas_small.urdf": ("inertia", "mass"),
    "romeo_description/urdf/romeo_small.urdf": ("inertia",),
    "tiago_description/robots/tiago.urdf": ("inertia",),
    "tiago_description/robots/tiago_dual.urdf": ("inertia",),
    "tiago_description/robots/tiago_no_hand.urdf": ("inertia",),
}

# The ones that do not load at all, and what is wrong with them.
REFUSED: dict[str, str] = {
    "alex_description/urdf/alex_psyonic_hands.urdf": "no moving joint 'index_q1'",
    "falcon_description/urdf/falcon.urdf": "no link 'Z_propeller'",
    "ur_description/urdf/ur3.urdf": "attribute 'name' is missing",
}

LOADED = [name for name in URDFS if name not in REFUSED]


def mjcf_files() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for package in ("gymnasium", "mujoco-core", "mujoco"):
        try:
            distribution = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in distribution.files or []:
            if file.suffix == ".xml":
                found[f"{package.removesuffix('-core')}/{file.name}"] = Path(str(distribution.locate_file(file)))
    return dict(sorted(found.items()))


MJCFS = mjcf_files()
