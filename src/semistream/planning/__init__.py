"""What a budget buys: the real join on a small copy of the problem, and what its work costs."""
