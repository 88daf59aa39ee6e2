"""Hashes of keys depend on a seed: no one who does not know it can make keys collide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.arrow.keys import Keys, random_salt
from semistream.hotset.plan import Host, HostSizes
from semistream.kernels.chains import chain_values
from semistream.master.build import target
from semistream.system.shared_folder import boot_seed

TABLE = pa.table({"k": [f"key {i}" for i in range(100)], "n": np.arange(100)})


def keys_of(*kinds: pa.DataType, seed: int = 0) -> Keys:
    names = [f"k{i}" for i in range(len(kinds))]
    return Keys.of(pa.schema(list(zip(names, kinds, strict=True))), names, seed)


def test_a_seed_of_zeros_gives_what_python_computes_with_it():
    """Python's own hash of bytes is SipHash-1-3, too."""
    asked = "import json; print(json.dumps([hash(bytes(range(i))) for i in range(1, 70)]))"
    found = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", asked],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
    )
    texts = pa.array([bytes(range(i)) for i in range(1, 70)])
    codes = keys_of(pa.binary()).encode([texts]).values
    if sys.hash_info.algorithm == "siphash13":
        assert codes.tolist() == json.loads(found.stdout)


def test_codes_and_checks_of_every_kind_depend_on_the_seed():
    columns = {
        pa.string(): ["a", "b" * 20],
        pa.binary(3): [b"abc", b"abd"],
        pa.date32(): [1, 2],
        pa.bool_(): [True, False],
        pa.decimal128(9, 2): [1, 2],
    }
    for kind, values in columns.items():
        given = [pa.array(values, kind), pa.array([1, 2])]
        seen = set()
        for seed in (0, 1, 1 << 64):
            keys = keys_of(kind, pa.int64(), seed=seed)
            seen |= {*keys.encode(given).values.tolist(), *keys.checks(given).tolist()}
        assert len(seen) == 12


def mixed(x: int) -> int:
    """SplitMix64, which anyone can compute and invert."""
    most = (1 << 64) - 1
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & most
    x = (x ^ x >> 27) * 0x94D049BB133111EB & most
    return x ^ x >> 31


def test_keys_that_were_made_to_collide_do_not():
    """Two words, the second of which undoes what a hash without seed makes of the first."""
    golden, most = 0x9E3779B97F4A7C15, (1 << 64) - 1
    seconds = [mixed(16 + golden & most ^ word) + golden & most for word in range(4_000)]
    made = [w.to_bytes(8, "little") + s.to_bytes(8, "little") for w, s in enumerate(seconds)]
    for seed in (0, 5):
        codes = keys_of(pa.binary(), seed=seed).encode([pa.array(made)]).values
        assert len(np.unique(codes)) == len(made)


def test_masters_have_seeds_of_their_own_and_keep_them(tmp_path):
    first, second = (ss.build_master(TABLE, tmp_path / name, key="k") for name in "ab")
    assert len({first.keys.seed, second.keys.seed, 0}) == 3
    assert ss.open_master(tmp_path / "a").keys == first.keys
    again = ss.build_master(TABLE, tmp_path / "a", key="k")
    assert (again.keys.seed, again.snapshot) == (first.keys.seed, first.snapshot)
    synced = ss.sync_master(tmp_path / "a", upserts=TABLE.slice(3, 1), deletes=["key 7"]).master
    assert (synced.keys.seed, synced.rows) == (first.keys.seed, 99)
    other = ss.build_master(TABLE, tmp_path / "a", key=["k", "n"])
    assert other.keys.seed not in {0, first.keys.seed}
    by_number = ss.build_master(TABLE, tmp_path / "c", key="n")
    assert by_number.keys.seed == 0
    assert by_number.snapshot == ss.build_master(TABLE, tmp_path / "d", key="n").snapshot


def test_with_the_same_seed_a_build_is_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(target.secrets, "randbits", lambda _: 12345)
    built = [ss.build_master(TABLE, tmp_path / name, key="k") for name in "ab"]
    assert built[0].snapshot == built[1].snapshot


def test_rows_on_a_host_are_not_shared_between_seeds(tmp_path, monkeypatch):
    names, sizes = set(), HostSizes(1 << 20, 16, 1 << 20, 1 << 20, 1 << 20)
    for seed in (1, 2):
        monkeypatch.setattr(target, "_seed", lambda *_, seed=seed: seed)
        master = ss.build_master(TABLE, tmp_path / "m", key="k")
        names.add(Host(tmp_path, sizes, master, master.page_schema, once=True).name)
    assert len(names) == 2


def test_the_seed_of_databases_is_that_of_all_processes():
    asked = "from semistream.system.shared_folder import boot_seed; print(boot_seed())"
    command = [sys.executable, "-c", asked]
    found = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - our own
    if Path("/proc/sys/kernel/random/boot_id").exists():
        assert int(found.stdout) == boot_seed()
    assert boot_seed().bit_length() > 64


def test_integers_that_were_made_to_meet_in_one_chain_do_not():
    """Products with a public constant that have the same middle bits."""
    inverse, most = pow(0x9E3779B97F4A7C15, -1, 1 << 64), (1 << 64) - 1
    made = np.array([i * inverse & most for i in range(1, 4_001)], np.uint64).view(np.int64)
    for codes in (made, np.arange(4_000), np.arange(-2_000, 2_000) << 48, np.arange(4_000) << 40):
        heads, chain = np.empty(4_096, np.int32), np.empty(4_000, np.int32)
        chain_values(codes, heads, chain, np.uint64(random_salt()))
        assert np.count_nonzero(heads >= 0) > 1_500  # of 2,550 if they were spread at random
