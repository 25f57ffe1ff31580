"""What is asked: programs, and the probes that use them, by family.

Imports nothing of ours. Clauses, faults and capabilities are named by string; the plugin and the
selftest check that each name exists.
"""
