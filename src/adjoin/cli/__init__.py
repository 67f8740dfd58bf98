"""The command line."""

from adjoin.cli.main import main

__all__ = ["main"]
