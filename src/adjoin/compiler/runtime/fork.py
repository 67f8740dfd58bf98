"""Locks that a forked process can use, whatever other threads of its parent did at that moment.

A fork copies the thread that calls it and no other. A lock that another thread held stays locked in the child, where
nobody will release it. So a fork waits until LLVM is idle, whose state must not be copied half changed, and all other
locks of the compiler are new in the child: what they guard is either written at once or computed again.
"""

import os
import threading
import weakref
from typing import Any

from llvmlite.binding import ffi

_locks: "weakref.WeakSet[ForkSafeLock]" = weakref.WeakSet()


class ForkSafeLock:
    """A reentrant lock that is free in a forked process."""

    def __init__(self):
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Forget who holds it."""
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class Generating:
    """Entered by each thread that generates code outside of llvmlite's lock; a fork waits until none does."""

    def __init__(self):
        self._changed, self._count = threading.Condition(), 0

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: Any) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def hold(self) -> None:
        """Wait until no thread generates code, and let none begin."""
        self._changed.acquire()
        self._changed.wait_for(lambda: self._count == 0)

    def release(self) -> None:
        """Let threads generate code again."""
        self._changed.release()


generating = Generating()


def _before() -> None:
    _llvm.__enter__()
    generating.hold()


def _parent() -> None:
    generating.release()
    _llvm.__exit__()


def _child() -> None:
    generating.__init__()
    _llvm.__exit__()
    for lock in list(_locks):
        lock.renew()


_llvm = ffi.lib._lock  # every call of LLVM through llvmlite holds it
os.register_at_fork(before=_before, after_in_parent=_parent, after_in_child=_child)
