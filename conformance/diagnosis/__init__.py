"""Which factors decide that an event is late: a sweep of one program over its factors, reduced to the smallest set.

Sees devices and observations only, as the judgement does.
"""
