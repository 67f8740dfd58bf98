"""The kernel cache on disk: compiled machine code, one file an entry, private to one user.

Loading an entry means executing it, so what is trusted is decided by one rule: the folder that was actually opened is
ours and closed to everybody else. It is opened once a call, checked on its descriptor, and every name is then resolved
from that descriptor. Nobody else can create a file in such a folder, so the components above it need no check: a
symlinked home is fine, and whoever can rename our folder away can only make us miss. The digest in an entry guards
against accidents (a truncated write, a bad disk, a renamed file), not against an attacker.

There are no locks, so nothing can hang: writers race to rename complete files onto the same name, and any of them may
win. No failure here is an error: the caller compiles in memory, and the user gets one warning a process.
"""

import hashlib
import math
import os
import re
import stat
import struct
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Windows has neither owners, modes nor directory descriptors; there the ACL of the user's profile is the protection.
_POSIX = hasattr(os, "geteuid")
_COMMON = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _COMMON | getattr(os, "O_NONBLOCK", 0)  # O_NONBLOCK: opening a FIFO must not wait for its writer
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON

_HEADER = struct.Struct("<8sI32sQ32s")  # magic, format version, key, payload length, SHA-256 of the payload
_MAGIC, _VERSION = b"ADJOINKC", 1
_LARGEST = 256 << 20  # bytes of payload; a kernel has a few MB, so more than this is not one
_STALE = 3600.0  # seconds after which a partial file has no living writer

_KEY = re.compile(r"[0-9a-f]{64}")
_ENTRY = re.compile(r"([0-9a-f]{64})\.(kernel|trace)")
_PARTIAL = re.compile(r"[0-9a-f]{32}\.partial")

_warned: dict[Path | None, object] = {}  # the folders this process has already warned about


class CacheWarning(UserWarning):
    """The kernel cache could not be used; kernels are compiled in memory instead."""


class _Refused(OSError):
    """Something is not safe to load machine code from."""


def digest(*parts: str | bytes) -> str:
    """Hash a sequence of parts into a key.

    Each part is prefixed with its type and length, so different sequences never hash the same bytes:
    `("ab", "c")`, `("a", "bc")` and `(b"ab", b"c")` are three keys.

    Returns:
        The SHA-256 as 64 lower-case hexadecimal digits.
    """
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        sha.update(struct.pack("<cQ", b"s" if isinstance(part, str) else b"b", len(data)))
        sha.update(data)
    return sha.hexdigest()


class Cache:
    """A per-user store from keys (`digest`) to compiled kernels, and to traces: what a launch of one needs to know.

    Holds no open file; construct one wherever needed.

    Attributes:
        folder: where entries live, `None` when the cache is off.
    """

    def __init__(self, folder: Path | None = None):
        """Choose the folder, without touching a file.

        Args:
            folder: where entries live. By default the environment decides: `ADJOIN_CACHE_DIR` if set (`off` or `0`
                turns the cache off), else `$XDG_CACHE_HOME/adjoin`, else `~/.cache/adjoin`. As in the XDG
                specification an empty variable counts as unset, and a relative `XDG_CACHE_HOME` is ignored.
        """
        self.folder = _default_folder() if folder is None else Path(folder)

    def get(self, key: str, kind: str = "kernel") -> bytes | None:
        """Return the kernel, or the trace, stored under `key`, or `None` if there is none that can be trusted."""
        name = _entry_name(key, kind)
        if self.folder is None:
            return None
        try:
            with _Directory(self.folder) as directory:
                return directory.read(name, key)
        except FileNotFoundError:
            return None
        except OSError as problem:
            _warn(self.folder, problem)
            return None

    def put(self, key: str, payload: bytes, kind: str = "kernel") -> None:
        """Store a kernel or a trace, atomically. Only warn, once per process, where that is not possible."""
        name = _entry_name(key, kind)
        if self.folder is None:
            return
        try:
            if len(payload) > _LARGEST:
                raise _Refused(f"a kernel of {len(payload)} bytes is over the limit of {_LARGEST}")
            with _open_or_create(self.folder) as directory, suppress(FileNotFoundError):
                # FileNotFoundError: somebody cleared the cache meanwhile, which is theirs to do.
                directory.sweep(older_than=_STALE)  # before writing: it may be what fills the disk
                directory.write(name, _header(key, payload), payload)
        except OSError as problem:
            _warn(self.folder, problem)

    def entries(self) -> dict[str, int]:
        """Return the bytes on disk of kernels by key, unverified; empty where the folder is absent or refused."""
        return self._entries(remove=False)

    def size(self) -> int:
        """Return the bytes on disk of all kernels."""
        return sum(self.entries().values())

    def clear(self) -> int:
        """Delete our entries and partial files, and nothing else that may lie in the folder.

        Returns:
            The number of kernels deleted.
        """
        return len(self._entries(remove=True))

    def _entries(self, remove: bool) -> dict[str, int]:
        sizes: dict[str, int] = {}
        if self.folder is None:
            return sizes
        try:
            with _Directory(self.folder) as directory:
                for match, status in directory.files(_ENTRY):
                    if (not remove or directory.remove(match.string)) and match[2] == "kernel":
                        sizes[match[1]] = status.st_size
                if remove:
                    directory.sweep(older_than=-math.inf)
        except FileNotFoundError:
            pass
        except OSError as problem:
            _warn(self.folder, problem)
        return sizes


class _Directory:
    """The folder, open and checked. On POSIX every name is resolved from its descriptor, so no path can be swapped."""

    def __init__(self, folder: Path):
        # On POSIX this only words the error well: O_NOFOLLOW below is the check that cannot be raced.
        if stat.S_ISLNK(os.lstat(folder).st_mode):
            raise _Refused("the folder is a symlink")
        self._fd: int | None = None
        self._prefix = "" if _POSIX else f"{folder}{os.sep}"
        if _POSIX:
            self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _COMMON)
            try:
                self._check(os.fstat(self._fd))
            except BaseException:
                os.close(self._fd)
                raise

    def _check(self, status: os.stat_result) -> None:
        if status.st_uid != os.geteuid():
            raise _Refused(f"the folder belongs to user {status.st_uid}, not to {os.geteuid()} who is running")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o022:
            raise _Refused(f"others may write to the folder (mode {mode:04o}, not 0700)")
        if mode & 0o055:
            # Others may only look, so the contents are sound and a freshly made folder is welcome: close it. But one
            # with other things in it (a home, / in a container) serves a purpose that 0700 might break: keep out.
            if not all(_ENTRY.fullmatch(name) or _PARTIAL.fullmatch(name) for name in self._names()):
                raise _Refused(f"the folder is open to others (mode {mode:04o}, not 0700) and holds more than a cache")
            assert self._fd is not None
            os.fchmod(self._fd, 0o700)

    def __enter__(self) -> "_Directory":
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)

    def _names(self) -> list[str]:
        return os.listdir(self._prefix if self._fd is None else self._fd)

    def files(self, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], os.stat_result]]:
        """Return our own regular files whose names match."""
        for match in filter(None, map(pattern.fullmatch, self._names())):
            with suppress(FileNotFoundError):
                status = os.stat(self._prefix + match.string, dir_fd=self._fd, follow_symlinks=False)
                if _fault(status) is None:
                    yield match, status

    def remove(self, name: str) -> bool:
        """Unlink a name: a symlink itself, never its target, and never a directory."""
        with suppress(OSError):
            os.unlink(self._prefix + name, dir_fd=self._fd)
            return True
        return False

    def sweep(self, older_than: float) -> None:
        """Remove the partial files of writers that were killed, by age in seconds."""
        for match, status in self.files(_PARTIAL):
            if status.st_mtime <= time.time() - older_than:
                self.remove(match.string)

    def read(self, name: str, key: str) -> bytes | None:
        """Return the payload of an entry; `None` for a corrupt one, which is removed so that it gets written anew."""
        # Asked of the name too, so that a device is never opened; what counts is the answer for the open descriptor.
        self._demand_ours(name, os.stat(self._prefix + name, dir_fd=self._fd, follow_symlinks=False))
        descriptor = os.open(self._prefix + name, _READ, dir_fd=self._fd)
        try:
            status = os.fstat(descriptor)
            self._demand_ours(name, status)
            if _HEADER.size <= status.st_size <= _HEADER.size + _LARGEST:
                with open(descriptor, "rb", closefd=False) as file:
                    header = file.read(_HEADER.size)
                    payload = file.read(status.st_size - _HEADER.size)
                if header == _header(key, payload):
                    return payload
        finally:
            os.close(descriptor)
        self.remove(name)
        return None

    def _demand_ours(self, name: str, status: os.stat_result) -> None:
        if (fault := _fault(status)) is not None:
            self.remove(name)
            raise _Refused(f"{name} {fault}")

    def write(self, name: str, *blocks: bytes) -> None:
        """Create or replace an entry; readers see the old file or the whole new one."""
        partial = f"{os.urandom(16).hex()}.partial"
        try:
            descriptor = os.open(self._prefix + partial, _WRITE, 0o600, dir_fd=self._fd)
            try:
                for block in blocks:
                    view = memoryview(block)
                    while view:
                        written = os.write(descriptor, view)
                        if written == 0:  # some network disks do this when full; trying again would be a hang
                            raise OSError("the disk takes no more data")
                        view = view[written:]
            finally:
                os.close(descriptor)  # before the rename: NFS reports a full disk only here
            # No fsync: a power cut may leave a broken entry, which its digest reveals, and a sync can take seconds.
            os.replace(self._prefix + partial, self._prefix + name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:  # a KeyboardInterrupt too must leave nothing behind
            self.remove(partial)
            raise


def _fault(status: os.stat_result) -> str | None:
    """Return what makes a file none of ours, whatever it contains."""
    if not stat.S_ISREG(status.st_mode):
        return "is a symlink" if stat.S_ISLNK(status.st_mode) else "is not a regular file"
    if _POSIX and status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to {os.geteuid()} who is running"
    if _POSIX and status.st_mode & 0o022:
        return "may be written by others"
    return None


def _header(key: str, payload: bytes) -> bytes:
    """Return the only header that key and payload can have: writing and verifying are the same function."""
    return _HEADER.pack(_MAGIC, _VERSION, bytes.fromhex(key), len(payload), hashlib.sha256(payload).digest())


def _entry_name(key: str, kind: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"a cache key is 64 lower-case hexadecimal digits, as digest() returns; got {key!r}")
    return f"{key}.{kind}"


def _open_or_create(folder: Path) -> _Directory:
    try:
        return _Directory(folder)
    except FileNotFoundError:
        for parent in reversed((folder, *folder.parents)):
            if not parent.is_dir():
                parent.mkdir(mode=0o700, exist_ok=True)  # every new level, as XDG asks: a umask may be 0
        return _Directory(folder)


def _default_folder() -> Path | None:
    chosen = os.environ.get("ADJOIN_CACHE_DIR", "")
    if chosen:
        return None if chosen.lower() in ("off", "0") else Path(os.path.expanduser(chosen))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):  # a container's user may have no home; `~` must not become a folder's name
        _warn(None, "this user has no home folder")
        return None
    return Path(base, "adjoin")


def _warn(folder: Path | None, problem: object) -> None:
    token = object()
    if _warned.setdefault(folder, token) is token:  # atomic, so threads too warn once
        warnings.warn(
            f"kernel cache{'' if folder is None else f' {folder}'} not used: {problem}. Kernels are compiled in memory "
            "instead. Set ADJOIN_CACHE_DIR to a folder of your own with mode 0700 (or a path to create), or to 'off'.",
            CacheWarning,
            stacklevel=3,
        )
