"""The engine of Beam that is ours, named by its dotted path in `--runner=`."""
