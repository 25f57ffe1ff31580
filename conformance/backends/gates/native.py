"""The vendor's driver by ctypes: calls by role, checked return codes, run-time compilation."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import os
import threading
from typing import TYPE_CHECKING, Any

from conformance.backends.gates.libraries import GateError, GateUnsupported, Library, find_library

if TYPE_CHECKING:
    from conformance.backends.vendors import Build, Vendor


class Native:
    """One vendor's driver in the context that torch made current in the thread that makes this object.

    ``module`` and ``torch`` are torch.<vendor.module> and torch itself, imported here unless given.
    ``found`` says for the report where each library came from.

    Raises GateError if no context is current. Without a driver every call raises, with what was searched.
    """

    def __init__(self, vendor: Vendor, *, module: Any = None, torch: Any = None) -> None:
        self.vendor = vendor
        self.torch: Any = torch if torch is not None else importlib.import_module("torch")
        self.module: Any = module if module is not None else getattr(self.torch, vendor.module)
        #: Ticks and polls a second of the gate kernel, once a kernel gate has measured them.
        self.rates: tuple[float, float] | None = None
        #: Cycles a second of torch's sleep, once a sleep gate has measured them.
        self.cycles: float | None = None
        self.found: dict[str, tuple[str, ...]] = {}
        self._bases = [os.path.dirname(os.path.dirname(str(self.torch.__file__)))]
        self._functions: dict[str, tuple[Any, str]] = {}
        self._missing: dict[str, str] = {}
        self._kernels: dict[str, ctypes.c_void_p] = {}
        self._local = threading.local()
        self._context: int | None = None
        self.module.synchronize()  # torch's init() alone need not make a context current
        self._libraries: list[Library] = []
        self._no_driver = ""
        try:
            self._libraries = [self._find("driver", vendor.driver, vendor.driven)]
        except GateUnsupported as error:
            # Costs the kinds that call it, one by one: torch's own sleep and Triton need none of it.
            self._no_driver = str(error)
        self._context = self.enter()

    def function(self, role: str) -> tuple[Any, str]:
        """The role's function and its name.

        Raises GateUnsupported with the names and libraries that were tried.
        """
        if role in self._functions:
            return self._functions[role]
        if role in self._missing:
            raise GateUnsupported(self._missing[role])
        names = self.vendor.symbols[role]
        why = ""
        if not (got := self._exported(names)) and self.vendor.runtime and "runtime" not in self.found:
            try:
                library = self._find("runtime", self.vendor.runtime, names)
            except GateUnsupported as error:
                why = f"; {error}"
            else:
                self._libraries.append(library)
                got = self._exported(names)
        if got is None:
            paths = ", ".join(dict.fromkeys(library.path for library in self._libraries))
            where = f"not exported by {paths}" if paths else self._no_driver
            self._missing[role] = f"{' or '.join(names)}: {where}{why}"
            raise GateUnsupported(self._missing[role])
        self._functions[role] = got
        return got

    def call(self, role: str, *args: object) -> None:
        """Call the role's function.

        Raises GateError with its name and error if it returns other than 0, GateUnsupported if there is none.
        """
        function, name = self.function(role)
        if code := function(*args):
            said = self.error_name(code)
            self._forget_error()
            raise GateError(f"{name} returned {code} ({said})")

    def error_name(self, code: int) -> str:
        """The driver's name for an error, or "?" where it cannot be asked."""
        for role in ("error", "errorstring"):
            try:
                function = self.function(role)[0]
            except GateUnsupported:
                continue
            if role == "error":
                text = ctypes.c_char_p()
                function(code, ctypes.byref(text))
                said = text.value
            else:  # a runtime's: returns the text
                function.restype = ctypes.c_char_p
                said = function(code)
            if said:
                return str(said.decode(errors="replace"))
        return "?"

    def version(self, role: str) -> str:
        """What a version query of the driver or runtime answers, as text; or the call and why it gave nothing."""
        number = ctypes.c_int()
        try:
            self.call(role, ctypes.byref(number))
        except GateError as error:
            return str(error)
        return str(number.value)

    def query_event(self, event: Any) -> bool:
        """Ask the driver itself whether a torch event is complete: a second opinion on ``event.query()``.

        The number that means "not ready" is not public for every vendor, so the error's name decides.
        Raises GateError for any other answer, and for an event that shows no raw handle.
        """
        function, name = self.function("eventquery")
        handle = int(getattr(event, self.vendor.event_handle, 0) or getattr(event, "event_id", 0) or 0)
        if not handle:
            raise GateError(f"{type(event).__name__} has neither {self.vendor.event_handle} nor event_id")
        code = int(function(ctypes.c_void_p(handle)))
        if code == 0:
            return True
        text = self.error_name(code)
        self._forget_error()
        if text.replace("_", "").replace(" ", "").lower().endswith("notready"):
            return False
        raise GateError(f"{name} returned {code} ({text})")

    def _forget_error(self) -> None:
        """A runtime keeps the last error of a thread, "not ready" too: torch's next check would raise it as its own."""
        with contextlib.suppress(GateUnsupported):
            self.function("lasterror")[0]()

    def handle(self, stream: Any) -> int:
        """The raw handle of a stream of the vendor's module, or of torch.Stream where torch tells it."""
        for attribute in (self.vendor.stream_handle, "native_handle"):
            if hasattr(stream, attribute):
                return int(getattr(stream, attribute))
        raise GateError(f"{type(stream).__name__} has neither {self.vendor.stream_handle} nor native_handle")

    def enter(self) -> int:
        """Make the context current in this thread: a new thread has none until torch works in it."""
        if not hasattr(self._local, "context"):
            context = ctypes.c_void_p()
            try:
                self.call("getctx", ctypes.byref(context))
            except GateError:
                context.value = 1  # name unknown, or it refuses: leave it to torch, and to the self-checks
            if not context.value and self._context:
                self.call("setctx", ctypes.c_void_p(self._context))
                context.value = self._context
            if not context.value:
                raise GateError("no device context is current; touch a tensor on the device first")
            self._local.context = context.value
        return int(self._local.context)

    def kernel(self, name: str, source: str) -> ctypes.c_void_p:
        """The function ``name`` of ``source``, compiled, loaded and looked up once.

        Both loading and the look-up may wait for the device, or hold up other streams: call this before
        any gate closes.
        """
        if name not in self._kernels:
            image = self.compile(source, f"{name}.cu")
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.call("load", ctypes.byref(module), image)
            self.call("get", ctypes.byref(function), module, name.encode())
            self._kernels[name] = function
        return self._kernels[name]

    def compile(self, source: str, name: str) -> ctypes.Array[ctypes.c_char]:
        """Code for the current device, by the vendor's run-time compiler.

        Raises GateUnsupported if there is none, GateError with each build's options, error and log.
        """
        toolkit = (getattr(self.torch.version, "cuda", None) or "").split(".")[0]
        needs = (f"{self.vendor.prefix}CompileProgram",)
        compiler = self._find("compiler", self.vendor.rtc, needs, prefer=f".{toolkit}")
        properties = self.module.get_device_properties(self.module.current_device())
        target = {
            "major": getattr(properties, "major", ""),
            "minor": getattr(properties, "minor", ""),
            "gcn": getattr(properties, "gcnArchName", ""),
        }
        log = []
        for build in self.vendor.builds:
            options = [option.format(**target) for option in build.options]
            try:
                image = self._build(compiler.handle, build, options, source, name)
            except GateError as error:
                log.append(f"with {' '.join(options) or 'no options'}: {error}")
                continue
            self.found["code"] = (build.code, *options)
            return image
        raise GateError(f"{compiler.path} did not compile {name}: {' | '.join(log)}")

    def _build(
        self, compiler: ctypes.CDLL, build: Build, options: list[str], source: str, name: str
    ) -> ctypes.Array[ctypes.c_char]:
        def call(function: str, *args: object) -> int:
            full = self.vendor.prefix + function
            if not hasattr(compiler, full):
                raise GateUnsupported(f"{full}: not exported")
            entry = compiler[full]
            entry.restype = ctypes.c_int
            return int(entry(*args))

        def must(function: str, *args: object) -> None:
            if code := call(function, *args):
                raise GateError(f"{self.vendor.prefix}{function} returned {code}")

        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        must("CreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        try:
            texts = (ctypes.c_char_p * (len(options) + 1))(*(option.encode() for option in options))
            if code := call("CompileProgram", program, len(options), texts):
                must("GetProgramLogSize", program, ctypes.byref(size))
                text = ctypes.create_string_buffer(size.value + 1)
                must("GetProgramLog", program, text)
                said = " ".join(text.value.decode(errors="replace").split())[:400]
                raise GateError(f"{self.vendor.prefix}CompileProgram returned {code}: {said}")
            must(build.size, program, ctypes.byref(size))
            if not size.value:
                raise GateError(f"{self.vendor.prefix}{build.size} says that there is no code")
            image = ctypes.create_string_buffer(size.value)
            must(build.code, program, image)
            return image
        finally:
            if hasattr(compiler, f"{self.vendor.prefix}DestroyProgram"):
                call("DestroyProgram", ctypes.byref(program))

    def elsewhere(self, index: int) -> Native:
        """The same driver for another device of it. Makes that device's context, if torch has not."""
        return _Elsewhere(self, index)

    def _find(self, what: str, patterns: tuple[str, ...], needs: tuple[str, ...], prefer: str = "") -> Library:
        if not patterns:
            raise GateUnsupported(f"no {what} library is known for torch.{self.vendor.module}")
        library = find_library(
            patterns,
            needs,
            folders=self.vendor.folders,
            roots=self.vendor.roots,
            bases=self._bases,
            prefer=prefer,
        )
        self.found[what] = (library.path, library.how)
        return library

    def _exported(self, names: tuple[str, ...]) -> tuple[Any, str] | None:
        for library, name in itertools.product(self._libraries, names):
            if hasattr(library.handle, name):
                function = library.handle[name]  # an object of our own, unlike the attribute
                function.restype = ctypes.c_int
                return function, name
        return None


class _Elsewhere(Native):
    """Every call is made with another device's context current; the one that was current comes back after it.

    That context is torch's, the device's primary one: a kernel is loaded into it, and launched on its streams.
    """

    def __init__(self, native: Native, index: int) -> None:
        self._index = index
        with native.module.device(index):
            super().__init__(native.vendor, module=native.module, torch=native.torch)

    def call(self, role: str, *args: object) -> None:
        """Call the role's function there."""
        with self.module.device(self._index):
            super().call(role, *args)

    def compile(self, source: str, name: str) -> ctypes.Array[ctypes.c_char]:
        """Code for that device."""
        with self.module.device(self._index):
            return super().compile(source, name)
