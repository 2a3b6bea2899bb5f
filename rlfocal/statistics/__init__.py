"""Formulas, each written once: diversity, votes, agreement, calibration, intervals, figures of merit.

`metrics` holds the diversity metrics as formulas on counts. `diversity` counts whole benchmarks in numpy,
`windows` those of a stream in torch. `agreement`, `calibration` and `normalised` work on arrays without a
warehouse: each is the twin of an SQL view or macro. `cost_curves` rates accuracy against cost (PGR, APGR,
CPT, AIQ, ParetoDist). `intervals` gives intervals of means and differences.

Accuracies and shares are fractions. Costs may be in any unit, the same for all. NaN is an unknown cost, and
figures that depend on one are NaN.

statsmodels takes one pair or one table at a time, while here all pools and windows share a few matrix
products. The tests use it as an oracle.
"""
