"""The cache that all kernels are kept in: bounded, safe for threads, each value computed once."""

import copy
import gc
import pickle
import threading
import time
import weakref

import pytest

from adjoin.compiler.runtime.bounded import BoundedCache, PerOwner


def test_the_value_not_asked_for_longest_goes():
    cache = BoundedCache(3)
    for key in "abc":
        assert cache.get(key, lambda key=key: key.upper()) == key.upper()
    assert cache.get("a", lambda: pytest.fail("computed again")) == "A"
    cache.get("d", lambda: "D")
    assert len(cache) == 3
    assert [key in cache for key in "abcd"] == [True, False, True, True]
    assert dict(cache.items()) == {"a": "A", "c": "C", "d": "D"}


def test_sixty_four_threads_compute_a_value_once():
    cache, computed, barrier = BoundedCache(8), [], threading.Barrier(64)

    def slow():
        computed.append(threading.get_ident())
        time.sleep(0.05)
        return object()

    results = [None] * 64

    def ask(i):
        barrier.wait()
        results[i] = cache.get("kernel", slow)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(computed) == 1
    assert all(result is results[0] for result in results)


def test_another_key_does_not_wait():
    cache, entered, leave = BoundedCache(8), threading.Event(), threading.Event()

    def slow():
        entered.set()
        assert leave.wait(10)
        return 1

    thread = threading.Thread(target=lambda: cache.get("slow", slow))
    thread.start()
    assert entered.wait(10)
    assert cache.get("quick", lambda: 2) == 2
    leave.set()
    thread.join()
    assert cache.get("slow", lambda: pytest.fail("computed again")) == 1


def test_an_error_leaves_nothing_behind():
    cache = BoundedCache(8)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0)
    assert "a" not in cache
    assert cache.get("a", lambda: 1) == 1


def test_a_value_may_be_computed_from_others_of_the_cache():
    cache = BoundedCache(8)
    assert cache.get("sum", lambda: cache.get("a", lambda: 1) + cache.get("b", lambda: 2)) == 3


def test_an_owner_takes_its_values_along():
    class Owner:
        pass

    caches, owner = PerOwner(8), Owner()
    value = weakref.ref(caches.get(owner, "key", Owner))
    assert caches.get(owner, "key", Owner) is value()
    assert caches.get(Owner(), "key", lambda: 1) == 1
    del owner
    gc.collect()
    assert value() is None


def test_a_copy_is_empty():
    cache = BoundedCache(3)
    cache.get("a", lambda: "A")
    for copied in (copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))):
        assert copied.size == 3
        assert len(copied) == 0


def test_peeking_counts_as_asking():
    cache = BoundedCache(2)
    assert cache.peek("a") is None
    for key in "ab":
        cache.get(key, lambda key=key: key.upper())
    assert cache.peek("a") == "A"
    cache.get("c", lambda: "C")
    assert [key in cache for key in "abc"] == [True, False, True]
