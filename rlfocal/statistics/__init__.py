"""Formulas, each written once: diversity, votes, agreement, calibration, length normalisation.

`metrics` holds the diversity metrics as formulas on counts; `diversity` counts whole benchmarks in numpy,
`windows` those of a stream in torch. `agreement`, `calibration` and `normalised` are for use with arrays and
no warehouse: each is the twin of an SQL view or macro.

DESlib and statsmodels take one pair or one table at a time, while here all pools and windows share a few
matrix products; the tests use them as oracles.
"""
