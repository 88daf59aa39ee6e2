"""The address of a database, with a password that nothing shows."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KINDS", "SECRET", "Address", "Secret", "has_password", "is_url"]

KINDS = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"}
"""Schemes of URLs → the kind of database."""
SECRET = re.compile("passw|pwd|passphrase|secret|token|scram_", re.IGNORECASE)
"""Options of a URL whose values are not shown."""


def is_url(path: object) -> bool:
    """Whether this is a database's URL and no path.

    Examples
    --------
    >>> is_url("postgresql://shop@db.example/shop"), is_url("/data/products")
    (True, False)
    """
    return isinstance(path, str) and path.partition("://")[0].lower() in KINDS


def has_password(url: str) -> bool:
    """Whether a database's URL holds a password, or another word that is secret.

    Examples
    --------
    >>> has_password("mysql://me:sesame@here/shop"), has_password("mysql://me@here/shop")
    (True, False)
    >>> has_password("postgresql://me@here/shop?sslpassword=mellon")
    True
    """
    address = Address.parse(url)
    return address.password is not None or bool(address.secrets)


class Secret:
    """A word that is neither printed nor logged; pickles contain it.

    Examples
    --------
    >>> Secret("sesame"), f"{Secret('sesame')}", Secret("sesame").reveal()
    (***, '***', 'sesame')
    """

    __slots__ = ("_word",)

    def __init__(self, word: str) -> None:
        self._word = word

    def reveal(self) -> str:
        """Return the word itself."""
        return self._word

    def hide(self, text: str) -> str:
        """Replace the word in a text, also in the form that URLs have."""
        for word in {self._word, quote(self._word, safe="")} - {""}:
            text = text.replace(word, "***")
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._word == self._word

    def __hash__(self) -> int:
        return hash(self._word)

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return Secret, (self._word,)


@dataclass(frozen=True)
class Address:
    """A database's URL, parsed.

    Examples
    --------
    >>> address = Address.parse("postgresql://keeper:sesame@db.example:5433/shop?sslmode=require")
    >>> print(address)
    postgresql://keeper@db.example:5433/shop
    >>> address.port, dict(address.options)
    (5433, {'sslmode': 'require'})
    """

    kind: str
    host: str
    port: int | None
    user: str
    database: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The query of the URL."""
    password: Secret | None = None
    password_env: str | None = None
    """Environment variable that holds the password where the connection is made."""

    @classmethod
    def parse(cls, url: str, password_env: str | None = None) -> Address:
        """Parse a URL; no message repeats it, for it may hold a password."""
        scheme = url.partition("://")[0].lower()
        if scheme not in KINDS:
            raise OptionError.unknown("database", scheme, KINDS)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            msg = (
                f"this {scheme} URL cannot be read; write {scheme}://user@host:port/database, with "
                "%-escapes for signs such as / @ : in a name or password"
            )
            raise OptionError(msg) from None
        place = parts.netloc.rpartition("@")[2]
        # In its own letters: it may be the path of a socket.
        host = place[1:].partition("]")[0] if place[:1] == "[" else place.partition(":")[0]
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        word = options.pop("password", "") or unquote(parts.password or "")
        return cls(
            KINDS[scheme],
            unquote(host),
            port,
            unquote(parts.username or ""),
            unquote(parts.path.lstrip("/")),
            tuple(sorted(options.items())),
            Secret(word) if word else None,
            password_env,
        )

    def secret(self, environment: Mapping[str, str] = os.environ) -> Secret | None:
        """Return the password: the URL's, or that of the environment."""
        if self.password_env is None or self.password is not None:
            return self.password
        if self.password_env not in environment:
            msg = (
                f"password_env={self.password_env!r}: there is no such variable in the environment "
                "of this process; set it where the master is opened and joined (on Spark: on the "
                "driver, which sends the password along with its tasks)"
            )
            raise OptionError(msg)
        return Secret(environment[self.password_env])

    @property
    def secrets(self) -> list[Secret]:
        """Secret values of the query."""
        return [Secret(value) for name, value in self.options if SECRET.search(name)]

    def hide(self, text: str) -> str:
        """Replace the password, and other secrets of the URL, in a text.

        Examples
        --------
        >>> address = Address.parse("postgresql://shop@here/shop?sslmode=require&sslpassword=mellon")
        >>> address.hide("sslmode=require sslpassword=mellon")
        'sslmode=require sslpassword=***'
        """
        word = os.environ.get(self.password_env or "", "")
        for secret in (self.password, Secret(word), *self.secrets):
            text = secret.hide(text) if secret else text
        return text

    def __str__(self) -> str:
        who = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"{self.kind}://{who}{self.host}{port}/{self.database}"
