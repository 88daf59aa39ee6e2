"""Benchmarks: measuring, storing and showing, each by itself."""
