"""Start, kill, stop and replace the processes of a run, and write each event to the history."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.proof.history import Fault, Writer, now
from tests.proof.plan import SMALL_BACKLOG, environment
from tests.support.processes import Worker

Kind = Literal["worker", "hand", "publisher"]

PROGRAMS: dict[Kind, tuple[str, ...]] = {
    "worker": ("django", "runconsumer"),
    "hand": ("tests.proof.by_hand",),
    "publisher": ("tests.proof.publisher",),
}


@dataclass(eq=False)
class Member:
    """A process. ``post`` is its place, which its successors inherit. ``name`` is its own name in the history."""

    name: str
    kind: Kind
    post: str
    process: Worker
    stopped: bool = False
    leaving: bool = False


class Crew:
    """All processes of a run. ``tend`` replaces the processes that have ended.

    ``rate`` is the messages per second of each publisher.
    """

    def __init__(
        self,
        directory: Path,
        url: str,
        history: Writer,
        dice: random.Random,
        *,
        lease: float,
        threads: int,
        rate: float,
    ) -> None:
        self.directory, self.url, self.history, self.dice = directory, url, history, dice
        self.lease, self.threads, self.rate = lease, threads, rate
        self.members: list[Member] = []
        self.complaints: list[str] = []
        self._count = 0

    def join(self, kind: Kind, post: str, *, clock: float = 0) -> Member:
        """Start a process at a post. By chance, a worker takes the name of its post or a new name."""
        self._count += 1
        name = f"{post}.{self._count}"
        taken = any(member.post == post for member in self.members)
        subscriber = post if self.dice.random() < 0.5 and not taken else name
        arguments: dict[Kind, tuple[str, ...]] = {
            "worker": (
                "orders:billing",
                "orders:stock",
                "ledger",
                "--tasks",
                f"--threads={self.threads}",
                f"--name={subscriber}",
            ),
            "hand": (subscriber,),
            "publisher": (post, str(self.dice.randrange(1 << 30)), str(self.rate)),
        }
        variables = {"DATABASE_URL": self.url, **environment(self.directory, name, self.lease, clock=clock)}
        variables["PROOF_SEED"] = str(self.dice.randrange(1 << 30))
        if self._count % 2:
            variables["PROOF_BACKLOG"] = str(SMALL_BACKLOG)
        process = Worker(arguments[kind], variables, PROGRAMS[kind])
        member = Member(name, kind, post, process)
        self.members.append(member)
        self.history.write(Fault(now(), "joined", name))
        return member

    def of(self, *kinds: Kind) -> list[Member]:
        """Return the members that run, are not stopped, and were not asked to leave."""
        return [m for m in self.members if m.kind in kinds and not (m.stopped or m.leaving)]

    def kill(self, *members: Member, clock: float = 0) -> None:
        """Kill all members at once with SIGKILL. The clocks of their successors are wrong by ``clock`` seconds."""
        for member in members:
            member.process.send(signal.SIGKILL)
        for member in members:
            member.process.wait()
            self._gone(member, "killed")
        for member in members:
            self.join(member.kind, member.post, clock=clock)

    def stop(self, member: Member) -> None:
        """Send SIGSTOP. The process pauses and cannot notice it."""
        self.history.write(Fault(now(), "stopped", member.name))
        member.process.send(signal.SIGSTOP)
        member.stopped = True

    def resume(self, member: Member) -> None:
        if member.stopped and member in self.members:
            member.process.send(signal.SIGCONT)
            self.history.write(Fault(now(), "continued", member.name))
            member.stopped = False

    def leave(self, member: Member) -> None:
        """Send SIGTERM. The process finishes its work and ends."""
        if member in self.members and not member.stopped:
            member.leaving = True
            member.process.send(signal.SIGTERM)

    def tend(self) -> None:
        """Note the processes that have ended. Replace them, except those asked to leave."""
        for member in [m for m in self.members if not m.process.running]:
            code = member.process.wait()
            self._gone(
                member, "left" if code == 0 else "killed"
            )  # The process ended with an error, so it answered nothing after that.
            if code not in (0, -signal.SIGKILL, -signal.SIGTERM):
                self._complain(member, code)
            if not member.leaving:
                self.join(member.kind, member.post)

    def everybody_leaves(self, *kinds: Kind) -> None:
        for member in self.members:
            if member.kind in kinds:
                self.resume(member)
                self.leave(member)

    def close(self) -> None:
        for member in self.members:
            member.process.close()

    def _gone(self, member: Member, how: str) -> None:
        self.history.write(Fault(now(), how, member.name))
        self.members.remove(member)
        (self.directory / f"{member.name}.log").write_text(member.process.output())
        member.process.close()

    def _complain(self, member: Member, code: int) -> None:
        last = list(_last_lines(member, self.directory))
        self.complaints.append(f"{member.name} ended with {code}: {' | '.join(last)}")


def _last_lines(member: Member, directory: Path) -> Iterator[str]:
    lines = (directory / f"{member.name}.log").read_text().splitlines()
    yield from lines[-3:]
