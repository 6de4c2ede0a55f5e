"""Runners: local execution, and compiling for services."""
