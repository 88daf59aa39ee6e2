"""What tests run on: every algorithm, and each way of one that has several at heart."""

from __future__ import annotations

import pytest

import semistream as ss

__all__ = ["VARIANTS", "each_default_variant", "each_variant", "each_waiting_variant"]

# Masters of tests lie in memory, where adaptive looks up at once and would never sweep.
_OTHERS = {"adaptive-sweeping": ("adaptive", {"at_once": False})}
VARIANTS = {name: (name, {}) for name in ss.algorithms()} | _OTHERS


def _each(variants):
    return pytest.mark.parametrize(("algorithm", "options"), list(variants.values()), ids=variants)


each_variant = _each(VARIANTS)
each_default_variant = _each({k: v for k, v in VARIANTS.items() if v[0] == "adaptive"})
each_waiting_variant = _each({k: v for k, v in VARIANTS.items() if k != "adaptive"})
