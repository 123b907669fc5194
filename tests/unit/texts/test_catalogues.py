"""Each catalogue translates all texts of the code and of the templates, and its compiled form is up to date."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import django
import pytest
from babel.messages.catalog import Catalog
from babel.messages.catalog import Message as Entry
from babel.messages.extract import extract
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.utils.translation.template import templatize

import django_mqueue

pytestmark = pytest.mark.once

PACKAGE = Path(django_mqueue.__file__).parent
LANGUAGES = sorted(path.name for path in (PACKAGE / "locale").iterdir())

PLURAL = (1, 2)
WITH_CONTEXT = ((1, "c"), 2)
FUNCTIONS = {
    "_": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": PLURAL,
    "ngettext_lazy": PLURAL,
    "pgettext": WITH_CONTEXT,
    "pgettext_lazy": WITH_CONTEXT,
    "npgettext": ((1, "c"), 2, 3),
    "npgettext_lazy": ((1, "c"), 2, 3),
}
"""The functions whose texts ``makemessages`` finds, with the positions of context, singular and plural."""

PLACEHOLDER = re.compile(r'%\(\w+\)[a-z]|\{\w+\}|</?\w|"')
"""Placeholders and HTML: a translation keeps them. A quotation mark would end an HTML attribute."""

END = re.compile(r"[.:;?]?$")
"""The punctuation at the end of a text, or nothing."""

Key = tuple[str | None, str]
"""Context and singular of a text."""


def forms_of(text: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the singular and the plural of a text with plural forms, or the only form of another text."""
    return (text,) if isinstance(text, str) else tuple(text or ("",))


def sources() -> Iterator[bytes]:
    """Yield the package's modules, and its templates as Python code, as ``makemessages`` converts them."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.read_bytes()
    for path in sorted(PACKAGE.rglob("*.html")):
        code = templatize(path.read_text())
        yield "\n".join(line.strip() for line in code.splitlines()).encode()  # No line is indented.


def marked() -> dict[Key, tuple[str, ...]]:
    """Return the texts that the code and the templates give to gettext, with their forms."""
    found: dict[Key, tuple[str, ...]] = {}
    for source in sources():
        for _, text, _, context in extract("python", BytesIO(source), keywords=FUNCTIONS):
            forms = forms_of(text)
            if len(forms) >= len(found.get((context, forms[0]), ())):
                found[context, forms[0]] = forms
    return found


def compiled(path: Path) -> Catalog:
    with path.open("rb") as file:
        return read_mo(file)


def entries(catalog: Catalog) -> dict[Key, Entry]:
    """Return the entries of a catalogue, without its header. Babel reads contexts of a compiled one as bytes."""
    found = ((one.context, one) for one in catalog if one.id)
    return {
        (context.decode() if isinstance(context, bytes) else context, forms_of(one.id)[0]): one
        for context, one in found
    }


def strings(catalog: Catalog) -> dict[Key, tuple[str, ...]]:
    return {key: forms_of(one.string) for key, one in entries(catalog).items()}


@pytest.fixture(params=LANGUAGES)
def folder(request: pytest.FixtureRequest) -> Path:
    return PACKAGE / "locale" / str(request.param) / "LC_MESSAGES"


@pytest.fixture
def catalog(folder: Path) -> Catalog:
    with (folder / "django.po").open("rb") as file:
        return read_po(file)


def test_a_catalogue_has_the_texts_of_the_package(catalog: Catalog) -> None:
    """After a change of texts, run ``makemessages``. See docs/contributing.md."""
    assert {key: forms_of(one.id) for key, one in entries(catalog).items()} == marked()
    assert not catalog.obsolete


def test_a_catalogue_is_complete(catalog: Catalog) -> None:
    assert not catalog.fuzzy
    for entry in entries(catalog).values():
        forms = forms_of(entry.string)
        assert not entry.fuzzy, entry.id
        assert all(forms), entry.id
        assert len(forms) == (catalog.num_plurals if entry.pluralizable else 1), entry.id


def test_a_translation_keeps_placeholders_and_punctuation(catalog: Catalog) -> None:
    """The last plural form has all placeholders. Other forms may leave out the number."""
    for entry in entries(catalog).values():
        source, *others = reversed(forms_of(entry.id))
        expected = sorted(PLACEHOLDER.findall(source))
        *rest, last = forms_of(entry.string)
        assert sorted(PLACEHOLDER.findall(last)) == expected, (source, last)
        for form in rest:
            assert set(PLACEHOLDER.findall(form)) <= set(expected), (source, form)
        assert len({END.findall(form)[0] for form in (source, *others, *rest, last)}) == 1, (source, last)


def test_a_compiled_catalogue_is_up_to_date(folder: Path, catalog: Catalog) -> None:
    """After a change of a catalogue, run ``compilemessages``."""
    assert strings(compiled(folder / "django.mo")) == strings(catalog)


def test_texts_of_django_keep_their_translation(folder: Path, catalog: Catalog) -> None:
    """Django merges the catalogues of all apps, so another translation of "Search" could appear on other pages."""
    theirs: dict[Key, set[tuple[str, ...]]] = {}
    language = folder.relative_to(PACKAGE / "locale")
    for path in Path(django.__file__).parent.rglob(f"locale/{language}/django.mo"):
        for key, forms in strings(compiled(path)).items():
            theirs.setdefault(key, set()).add(forms)
    ours = strings(catalog)
    shared = ours.keys() & theirs.keys()
    assert {key: ours[key] for key in shared if ours[key] not in theirs[key]} == {}
