"""Checkpoints: tensors in a safetensors file, and a header that says what they belong to."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from adjoin.errors import InputError, Location
from adjoin.extras import needed


def save_checkpoint(path: Path | str, tensors: Mapping[str, torch.Tensor], header: Mapping[str, Any]) -> None:
    """Write a checkpoint; a file that was there is replaced at once, so that none is ever half written."""
    safetensors, path = needed("safetensors.torch", "rl", "a checkpoint"), Path(path)
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    new = path.with_name(f".{path.name}.{os.getpid()}")
    safetensors.save_file(plain, new, {"adjoin": json.dumps(dict(header))})
    os.replace(new, path)


def load_checkpoint(path: Path | str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read a checkpoint: its tensors and its header."""
    safetensors, path = needed("safetensors", "rl", "a checkpoint"), Path(path)
    if not path.is_file():
        raise InputError("there is no such checkpoint", where=Location(str(path)))
    try:
        with safetensors.safe_open(path, "pt") as file:
            header = (file.metadata() or {}).get("adjoin")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 it is no mapping
    except safetensors.SafetensorError as problem:
        raise InputError(f"this is no checkpoint: {problem}", where=Location(str(path))) from None
    if header is None:
        raise InputError("this is not a checkpoint of adjoin.rl", where=Location(str(path)))
    return tensors, json.loads(header)
