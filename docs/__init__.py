"""The documentation: pages in English here, in Chinese in zh/. `python -m docs` makes the site of them (maker/)."""
