"""Guards of exports: an export has each of its files once, or it does not count."""

from __future__ import annotations

from .mutation import mutation

_EXPORT = "spark/test_export.py"

MUTATIONS = (
    mutation(
        "one export of a folder gives its files their names at a time",
        "files of two stand beside one list, and who reads the folder has both",
        "spark/exports/export_run.py",
        "                with self._alone():\n",
        "                with suppress():\n",
        f"{_EXPORT}::test_of_two_exports_into_one_folder_one_is_told",
    ),
    mutation(
        "an export looks whether the folder is still free before it gives its files their names",
        "the same, where the other one has come to its end meanwhile",
        "spark/exports/export_run.py",
        "            self._check_free()\n            yield\n",
        "            yield\n",
        f"{_EXPORT}::test_one_that_was_written_meanwhile_is_left_as_it_is",
    ),
    mutation(
        "what an export's list names stays, whatever error comes behind it",
        "the list says that the export is whole, and its files are deleted",
        "spark/exports/export_run.py",
        "            for one in [] if self._counts() else self._named:\n",
        "            for one in self._named:\n",
        f"{_EXPORT}::test_an_error_when_success_is_written[True-KeyboardInterrupt]",
    ),
    mutation(
        "files of an export are what tasks have said, byte for byte in number",
        "one that was cut short by a full disk, or lies on another machine, is named",
        "spark/exports/export_run.py",
        "                self._check_seen(found)\n",
        "",
        f"{_EXPORT}::test_files_that_are_not_as_they_were_written[short]",
    ),
)
