"""Everything that numba compiles: hashing, chains, searches, gathers and checks of structure."""
