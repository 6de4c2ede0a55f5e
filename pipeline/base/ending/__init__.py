"""The end of processes, and their cleanup. Standard library only: training tasks start with it."""
