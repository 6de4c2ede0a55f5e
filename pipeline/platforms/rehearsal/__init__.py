"""Executes a compiled PipelineSpec on this machine, as a service would: a rehearsal."""
