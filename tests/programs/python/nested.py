"""Two callees of a known share of CPU time: `busy` runs three times as many rounds in `three` as in `one`."""
import sys
import time


def busy(rounds):
    total = 0
    for number in range(rounds):
        total += number ^ 3
    return total


class Worker:
    def one(self):
        return busy(20_000)

    def three(self):
        return busy(60_000)

    @staticmethod
    def both(worker):
        worker.one()
        worker.three()


def main(seconds):
    end = time.monotonic() + seconds
    worker = Worker()
    while time.monotonic() < end:
        Worker.both(worker)


main(float(sys.argv[1]))
