"""Fits the parameters of models to measured rows.

solve.py     least squares with numbers that are not negative, and descent for the rest
fitted.py    what a fit found: parameters, residuals, measures of both
compute.py   parameters of a compute model to times of steps
device.py    bandwidths and latencies of a device to times of operations
outputs.py   rows from what fio and nixlbench print
"""
