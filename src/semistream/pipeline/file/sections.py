"""The sections of a pipeline file: a field's name is a key, its reader says what it may hold."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from semistream.algorithms import algorithms
from semistream.errors import OptionError
from semistream.master.database.address import has_password, is_url
from semistream.master.files.reader import READ
from semistream.master.place import without_secrets
from semistream.missing import SPLITTING
from semistream.pipeline.file import values
from semistream.spec import HOW, PARTITION, TRANSFER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from semistream.pipeline.file.node import Node, Scalar

_SHOWN = (
    "holds a password, which plans and messages would show; name a variable of the environment in "
    "password_env, or keep it in PostgreSQL's password file, and a key's in the driver's own file"
)
_STORE = (
    "holds a secret, which plans and messages would show; give it where the store's own tools look "
    "for it, as in AWS_SECRET_ACCESS_KEY, or in a profile of ~/.aws"
)
_DATABASE = ("table", "key", "ttl", "absent_ttl", "retry", "password_env", "feed")

__all__ = ["Columns", "Enrichment", "Quarantine", "Section", "Waiting", "setting"]


def setting(read: Callable[[Node], Any], default: object = MISSING, *, path: bool = False) -> Any:  # noqa: ANN401 - as dataclasses.field, it stands for a value of the field's type
    """Make a field that a file can give; required if there is no default."""
    metadata = {"read": read, "path": path}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the file."""

    kind: ClassVar[str] = ""

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Give what is wrong between the section's own fields: a field and a message."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Enrichment(Section):
    """A join with a master table; the arguments of `enrich`."""

    master: str = setting(values.text, path=True)
    on: tuple[str, ...] | dict[str, str] = setting(values.key)  # noqa: RUF009
    how: str = setting(values.choice(tuple(sorted(set(HOW.values())))), "inner")
    select: tuple[str, ...] | None = setting(values.names(), None)
    prefix: str = setting(values.text, "")
    memory: int = setting(values.size, 256 << 20)
    algorithm: str = setting(values.choice(algorithms), "adaptive")
    partition: str = setting(values.choice(PARTITION), "auto")
    transfer: str = setting(values.choice(TRANSFER), "auto")
    localize: bool | int = setting(values.flag_or_size, False)
    read: str = setting(values.choice(READ), "mapped")
    name: str = setting(values.text, "")
    table: str = setting(values.text, "")
    key: tuple[str, ...] = setting(values.names(), ())
    ttl: float | None = setting(values.seconds, None)
    absent_ttl: float | None = setting(values.seconds, None)
    retry: float | None = setting(values.seconds, None)
    password_env: str = setting(values.text, "")
    feed: str = setting(values.text, "")
    on_missing: str | Mapping[str, Scalar] | None = setting(values.on_missing, None)
    status: str = setting(values.text, "")
    surrogate: str = setting(values.text, "")
    dimension: str = setting(values.text, "", path=True)
    options: Mapping[str, Scalar] = setting(values.mapping(values.scalar), {})

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Tell a setting that has no use beside another."""
        if self.how in {"semi", "anti"}:
            for given in ("select", "prefix"):
                if getattr(self, given):
                    yield given, f"has no use with how: {self.how}, which gives no master column"
        if self.how != "left":
            for given in ("on_missing", "status", "surrogate"):
                if getattr(self, given):
                    yield given, f"is for how: left; with how: {self.how} all rows are of one kind"
        if self.splits and self.status:
            yield "status", f"has no use with on_missing: {self.on_missing}: rows are parted by it"
        yield from self._of_database() if self.live else self._of_files()
        yield from self._wrong_members()

    def _wrong_members(self) -> Iterator[tuple[str, str]]:
        if self.surrogate and not self.dimension:
            yield "surrogate", "needs the Delta table to which new members are written: dimension"
        if self.dimension and not self.surrogate:
            yield "dimension", "needs the column of its surrogate keys, as surrogate: product_sk"
        missing = self.on_missing
        if self.surrogate and isinstance(missing, str) and missing != "null":
            yield (
                "surrogate",
                f"has no use with on_missing: {missing}; rows without a master row get one, and "
                "nulls or default values beside",
            )
        if self.surrogate and isinstance(missing, dict) and self.surrogate in missing:
            yield "surrogate", "has a default value in on_missing, too; give one of them"

    @property
    def splits(self) -> bool:
        """Whether rows without a master row go elsewhere."""
        return self.on_missing in SPLITTING

    def patient(self, delay: float) -> Enrichment:
        """Give the enrichment whose rows are tried again so often.

        A database must then be asked again: that a key is absent may not be held for longer.
        """
        if not self.live or self.on_missing != "wait" or self.absent_ttl is not None:
            return self
        held = delay / 2 if self.ttl is None else min(delay / 2, self.ttl / 20)
        return replace(self, absent_ttl=held)

    @property
    def live(self) -> bool:
        """Whether the master is a table in a database."""
        return is_url(self.master)

    @property
    def database(self) -> dict[str, Any]:
        """What `open_master` is told of a table in a database."""
        given = {name: getattr(self, name) for name in _DATABASE}
        return {name: value for name, value in given.items() if value not in ("", (), None)}

    def _of_database(self) -> Iterator[tuple[str, str]]:
        for needed in ("table", "key"):
            if not getattr(self, needed):
                yield needed, "is missing: a database has many; name the one to join with"
        try:
            secret = has_password(self.master)
        except OptionError as error:
            yield "master", f"is wrong: {error}"
        else:
            if secret:
                yield "master", _SHOWN
        if self.localize is not False:
            yield "localize", "is for masters of files"

    def _of_files(self) -> Iterator[tuple[str, str]]:
        if without_secrets(self.master) != self.master:
            yield "master", _STORE
        for given in self.database:
            yield given, "is for a master in a database, as postgresql://user@host/database"


@dataclass(frozen=True, kw_only=True)
class Quarantine(Section):
    """A Delta table for rows without a master row."""

    path: str = setting(values.text, path=True)


@dataclass(frozen=True, kw_only=True)
class Waiting(Section):
    """A Delta table for rows whose master row may still come."""

    path: str = setting(values.text, "", path=True)
    delay: float = setting(values.seconds, 30.0)
    """In seconds, as all times."""
    grace: float = setting(values.seconds, 3600.0)
    then: str = setting(values.choice(("quarantine", "null")), "quarantine")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Tell a setting that has no use beside another."""
        if self.delay < 0.1:
            yield "delay", "is too short; the least is 0.1, a tenth of a second"
        if self.grace < self.delay:
            yield "grace", "is less than the delay after which rows are tried again"


@dataclass(frozen=True, kw_only=True)
class Columns(Section):
    """Which columns reach the sink, in the names that come out of the enrichments."""

    replace: Mapping[str, str] = setting(values.mapping(values.text), {})
    drop: tuple[str, ...] = setting(values.names(), ())
    keep: tuple[str, ...] | None = setting(values.names(), None)
    rename: Mapping[str, str] = setting(values.mapping(values.text), {})

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Tell a setting that has no use beside another."""
        if self.keep is not None and self.drop:
            yield "drop", "and keep say the same in two ways; give one of them"
