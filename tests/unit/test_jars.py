"""Connector jars: which, from where, checked."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import threading
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from semistream.cli.commands import app
from semistream.errors import OptionError
from semistream.spark.cluster import jars, maven
from semistream.spark.cluster.maven import (
    CENTRAL,
    DIGESTS,
    Artifact,
    JarsError,
    download,
    repository,
)
from semistream.system.user_cache import private_cache

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository of our own, over HTTP, with the same gap as the real one."""
    folder = tmp_path / "registry"
    monkeypatch.setattr(jars, "spark_version", lambda: "4.1.3")
    digests = {}
    for jar in (jar for kind in jars.KINDS for jar in jars.artifacts(kind)):
        path = put(folder, jars._instead(jar))
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(maven, "DIGESTS", digests)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("SEMISTREAM_MAVEN", f"http://127.0.0.1:{server.server_port}/")
        yield folder
        server.shutdown()


def put(folder: Path, jar: Artifact) -> Path:
    path = folder / jar.path
    path.parent.mkdir(parents=True)
    path.write_bytes(jar.file.encode())
    digest = hashlib.sha1(jar.file.encode(), usedforsecurity=False).hexdigest()
    path.with_name(f"{jar.file}.sha1").write_text(f"{digest}  {jar.file}\n")
    return path


@pytest.mark.parametrize("line", ["4.0", "4.1", "4.2"])
def test_jars_are_those_of_sparks_line(line: str) -> None:
    names = [jar.file for kind in ("kafka", "delta") for jar in jars.artifacts(kind, f"{line}.0")]
    assert f"spark-sql-kafka-0-10_2.13-{line}.0.jar" in names
    assert f"delta-spark_{line}_2.13-4.4.0.jar" in names


def test_what_is_not_known_is_said() -> None:
    with pytest.raises(OptionError, match="Did you mean 'kafka'"):
        jars.artifacts("kafak")
    with pytest.raises(OptionError, match=r"no jars of iceberg are known for Spark 4\.2"):
        jars.artifacts("iceberg", "4.2.0")


def test_fetched_jars_are_used_and_the_gap_is_bridged(registry: Path, tmp_path: Path) -> None:
    seen = []
    folder = tmp_path / "jars"
    jars.fetch(
        ["kafka", "delta"], folder, lambda name, done, total: seen.append((name, done, total))
    )
    settings = jars.resolve(["kafka", "delta"], folder)
    files = settings["spark.jars"].split(",")
    assert len(files) == len(seen) == 6
    assert str(folder / "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar") in files
    assert settings["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    assert not list(folder.glob(".*"))


def test_spark_downloads_where_nothing_was_fetched(registry: Path, tmp_path: Path) -> None:
    settings = jars.resolve(["kafka", "postgresql"], tmp_path / "empty")
    assert settings["spark.jars.packages"] == (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3,org.postgresql:postgresql:42.7.14"
    )
    assert settings["spark.jars.repositories"] == repository()
    assert settings["spark.jars.excludes"].endswith("spark-token-provider-kafka-0-10_2.13")
    tokens = settings["spark.jars"]
    assert tokens == str(
        tmp_path / "empty" / "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar"
    )
    put(registry, jars.artifacts("kafka")[1])
    assert "spark.jars.excludes" not in jars.resolve(["kafka"], tmp_path / "empty")


def test_other_bytes_than_published_are_refused(registry: Path, tmp_path: Path) -> None:
    jar = jars.artifacts("postgresql")[0]
    (registry / jar.path).write_bytes(b"something else")
    with pytest.raises(JarsError, match="other bytes"):
        download(jar, tmp_path / "jars")
    assert not list((tmp_path / "jars").iterdir())


def test_the_digest_of_every_jar_is_known() -> None:
    for spark in ("4.0.0", "4.0.4", "4.1.0", "4.1.3", "4.2.0"):
        known = [kind for kind in jars.KINDS if kind != "iceberg" or spark < "4.2"]
        for jar in (jar for kind in known for jar in jars.artifacts(kind, spark)):
            assert len(DIGESTS[jars._instead(jar).file]) == 64


def test_a_repository_that_puts_its_own_checksum_right_is_refused(registry, tmp_path) -> None:
    jar = jars.artifacts("postgresql")[0]
    path = registry / jar.path
    path.write_bytes(b"evil")
    digest = hashlib.sha1(b"evil", usedforsecurity=False).hexdigest()
    path.with_name(f"{jar.file}.sha1").write_text(digest)
    with pytest.raises(JarsError, match="other bytes"):
        download(jar, tmp_path / "jars")


def test_a_jar_that_was_changed_since_is_not_given_to_spark(registry, tmp_path) -> None:
    folder = tmp_path / "jars"
    (path,) = jars.fetch(["postgresql"], folder)
    right = path.read_bytes()
    path.write_bytes(b"")  # as after a power cut
    with pytest.raises(JarsError, match=r"other bytes than the release has.*jars fetch"):
        jars.resolve(["postgresql"], folder)
    jars.fetch(["postgresql"], folder)
    assert path.read_bytes() == right
    assert jars.resolve(["postgresql"], folder) == {"spark.jars": str(path)}


def test_of_other_releases_only_we_may_have_written_the_jar(
    registry, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(maven, "DIGESTS", {})
    folder = tmp_path / "jars"
    (path,) = jars.fetch(["postgresql"], folder)
    assert jars.resolve(["postgresql"], folder) == {"spark.jars": str(path)}
    for open_to_all, mode in ((path, 0o600), (folder, 0o700)):
        open_to_all.chmod(0o777)
        with pytest.raises(JarsError, match="others can write to"):
            jars.resolve(["postgresql"], folder)
        open_to_all.chmod(mode)


def test_a_mirror_without_tls_is_asked_only_for_what_is_known(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SEMISTREAM_MAVEN", "http://maven.example/all")
    with pytest.raises(JarsError, match="without TLS"):
        jars.resolve(["postgresql"], tmp_path)
    with pytest.raises(JarsError, match="without TLS"):
        download(Artifact("org.example", "unknown", "1"), tmp_path)


def test_a_jar_that_is_not_there_is_named(registry: Path, tmp_path: Path) -> None:
    with pytest.raises(JarsError, match=r"absent-1\.jar cannot be had: HTTP Error 404"):
        download(Artifact("org.example", "absent", "1"), tmp_path)


def test_the_mirror_of_mavens_settings_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEMISTREAM_MAVEN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert repository() == CENTRAL
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>'
        "<mirror><mirrorOf>other</mirrorOf><url>https://other.example</url></mirror>"
        "<mirror><mirrorOf>external:*</mirrorOf><url>https://maven.example/all/</url></mirror>"
        "</mirrors></settings>"
    )
    assert repository() == "https://maven.example/all"


def test_the_command_fetches_and_lists(registry: Path, tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "jars"), "--json"]
    fetched = CliRunner().invoke(app, ["jars", "fetch", "delta", *folder])
    assert len(json.loads(fetched.stdout)) == 2
    listed = json.loads(CliRunner().invoke(app, ["jars", "list", *folder]).stdout)
    states = {one["connector"]: one["state"] for one in listed["connectors"]}
    assert states == {"delta": "yes", "iceberg": "no", "kafka": "no", "postgresql": "no"}


def test_jars_lie_in_the_cache_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SEMISTREAM_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.folder_for("4.1.3") == tmp_path / "semistream" / "jars" / "4.1.3"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.folder_for("4.1.3") == tmp_path / ".cache" / "semistream" / "jars" / "4.1.3"


@pytest.mark.parametrize(("mode", "private"), [(0o700, True), (0o777, False), (0o1777, True)])
def test_a_cache_that_others_can_rename_is_not_private(mode, private, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tmp_path.chmod(mode)
    assert (private_cache("classes") is not None) == private
