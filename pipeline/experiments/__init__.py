"""Several trainings side by side: bench, compare, what one would cost, and the page of several runs."""
