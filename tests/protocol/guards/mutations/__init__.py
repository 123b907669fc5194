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
    jobs,
    listeners,
    messages,
    moving,
    operations,
    processes,
    quarantine,
    reading,
    reports,
    requests,
    restores,
    scheduling,
    sending,
    settling,
    takeover,
    waiting,
    worklists,
)
from .mutation import Mutation

PARTS: dict[str, tuple[Mutation, ...]] = {
    "Late commits": settling.MUTATIONS,
    "A restored database": restores.MUTATIONS,
    "Former owners": fencing.MUTATIONS,
    "Dead workers": takeover.MUTATIONS,
    "Registration, deletion and dead letters": groups.MUTATIONS,
    "Attempts, order and fair shares": attempts.MUTATIONS,
    "Quarantine": quarantine.MUTATIONS,
    "Locks and outages": waiting.MUTATIONS,
    "Atomic handlers, redrive, reset and target groups": messages.MUTATIONS,
    "Scheduled messages and parked retries": scheduling.MUTATIONS,
    "Batches, time limits and threads": handlers.MUTATIONS,
    "Priorities and jobs": jobs.MUTATIONS,
    "Worklists": worklists.MUTATIONS,
    "Child processes": processes.MUTATIONS,
    "Operator actions": moving.MUTATIONS + operations.MUTATIONS,
    "Admin pages and figures": reports.MUTATIONS,
    "Signals": listeners.MUTATIONS,
    "Request and reply": requests.MUTATIONS,
    "Groups that read the log directly": following.MUTATIONS + reading.MUTATIONS,
    "Archives": archives.MUTATIONS,
    "Exports": exports.MUTATIONS,
    "Replay and backfill": copying.MUTATIONS,
    "Spark writes and connections": sending.MUTATIONS,
}

MUTATIONS = tuple(mutation for part in PARTS.values() for mutation in part)
