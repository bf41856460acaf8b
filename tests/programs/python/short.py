"""Ends some 20 ms after its first function began."""


def work():
    total = 0
    for number in range(150_000):
        total ^= number
    return total


def main():
    work()
    work()


main()
