"""One module per verb of the command line: `HELP`, `add_arguments(parser)` and `run(args) -> exit code`.

The modules import nothing heavy at the top: `--help` imports them all.
"""
