"""What lies below a folder, by Hadoop, with no more calls of Java's than for a single file.

Each call from Python costs its way there and back, and an archive has thousands of files. So Java walks, and puts what
it has found into three lines of text by itself.
"""

from __future__ import annotations

import errno
from typing import Any

_END = "\0"
"""Stands in no path."""


class Walk:
    """``java``: what a session has of its JVM."""

    def __init__(self, java: Any) -> None:
        lang, hadoop, util = java.java.lang, java.org.apache.hadoop, java.java.util
        self._to_list = hadoop.util.functional.RemoteIterators.toList
        self._joined = util.stream.Collectors.joining(_END)
        invoke, text, long = lang.invoke, lang.String._java_lang_class, lang.Long.TYPE
        handles, proxies, kind = (
            invoke.MethodHandles,
            invoke.MethodHandleProxies,
            invoke.MethodType.methodType,
        )
        lookup, status = handles.publicLookup(), hadoop.fs.FileStatus._java_lang_class
        as_text = lookup.findStatic(text, "valueOf", kind(text, lang.Object._java_lang_class))
        function = util.function.Function._java_lang_class

        def of(name: str, type: Any) -> Any:
            """A method of a file's, as something that Java's streams call."""
            asked = lookup.findVirtual(status, name, kind(type))
            told = handles.filterReturnValue(asked, as_text.asType(kind(text, type)))
            return proxies.asInterfaceInstance(function, told)

        self._path = of("getPath", hadoop.fs.Path._java_lang_class)
        self._bytes, self._modified = of("getLen", long), of("getModificationTime", long)

    def below(self, system: Any, folder: Any) -> list[tuple[str, int, float]]:
        """Path below the folder, bytes and time of each file. Raises what Java does, also for files that go meanwhile,
        and ``OSError`` where the files' paths do not begin as the folder's."""
        found = self._to_list(system.listFiles(folder, True))
        top = f"{system.makeQualified(folder).toString()}/"
        paths, sizes, times = (self._told(found, each) for each in (self._path, self._bytes, self._modified))
        if not all(path.startswith(top) for path in paths):
            raise OSError(errno.EINVAL, "what lies below a folder has another name", top)
        return [
            (path.removeprefix(top), int(size), int(time) / 1000)
            for path, size, time in zip(paths, sizes, times, strict=True)
        ]

    def _told(self, found: Any, each: Any) -> list[str]:
        told = str(found.stream().map(each).collect(self._joined))
        return told.split(_END) if told else []
