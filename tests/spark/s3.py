"""A local S3 server for tests, in a process of its own. Needs ``moto``; run ``python -m tests.spark.s3`` to try it.

The name of a bucket decides how its server behaves. See ``BUCKETS``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKETS = {
    "plain": "an S3 server with all features",
    "overwriting": "ignores If-None-Match: each upload replaces the object",
    "forbidden": "refuses every request",
    "read-only": "refuses every upload and every deletion",
    "forgetful": "stores each commit of a table, and answers the first request for it with an error",
    "forgetful-at-first": "does the same when a table is created",
}


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """Run a server. Yield the environment variables with which ``object_store`` finds it.

    It is another process: ``object_store`` may hold the lock of this process's interpreter while it waits.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.s3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), "the server has not started"
        try:
            yield {
                "AWS_ENDPOINT_URL": url,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": "us-east-1",
            }
        finally:
            process.kill()


class Behaviour:
    """A WSGI application around the server."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self._inner = inner
        self._one_by_one = threading.Lock()
        self._forgotten: set[str] = set()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        bucket = path.lstrip("/").partition("/")[0]
        changes = method in ("PUT", "POST", "DELETE")
        if bucket == "forbidden" or (bucket == "read-only" and changes):
            return self._refuse(environ, start)
        if bucket == "overwriting":
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if not changes:
            return self._inner(environ, start)
        with self._one_by_one:  # The server checks If-None-Match and stores the object in two steps.
            if not self._forgets(bucket, path, method):
                return self._inner(environ, start)
            self._inner(environ, _drop)
            self._forgotten.add(path)
        start("500 Internal Server Error", [("Content-Type", "text/plain")])
        return [b"the answer was lost"]

    def _forgets(self, bucket: str, path: str, method: str) -> bool:
        if method != "PUT" or not path.endswith(".json") or "/_delta_log/" not in path:
            return False
        is_first = int(path.rpartition("/")[2].removesuffix(".json")) == 0
        wanted = "forgetful-at-first" if is_first else "forgetful"
        return bucket == wanted and path not in self._forgotten

    def _refuse(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]


def _drop(*_: object) -> None:
    """Ignore the status of an answer."""


def main() -> None:
    """Print the URL, and serve until stdin ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, *_: Any) -> None:
            """Write no log."""

    for name in BUCKETS:
        s3_backends["123456789012"]["aws"].create_bucket(name, "us-east-1")
    application = Behaviour(DomainDispatcherApplication(create_backend_app))
    http = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{http.server_port}", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
