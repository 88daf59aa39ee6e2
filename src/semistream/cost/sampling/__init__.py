"""What a sample of a stream tells: skew, absent keys, bytes of a row."""
