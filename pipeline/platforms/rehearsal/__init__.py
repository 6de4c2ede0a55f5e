"""Executes a compiled PipelineSpec on this machine, emulating the service: a rehearsal."""
