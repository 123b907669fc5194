"""Every text that the modules of the admin show goes through gettext.

The rules are about the source: which string literals look like a text for users. A new text that the rules find must be
translated. A new literal that is no text (a format, a name of CSS classes) is added to ``NO_TEXTS``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import django_mqueue

PACKAGE = Path(django_mqueue.__file__).parent
MODULES = sorted(path for part in ("admin", "templatetags") for path in (PACKAGE / part).rglob("*.py"))

NO_TEXTS = {' aria-current="page"'}
"""Literals that look like a text, and are none."""

NOT_SHOWN = {"cast", "compile"}
"""Functions whose arguments are for programs."""
TRANSLATES = {"_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy", "pgettext", "pgettext_lazy"}
SHOWN_ERRORS = {"Refused", "ValidationError"}
"""Exceptions whose text a page shows. The texts of other exceptions are for developers, and stay English."""
SHOWN_NAMES = {
    "label", "help_text", "description", "short_description", "verbose_name", "title", "crumb", "prompt", "button",
    "next_button",
}  # fmt: skip
"""Arguments and attributes that a page shows."""
SHOWN_ARGUMENT = {
    "badge": 1, "quiet": 0, "column": 1, "moment_columns": 1, "Line": 0, "Alarm": 0, "Plan": 0, "Result": 0,
    "Refused": 0, "ValidationError": 0, "add_error": 1, "warning": 1, "success": 1, "add_message": 2,
}  # fmt: skip
"""Functions that show an argument, and its place."""

TAG = re.compile(r"<[^<>]*>")
PLACEHOLDER = re.compile(r"\{[^{}]*\}|%\(\w+\)\w|%[A-Za-z]")


def words(text: str) -> str:
    """Return a literal without HTML tags, and with a digit for each placeholder and each part of a time's format."""
    return PLACEHOLDER.sub("0", TAG.sub("", text))


def has_letters(text: str) -> bool:
    return any(character.isalpha() for character in words(text))


def looks_shown(text: str) -> bool:
    """Return whether a literal has several words, or is a capitalised word."""
    return (has_letters(text) and " " in words(text)) or bool(re.match("[A-Z][a-z]", words(text)))


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class Finder(ast.NodeVisitor):
    """Collects (line, text) of literals that a page may show without a translation."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def shown(self, node: ast.expr | None) -> None:
        """Report a literal at a place that a page shows, also if it is one word. ``a if b else c`` has two."""
        if isinstance(node, ast.IfExp):
            self.shown(node.body)
            self.shown(node.orelse)
        elif isinstance(node, (ast.Constant, ast.JoinedStr)) and has_letters(literal(node)):
            self.found.append((node.lineno, literal(node)))

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # A docstring.
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if isinstance(node.exc, ast.Call) and name_of(node.exc.func) in SHOWN_ERRORS:
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = name_of(node.func)
        is_logged = isinstance(node.func, ast.Attribute) and name_of(node.func.value) == "logger"
        if is_logged or name in TRANSLATES | NOT_SHOWN:
            return
        place = SHOWN_ARGUMENT.get(name, len(node.args))
        self.shown(node.args[place] if place < len(node.args) else None)
        for keyword in node.keywords:
            self.shown(keyword.value if keyword.arg in SHOWN_NAMES else None)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(name_of(target) in SHOWN_NAMES for target in node.targets):
            self.shown(node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.shown(node.value if name_of(node.target) in SHOWN_NAMES else None)
        if node.value is not None:
            self.visit(node.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and key.value == "class"):
                self.visit(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if looks_shown(literal(node)):
            self.found.append((node.lineno, literal(node)))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if looks_shown(literal(node)):
            self.found.append((node.lineno, literal(node)))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)


def literal(node: ast.Constant | ast.JoinedStr) -> str:
    """Return the text of a literal, with ``{}`` for each value of an f-string; "" for numbers and bytes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node.value, str) else ""


def bare_texts(source: str) -> Iterator[tuple[int, str]]:
    finder = Finder()
    finder.visit(ast.parse(source))
    return ((line, text) for line, text in finder.found if text not in NO_TEXTS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_text_is_shown_without_a_translation(path: Path) -> None:
    found = {f"{path.name}:{line}: {text!r}" for line, text in bare_texts(path.read_text())}
    assert not found, "put these texts into gettext, or add them to NO_TEXTS if no page shows them"


def eager_translations(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of translations that run when the module is imported, and so in one language for all users."""
    eager = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation"
        for alias in node.names
        if alias.name in ("gettext", "ngettext", "pgettext")
    }
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Call) and name_of(node.func) in eager:
            yield node.lineno
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            nodes += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_text_is_translated_when_its_module_is_imported(path: Path) -> None:
    lines = list(eager_translations(ast.parse(path.read_text())))
    assert not lines, f"{path.name}: use gettext_lazy outside of functions"


def test_a_translation_at_import_is_found() -> None:
    source = "from django.utils.translation import gettext as _\n\nTITLE = _('Topics')\n"
    assert list(eager_translations(ast.parse(source))) == [3]


@pytest.mark.parametrize(
    "source",
    [
        'text = "Nothing was changed."',
        'text = f"{n} dead letters"',
        'text = f"{n} message{plural}"',
        'rows = [("Partition", page)]',
        'badge("bad", "expired")',
        'badge("bad", "expired" if late else _("held"))',
        'column("leased_by", "subscriber")',
        'class A:\n    title = "topics"',
        'class A:\n    title: str = "topics"',
        'Field(label="key")',
        'display(description=f"{name}s")',
        'raise Refused("gone")',
        'raise ValidationError(f"{name} is too long")',
        'messages.warning(request, "gone")',
        "format_html('<em>keyless {}</em>', number)",
        "text = 'the value of %(name)s'",
    ],
)
def test_a_bare_text_is_found(source: str) -> None:
    assert list(bare_texts(source))


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring of a module."""',
        'text = _("Nothing was changed.")',
        'text = ngettext("%(count)s message", "%(count)s messages", n) % {"count": n}',
        'text = f"{day:%Y-%m-%d %H:%M:%S %Z}"',
        'text = f"{first} {second}"',
        'url = "admin/django_mqueue/topic.html"',
        'widget = {"class": "vLargeTextField mqueue-editor"}',
        "format_html('<span class=\"mqueue-badge mqueue-{}\">{}</span>', kind, text)",
        'logger.error("mask failed: topic %r", topic)',
        'raise TypeError("MASK must return the message")',
        'names = ("topic", "group")',
        'text = ", ".join(names)',
    ],
)
def test_other_literals_are_no_texts(source: str) -> None:
    assert not list(bare_texts(source))
