"""A run folder: where a job's files lie, and whether they can be written."""
