"""Which of several ways to compute a step is the fastest on this machine: what is declared as `auto` is tried."""
