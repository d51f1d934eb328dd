"""`python -m matrix` is the same as `matrix`."""

import sys

from matrix.cli import main

sys.exit(main())
