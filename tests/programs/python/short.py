"""Ends some 20 ms after its first function began."""


def work():
    # Small numbers, which take no memory of their own.
    total = 0
    for _ in range(700):
        for number in range(200):
            total ^= number
    return total


def main():
    work()
    work()


main()
