"""The peers of the benchmarks: other projects' public code, in its original form."""
