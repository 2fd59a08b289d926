"""The commands that are steps of a pipeline, a file for each."""
