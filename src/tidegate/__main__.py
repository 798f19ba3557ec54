"""``python -m tidegate``: the command line where the script is not on the path."""

from tidegate.cli import main

main()
