"""What a launch needs of a program, on disk beside its machine code.

A process that finds both neither traces nor differentiates. The program that it gets knows its tensors and its hashes;
its nodes are traced when something needs them, such as a derivative or a processor that is new.
"""

import pickle
from collections.abc import Callable
from typing import Any

from adjoin.compiler.ir.program import Computation, Nodes, Program
from adjoin.compiler.ir.schedule import Schedule
from adjoin.compiler.runtime.cache import Cache
from adjoin.compiler.runtime.fingerprint import fingerprint
from adjoin.compiler.runtime.fork import ForkSafeLock
from adjoin.errors import CompileError

Make = Callable[[], tuple[Program, Any]]


def stored(key: tuple[Any, ...] | None, make: Make, is_launched: bool = True) -> tuple[Program, Any]:
    """Return a program and a note about it, from the cache on disk if they are there.

    Args:
        key: everything that decides what is made, see `fingerprint`; with None, or where one part of it cannot be
            known, it is made.
        make: traces or differentiates. The note must be something that can be pickled, or nothing is stored.
        is_launched: whether the program becomes a kernel; one that is only a part of others needs no hashes.
    """
    cache = Cache()
    found = None if key is None or cache.folder is None else fingerprint(*key)
    if found is None:
        return make()
    entry = cache.get(found, "trace")
    known = None if entry is None else _unpack(entry)
    if known is None:
        program, note = make()
        hashes = {name: getattr(program.computation, name) for name in _HASHES} if is_launched else {}
        try:
            tensors = (program.name, program.inputs, program.outputs, program.integers)
            cache.put(found, pickle.dumps((tensors, hashes, note)), "trace")
        except (pickle.PicklingError, AttributeError, TypeError):
            pass  # the note has something local to this process
        return program, note
    tensors, hashes, note = known
    name, inputs, outputs, integers = tensors
    return Program(name, inputs, outputs, integers, _Deferred(name, lambda: make()[0].computation, hashes)), note


_HASHES = ("digest", "key", "operations", "work")


def _unpack(entry: bytes) -> tuple[tuple[Any, ...], dict[str, Any], Any] | None:
    """Return what an entry holds; None if a class of the note is not in this process."""
    try:
        return pickle.loads(entry)
    except (pickle.UnpicklingError, AttributeError, ImportError, TypeError, EOFError):
        return None


class _Deferred(Computation):
    """A computation whose nodes are made when they are first needed."""

    def __init__(self, name: str, make: Callable[[], Computation], hashes: dict[str, Any]):
        self.__dict__.update(hashes)  # where its cached properties look first
        self._name, self._make, self._lock = name, make, ForkSafeLock()
        self._made: Computation | None = None

    def _nodes(self) -> Computation:
        with self._lock:
            if self._made is None:
                made = self._make()
                if "key" in self.__dict__ and made.key != self.key:
                    raise CompileError(
                        f"{self._name}: traced again, it is another function than the kernel cache has; what it "
                        "computes depends on something besides its code and the values that it closes over: pass that "
                        "as a tensor, or set ADJOIN_CACHE_DIR=off"
                    )
                self._made = made
                del self._make
            return self._made

    @property
    def sources(self) -> Nodes:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._nodes().sources

    @property
    def targets(self) -> Nodes:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._nodes().targets

    @property
    def smooth(self) -> tuple[Nodes, Nodes]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._nodes().smooth

    @property
    def guard(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._nodes().guard

    @property
    def schedule(self) -> Schedule:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._nodes().schedule
