"""Terminal matters: errors as reports, quiet interrupts, signs of life during long work."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tidegate.cli import INTERRUPTED
from tidegate.errors import InternalError, TidegateError, UnusableFile

REFUSED = 2
CUT_OFF = 141
"""What a shell reports of a process that a closed pipe has ended."""

PATIENCE = 1.0
"""Seconds after which work shows that it goes on."""


@contextmanager
def reporting(as_json: bool) -> Iterator[None]:
    """Every way in which a command can end early, without a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (for the rest of the process)
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a sign is no reason to fail
    with _output():
        try:
            yield
        except TidegateError as error:
            _report(error, as_json)
            raise SystemExit(REFUSED) from None
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except (BrokenPipeError, _OutputFailed):
            raise
        except Exception as error:
            if os.environ.get("TIDEGATE_TRACEBACK"):
                raise
            _report(_internal(error), as_json)
            raise SystemExit(REFUSED) from None


class _OutputFailed(Exception):
    """Stdout takes no more, e.g. on a full disk."""


@contextmanager
def _output() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader, e.g. head, has seen enough
        _drop_output()
        raise SystemExit(CUT_OFF) from None
    except _OutputFailed as error:
        output_failed(str(error))


def output_failed(reason: str) -> NoReturn:
    """Says so on stderr, and ends the process."""
    _drop_output()
    print(UnusableFile(path="stdout", reason=reason, advice="write where there is room"), file=sys.stderr)
    raise SystemExit(REFUSED) from None


def _drop_output() -> None:
    """What is still in the buffer would fail once more when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _OutputFailed(error.strerror) from None


def _report(error: TidegateError, as_json: bool) -> None:
    if as_json:
        print_json({"error": error.to_json()})
    else:
        print(error, file=sys.stderr)


def _internal(error: Exception) -> InternalError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(traceback.format_exception_only(error)[-1].split())
    return InternalError(exception=text, place=f"{os.path.basename(last.filename)}:{last.lineno}")


def print_json(data: Any) -> None:
    _print(json.dumps(data, indent=1))


@contextmanager
def progress(text: str) -> Iterator[None]:
    """Says what goes on, on a terminal's stderr, once it has taken a second."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True).status(text)
    timer = threading.Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def show(text: str) -> None:
    """Text for people: the verdict words in colour on a terminal."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        _print(text)
        return
    from rich.console import Console
    from rich.text import Text

    coloured = Text(text)
    coloured.highlight_regex(r"\bSAFE\b|\bagrees?\b", "green")
    coloured.highlight_regex(r"\bUNSAFE\b|\bNOT PROVED\b|\bMISMATCH\b|\bUNWRITTEN\b", "bold red")
    coloured.highlight_regex(r"(?m)^\S.*$", "bold")
    Console(highlight=False).print(coloured, soft_wrap=True)
