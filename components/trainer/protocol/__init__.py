"""What supervisor and task say to each other; needs the standard library only."""
