"""What stands in for an accelerator that nobody here has, under the names of its vendor's torch.

`device` keeps streams and events by the reference device's rules, in real time; `driver` gives it the work that
is launched through a compiled stand-in for the vendor's driver (tests/driver_double); `tensors` puts torch's
operations on its streams; `module` is what `torch.<vendor>` offers.

STAND_IN_FAULTS=late-next-wait,... makes the runtime itself wrong, by the faults of the reference device.
STAND_IN_SUBJECT=wrapper makes only torch's events wrong: the driver answers for their raw handles as it should.
STAND_IN_WITHOUT=name,... leaves names out of the vendor's module.
"""
