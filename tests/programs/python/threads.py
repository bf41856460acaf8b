"""Threads among many that sleep, one in code of C that has let go of the lock, one that collects garbage.

Usage: threads.py SECONDS. Each working thread stays in a function of its own name.
"""
import gc
import hashlib
import sys
import threading
import time


def spin():
    total = 0
    for number in range(10_000):
        total ^= number
    return total


def first(end):
    while time.monotonic() < end:
        spin()


def second(end):
    while time.monotonic() < end:
        spin()


def hashing(end):
    data = bytes(1 << 22)
    while time.monotonic() < end:
        hashlib.sha256(data).digest()


def collecting(end):
    keep = [[] for _ in range(200_000)]
    while time.monotonic() < end:
        gc.collect()
    return keep


def sleeping(end):
    time.sleep(max(0, end - time.monotonic()))


ready = threading.Event()


def after_all(work):
    """Threads that work would hold up the start of the others."""

    def run(end):
        ready.wait()
        work(end)

    return run


def main(seconds):
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=sleeping, args=(end,)) for _ in range(200)]
    threads += [threading.Thread(target=after_all(work), args=(end,)) for work in (first, second, hashing, collecting)]
    threads += [threading.Thread(target=sleeping, args=(end,)) for _ in range(200)]
    for thread in threads:
        thread.start()
    print('{"event": "ready"}', flush=True)
    ready.set()
    for thread in threads:
        thread.join()
    print("{}", flush=True)


main(float(sys.argv[1]))
