"""No text of a template or of a script is shown without translation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from django.template.base import Lexer, TokenType

import django_mqueue

pytestmark = pytest.mark.once

PACKAGE = Path(django_mqueue.__file__).parent
TEMPLATES = sorted(PACKAGE.rglob("templates/**/*.html"))
SCRIPTS = sorted(PACKAGE.rglob("static/**/*.js"))

SHOWN = {"alt", "aria-label", "aria-description", "data-label", "placeholder", "title"}
"""Attributes that users see or hear. ``admin.css`` shows ``data-label``; the scripts show ``data-text-…``."""
BUTTONS = {"submit", "button", "reset"}
CLASSES = {"bodyclass", "coltype"}
"""Blocks of Django's templates whose content is an attribute."""

WORD = re.compile(r"[^\W\d_]{2}")
LITERAL = re.compile(r"""_\([^)]*\)|"([^"]*)"|'([^']*)'""")
SENTENCE = re.compile(r"^[A-Z][a-z]|\w \w")
"""A quoted argument of a tag that looks like a text: it begins with a capital letter, or has several words."""

QUOTED = re.compile(r'"([^"\n]*)"|`([^`]*)`|\'([^\'\n]*)\'')
NO_TEXTS = {"use strict"}
SET_TEXT = re.compile(r"\.(textContent|innerText|innerHTML|title|placeholder|ariaLabel) = *[\"'`]")


class Bare(HTMLParser):
    """Collects the texts of HTML: text nodes, attributes that are shown, labels of buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        is_button = tag in ("input", "button") and given.get("type") in BUTTONS
        for name, value in given.items():
            if name in SHOWN or name.startswith("data-text-") or (name == "value" and is_button):
                self.texts.append(value or "")


def bare_texts(template: str) -> Iterator[str]:
    """Yield the texts of a template that do not go through gettext."""
    html = ""
    skipped = ""
    for token in Lexer(template).tokenize():
        name, _, rest = token.contents.partition(" ")
        if token.token_type == TokenType.TEXT:
            html += "" if skipped else token.contents
        elif skipped:
            skipped = "" if token.contents.split()[0] == skipped else skipped
        elif token.token_type == TokenType.BLOCK and name == "blocktranslate":
            skipped = "endblocktranslate"
        elif token.token_type == TokenType.BLOCK and name == "block" and rest in CLASSES:
            skipped = "endblock"
        elif token.token_type in (TokenType.BLOCK, TokenType.VAR):
            html += " "
            if name != "translate":
                found = [first or second for first, second in LITERAL.findall(token.contents)]
                yield from (text for text in found if SENTENCE.search(text))
    parser = Bare()
    parser.feed(html)
    parser.close()
    yield from (text.strip() for text in parser.texts if WORD.search(text))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_no_bare_text(path: Path) -> None:
    assert list(bare_texts(path.read_text())) == []


@pytest.mark.parametrize(
    "template",
    [
        "<p>Bare</p>",
        "{% if x %}bare{% endif %}",
        '<a title="Bare">{{ x }}</a>',
        '<input type="submit" value="Bare">',
        '<td{% if x %} class="y"{% endif %} data-label="Bare"></td>',
        '<p data-text-next="Bare"></p>',
        '{% include "x.html" with title="Bare" %}',
        '{{ x|default:"bare text" }}',
        "{% translate 'this' %} bare",
        "{% blocktranslate %}this{% endblocktranslate %}<b>bare</b>",
    ],
)
def test_a_bare_text_is_found(template: str) -> None:
    (found,) = bare_texts(template)
    assert "bare" in found.lower()


def test_no_tag_has_an_old_name() -> None:
    """The test above knows only the new names of the tags."""
    assert [path.name for path in TEMPLATES if re.search(r"{% (end)?(block)?trans ", path.read_text())] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_has_no_text(path: Path) -> None:
    """Texts of scripts come from attributes, because templates can translate those."""
    code = re.sub(r"(^|\s)//.*", "", path.read_text())
    literals = {first or second or third for first, second, third in QUOTED.findall(code)}
    assert {one for one in literals if re.search(r"[^\W\d_] [^\W\d_]", one)} <= NO_TEXTS
    assert not SET_TEXT.search(code)


def test_pages_have_the_texts_of_their_script() -> None:
    script = (PACKAGE / "static/django_mqueue/refresh.js").read_text()
    calls = " ".join(re.findall(r"\btext\((.*)", script))
    names = {re.sub(r"(?!^)([A-Z])", r"-\1", name).lower() for name in re.findall(r'"([A-Z]\w+)"', calls)}
    template = next(path for path in TEMPLATES if path.name == "refresh_bar.html").read_text()
    assert set(re.findall(r"data-text-([\w-]+)=", template)) == names - {"abort-error"}
