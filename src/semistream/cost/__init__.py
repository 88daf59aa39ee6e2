"""What a budget buys: the papers' cost models, unit costs of this machine, tuning, planning."""
