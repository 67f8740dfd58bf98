import errno
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adjoin.compiler.runtime import cache
from adjoin.compiler.runtime.cache import Cache, CacheWarning, digest

KEY, OTHER = digest("a kernel"), digest("another")
PAYLOAD = bytes(range(256)) + b"\x7fELF"

posix = pytest.mark.skipif(os.name != "posix", reason="owners, modes and links as POSIX has them")
root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """No test sees the user's own cache, nor which warnings an earlier test used up."""
    monkeypatch.setattr(cache, "_warned", {})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("ADJOIN_CACHE_DIR", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "store")


def entry(store: Cache, key: str = KEY) -> Path:
    assert store.folder is not None
    return store.folder / f"{key}.kernel"


def names(store: Cache) -> list[str]:
    assert store.folder is not None
    return sorted(os.listdir(store.folder))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@contextmanager
def one_warning(because: str = "") -> Iterator[None]:
    """However much happens inside, the user hears of it once: what happened, and what to do."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        yield
    assert [warning.category for warning in record] == [CacheWarning]
    assert re.search(because, str(record[0].message))
    assert "ADJOIN_CACHE_DIR" in str(record[0].message)


def refused(folder: Path, because: str) -> None:
    """get and put leave the folder alone, and warn once between them, saying why, where and what to do."""
    before = sorted(os.listdir(folder))
    store = Cache(folder)
    with one_warning(f"{re.escape(str(folder))} .*{because}"):
        assert store.get(KEY) is None
        store.put(KEY, PAYLOAD)
        assert Cache(folder).get(KEY) is None
        assert store.entries() == {}
        assert store.clear() == 0
    assert sorted(os.listdir(folder)) == before


def child(body: str, *arguments: object, launcher: tuple[str, ...] = ()) -> list[str]:
    """A command line that runs `body` with cache.py loaded by path: 64 of them must not each import the package."""
    head = """
        import importlib.util, os, signal, sys, warnings
        from pathlib import Path
        spec = importlib.util.spec_from_file_location("cache", sys.argv[1])
        cache = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cache)
        warnings.simplefilter("always")
        folder = Path(sys.argv[2])
        store = cache.Cache(folder)
    """
    script = textwrap.dedent(head) + textwrap.dedent(body)
    return [*launcher, sys.executable, "-I", "-S", "-c", script, str(cache.__file__), *map(str, arguments)]


def run(body: str, *arguments: object, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        child(body, *arguments, launcher=launcher), capture_output=True, text=True, timeout=60, check=False
    )


# Keys


def test_digest_tells_sequences_apart():
    sequences = [(), ("",), ("", ""), ("ab", "c"), ("a", "bc"), ("abc",), (b"ab", b"c"), ("ab", b"c"), ("c", "ab")]
    assert len({digest(*parts) for parts in sequences}) == len(sequences)
    assert digest("a", b"b") == digest("a", b"b")
    assert len(digest("\ud800 from a file name")) == 64


@given(st.lists(st.text() | st.binary()), st.lists(st.text() | st.binary()))
def test_digest_is_injective(one: list[str | bytes], two: list[str | bytes]):
    assert (digest(*one) == digest(*two)) == (one == two)


@pytest.mark.parametrize("key", ["", "ab", "../" + "a" * 61, "A" * 64, "g" * 64, "a" * 63 + "\n", "a" * 64 + "\n"])
def test_a_key_cannot_name_another_file(store: Cache, key: str):
    with pytest.raises(ValueError, match="64 lower-case hexadecimal"):
        store.get(key)
    with pytest.raises(ValueError, match="64 lower-case hexadecimal"):
        store.put(key, PAYLOAD)


# Where


def test_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert Cache().folder == tmp_path / "home" / ".cache" / "adjoin"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert Cache().folder == tmp_path / "home" / ".cache" / "adjoin"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert Cache().folder == tmp_path / "xdg" / "adjoin"
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "")
    assert Cache().folder == tmp_path / "xdg" / "adjoin"
    monkeypatch.setenv("ADJOIN_CACHE_DIR", str(tmp_path / "mine"))
    assert Cache().folder == tmp_path / "mine"
    monkeypatch.setenv("ADJOIN_CACHE_DIR", "~/mine")
    assert Cache().folder == tmp_path / "home" / "mine"
    assert Cache(tmp_path / "given").folder == tmp_path / "given"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("value", ["off", "OFF", "0"])
def test_the_cache_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv("ADJOIN_CACHE_DIR", value)
    store = Cache()
    assert store.folder is None
    store.put(KEY, PAYLOAD)
    assert store.get(KEY) is None
    assert (store.entries(), store.size(), store.clear()) == ({}, 0, 0)


def test_a_user_without_a_home_gets_no_cache_and_one_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with one_warning("no home folder"):
        assert Cache().folder is None
        assert Cache().folder is None


@posix
def test_new_folders_and_entries_are_private_under_any_umask():
    store = Cache()
    assert store.folder is not None
    umask = os.umask(0)
    try:
        store.put(KEY, PAYLOAD)
    finally:
        os.umask(umask)
    created = (store.folder, store.folder.parent, store.folder.parent.parent)
    assert [mode(path) for path in created] == [0o700] * 3
    assert mode(entry(store)) == 0o600
    assert store.get(KEY) == PAYLOAD


# Round trips


def test_round_trip(store: Cache):
    assert store.get(KEY) is None
    assert store.folder is not None
    assert not store.folder.exists()  # reading creates nothing
    store.put(KEY, PAYLOAD)
    store.put(OTHER, b"")
    assert store.get(KEY) == PAYLOAD
    assert store.get(OTHER) == b""
    store.put(KEY, b"new")
    assert store.get(KEY) == b"new"
    assert set(store.entries()) == {KEY, OTHER}
    assert store.size() == entry(store).stat().st_size + entry(store, OTHER).stat().st_size
    assert store.clear() == 2
    assert names(store) == []
    assert (store.entries(), store.size(), store.clear()) == ({}, 0, 0)


def test_clear_and_entries_of_no_folder(store: Cache):
    assert (store.entries(), store.size(), store.clear()) == ({}, 0, 0)


@settings(max_examples=60, deadline=None)
@given(payload=st.binary(max_size=4096), other=st.binary(max_size=64))
def test_any_payload_comes_back(tmp_path_factory: pytest.TempPathFactory, payload: bytes, other: bytes):
    store = Cache(tmp_path_factory.mktemp("any") / "store")
    store.put(KEY, payload)
    store.put(OTHER, other)
    assert (store.get(KEY), store.get(OTHER)) == (payload, other)


def test_partial_writes_are_continued(store: Cache, monkeypatch: pytest.MonkeyPatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data)[:7]))
    store.put(KEY, PAYLOAD)
    assert store.get(KEY) == PAYLOAD


def test_threads_share_a_cache(store: Cache):
    wrong: list[object] = []

    def work(index: int) -> None:
        for turn in range(20):
            store.put(KEY, PAYLOAD)
            if store.get(KEY) != PAYLOAD:
                wrong.append((index, turn))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert names(store) == [entry(store).name]


# Corruption: a miss, and the entry is gone so that it gets written anew


def corrupt(store: Cache, data: bytes, rewritten: bool = True) -> None:
    entry(store).write_bytes(data)
    entry(store).chmod(0o600)
    assert store.get(KEY) is None
    assert not entry(store).exists()
    if rewritten:
        store.put(KEY, PAYLOAD)
        assert store.get(KEY) == PAYLOAD


def test_truncation_at_every_length(store: Cache):
    store.put(KEY, PAYLOAD)
    good = entry(store).read_bytes()
    for length in range(len(good)):
        corrupt(store, good[:length])
    corrupt(store, good + b"\0")


def test_a_flip_of_every_bit(store: Cache):
    store.put(KEY, PAYLOAD)
    good = entry(store).read_bytes()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        corrupt(store, bytes(bad), rewritten=bit % 64 == 0)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=512), at=st.integers(0, 400), cut=st.integers(0, 400))
def test_spliced_entries(tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, cut: int):
    store = Cache(tmp_path_factory.mktemp("spliced") / "store")
    store.put(KEY, PAYLOAD)
    good = entry(store).read_bytes()
    bad = good[:at] + data + good[cut:]
    entry(store).write_bytes(bad)
    assert store.get(KEY) == (PAYLOAD if bad == good else None)


def test_an_entry_renamed_to_another_key(store: Cache):
    store.put(KEY, PAYLOAD)
    entry(store).rename(entry(store, OTHER))
    assert store.get(OTHER) is None
    assert names(store) == []


def test_an_absurdly_large_entry_is_not_read(store: Cache, monkeypatch: pytest.MonkeyPatch):
    store.put(KEY, PAYLOAD)
    os.truncate(entry(store), 10 << 30)  # sparse: takes no disk
    started = time.monotonic()
    assert store.get(KEY) is None
    assert time.monotonic() - started < 1
    assert not entry(store).exists()
    monkeypatch.setattr(cache, "_LARGEST", 10)
    with one_warning("over the limit of 10"):
        store.put(KEY, PAYLOAD)
    assert names(store) == []


def test_an_entry_removed_before_it_is_opened_is_a_plain_miss(store: Cache, monkeypatch: pytest.MonkeyPatch):
    store.put(KEY, PAYLOAD)
    opened = os.open

    def racing(path, *args, **kwargs):
        if str(path).endswith(".kernel"):
            entry(store).unlink()
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", racing)
    assert store.get(KEY) is None


# Entries that are not ours to execute: refused with a warning, removed, written anew


def refused_entry(store: Cache, because: str) -> None:
    with one_warning(because):
        assert store.get(KEY) is None
        assert not os.path.lexists(entry(store))
        assert store.get(KEY) is None
    store.put(KEY, PAYLOAD)
    assert store.get(KEY) == PAYLOAD


@posix
def test_a_symlinked_entry(store: Cache, tmp_path: Path):
    store.put(KEY, PAYLOAD)
    target = entry(store).rename(tmp_path / "target")
    entry(store).symlink_to(target)
    refused_entry(store, "is a symlink")
    assert target.exists()
    assert not entry(store).is_symlink()


@posix
@pytest.mark.parametrize("swap", ["symlink", "fifo"])
def test_an_entry_swapped_after_the_first_look(
    store: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: str
):
    store.put(KEY, PAYLOAD)
    honest, look = entry(store).lstat(), os.stat
    target = entry(store).rename(tmp_path / "target")
    if swap == "symlink":
        entry(store).symlink_to(target)
    else:
        os.mkfifo(entry(store))
    monkeypatch.setattr(os, "stat", lambda path, **kw: honest if str(path).endswith(".kernel") else look(path, **kw))
    with one_warning():
        assert store.get(KEY) is None


@posix
def test_a_fifo_entry_does_not_hang(store: Cache):
    store.put(KEY, PAYLOAD)
    entry(store).unlink()
    os.mkfifo(entry(store))
    refused_entry(store, "is not a regular file")


@posix
def test_a_directory_in_an_entrys_place_is_left_alone(store: Cache):
    store.put(OTHER, PAYLOAD)
    entry(store).mkdir()
    (entry(store) / "keep").touch()
    with one_warning("is not a regular file"):
        assert store.get(KEY) is None
        store.put(KEY, PAYLOAD)
        assert store.get(KEY) is None
        assert store.clear() == 1
    assert names(store) == [entry(store).name]
    assert (entry(store) / "keep").exists()


@posix
@pytest.mark.parametrize("bits", [0o620, 0o602, 0o666])
def test_an_entry_others_may_write(store: Cache, bits: int):
    store.put(KEY, PAYLOAD)
    entry(store).chmod(bits)
    refused_entry(store, "may be written by others")


@root
def test_an_entry_of_another_owner(store: Cache):
    store.put(KEY, PAYLOAD)
    os.chown(entry(store), 12345, -1)
    refused_entry(store, "belongs to user 12345")


# Folders that are not ours alone


@posix
@pytest.mark.parametrize("bits", [0o777, 0o1777, 0o770, 0o720, 0o702, 0o755 | 0o022])
def test_a_folder_others_may_write(store: Cache, bits: int):
    store.put(KEY, PAYLOAD)
    assert store.folder is not None
    store.folder.chmod(bits)
    refused(store.folder, f"others may write to the folder \\(mode {bits:04o}")
    assert mode(store.folder) == bits


@root
def test_a_folder_of_another_owner(store: Cache):
    store.put(KEY, PAYLOAD)
    assert store.folder is not None
    os.chown(store.folder, 12345, -1)
    refused(store.folder, "belongs to user 12345, not to 0")


@posix
def test_a_symlinked_folder(store: Cache, tmp_path: Path):
    store.put(KEY, PAYLOAD)
    assert store.folder is not None
    link = tmp_path / "link"
    link.symlink_to(store.folder)
    refused(link, "is a symlink")


@posix
def test_a_folder_swapped_for_a_symlink_after_the_first_look(
    store: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store.put(KEY, PAYLOAD)
    assert store.folder is not None
    honest = store.folder.lstat()
    link = tmp_path / "link"
    link.symlink_to(store.folder)
    monkeypatch.setattr(os, "lstat", lambda path: honest)
    with one_warning():
        assert Cache(link).get(KEY) is None


@posix
def test_dangling_symlink_and_plain_file_as_folder(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "fifo")
    for name, because in (("link", "symlink"), ("file", "Not a directory"), ("fifo", "Not a directory")):
        for folder in (tmp_path / name, tmp_path / name / "below"):
            store = Cache(folder)
            with one_warning(because if folder.name == name else ""):
                assert store.get(KEY) is None
                store.put(KEY, PAYLOAD)
                assert store.get(KEY) is None
    assert not (tmp_path / "nowhere").exists()
    assert (tmp_path / "file").read_text() == "mine"


@posix
def test_a_symlink_above_the_folder_is_fine(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    store = Cache()
    store.put(KEY, PAYLOAD)
    assert store.get(KEY) == PAYLOAD
    assert (tmp_path / "disk" / ".cache" / "adjoin" / f"{KEY}.kernel").is_file()


@posix
@pytest.mark.parametrize("bits", [0o755, 0o750, 0o711, 0o2755])
def test_a_folder_others_may_only_read_is_closed_if_it_is_a_cache(store: Cache, bits: int):
    assert store.folder is not None
    store.folder.mkdir()
    store.folder.chmod(bits)
    store.put(KEY, PAYLOAD)
    assert mode(store.folder) & 0o777 == 0o700
    store.folder.chmod(bits)
    assert store.get(KEY) == PAYLOAD
    assert mode(store.folder) & 0o777 == 0o700


@posix
def test_a_folder_others_may_read_that_holds_other_things_is_refused(tmp_path: Path):
    folder = tmp_path / "public_html"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "index.html").touch()
    refused(folder, "holds more than a cache")
    assert mode(folder) == 0o755


@posix
def test_clear_touches_nothing_else(store: Cache, tmp_path: Path):
    store.put(KEY, PAYLOAD)
    assert store.folder is not None
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (store.folder / f"{OTHER}.kernel").symlink_to(precious)
    (store.folder / f"{digest('directory')}.kernel").mkdir()
    (store.folder / f"{KEY}.kernel.bak").write_text("mine")
    (store.folder / "notes.txt").write_text("mine")
    (store.folder / f"{'0' * 32}.partial").touch(mode=0o600)
    before = set(names(store)) - {f"{KEY}.kernel", f"{'0' * 32}.partial"}
    assert set(store.entries()) == {KEY}
    assert store.clear() == 1
    assert set(names(store)) == before
    assert precious.read_text() == "mine"


# Disks that fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("call", ["open", "write", "close", "replace", "mkdir"])
def test_a_failing_call_leaves_no_trace_and_one_warning(
    store: Cache, monkeypatch: pytest.MonkeyPatch, call: str, code: int
):
    assert store.folder is not None
    if call != "mkdir":
        store.put(OTHER, PAYLOAD)
    before = names(store) if store.folder.exists() else None
    original, writing = getattr(os, call), False

    def failing(*args, **kwargs):
        nonlocal writing
        if call == "open" and not args[1] & os.O_CREAT:
            return original(*args, **kwargs)
        if call == "close" and stat.S_ISDIR(os.fstat(args[0]).st_mode):
            return original(*args, **kwargs)
        if call == "write" and not writing:
            writing = True
            return original(args[0], bytes(args[1])[:5])
        if call == "close":
            original(*args)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, failing)
    with one_warning(os.strerror(code)):
        store.put(KEY, PAYLOAD)
        store.put(KEY, PAYLOAD)
    monkeypatch.undo()
    assert (names(store) if store.folder.exists() else None) == before
    assert store.get(KEY) is None


def test_a_disk_that_takes_no_data_is_not_asked_forever(store: Cache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "write", lambda descriptor, data: 0)
    with one_warning("takes no more data"):
        store.put(KEY, PAYLOAD)
    assert names(store) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE])
def test_an_unreadable_disk_is_a_miss(store: Cache, monkeypatch: pytest.MonkeyPatch, code: int):
    store.put(KEY, PAYLOAD)

    def failing(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, one_warning(os.strerror(code)):
        patch.setattr(os, "open", failing)
        assert store.get(KEY) is None
        assert store.get(KEY) is None
    assert store.get(KEY) == PAYLOAD  # not known to be bad, so not removed


def test_an_interrupted_write_leaves_no_trace(store: Cache, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put(KEY, PAYLOAD)
    assert names(store) == []


@posix
@pytest.mark.parametrize("call", ["open", "replace"])
def test_a_cache_cleared_under_a_writer_is_no_failure(store: Cache, monkeypatch: pytest.MonkeyPatch, call: str):
    store.put(OTHER, PAYLOAD)
    original = getattr(os, call)

    def racing(*args, **kwargs):
        if call == "replace" or args[1] & os.O_CREAT:
            shutil.rmtree(store.folder)  # type: ignore[arg-type]
        return original(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, racing)
        store.put(KEY, PAYLOAD)
    assert store.get(KEY) is None
    store.put(KEY, PAYLOAD)
    assert store.get(KEY) == PAYLOAD


TRY_TO_STORE = """
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        for size in (1 << 20, 1 << 20, 100):
            store.put(cache.digest(str(size)), b"x" * size)
    found = [store.get(cache.digest(str(size))) for size in (1 << 20, 100)]
    assert found[0] is None, "the large one cannot fit"
    assert found[1] in (None, b"x" * 100)
    print(len(record), len([name for name in os.listdir(folder) if name.endswith("partial")]), found[1] is not None)
    print(*(w.message for w in record))
"""


@posix
def test_a_file_size_limit(tmp_path: Path):
    limit = "\n    import resource\n    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))"
    result = run(limit + TRY_TO_STORE, tmp_path / "store")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1 0 True\n")  # one warning, nothing left behind, small kernels still stored
    assert os.strerror(errno.EFBIG) in result.stdout


def mounted(options: str, folder: Path, then: str = "true") -> tuple[str, ...]:
    """A launcher in a mount namespace of its own, with a tmpfs at `folder`; skips where that is not allowed."""
    mount = f'mount -t tmpfs -o mode=0700,{options} none "{folder}" && {then}'
    launcher = ("unshare", "--map-root-user", "--mount", "sh", "-c")
    folder.mkdir(mode=0o700)
    if (
        shutil.which("unshare") is None
        or subprocess.run([*launcher, mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting a tmpfs is not allowed here")
    return (*launcher, f'{mount} && exec "$@"', "sh")


@posix
def test_a_full_disk(tmp_path: Path):
    folder = tmp_path / "store"
    result = run(TRY_TO_STORE, folder, launcher=mounted("size=64k", folder))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1 0 True\n")
    assert os.strerror(errno.ENOSPC) in result.stdout


@posix
def test_a_read_only_disk(tmp_path: Path):
    folder = tmp_path / "store"
    result = run(TRY_TO_STORE, folder, launcher=mounted("ro", folder))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1 0 False\n")
    assert os.strerror(errno.EROFS) in result.stdout
    assert str(folder) in result.stdout
    assert "ADJOIN_CACHE_DIR" in result.stdout


@posix
def test_a_read_only_disk_still_serves_what_it_holds(tmp_path: Path):
    folder, filled = tmp_path / "store", Cache(tmp_path / "filled")
    filled.put(KEY, PAYLOAD)
    copy = f'cp "{entry(filled)}" "{folder}" && mount -o remount,ro "{folder}"'
    body = "\n    warnings.simplefilter('error')\n    print(store.get(sys.argv[3]).hex())"
    result = run(body, folder, KEY, launcher=mounted("size=1m", folder, copy))
    assert result.returncode == 0, result.stderr
    assert bytes.fromhex(result.stdout) == PAYLOAD


# Many processes, and processes that die


HAMMER = """
    print("ready", flush=True)
    sys.stdin.readline()  # all start at once
    key, payload = cache.digest("same"), bytes(200_000)
    for _ in range(10):
        found = store.get(key)
        assert found is None or found == payload
        store.put(key, payload)
        assert store.get(key) == payload
"""


@posix
def test_64_processes_storing_the_same_kernel(store: Cache):
    assert store.folder is not None
    command = child(HAMMER, store.folder)
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(64)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert results == [("", "", 0)] * 64  # and not a warning among them
    assert names(store) == [f"{digest('same')}.kernel"]


DIE_AT = """
    at = int(sys.argv[3])
    def deadly(original):
        def call(*args, **kwargs):
            global at
            at -= 1
            if at == 0:
                if original is write:
                    write(args[0], bytes(args[1])[:len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)
        return call
    write = os.write
    for name in ("lstat", "open", "fstat", "listdir", "stat", "mkdir", "write", "close", "replace", "unlink"):
        setattr(os, name, deadly(getattr(os, name)))
    store.put(cache.digest("dying"), bytes(100_000))
    os._exit(0)
"""


@posix
@pytest.mark.parametrize("existing", [False, True])
def test_sigkill_before_every_system_call_of_a_writer(tmp_path: Path, existing: bool):
    partials, key = 0, digest("dying")
    for at in range(1, 100):
        store = Cache(tmp_path / str(at) / "store")
        if existing:
            store.put(key, b"old")
        result = run(DIE_AT, store.folder, at)
        if result.returncode == 0:
            break
        assert result.returncode == -signal.SIGKILL, result.stderr
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert store.get(key) in (b"old" if existing else None, bytes(100_000))
            if store.folder is not None and store.folder.exists():
                partials += any(name.endswith(".partial") for name in names(store))
            store.put(key, PAYLOAD)  # whatever it left, the next process is not disturbed
            assert store.get(key) == PAYLOAD
    assert 8 < at < 99  # every call was reached, and then a run survived
    assert partials >= 3


LOOP = """
    print("ready", flush=True)
    turn = 0
    while True:
        name = str(turn % 4)
        store.put(cache.digest(name), name.encode() * 300_000)
        turn += 1
"""


@posix
def test_sigkill_at_random_moments(store: Cache):
    chance = random.Random(7)
    for _ in range(10):
        with subprocess.Popen(child(LOOP, store.folder), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0, 0.03))
            process.kill()
        for name in names(store) if store.folder is not None and store.folder.exists() else []:
            assert name.endswith((".kernel", ".partial"))
        for name in "0123":
            known = digest(name) in store.entries()
            assert store.get(digest(name)) == (name.encode() * 300_000 if known else None)


def test_stale_partial_files_are_swept(store: Cache):
    store.put(KEY, PAYLOAD)
    assert store.folder is not None
    stale, living, foreign = (
        store.folder / name for name in ("a" * 32 + ".partial", "b" * 32 + ".partial", "c.partial")
    )
    for path in (stale, living, foreign):
        path.touch(mode=0o600)
    for path in (stale, foreign, entry(store)):
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    assert store.get(KEY) == PAYLOAD
    store.put(OTHER, PAYLOAD)
    assert not stale.exists()
    assert living.exists()
    assert foreign.exists()
    assert store.get(KEY) == PAYLOAD  # entries do not age


# One warning a process; other systems


@posix
def test_one_warning_a_process_however_many_threads(tmp_path: Path):
    tmp_path.chmod(0o777)
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        for _ in range(20):
            Cache(tmp_path).put(KEY, PAYLOAD)
            Cache(tmp_path).get(KEY)

    with one_warning():
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    tmp_path.chmod(0o700)


def test_without_posix_paths_are_used(store: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(cache, "_POSIX", False)
    test_round_trip(store)
    test_truncation_at_every_length(store)
    test_stale_partial_files_are_swept(store)
    store.clear()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "store")
    with one_warning("symlink"):
        assert Cache(link).get(KEY) is None


def test_the_module_is_light_and_loads_without_posix_names(tmp_path: Path):
    command = child(
        """
        store.put("0" * 64, b"payload")
        assert store.get("0" * 64) == b"payload"
        heavy = {"torch", "numpy", "llvmlite", "pickle", "adjoin"} & set(sys.modules)
        assert not heavy, heavy
        """,
        tmp_path / "store",
    )
    posix_only = ["geteuid", "getuid", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_DIRECTORY", "fchmod"]
    script = command.index("-c") + 1
    command[script] = f"import os\nfor name in {posix_only}: vars(os).pop(name, None)\n{command[script]}"
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
