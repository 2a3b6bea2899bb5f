"""Figures of merit by which routers and ensembles are compared: pure functions on arrays.

`curves` rates what accuracy costs (PGR, APGR, CPT, AIQ, ParetoDist), `gains` compares with the best single
model and with the oracle, `intervals` says how sure a mean or a difference is. How well a probability is
calibrated stands in `rlfocal.statistics.calibration`.

Accuracies and shares are fractions. Costs may be in any unit, one for all; NaN is an unknown cost, and what
would rest on one is NaN.
"""
