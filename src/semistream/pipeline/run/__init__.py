"""Running pipelines: queries, batches, progress, replay."""
