"""What a pipeline writes down in its checkpoint, so that a restart repeats its decisions."""
