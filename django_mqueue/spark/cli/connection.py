"""Arguments of ``python -m django_mqueue.spark`` that name the database, as options of ``format("mqueue")``."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from ...store.connection.dialect import SSL_MODES
from ..connecting import connecting
from ..errors import OptionError
from ..suffixes import OPTION, suffixes_of
from .verb import BadArguments

if TYPE_CHECKING:
    from argparse import _ActionsContainer

_NAMES = {
    "host": "host",
    "port": "port",
    "user": "user",
    "database": "database",
    "unix_socket": "unixSocket",
    "ssl_mode": "sslMode",
    "ssl_ca": "sslCa",
    "ssl_capath": "sslCapath",
    "ssl_cert": "sslCert",
    "ssl_key": "sslKey",
    "ssl_cipher": "sslCipher",
    "password_file": "passwordFile",
    "defaults_file": "defaultsFile",
    "defaults_group": "defaultsGroup",
    "connection_hook": "connectionHook",
    "dead_letter_suffix": OPTION,
}


class _Refused(Action):
    """Refuses the password as an argument, because every user of the machine could read it. Does not repeat it."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: Any = None) -> None:
        parser.error(
            "the password is no argument: everybody could read it there. Put it into the environment as"
            " MQUEUE_PASSWORD, or into a file (--password-file, --defaults-file)"
        )


def add_connection(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "the database",
        "The password is read from --password-file, --defaults-file, --connection-hook or the environment's"
        " MQUEUE_PASSWORD, in the driver and on each executor.",
    )
    group.add_argument("--host")
    group.add_argument("--port")
    group.add_argument("--user")
    group.add_argument("--database", help="Name of the database.")
    group.add_argument("--unix-socket", metavar="PATH")
    group.add_argument(
        "--ssl-mode",
        choices=SSL_MODES,
        help="Whether the connection is encrypted, and the server's certificate checked.",
    )
    group.add_argument("--ssl-ca", metavar="PATH", help="Certificates that the server's is checked against.")
    group.add_argument("--ssl-capath", metavar="PATH", help="A folder of such certificates.")
    group.add_argument("--ssl-cert", metavar="PATH", help="The certificate of this account.")
    group.add_argument("--ssl-key", metavar="PATH", help="Its key.")
    group.add_argument("--ssl-cipher", metavar="LIST", help="Ciphers that may be used.")
    add_password(group)
    group.add_argument("--defaults-file", metavar="PATH", help="An option file of MySQL's, for its [client].")
    group.add_argument("--defaults-group", metavar="NAME", help="Another group of it that is read besides.")
    group.add_argument(
        "--connection-hook", metavar="MODULE:FUNCTION", help="Returns parameters of mysqlclient."
    )
    group.add_argument(
        "--dead-letter-suffix",
        metavar="TEXT",
        help="What DLQ_SUFFIX is set to there (default _dlq, or as Django's settings have it); or JSON, by topic.",
    )


def add_password(group: _ActionsContainer) -> None:
    """Add the argument that says where the password is. The password itself is no argument."""
    group.add_argument(
        "--password-file", metavar="PATH", help="Holds the password; must be there on executors, too."
    )
    group.add_argument("--password", nargs="?", action=_Refused, help="Refused.")


def connection_options(arguments: Namespace) -> dict[str, str]:
    """Return the options that the arguments give; an empty dict if they name no database. Raises ``BadArguments``."""
    given = {theirs: getattr(arguments, ours) for ours, theirs in _NAMES.items()}
    options = {name: str(value) for name, value in given.items() if value is not None}
    try:
        suffixes_of(options, connecting({name.lower(): value for name, value in options.items()}))
    except OptionError as error:
        raise BadArguments(str(error)) from error
    return options
