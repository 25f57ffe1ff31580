"""The text of a reproducer, dense since it is short by design; `conformance.reproducer.script` fills in the @ marks."""

from __future__ import annotations

from typing import Final

TEXT: Final = r'''#!/usr/bin/env python3
"""@TITLE@
Expected: @EXPECTED@
Needs torch on the device and nothing else. Exits 1 if the defect shows, 0 if it does not, 2 if it cannot tell."""
import ctypes as C, glob, os, sys, threading, time
PROGRAM = """@PROGRAM@""".replace("; ", "\n")
LEFT_OUT = @LEFT_OUT@  # the control: the same program without the operations of these numbers, from 0
# So many host steps: the event must be complete then (late), or may not be (early), or the buffer may not hold (token).
CHECK = @CHECK@
OBSERVE, FLAGS, GATE = @OBSERVE@
HOLDS, TRIES, WINDOW, LIMIT = (0.1, 0.4, 1.0), 9, 0.1, 1.9  # seconds; a gate that nobody opens ends after LIMIT
VENDORS = {  # torch module, stream handle; driver, prefix, launch; compiler, prefix, option, code; timer, its hertz
    "cuda": ("cuda", "cuda_stream", "libcuda.so", "cu", "cuLaunchKernel", "libnvrtc.so", "nvrtc",
             "--gpu-architecture=sm_{0.major}{0.minor}", "CUBIN",
             'asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t))', 1e9),
    "rocm": ("cuda", "cuda_stream", "libamdhip64.so", "hip", "hipModuleLaunchKernel", "libhiprtc.so", "hiprtc",
             "--offload-arch={0.gcnArchName}", "Code", "t = wall_clock64()", 1e8),
    "musa": ("musa", "musa_stream", "libmusa.so", "mu", "muLaunchKernel", "libmtrtc.so", "mtrtc",
             "--offload-arch=mp_{0.major}{0.minor}", "FatBin", "t = clock64()", 1e9)}
KERNEL = """#define NOW(t) %s\ntypedef unsigned long long ull;
extern "C" __global__ void gate(volatile unsigned* w, unsigned use, ull limit, ull polls) {
  ull start, now, n = 0; NOW(start); now = start; w[32] = use; __threadfence_system();
  for (; (int)(w[0] - use) < 0; ++n) { NOW(now); if (now - start >= limit || n >= polls) { w[34] = use; break; } }
  __threadfence_system(); w[33] = use; }"""
def stop(why): print("cannot tell:", why); sys.exit(2)
def until(seen, seconds):
    end = time.perf_counter() + seconds
    while not (found := seen()) and time.perf_counter() < end: time.sleep(0)
    return found
def library(name, needs):  # what the process has loaded, else the loader's, else what lies beside torch
    with open("/proc/self/maps") as maps: loaded = sorted({l.split(None, 5)[5].strip() for l in maps if "/" in l})
    beside = glob.glob(os.path.join(os.path.dirname(torch.__file__), "..", "nvidia", "*", "lib", name + "*"))
    for path in [p for p in loaded if os.path.basename(p).startswith(name)] + [name, name + ".1"] + beside:
        try: found = C.PyDLL.__mro__[1](path)  # the loader's own class, whatever torchada put in CDLL
        except OSError: continue
        if hasattr(found, needs): return found
    raise OSError(f"no {name} that has {needs}")
def call(library, name, *args):
    code = (getattr(library, name + "_v2", None) or getattr(library, name))(*args)
    if code: raise OSError(f"{name} returned {code}")
def compiled():
    rtc, made, size, loaded, function = library(COMPILER, RTC + "CompileProgram"), *(C.c_void_p() for _ in range(4))
    call(rtc, RTC + "CreateProgram", C.byref(made), (KERNEL % NOW).encode(), b"gate.cu", 0, None, None)
    option = OPTION.format(module.get_device_properties(module.current_device())).encode()
    call(rtc, RTC + "CompileProgram", made, 1, (C.c_char_p * 1)(option))
    call(rtc, f"{RTC}Get{CODE}Size", made, C.byref(size)); image = C.create_string_buffer(size.value or 1)
    call(rtc, f"{RTC}Get{CODE}", made, image); call(driver, CU + "ModuleLoadData", C.byref(loaded), image)
    call(driver, CU + "ModuleGetFunction", C.byref(function), loaded, b"gate"); return function
class Gate:  # words in pinned memory: 0 opened, by the host alone; 33 ended
    def __init__(self, number): self.at, self.use = 64 * number, 0
    def close(self, stream, at_once):
        self.use += 1
        if at_once: self.open()
        raw, at, use = C.c_void_p(getattr(stream, HANDLE)), page.data_ptr() + 4 * self.at, C.c_uint32(self.use)
        if kernel:
            args = C.c_void_p(at), use, C.c_ulonglong(int(LIMIT * HERTZ)), C.c_ulonglong(int(LIMIT * 1e7))
            return call(driver, LAUNCH, kernel, *[1] * 6, 0, raw, (C.c_void_p * 4)(*map(C.addressof, args)), None)
        call(driver, CU + "StreamWaitValue32", raw, C.c_void_p(at), use, 0, *[C.c_uint32(2**32 - 1)] * (CU == "hip"))
        call(driver, CU + "StreamWriteValue32", raw, C.c_void_p(at + 132), use, 0)
        threading.Timer(LIMIT, lambda: self.use == use.value and self.open()).start()
    def open(self): words[self.at] = self.use
    def ended(self): return words[self.at + 33] == self.use
try: import torch
except ImportError as error: stop(f"torch cannot be imported: {error}")
vendor = "musa" if hasattr(torch, "musa") else "rocm" if getattr(torch.version, "hip", None) else "cuda"
MODULE, HANDLE, DRIVER, CU, LAUNCH, COMPILER, RTC, OPTION, CODE, NOW, HERTZ = VENDORS[vendor]
module = getattr(torch, MODULE, None)
if module is None or not module.is_available(): stop(f"torch.{MODULE} has no device")
page = torch.zeros(4096, dtype=torch.int32, pin_memory=True); module.synchronize()
words, found, clean, enders = (C.c_uint32 * 4096).from_address(page.data_ptr()), 0, 0, set()
kernel, gates, buffers, values, streams = None, {}, {}, {}, {"default": module.default_stream()}
try: driver = library(DRIVER, LAUNCH); kernel = compiled() if GATE == "kernel" else None
except (AttributeError, OSError) as error: print(f"no kernel gate ({error}); gates are stream memory operations")
def stream_of(name): return streams.setdefault(name, streams.get(name) or module.Stream())
def gate_of(name): return gates.setdefault(name, Gate(len(gates)))
def buffer(name):
    if name not in buffers:
        where = {"pin_memory": True} if name[0] == "h" else {"device": MODULE}
        buffers[name] = torch.zeros(1024, dtype=torch.int32, **where)
        if name[0] == "h": values[name] = C.c_uint32.from_address(buffers[name].data_ptr())
    return buffers[name]
STEPS = [(l, o.split()) for r in PROGRAM.split("\n") for l, ops in [r.split(": ")] for o in ops.split(", ")]
def run(hold, left_out=(), warm=False):
    "One run: the check is broken; the tokens are there; the step that ends it; a gate that must hold has ended."
    for value in values.values(): value.value = 0
    events, done, broken, there, ender, void, helper, held = {}, 0, False, False, "", False, None, set()
    def event(name): return events.setdefault(name, events.get(name) or module.Event(**FLAGS))
    def seen():
        if "buffer" in CHECK: return values[CHECK["buffer"]].value == CHECK["value"]
        return not helper.is_alive() if helper else event(CHECK["event"]).query()
    try:
        for number, (lane, (op, *args)) in enumerate(STEPS):
            if lane == "host" and OBSERVE == "synchronize" and not helper and done >= CHECK["after"] - 1 and not warm:
                helper = threading.Thread(target=event(CHECK["event"]).synchronize, daemon=True); helper.start()
            if number in left_out: pass
            elif op == "gate": gate_of(args[0]).close(stream_of(lane), warm); held.add(args[0])
            elif op == "record": event(args[0]).record(stream_of(lane))
            elif op == "wait": stream_of(lane).wait_event(event(args[0]))
            elif op == "wait-stream": stream_of(lane).wait_stream(stream_of(args[0]))
            elif op == "open": gate_of(args[0]).open()
            elif op == "destroy": del events[args[0]]
            elif op in ("sync", "sync-stream", "sync-device"):
                what = event(args[0]) if op == "sync" else stream_of(args[0]) if args else module
                waiter = threading.Thread(target=what.synchronize, daemon=True); waiter.start(); waiter.join(LIMIT)
            elif op in ("fill", "copy"):
                with module.stream(stream_of(lane)):
                    if op == "fill": buffer(args[0]).fill_(int(args[1]))
                    else: buffer(args[2]).copy_(buffer(args[0]), non_blocking=True)
            done += lane == "host"
            if warm or lane != "host" or done < CHECK["after"] or ender: continue
            first, late = done == CHECK["after"], CHECK["kind"] == "late"
            is_seen = until(seen, hold if late and first else WINDOW)
            if is_seen and not (late and first): ender = f"{op} {' '.join(args)}".strip()
            if first:
                broken, void = is_seen != late, any(gate_of(gate).ended() for gate in held & {*CHECK["held_by"]})
                there = all(values[name].value == value for name, value in CHECK["tokens"].items())
                if not broken: break
    finally:
        for gate in gates.values(): gate.open()
        module.synchronize()
    return broken, there, ender, void
try: run(0, warm=True), run(0, warm=True)  # nothing may be used for the first time beside a closed gate
except (AttributeError, NameError, OSError) as error: stop(error)
for number in range(TRIES):
    hold = HOLDS[number % 3]
    before, shown, after = run(hold, LEFT_OUT), run(hold), run(hold, LEFT_OUT)
    control = not LEFT_OUT or not (before[0] or before[3] or after[0] or after[3])
    if control and not shown[3]: found, clean = found + shown[0], clean + (not shown[0])
    if control and not shown[3] and shown[0]: enders.add(shown[2] or "nothing")
    said = CHECK["kind"] if shown[0] else "as expected", shown[2] or "-", "there" if shown[1] else "missing"
    print(f"hold {hold:g} s: %s, ended by %s; tokens %s; control %s" % (*said, "as expected" if control else "not"))
    if found == 3 or (clean == 3 and not found): break
if clean and not found: print("the defect does not show"); sys.exit(0)
if found < 3 or len(enders) > 1: stop(f"broken in {found} runs, not in {clean}; ended by {sorted(enders)}")
print(f"the defect shows, {found} times of {found + clean}: @DEFECT@; ended by {', '.join(enders)}"); sys.exit(1)
'''
