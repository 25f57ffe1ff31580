"""The decode pipeline: an engine's output path, on a virtual clock and in real time.

`model` says what the host of a pipeline sees when events are published late, `forms` the same in closed
form, `decode` runs it on a torch device, and `workarounds` compares what an engine may do instead of a ring.
Importing this imports no torch. How to run it, and what its table means: docs/pipeline.md.
"""
