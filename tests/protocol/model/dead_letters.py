"""The model's dead letters: which messages must die, and what redrive and purge must do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .things import Breach, Handout, Progress, Status, Stored


@dataclass
class Letters:
    """The state of the model. ``letters`` has the number of failures by (original offset, failed group)."""

    max_attempts: int = 3
    log: dict[int, Stored] = field(default_factory=dict)
    groups: dict[str, dict[int, Progress]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    letters: dict[tuple[int, str], int] = field(default_factory=dict)
    ever: dict[int, Stored] = field(default_factory=dict)
    never: set[int] = field(default_factory=set)
    past: set[int] = field(default_factory=set)
    newest: int = 0
    handouts: list[Handout] = field(default_factory=list)

    def _died(self, offset: int, group: str, failures: int) -> None:
        self.groups[group][offset].status = Status.DEAD
        self.letters.setdefault((offset, group), failures)

    def found_letters(self, letters: Iterable[tuple[int, str, int]]) -> None:
        """Check the dead letters that exist: (original offset, failed group, failure count).

        A dead letter that no answer explains is right only if its message used up its attempts unanswered.
        """
        listed = list(letters)
        found = {(offset, group): count for offset, group, count in listed}
        self.require(len(found) == len(listed), f"two dead letters of one message: {listed}")
        for (offset, group), count in found.items():
            if (offset, group) not in self.letters:
                self._buried(offset, group, count)
            due = self.letters[offset, group]
            self.require(due == count, f"the letter of {offset} and {group} says {count} failures, not {due}")
        missing = self.letters.keys() - found.keys()
        self.require(not missing, f"no dead letters of {missing}")

    def _buried(self, offset: int, group: str, count: int) -> None:
        progress = self.groups.get(group, {}).get(offset)
        handout = progress.handout if progress and progress.status is Status.FLYING else None
        if progress is None or handout is None or handout.firm:
            raise Breach(f"a dead letter of {offset} and {group}, which nobody gave up: {progress}")
        failures = progress.failures + handout.alone
        self.require(
            failures >= self.max_attempts, f"{offset} of {group} is dead before its time: {progress}"
        )
        handout.void = True
        self._died(offset, group, failures)
        self.require(
            count == failures, f"the letter of {offset} and {group} says {count} failures, not {failures}"
        )

    def _may_be_buried(self, group: str, offset: int, progress: Progress) -> bool:
        """Return whether the message may be dead although no letter of its own shows it.

        It used up its attempts unanswered, but the group had a letter from its earlier registration.
        """
        if progress.doubtful and progress.status is Status.FLYING:
            return True
        handout = progress.handout
        if (offset, group) not in self.letters or progress.status is not Status.FLYING or handout is None:
            return False
        return not handout.firm and progress.failures + handout.alone >= self.max_attempts

    # Redrive and purge

    def redriven(
        self, left: Iterable[tuple[int, str]], returned: Sequence[Stored], said: int, limit: int | None
    ) -> None:
        """Check a ``redrive`` that returned ``said``, left the letters ``left``, and added the messages ``returned``.

        The model does not know these messages yet.
        """
        gone = self.letters.keys() - set(left)
        for _, group in gone:
            self.require(group in self.groups, f"a letter of {group} went back, which is not registered")
        sent = Counter((self.ever[offset].partition, self.ever[offset].id, group) for offset, group in gone)
        came = Counter((m.partition, m.id, m.group) for m in returned)
        self.require(sent == came, f"redrive took the letters {sent}, and {came} came")
        due = [group for _, group in self.letters if group in self.groups]
        self._check_count("redrive", gone, due, said, limit)

    def purged(self, left: Iterable[tuple[int, str]], said: int, limit: int | None) -> None:
        self._check_count("purge", self.letters.keys() - set(left), list(self.letters), said, limit)

    def _check_count(
        self, verb: str, gone: set[tuple[int, str]], due: Sequence[object], said: int, limit: int | None
    ) -> None:
        expected = len(due) if limit is None else min(limit, len(due))
        self.require(len(gone) == said == expected, f"{verb} said {said} and took {gone}, of {due}")
        for offset, group in gone:
            progress = self.groups.get(group, {}).get(offset)
            if progress and self._may_be_buried(group, offset, progress):
                progress.doubtful = True
            del self.letters[offset, group]

    @staticmethod
    def require(holds: bool, breach: str) -> None:
        if not holds:
            raise Breach(breach)
