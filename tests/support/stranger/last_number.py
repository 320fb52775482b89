"""An attack of another package: it reads how many rows there are, which is the last number of a vector."""

from numpy.random import Generator

from simulations.audit import Exposure, ExposureAttack, Kind, Knowledge, Known, Score, Truth


class LastNumber(ExposureAttack[int | None]):
    name = "last_number"
    title = "The number of rows, as it is sent"
    explanation = "Reads the last number of a vector. Success: the number of rows. Chance: any number of rows."
    sees = frozenset({Kind.MESSAGE, Kind.TOTAL, Kind.NOISY_TOTAL, Kind.MODEL})
    needs = Knowledge.NOTHING

    def guess(self, seen: Exposure, known: Known, rng: Generator) -> int | None:
        vector = seen.read()  # None where nothing can be read
        return None if vector is None else int(vector[-1])

    def score(self, guess: int | None, truth: Truth, rng: Generator) -> Score:
        return Score(hits=int(guess == len(truth.rows)), trials=1, chance=1 / truth.row_counts)


ATTACK = LastNumber()
