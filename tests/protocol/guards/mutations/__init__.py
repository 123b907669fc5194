"""The guards, each with the text that removes it."""

from __future__ import annotations

from . import (
    archives,
    attempts,
    copying,
    exports,
    fencing,
    following,
    groups,
    handlers,
    listeners,
    messages,
    moving,
    quarantine,
    reading,
    reports,
    requests,
    scheduling,
    sending,
    set_back,
    settling,
    waiting,
)
from .mutation import Mutation

PARTS: dict[str, tuple[Mutation, ...]] = {
    "Commits that come late": settling.MUTATIONS,
    "A database that was set back": set_back.MUTATIONS,
    "Former owners": fencing.MUTATIONS,
    "What is kept, and for whom": groups.MUTATIONS,
    "Attempts, order, shares": attempts.MUTATIONS,
    "Messages that run alone": quarantine.MUTATIONS,
    "Waiting for nobody": waiting.MUTATIONS,
    "More than delivery": messages.MUTATIONS,
    "Later": scheduling.MUTATIONS,
    "Batches and time limits": handlers.MUTATIONS,
    "Moved by hand": moving.MUTATIONS,
    "What is reported": reports.MUTATIONS,
    "Listeners": listeners.MUTATIONS,
    "Request and reply": requests.MUTATIONS,
    "Reading the log": following.MUTATIONS + reading.MUTATIONS,
    "Archives": archives.MUTATIONS,
    "Exports": exports.MUTATIONS,
    "Storing the past": copying.MUTATIONS,
    "Rows and connections of Spark": sending.MUTATIONS,
}

MUTATIONS = tuple(mutation for part in PARTS.values() for mutation in part)
