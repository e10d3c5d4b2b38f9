"""A hook tried out on sample inputs, in an interpreter of our own: nothing of the code under audit is run by Python.

The interpreter walks the tree. It knows the language, pure functions of the standard library, and the few classes of
the frameworks that carry text; of all else it knows nothing, and gives up where something depends on it. It has no
files, no network, no clock, and counts its steps.
"""

from ragtrace.inventory.trial.run import Subject, Trial, trial
from ragtrace.inventory.trial.things import GiveUpError

__all__ = ["GiveUpError", "Subject", "Trial", "trial"]
