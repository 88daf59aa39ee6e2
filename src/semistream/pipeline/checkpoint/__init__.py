"""What a pipeline writes into its checkpoint beside Spark's own files."""
