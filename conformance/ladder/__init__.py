"""What lies behind a late event: nudges, one after the other, until it is seen. docs/rules.md 2, "Mechanism".

Observations only: nothing here changes a verdict, and nothing here knows what was injected.
"""
