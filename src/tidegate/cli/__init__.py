"""The command line: ``tidegate run | plan | explain | tir | cuda | smem | check | sanitize | errors``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; leaves by SystemExit: 0 agreed, 1 mismatch, finding or unsafe, 2 refused or misused."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given == ["--version"]:  # without the libraries that the commands need
            from tidegate import __version__

            print(f"tidegate {__version__}", flush=True)
            raise SystemExit(0)
        from tidegate.cli.app import app

        app(args=given, prog_name="tidegate")
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:  # --help and --version on a full disk; commands look after themselves
        from tidegate.cli.terminal import output_failed

        output_failed(error.strerror or str(error))
