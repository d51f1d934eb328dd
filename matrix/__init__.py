"""Framework Matrix: plan every cell, run each in isolation, record whatever happened, then judge."""

__version__ = "0.1.0"
