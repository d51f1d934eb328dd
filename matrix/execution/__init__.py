"""Where a launch runs. So far: this machine."""
