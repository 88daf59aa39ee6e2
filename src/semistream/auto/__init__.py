"""``algorithm="auto"``: the algorithm that is predicted to be the fastest for the stream at hand.

The join begins with `adaptive`, and counts the keys of the first rows. From these, the master's
statistics and the machine's profile it predicts the rate of every algorithm, and goes over to the
fastest if that is worth it. Then it watches whether the stream still looks like the plan.

Where there is nothing to choose, auto is `adaptive` with the whole budget, and says why:

- the master fits into the budget as a whole: all algorithms are the same then;
- mapped reads: `adaptive` looks rows up in pages that lie in memory, no other does; and how much
  of the master the operating system will hold is in no model;
- joins that share memory on their host (those of Spark's tasks): only `adaptive` can, and a task is
  over before a choice would pay;
- no profile of this machine, or one that may not hold: to measure takes many seconds, and a join
  does not do so by itself;
- a budget so small that a sample of the stream has no room.
"""

from semistream.auto.begin import started
from semistream.auto.operator import Auto

__all__ = ["Auto", "started"]
