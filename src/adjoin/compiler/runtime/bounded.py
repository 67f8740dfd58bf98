"""A cache in memory that is bounded, safe for threads, and computes each value once."""

import itertools
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch

from adjoin.compiler.runtime.fork import ForkSafeLock

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """Values by key, at most so many: beyond, the one that was not asked for longest goes.

    A value is computed when it is first asked for. Threads that ask for it meanwhile wait for it, and those that ask
    for another do not. A value that is here costs one look-up and no lock.
    """

    def __init__(self, size: int):
        self.size = size
        self._entries: dict[Hashable, _Entry[Value]] = {}
        self._pending: dict[Hashable, ForkSafeLock] = {}
        self._lock = ForkSafeLock()
        self._clock = itertools.count()

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return the value of a key, computed unless it is here."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._compute(key, compute)
        if not torch.compiler.is_compiling():  # torch.compile would guard on the clock
            entry.used = next(self._clock)
        return entry.value

    def peek(self, key: Hashable) -> Value | None:
        """Return the value of a key if it is here, at the cost of one look-up."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if not torch.compiler.is_compiling():  # torch.compile would guard on the clock
            entry.used = next(self._clock)
        return entry.value

    def put(self, key: Hashable, value: Value) -> None:
        """Keep a value under a key, in the place of the one that is there."""
        self._store(key, _Entry(value, next(self._clock)))

    def _store(self, key: Hashable, entry: "_Entry[Value]") -> None:
        with self._lock:
            self._entries[key] = entry
            while len(self._entries) > self.size:
                del self._entries[min(self._entries, key=lambda other: self._entries[other].used)]

    def __reduce__(self) -> tuple[type, tuple[int]]:
        return type(self), (self.size,)  # a copy computes its own values: kernels come from the cache on disk

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> list[tuple[Hashable, Value]]:
        """Return what is here, by key."""
        return [(key, entry.value) for key, entry in list(self._entries.items())]

    def _compute(self, key: Hashable, compute: Callable[[], Value]) -> "_Entry[Value]":
        with self._lock:
            pending = self._pending.setdefault(key, ForkSafeLock())
        with pending:
            try:
                entry = self._entries.get(key)
                if entry is None:
                    entry = _Entry(compute(), next(self._clock))
                    self._store(key, entry)
                return entry
            finally:
                with self._lock:
                    self._pending.pop(key, None)


class _Entry(Generic[Value]):
    __slots__ = ("used", "value")

    def __init__(self, value: Value, used: int):
        self.value, self.used = value, used


class PerOwner(Generic[Value]):
    """A bounded cache for each of some objects, which goes when its owner does."""

    def __init__(self, size: int):
        self.size = size
        self._caches: weakref.WeakKeyDictionary[Any, BoundedCache[Value]] = weakref.WeakKeyDictionary()
        self._by_identity: dict[int, BoundedCache[Value]] = {}
        self._lock = ForkSafeLock()

    def get(self, owner: Any, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return the value of an owner's key, computed unless it is here. The value must not hold the owner."""
        return self.of(owner).get(key, compute)

    def peek(self, owner: Any, key: Hashable) -> Value | None:
        """Return the value of an owner's key if it is here, by two look-ups, without hashing the owner."""
        return self.of(owner).peek(key)

    def of(self, owner: Any) -> BoundedCache[Value]:
        """Return the cache of an owner; equal owners have the same."""
        cache = self._by_identity.get(id(owner))
        if cache is None:
            with self._lock:
                cache = self._by_identity[id(owner)] = self._caches.setdefault(owner, BoundedCache(self.size))
            weakref.finalize(owner, self._by_identity.pop, id(owner), None).atexit = False
        return cache
