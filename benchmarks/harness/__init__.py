"""What all benchmarks share: runs, rounds, records, tables, figures, and the command line."""
