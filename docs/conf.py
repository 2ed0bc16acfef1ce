"""Configuration of the documentation."""

from sb3_async.version import __version__

project = "sb3_async"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
exclude_patterns = ["_build"]
autodoc_typehints = "none"
