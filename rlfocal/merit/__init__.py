"""Figures of merit for comparing routers and ensembles: pure functions on arrays.

`curves` rates accuracy against cost (PGR, APGR, CPT, AIQ, ParetoDist), `gains` compares with the best single
model and with the oracle, `intervals` gives intervals of means and differences. Calibration is in
`rlfocal.statistics.calibration`.

Accuracies and shares are fractions. Costs may be in any unit, the same for all; NaN is an unknown cost, and
figures that depend on one are NaN.
"""
