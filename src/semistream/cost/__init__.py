"""What a budget buys: cost models, unit costs of this machine, tuning, planning."""
