"""One module per verb of the command line: `HELP`, `add_arguments(parser)` and `run(args) -> exit code`.

The modules import nothing heavy at their top: `--help` reads them all.
"""
