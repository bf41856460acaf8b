"""Stacks whose truth is told from inside. Each scenario ends in `spin`, which first writes down the Python functions above it, as the
interpreter itself knows them. A function of C that stands between two of Python is put into its place by the scenario.

Usage: stacks.py SECONDS. Prints a line of JSON when it is ready and one with the truth at the end: for each scenario its chain from the
root to `spin`, and the rounds of `spin` in it.
"""
import asyncio
import ctypes
import functools
import json
import re
import sys
import threading
import time

chains = {}
current = threading.local()


def step(number):
    return number ^ 3


def spin():
    """Calls a lot: most of the moments at which a frame is about to begin or to end are here."""
    name, between = current.scenario
    if name not in chains:
        note(name, between)
    total = 0
    for number in range(3000):
        total += step(number)
    return total


def note(name, between):
    # sys._getframe and _current_frames say the same: the newest frame first.
    frame = sys._current_frames()[threading.get_ident()].f_back
    chain = []
    while frame:
        chain.insert(0, getattr(frame.f_code, "co_qualname", frame.f_code.co_name))
        frame = frame.f_back
    for caller, native, called in between:
        for at in reversed(range(len(chain) - 1)):
            if (last(chain[at]), last(chain[at + 1])) == (caller, called):
                chain.insert(at + 1, native)
    chains[name] = chain


def last(function):
    return function.split(".")[-1]


def scenario(name, *between):
    def decorate(function):
        @functools.wraps(function)
        def run():
            current.scenario = (name, between)
            function()

        return run

    return decorate


class Shape:
    class Inner:
        def method(self):
            return spin()

    def outer(self):
        return Shape.Inner().method()

    def __init__(self, deep=False):
        if deep:
            self.made = spin()


@scenario("plain")
def plain():
    Shape().outer()


@scenario("made")
def made():
    Shape(True)


def key(item):
    return spin() * 0 + item


@scenario("sorted", ("by_key", "builtin_sorted", "key"))
def sorting():
    by_key()


def by_key():
    sorted([3, 1, 2], key=key)


def add(one, other):
    return spin() * 0 + one + other


@scenario("reduce", ("folding", "functools_reduce", "add"))
def reducing():
    folding()


def folding():
    functools.reduce(add, [1, 2, 3])


def letter(match):
    return str(spin() * 0)


@scenario("sub", ("replacing", "pattern_subx", "letter"))
def substituting():
    replacing()


def replacing():
    re_abc.sub(letter, "abcabc")


re_abc = re.compile("b")
libc = ctypes.CDLL(None)
compare_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def compare(one, other):
    return spin() * 0


compare_c = compare_type(compare)
numbers = (ctypes.c_int * 3)(3, 1, 2)


@scenario("qsort", ("by_c", "qsort", "compare"))
def c_sorting():
    by_c()


def by_c():
    libc.qsort(numbers, 3, 4, compare_c)


def twice(item):
    # Two functions of C in one stack: qsort called by what sorted called.
    libc.qsort(numbers, 3, 4, compare_c)
    return item


@scenario("nested", ("over", "builtin_sorted", "twice"), ("twice", "qsort", "compare"))
def nesting():
    over()


def over():
    sorted([2, 1], key=twice)


def items():
    for number in range(3):
        spin()
        yield number


def chained():
    yield from items()


@scenario("generator")
def generating():
    for _ in chained():
        pass


async def inner():
    spin()


async def outer():
    await inner()


@scenario("coroutine")
def coroutines():
    try:
        outer().send(None)
    except StopIteration:
        pass


@scenario("lambda")
def lambdas():
    (lambda: spin())()


def down(depth):
    return down(depth - 1) if depth else spin()


@scenario("recursion")
def recursing():
    down(490)


@scenario("mixed", ("alternating", "builtin_sorted", "again"))
def mixed():
    alternating(20)


def alternating(depth):
    return sorted([depth], key=again) if depth else spin()


def again(depth):
    return alternating(depth - 1)


SCENARIOS = [plain, made, sorting, reducing, substituting, c_sorting, nesting, generating, coroutines, lambdas, recursing, mixed]


def loop(end):
    while time.monotonic() < end:
        for run in SCENARIOS:
            run()


def main():
    sys.setrecursionlimit(3000)
    end = time.monotonic() + float(sys.argv[1])
    print(json.dumps({"event": "ready"}), flush=True)
    loop(end)
    print(json.dumps({"chains": chains, "version": list(sys.version_info[:3])}), flush=True)


main()
