"""A run as a person sees it: console, results, joining a cluster."""
