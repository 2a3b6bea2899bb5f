"""The results that README and docs show: made from stored answers, kept as JSON, written into the pages.

`plan` says what is run, `making` runs it into `docs/results/NAME.json`, `pages` writes the tables.
"""
