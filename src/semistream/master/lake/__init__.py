"""Tables of files as sources at a version: Delta, Iceberg, folders of Parquet files."""
