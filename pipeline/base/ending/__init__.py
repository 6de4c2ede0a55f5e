"""How processes end, and that nothing of them stays behind. Standard library only: training tasks start with it."""
