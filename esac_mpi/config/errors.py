"""The error of the configuration."""


class ConfigError(Exception):
    """A configuration that cannot be run; the message says which key, why, and the nearest valid one."""
