"""`python -m adjoin` is the command line."""

import sys

from adjoin.cli import main

sys.exit(main())
