"""YAML read with positions, so that every mistake can be located; used by catalog and configuration."""
