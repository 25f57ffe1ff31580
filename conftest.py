"""Loads the plugin in a checkout; elsewhere it is loaded with ``-p conformance.plugin``."""

pytest_plugins = ["conformance.plugin"]
