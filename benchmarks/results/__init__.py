"""The results that README and docs show, computed from stored answers.

`plan` lists what is run, `making` stores its results in `docs/results/NAME.json`, and `pages` writes them as
tables into the pages.
"""
