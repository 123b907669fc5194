"""Guards of pages and metrics: everything that they report about a message or a group is true."""

from __future__ import annotations

from .mutation import Mutation, mutation

_ADMIN = "admin"

MUTATIONS: tuple[Mutation, ...] = (
    mutation(
        "the overview sorts all topics and shows the worst first",
        "with forty topics, the topic with all dead letters is on the last pages",
        "admin/topics/status.py",
        "rows = ordered(",
        "rows = (lambda rows, sort: rows)(",
        f"{_ADMIN}/test_overview.py::test_the_worst_of_all_topics_come_first",
    ),
    mutation(
        "with too many topics, the overview reads the topics that look worst",
        "with a thousand topics, alarms of topics late in the alphabet are missing",
        "admin/topics/status.py",
        "for known in triage.worst_first(conf.database(), topics):",
        "for known in topics:",
        f"{_ADMIN}/test_overview.py::test_of_more_topics_than_can_be_looked_at_those_that_look_worst_are",
    ),
    mutation(
        "the time steps of rates start at whole multiples of their length",
        "a chart shows another peak each time it is loaded",
        "stats/rates.py",
        "self.start = (now // self.step + 1 - points) * self.step",
        "self.start = now + 1 - points * self.step",
        "features/inspect/test_steps.py::test_the_steps_are_the_same_whenever_they_are_asked_for",
    ),
    mutation(
        "rates before a reset are unknown, not zero",
        "the chart of a group that was reset shows that it did nothing before",
        "stats/rates.py",
        "_finished_from(rows, steps, kept_from), _registered_from(rows, steps, registration)",
        "_finished_from(rows, steps, kept_from), 0",
        "features/inspect/test_steps.py::test_what_a_reset_forgets_is_not_known",
    ),
    mutation(
        "an alarm reports a handler that runs far over its usual time",
        "all handlers of a group hang, and the overview shows no alarm",
        "stats/groups/group_figures.py",
        "work = activity(backlog.recent, self.now, ",
        "work = activity([], self.now, ",
        "features/inspect/test_activity.py::test_what_handlers_do[short]",
    ),
    mutation(
        "an alarm reports many dead letters in a short time",
        "hundreds of messages are dead-lettered within minutes, and the overview shows no alarm",
        "stats/alarms.py",
        "(figures.dead_lately.value >= DEAD_LETTERS,",
        "(figures.dead_lately.value >= 1 << 40,",
        "admin/test_overview.py::test_many_dead_letters_at_once_are_an_alarm",
    ),
    mutation(
        "a message that a filter skipped is not shown as handled",
        "the message page says that a handler finished it, although no handler got it",
        "store/acknowledgements.py",
        "s.handed = s.message_offset NOT IN ({int_list(skipped)})",
        "s.handed = s.message_offset NOT IN ({int_list(skipped)}) OR 1",
        "features/inspect/test_outcomes.py::test_what_a_filter_skips",
    ),
    mutation(
        "a message whose retry is parked is not shown as handled",
        "a message that was postponed for hours is shown as done",
        "store/acknowledgements.py",
        "    if is_parked:\n",
        "    if False:\n",
        "features/inspect/test_outcomes.py::test_what_waited_apart_from_the_log[postpone]",
    ),
    mutation(
        "a group that is being reset blocks retention from the beginning of the log",
        "the list of retention blockers shows a position that no longer counts",
        "stats/retention_blockers.py",
        "stored = 0 if group in groups.resetting else watermarks.get((partition, group), 0)",
        "stored = watermarks.get((partition, group), 0)",
        "admin/test_removing.py::TestReset::test_figures_do_not_count_what_was_done_before",
    ),
    mutation(
        "a full page at the end of its time range still links to the next page",
        "the other messages of that time are not shown",
        "browse/message_search.py",
        "                    end = found.position\n",
        "                    end = None if search.is_past_time else found.position\n",
        "features/inspect/test_messages.py::TestPages::test_pages_of_a_time_go_on_where_the_last_one_ended[False]",
    ),
)
