"""A browser for the tests of the admin."""

from tests.support.browser import chrome as chrome
