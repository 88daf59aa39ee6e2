"""The planner: what a budget buys, or what a rate needs, before anything runs."""
