"""Pinocchio on our robots; imported only where it is installed."""

import importlib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from adjoin.io.urdf_write import to_urdf
from adjoin.model.model import Model

pinocchio: Any = importlib.import_module("pinocchio")  # its names are made at run time


class Pinocchio:
    """One of our robots as Pinocchio reads it from a URDF, with the joint types and the order it chooses itself."""

    def __init__(self, model: Model):
        tree = ElementTree.fromstring(to_urdf(model))
        for link in tree.iter("link"):
            for shape in link.findall("collision"):
                link.remove(shape)
        self.pin = pinocchio.buildModelFromXML(ElementTree.tostring(tree, encoding="unicode"))
        ours = {joint.name: (joint, at) for joint, at in zip(model.joints, model.coordinates, strict=True)}
        self.q_order: list[int] = []
        self.v_order: list[int] = []
        for name in list(self.pin.names)[1:]:
            joint, at = ours[name]
            columns = list(range(at.q, at.q + joint.nq))
            self.q_order += [*columns[:-4], *columns[-3:], columns[-4]] if joint.type.has_quaternion else columns
            self.v_order += range(at.v, at.v + joint.nv)
        assert (self.pin.nq, self.pin.nv) == (model.nq, model.nv)
        self.pin.armature = model.parameters(dtype=torch.float64)["armature"].numpy()[self.v_order]
        self.pin.gravity.linear = np.array(model.gravity)
        self.data = self.pin.createData()
        self.pool = pinocchio.ModelPool(self.pin, 1)

    def arrange(self, q: torch.Tensor, *rates: torch.Tensor) -> list[np.ndarray]:
        """Our float64 batch in Pinocchio's order, a row a robot."""
        columns = [q[:, self.q_order], *[rate[:, self.v_order] for rate in rates]]
        return [np.ascontiguousarray(column.numpy()) for column in columns]

    def timed(self, name: str, *inputs: torch.Tensor) -> tuple[Callable[[], Any], Callable[[], Any] | None, str]:
        """How to run a function over a batch on one thread, in the layout that suits Pinocchio best.

        Returns:
            The run; what to run for the cost of calling from Python, where the run is a loop; and what it is.
        """
        rows = self.arrange(*inputs)
        if name in ("RNEA", "ABA"):
            batched = pinocchio.rneaInParallel if name == "RNEA" else pinocchio.abaInParallel
            columns = [row.T for row in rows]
            out = np.empty_like(rows[1]).T
            what = f"Pinocchio {pinocchio.__version__} {batched.__name__}, one thread, f64"
            return lambda: batched(1, self.pool, *columns, out), None, what
        function = pinocchio.crba if name == "CRBA" else pinocchio.computeABADerivatives
        samples = list(zip(*rows, strict=True))
        nothing = pinocchio.Model()
        data, empty = nothing.createData(), [(np.zeros(0),) * len(rows)] * len(samples)
        what = f"Pinocchio {pinocchio.__version__} {function.__name__}, a loop less the cost of its calls, f64"
        return self._loop(function, self.pin, self.data, samples), self._loop(function, nothing, data, empty), what

    def _loop(self, function: Any, model: Any, data: Any, samples: list[tuple[np.ndarray, ...]]) -> Callable[[], None]:
        def run() -> None:
            for sample in samples:
                function(model, data, *sample)

        return run

    def value(self, name: str, *inputs: torch.Tensor) -> list[np.ndarray]:
        """The result for a batch of one, in our order: a vector, or matrices."""
        sample = [row[0] for row in self.arrange(*inputs)]
        function = {
            "RNEA": pinocchio.rnea,
            "CRBA": pinocchio.crba,
            "ABA": pinocchio.aba,
            "ABA derivatives": pinocchio.computeABADerivatives,
        }[name]
        results = function(self.pin, self.data, *sample)
        back = np.argsort(self.v_order)
        found = []
        for result in results if isinstance(results, tuple) else (results,):
            result = np.array(result)
            found.append(result[back] if result.ndim == 1 else result[np.ix_(back, back)])
        return found
