"""Similar errors form one group, and error texts are cleaned before they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.admin.dead_letters.tracebacks import parts
from django_mqueue.policy.errors import HEAD, LINE, NO_TEXT, ErrorSignature, error_signature, plain

ALIKE = [
    (["ValueError: no 7", "ValueError: no 123,456.5\n\nTraceback …"], ErrorSignature("ValueError", "ValueError: no #")),
    (["K: order-7 at 10:05", "K: order-99 at 9:30"], ErrorSignature("K", "K: order-# at #:#")),
    (
        ["a.B: id 0b8f3c5e-1111-4222-8333-444455556666", "a.B: id 4bf92f3577b34da6a3ce929d0e0e4736"],
        ErrorSignature("a.B", "a.B: id #"),
    ),
    (["E: <object at 0x7f00aa>", "E: <object at 0x1>"], ErrorSignature("E", "E: <object at #>")),
    (["\x1b[31mE\x1b[0m: red", "E: red", "\n  E:  red"], ErrorSignature("E", "E: red")),
    (["", None, " \n "], ErrorSignature("", NO_TEXT)),
    (["no such customer", "no such customer"], ErrorSignature("", "no such customer")),
]  # fmt: skip


@pytest.mark.parametrize(("errors", "expected"), ALIKE)
def test_signatures_of_similar_errors(errors: list[str | None], expected: ErrorSignature) -> None:
    assert {error_signature(error) for error in errors} == {expected}


def test_errors_with_other_words_have_other_signatures() -> None:
    errors = ["KeyError: 'amount'", "KeyError: 'currency'", "ValueError: 'amount'", "x.KeyError: 'amount'"]
    assert len({error_signature(error) for error in errors}) == 4


@given(st.text())
def test_of_a_text_its_beginning_is_enough(error: str) -> None:
    """The first ``HEAD`` characters of an error, which a statement fetches, give the same group as the whole text."""
    assert error_signature(error) == error_signature(error[:HEAD])
    assert len(error_signature(error).line) <= LINE


@given(st.text())
def test_nothing_hidden_is_left(text: str) -> None:
    shown = plain(text)
    assert not set(shown) & {chr(code) for code in range(32) if chr(code) not in "\n\t\r"}
    assert "\u202e" not in shown


TRACEBACK = """ValueError: no

Traceback (most recent call last):
  File "/srv/shop/a.py", line 1, in one
    two()
  File "/srv/shop/b.py", line 2, in two
    three()
  File "/v/lib/python3.11/site-packages/x.py", line 3, in three
    four()
    ^^^^^^
  File "<frozen importlib>", line 4, in four
  File "C:\\shop\\c.py", line 5
    !
SyntaxError: no

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/shop/d.py", line 6, in six
ValueError: no"""


def test_the_parts_of_a_traceback() -> None:
    found = [
        (part.is_library, [place.rpartition(":")[0] for place in part.places]) for part in parts(TRACEBACK)
    ]
    assert found == [
        (False, []),
        (False, ["/srv/shop/a.py", "/srv/shop/b.py"]),
        (True, ["/v/lib/python3.11/site-packages/x.py", "<frozen importlib>"]),
        (False, ["C:\\shop\\c.py"]),
        (False, []),
        (False, ["/srv/shop/d.py"]),
        (False, []),
    ]


@given(st.text(alphabet=' \n"File,line1in|+-x/'))
def test_no_line_is_lost(text: str) -> None:
    assert "\n".join(part.text for part in parts(text)) == text
