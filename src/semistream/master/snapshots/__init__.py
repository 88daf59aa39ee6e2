"""Snapshots of a master: which there are, which are pinned, which go."""
