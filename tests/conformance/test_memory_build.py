"""A build keeps to its memory: the process's anonymous memory, measured from outside."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from support.matrix import ALL

MB = 1 << 20
CONSTANT = 32 * MB
"""What the growth may exceed ``memory`` by: the source's own batch (8 MB of rows, which the
workload makes through two copies), and what the allocator keeps."""

_BUILD = """
import json, sys, threading, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
import semistream as ss
from semistream.workloads import Zipf, master_rows, master_table

path, kind, memory, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])

def shuffled(n):
    keys, step = Zipf(n), 65_536
    numbers = (np.arange(s + 1, min(n, s + step) + 1) for s in range(0, n, step))
    batches = (master_rows(keys.key_of(ranks)) for ranks in numbers)
    return pa.RecordBatchReader.from_batches(master_rows([]).schema, batches)

def anonymous():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024

def watch():
    while running:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.001)

sources = {"shuffled": shuffled, "sorted": master_table, "parquet": lambda n: path + ".parquet"}
if kind == "write parquet":  # in a process of its own
    with pq.ParquetWriter(path + ".parquet", master_rows([]).schema) as file:
        file.write_table(shuffled(rows).read_all(), row_group_size=rows)
    sys.exit()
ss.build_master(shuffled(10_000), path, key="key", memory="1MB")  # warm: kernels, thread pools
running, before, peak = True, anonymous(), [0]
watcher = threading.Thread(target=watch)
watcher.start()
master = ss.build_master(sources[kind](rows), path, key="key", memory=memory)
running = False
watcher.join()
reader, codes = master.reader(), []
for part in range(master.statistics.parts):
    codes.append(reader.load(part, 1)[0].column(0).to_numpy())
exact = bool((np.concatenate(codes) == np.arange(rows)).all())
size = master.manifest.pages_bytes
print(json.dumps({"growth": peak[0] - before, "exact": exact, "bytes": size}))
"""


def _run(*arguments: object) -> str:
    command = [sys.executable, "-c", _BUILD, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return done.stdout


LARGE = [("shuffled", 64, 2_000_000), ("sorted", 64, 2_000_000), ("parquet", 32, 1_000_000)]
SMALL = [("shuffled", 16, 600_000), ("sorted", 16, 600_000), ("parquet", 32, 1_000_000)]


@pytest.mark.parametrize(("kind", "memory", "rows"), LARGE if ALL else SMALL)
def test_the_process_grows_by_no_more_than_the_memory(
    kind: str, memory: int, rows: int, tmp_path
) -> None:
    if kind == "parquet":
        _run(tmp_path / "m", "write parquet", "0", rows)
    found = json.loads(_run(tmp_path / "m", kind, f"{memory}MB", rows))
    assert found["exact"]
    assert found["bytes"] > 3 * memory * MB
    assert found["growth"] <= memory * MB + CONSTANT
