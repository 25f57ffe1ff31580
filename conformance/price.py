"""What a ring costs others: a decision with the price that was measured beside it, and a warning where it bites.

A ring of k parks up to k streams, each in a wait with a copy behind it. Streams share queues of the device, and a
wait at a queue's head holds up whatever is behind it: from some number on, unrelated copies stand still until a
step ends. No vendor promises more, so it is a price and no finding. Source: docs/rules.md 3, docs/hardware.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from reports.records import Outcome, Price

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.measure.found import Measurement
    from reports.records import Decision, DepthDecision

#: The variable that gives a process more of the device's queues, by backend.
SETTINGS: Final[Mapping[str, str]] = {
    "cuda": "CUDA_DEVICE_MAX_CONNECTIONS (1 to 32, 8 by default) gives a process more connections to the device",
    "rocm": "GPU_MAX_HW_QUEUES (4 by default) gives a process more hardware queues",
    "musa": "MUSA_DEVICE_MAX_CONNECTIONS does it by its name; no public document says what it does",
}
#: What a ring parks, and what it must not hold up.
PARKS: Final = "D2H copy"
VICTIMS: Final = ("D2H copy", "kernel")


def priced(decision: Decision, backend: str, measured: Measurement | None) -> Decision:
    """The decision with its price, and with a warning at each depth whose ring would hold up others."""
    if measured is None or not (measured.parked or measured.couplings):
        return decision
    price = Price(parked=measured.parked, couplings=measured.couplings, setting=SETTINGS.get(backend, ""))
    depths = tuple(_warned(depth, price) for depth in decision.per_in_flight)
    return msgspec.structs.replace(decision, per_in_flight=depths, price=price)


def _warned(depth: DepthDecision, price: Price) -> DepthDecision:
    if depth.outcome is not Outcome.ENABLE or depth.ring is None:
        return depth
    found = {row.work: row.streams for row in price.parked if row.behind == PARKS and row.streams is not None}
    # From 0 on, it is the closed gate alone that holds others up, and not the ring.
    hit = [(work, found[work]) for work in VICTIMS if 0 < found.get(work, 0) <= depth.ring]
    if not hit:
        return depth
    held = " and ".join(f"an unrelated {work} from {least} on" for work, least in hit)
    lifted = f"; {price.setting}, so set it, and run the suite again under it" if price.setting else ""
    text = f"a ring of {depth.ring} parks as many streams, and that holds up {held}{lifted}"
    return msgspec.structs.replace(depth, warning=text)
