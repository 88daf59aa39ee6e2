"""A PostgreSQL and a MariaDB server of one's own, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import psycopg
import pymysql

from support import free_ports, wait_for
from support.processes import descendants
from support.servers.debian import libraries, program
from support.servers.loading import definition

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

# Signs that have to be escaped in a URL; a word that is easily looked for in logs.
PASSWORD = "s3same/open@d:oor%"  # noqa: S105
USER = "keeper"
DATABASE = "shop"


class Server:
    """A server with its data in a folder; ``kill`` and ``start`` again go on with that data."""

    scheme: ClassVar[str]
    stops: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, **settings: object) -> None:
        self._given = settings
        self._folder = Path(tempfile.mkdtemp(prefix=f"semistream-{self.scheme}-"))
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_ports(1)[0]
        # Both servers refuse to be root.
        self._who: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self._folder, nobody.pw_uid, nobody.pw_gid)
            self._who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    def url(self, port: int | None = None, *, password: bool = True) -> str:
        """Give its address; with a proxy's port, the way through the proxy."""
        who = f"{USER}:{quote(PASSWORD, safe='')}" if password else USER
        return f"{self.scheme}://{who}@127.0.0.1:{port or self.port}/{DATABASE}"

    def connect(self, port: int | None = None) -> Any:
        """Give a connection as Python knows them, that commits by itself."""
        raise NotImplementedError

    def execute(self, *statements: str) -> None:
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def load(self, name: str, table: pa.Table, key: str | Sequence[str] | None = None) -> None:
        """Make a table anew, with this primary key or none, and put rows into it."""
        raise NotImplementedError

    @property
    def runs(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        assert self._process is None, "it runs"
        if not self._data.exists():
            self._create()
        self._process = self._popen(self._command())
        wait_for(type(self).__name__, self._healthy)

    def stop(self) -> None:
        """End it as a service manager does: connections are closed."""
        self._end(self.stops)

    def kill(self) -> None:
        """End all its processes by SIGKILL, in the middle of whatever they do."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        self.kill() if kill else self.stop()
        self.start()

    def pause(self) -> None:
        """Have it answer nothing, with its connections open, until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop it, and remove its data."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _create(self) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _healthy(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the server ended:\n{self._log.read_text()[-3000:]}")
        try:
            self.connect().close()
        except (psycopg.OperationalError, pymysql.Error):
            return False
        return True

    @property
    def _log(self) -> Path:
        return self._folder / "log.txt"

    def _popen(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **libraries(Path(command[0]))}
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603
                command, cwd=self._folder, env=environment, stdout=log, stderr=log, **self._who
            )

    def _run(self, command: Sequence[str]) -> None:
        if self._popen(command).wait():
            raise RuntimeError(f"{command[0]}:\n{self._log.read_text()[-3000:]}")

    def _signal(self, what: signal.Signals) -> None:
        assert self._process is not None, "it does not run"
        for pid in [self._process.pid, *descendants([self._process.pid])]:
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if how is signal.SIGKILL:
            self._signal(how)
        else:
            self._signal(signal.SIGCONT)
            self._process.send_signal(how)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._process = None


class PostgreSQL(Server):
    """Its data outlives a crash of the server, though not one of the machine."""

    scheme = "postgresql"
    stops = signal.SIGINT  # ends sessions; SIGTERM would wait for them

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        places = ["usr/lib/postgresql/*/bin", "usr/local/bin"]
        self._postgres = program("postgres", places, ["postgresql-15", "libpq5"]).resolve()

    def connect(self, port: int | None = None) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url(port), autocommit=True, connect_timeout=5)

    def standby(self) -> PostgreSQL:
        """Start a server that follows this one, as far as it is now and from now on."""
        other = PostgreSQL(primary_conninfo=self.url())
        self.stop()
        subprocess.run(["cp", "-a", self._data, other._data], check=True)  # noqa: S603, S607
        (other._data / "standby.signal").touch()
        self.start()
        other.start()
        return other

    def load(self, name: str, table: pa.Table, key: str | Sequence[str] | None = None) -> None:
        names = ", ".join(f'"{column}"' for column in table.column_names)
        self.execute(
            f'DROP TABLE IF EXISTS "{name}"',
            f'CREATE TABLE "{name}" ({definition(table.schema, key, self.scheme)})',
        )
        with self.connect() as connection, connection.cursor() as cursor:
            with cursor.copy(f'COPY "{name}" ({names}) FROM STDIN') as copy:
                for batch in table.to_batches():
                    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                        copy.write_row(row)
            cursor.execute(f'ANALYZE "{name}"')

    def _create(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        place = [str(self._postgres.with_name("initdb")), "-D", str(self._data), "--no-sync"]
        login = ["-A", "scram-sha-256", "-U", USER, f"--pwfile={secret}"]
        self._run([*place, *login, "-E", "UTF8", "--locale=C.UTF-8"])
        secret.unlink()
        self._process = self._popen(self._command())
        with psycopg.connect(self._first(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        self.stop()

    def _first(self) -> str:
        """Give the address of the database that is there from the beginning."""
        address = self.url().removesuffix(DATABASE) + "postgres"

        def reached() -> bool:
            with suppress(psycopg.OperationalError):
                psycopg.connect(address).close()
                return True
            return False

        wait_for("PostgreSQL", reached)
        return address

    def _command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self._folder,
            "fsync": "off",
            "max_connections": 60,
            "jit": "off",  # its library is in a package of its own
            **self._given,
        }
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._postgres), "-D", str(self._data), *given]


class MariaDB(Server):
    """MariaDB, which is spoken to as MySQL is."""

    scheme = "mysql"
    packages: ClassVar[Sequence[str]] = (
        "mariadb-server-core",
        "mariadb-server",
        "mariadb-client-core",
        "mariadb-common",
        "libmariadb3",
        "libaio1",
        "liburing2",
    )

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self._mariadbd = program("mariadbd", ["usr/sbin"], self.packages)
        self._base = self._mariadbd.parents[1]

    def connect(self, port: int | None = None) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1",
            port=port or self.port,
            user=USER,
            password=PASSWORD,
            database=DATABASE,
            autocommit=True,
            connect_timeout=5,
        )

    def load(self, name: str, table: pa.Table, key: str | Sequence[str] | None = None) -> None:
        names = ", ".join(f"`{column}`" for column in table.column_names)
        places = ", ".join(["%s"] * table.num_columns)
        self.execute(
            f"DROP TABLE IF EXISTS `{name}`",
            f"CREATE TABLE `{name}` ({definition(table.schema, key, self.scheme)})",
        )
        with closing(self.connect()) as connection, closing(connection.cursor()) as cursor:
            for batch in table.to_batches(10_000):
                rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                insert = f"INSERT INTO `{name}` ({names}) VALUES ({places})"  # noqa: S608
                cursor.executemany(insert, rows)
            cursor.execute(f"ANALYZE TABLE `{name}`")

    def _create(self) -> None:
        (self._folder / "first.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {DATABASE};\n"
            f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO {USER}@'%';\n"
        )
        (self._folder / "first.sql").chmod(0o644)
        install = str(self._base / "bin" / "mariadb-install-db")
        place = [f"--basedir={self._base}", f"--datadir={self._data}"]
        login = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        self._run([install, "--no-defaults", *place, *login])

    def _command(self) -> list[str]:
        settings = {
            "basedir": self._base,
            "datadir": self._data,
            "bind-address": "127.0.0.1",
            "port": self.port,
            "socket": self._folder / "socket",
            "pid-file": self._folder / "pid",
            "init-file": self._folder / "first.sql",
            "lc-messages-dir": self._base / "share" / "mysql",
            "innodb-flush-log-at-trx-commit": 2,
            "character-set-server": "utf8mb4",
            "collation-server": "utf8mb4_bin",
            "local-infile": 1,
            **self._given,
        }
        given = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self._mariadbd), "--no-defaults", *given]
