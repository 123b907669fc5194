"""The open shop: a visitor reads the password in the terminal and looks at the queue in the admin."""

from __future__ import annotations

import re
import signal
import socket
from http.cookiejar import CookieJar
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

from tests.docs_and_example.example.conftest import Example
from tests.support.processes import wait_until


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return True
    except OSError:
        return False


class Visitor:
    """A simple browser without images."""

    def __init__(self, address: str) -> None:
        self.base = f"http://{address}"
        self.opener: OpenerDirector = build_opener(HTTPCookieProcessor(CookieJar()))

    def get(self, path: str) -> str:
        try:
            with self.opener.open(self.base + path, timeout=30) as response:
                return str(response.read().decode())
        except URLError as problem:
            return str(problem)

    def log_in(self, name: str, password: str) -> str:
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.get("/admin/login/"))
        assert found
        fields = {"username": name, "password": password, "csrfmiddlewaretoken": found[1], "next": "/admin/"}
        with self.opener.open(
            f"{self.base}/admin/login/", urlencode(fields).encode(), timeout=30
        ) as response:
            return str(response.read().decode())


def test_somebody_looks_at_the_queue_while_orders_come_in(example: Example) -> None:
    address, metrics = free_address(), free_address()
    port = metrics.partition(":")[2]
    with example.start("open_shop", "--address", address, "--every", "0.05", "--metrics-port", port) as shop:
        try:
            assert shop.stdout is not None
            for line in shop.stdout:
                if found := re.search(r"Log in as (\S+) with the password (\S+)", line):
                    break
            assert found, "the password was not told"
            wait_until(lambda: answers(address), "the admin is served")
            visitor = Visitor(address)
            assert "Message queue" in visitor.log_in(found[1], found[2])
            wait_until(lambda: "orders" in visitor.get("/admin/django_mqueue/topic/"), "an order is placed")
            assert "mqueue" in visitor.get("/static/django_mqueue/admin.css")
            counter = 'mqueue_messages_finished_total{group="confirmations",topic="orders"}'
            wait_until(lambda: counter in Visitor(metrics).get("/metrics"), "a confirmation is counted")
            shop.send_signal(signal.SIGINT)
            rest = shop.stdout.read()
        finally:
            if shop.poll() is None:
                shop.kill()
    assert shop.returncode == 0, rest
    assert "The shop is closed." in rest
    assert not answers(address)


def test_an_address_that_is_taken_is_told(example: Example) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, output = example.run("open_shop", "--address", address, "--every", "0.05")
    assert code == 1, output
    assert f"is {address} taken by another program?" in output
