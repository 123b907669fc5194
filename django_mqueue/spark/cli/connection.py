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
            "the password cannot be an argument, because all users of the machine can read arguments. Set"
            " MQUEUE_PASSWORD in the environment, or give a file (--password-file, --defaults-file)"
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
        help="Encryption of the connection, and verification of the server's certificate.",
    )
    group.add_argument(
        "--ssl-ca", metavar="PATH", help="CA certificates that verify the server's certificate."
    )
    group.add_argument("--ssl-capath", metavar="PATH", help="A folder of CA certificates.")
    group.add_argument("--ssl-cert", metavar="PATH", help="The client certificate of this account.")
    group.add_argument("--ssl-key", metavar="PATH", help="Its key.")
    group.add_argument("--ssl-cipher", metavar="LIST", help="Ciphers that the connection may use.")
    add_password(group)
    group.add_argument(
        "--defaults-file", metavar="PATH", help="A MySQL option file; its [client] group is read."
    )
    group.add_argument("--defaults-group", metavar="NAME", help="Another group of the option file to read.")
    group.add_argument(
        "--connection-hook",
        metavar="MODULE:FUNCTION",
        help="A function that returns connection parameters for mysqlclient.",
    )
    group.add_argument(
        "--dead-letter-suffix",
        metavar="TEXT",
        help="The DLQ_SUFFIX of this queue (default _dlq, or the value in Django's settings), or JSON with one"
        " for each topic.",
    )


def add_password(group: _ActionsContainer) -> None:
    """Add the argument that says where the password is. The password itself is no argument."""
    group.add_argument(
        "--password-file",
        metavar="PATH",
        help="A file that contains the password; it must also exist on the executors.",
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
