"""Engines of Beam that are ours, named by their dotted path in `--runner=`."""
