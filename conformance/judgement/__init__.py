"""Compares what was observed with what the model demands: docs/rules.md 2, executed.

Sees programs, looks and controls; never a device, never the name of a fault.
"""
