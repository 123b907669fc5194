"""Guards of exports: an export has each of its files once, or it is not valid."""

from __future__ import annotations

from .mutation import mutation

_EXPORT = "spark/test_export.py"

MUTATIONS = (
    mutation(
        "one export at a time names its files in a folder",
        "files of two exports are in the folder with one list, and readers get both",
        "spark/exports/export_run.py",
        "                with self._lock_folder():\n",
        "                with suppress():\n",
        f"{_EXPORT}::test_of_two_exports_into_one_folder_one_is_told",
    ),
    mutation(
        "an export checks that the folder is still free before it names its files",
        "if another export finished meanwhile, readers get the files of both",
        "spark/exports/export_run.py",
        "            self._check_empty()\n            yield\n",
        "            yield\n",
        f"{_EXPORT}::test_one_that_was_written_meanwhile_is_left_as_it_is",
    ),
    mutation(
        "an export keeps the files in its list after any error",
        "the list says that the export is complete, but its files are deleted",
        "spark/exports/export_run.py",
        "            for entry in [] if self._is_complete() else self._renamed:\n",
        "            for entry in self._renamed:\n",
        f"{_EXPORT}::test_an_error_when_success_is_written[True-KeyboardInterrupt]",
    ),
    mutation(
        "an export checks the size of each file that a task reported",
        "it includes a file that a full disk cut short, or that is on another machine",
        "spark/exports/export_run.py",
        "                self._check_visible(entries)\n",
        "",
        f"{_EXPORT}::test_files_that_are_not_as_they_were_written[short]",
    ),
)
