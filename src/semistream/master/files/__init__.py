"""A master table of files: format, index, filter, readers, and files that appear whole."""
