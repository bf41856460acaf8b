"""Python calls C calls Python, by the C extension `truth`, which notes how many frames Python has when each of its functions is entered.

Usage: extension.py SECONDS FOLDER-OF-THE-EXTENSION. Prints a line of JSON when it is ready and one with the truth at the end: for each
scenario its chain from the root to `spin`: Python's functions by sys._current_frames, C's by the extension.
"""
import json
import sys
import threading
import time

sys.path.insert(0, sys.argv[2])
import truth  # noqa: E402

chains = {}
current = [""]


def step(number):
    return number ^ 3


def spin():
    if current[0] not in chains:
        note()
    total = 0
    for number in range(3000):
        total += step(number)
    return total


def note():
    frame = sys._current_frames()[threading.get_ident()].f_back
    chain = []
    while frame:
        chain.insert(0, getattr(frame.f_code, "co_qualname", frame.f_code.co_name))
        frame = frame.f_back
    # Behind so many frames of Python stands this function of C; from the leaf, so that places do not move.
    for name, frames in reversed(truth.marks()):
        chain.insert(frames, name)
    chains[current[0]] = chain


class Shape:
    def method(self, number):
        return spin() * 0 + number

    @staticmethod
    def order(one, other):
        return spin() * 0 + one - other


def again(depth):
    return truth.call(again, depth - 1) if depth else spin()


def both(number):
    return truth.sort(Shape.order)


def items():
    yield spin()


def generating(number):
    return sum(items()) + sum(truth.call(list, items()))


def sorting(one, other):
    return sorted([1, 2], key=lambda item: truth.call(spin) * 0 + item)[0]


SCENARIOS = {
    "call": lambda: truth.call(spin),
    "method": lambda: truth.each(2, Shape().method),
    "sort": lambda: truth.sort(Shape.order),
    "both": lambda: truth.each(1, both),
    "again": lambda: again(20),
    "between": lambda: truth.sort(sorting),
    "python only": lambda: Shape().method(1),
}


def main():
    end = time.monotonic() + float(sys.argv[1])
    print(json.dumps({"event": "ready"}), flush=True)
    while time.monotonic() < end:
        for name, run in SCENARIOS.items():
            current[0] = name
            run()
    print(json.dumps({"chains": chains}), flush=True)


main()
