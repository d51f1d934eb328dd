"""From launches to one record per planned cell, by pure rules."""
