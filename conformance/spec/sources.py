"""The places in documents that the clauses rest on: cited by page, function or header, never quoted.

A name is the document's letter (C CUDA, H HIP, T torch, M torch_musa, O OpenCL) and a short key.
"""

from __future__ import annotations

from typing import Final

from conformance.spec.records import Source

_CUDA_RT: Final = "CUDA Runtime API"
_CUDA_GUIDE: Final = "CUDA Programming Guide"
_CUDA_GUIDE_OLD: Final = "CUDA C++ Programming Guide (legacy)"
_CCCL: Final = "CCCL libcu++ documentation"
_HIP: Final = "HIP Runtime API reference"
_HIP_DOC: Final = "HIP documentation"
_TORCH: Final = "PyTorch documentation"
_TORCH_SRC: Final = "PyTorch source"
_MUSA: Final = "torch_musa source"
_OPENCL: Final = "OpenCL 3.0 API specification"

# CUDA
C_REC: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventRecord")
C_REREC: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventRecord, on recording an event again")
C_NEVER: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventRecord, on events not yet recorded")
C_QRY: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventQuery")
C_SYN: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventSynchronize")
C_DES: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventDestroy")
C_FLG: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventCreateWithFlags")
C_WAI: Final = Source(document=_CUDA_RT, place="Stream Management, cudaStreamWaitEvent")
C_SQ: Final = Source(document=_CUDA_RT, place="Stream Management, cudaStreamQuery")
C_SS: Final = Source(document=_CUDA_RT, place="Stream Management, cudaStreamSynchronize")
C_PG1: Final = Source(document=_CUDA_GUIDE, place="section 2.3.3, CUDA Events")
C_PG3: Final = Source(document=_CUDA_GUIDE, place="section 2.3.3.4, event query and synchronize examples")
C_PG4: Final = Source(document=_CUDA_GUIDE, place="section 2.3.5, ordering within a stream")
C_MUL: Final = Source(document=_CUDA_GUIDE_OLD, place="Multi-Device System, Stream and Event Behavior")
C_OLD2: Final = Source(document=_CUDA_GUIDE_OLD, place="Asynchronous Concurrent Execution, Streams")
C_MAP: Final = Source(document=_CUDA_GUIDE_OLD, place="Page-Locked Host Memory, Mapped Memory")
C_CON: Final = Source(document="CUDA MPS documentation", place="environment variable CUDA_DEVICE_MAX_CONNECTIONS")
C_EXM1: Final = Source(document=_CCCL, place="Execution model, CUDA APIs")
C_EXM4: Final = Source(document=_CCCL, place="Execution model, example Stream.0")
#: The header driver_types.h beside it holds the error codes of the same rules.
C_CAP: Final = Source(document=_CUDA_GUIDE_OLD, place="CUDA Graphs, Stream Capture, Prohibited Operations")
C_CTM: Final = Source(document=_CUDA_RT, place="Stream Management, cudaThreadExchangeStreamCaptureMode")
C_OLD1: Final = Source(document=_CUDA_GUIDE_OLD, place="Asynchronous Concurrent Execution, Events, on stream zero")
C_ELA: Final = Source(document=_CUDA_RT, place="Event Management, cudaEventElapsedTime")
C_IPC: Final = Source(document=_CUDA_RT, place="Device Management, cudaIpcGetEventHandle and cudaIpcOpenEventHandle")
C_SDES: Final = Source(document=_CUDA_RT, place="Stream Management, cudaStreamDestroy")
C_PRI: Final = Source(document=_CUDA_RT, place="Stream Management, cudaStreamCreateWithPriority")
C_NB: Final = Source(document=_CUDA_RT, place="Stream Management, cudaStreamCreateWithFlags")
C_SSB: Final = Source(document=_CUDA_RT, place="Stream synchronization behavior")
C_ASB: Final = Source(document=_CUDA_RT, place="API synchronization behavior, Memcpy")
C_HFN: Final = Source(document=_CUDA_RT, place="Execution Control, cudaLaunchHostFunc")
C_MOP: Final = Source(document="CUDA Driver API", place="Stream Memory Operations")
C_CTX: Final = Source(document="CUDA Driver API", place="Event Management, cuEventRecord, on contexts")

# HIP
H_REC: Final = Source(document=_HIP, place="Event Management, hipEventRecord")
H_UND: Final = Source(document=_HIP, place="Event Management, hipEventRecord, on events still being recorded")
H_NEV: Final = Source(
    document=_HIP, place="Event Management, hipEventRecord, hipEventQuery, hipEventSynchronize, notes"
)
H_QRY: Final = Source(document=_HIP, place="Event Management, hipEventQuery")
H_SYN: Final = Source(document=_HIP, place="Event Management, hipEventSynchronize")
H_WAI: Final = Source(document=_HIP, place="Stream Management, hipStreamWaitEvent")
H_DES: Final = Source(document=_HIP, place="Event Management, hipEventDestroy")
H_SQ: Final = Source(document=_HIP, place="Stream Management, hipStreamQuery")
H_SS: Final = Source(document=_HIP, place="Stream Management, hipStreamSynchronize")
H_FLG: Final = Source(document=_HIP, place="Event Management, hipEventCreateWithFlags and the event flags")
H_COH: Final = Source(document=_HIP_DOC, place="how-to Coherence control, table of synchronization calls")
H_ENV: Final = Source(document=_HIP_DOC, place="environment variable GPU_MAX_HW_QUEUES")
H_PM: Final = Source(document=_HIP_DOC, place="programming manual, long-running streams")
H_ASY: Final = Source(document=_HIP_DOC, place="how-to Asynchronous concurrent execution")
H_TST: Final = Source(document="hip-tests", place="Unit_hipEventQuery_DifferentDevice")
H_SDES: Final = Source(document=_HIP, place="Stream Management, hipStreamDestroy")
H_PRI: Final = Source(document=_HIP, place="Stream Management, hipStreamCreateWithPriority")
H_HFN: Final = Source(document=_HIP, place="Execution Control, hipLaunchHostFunc (beta)")
H_MOP: Final = Source(document=_HIP, place="Stream Memory Operations, hipStreamWaitValue32 (beta)")
H_ELA: Final = Source(document=_HIP, place="Event Management, hipEventElapsedTime")
H_PTD: Final = Source(document=_HIP_DOC, place="frequently asked questions, default streams")
H_CAP: Final = Source(document=_HIP_DOC, place="HIP API 7.0 changes, stream capture")
H_IPC: Final = Source(document=_HIP, place="Device Management, hipIpcGetEventHandle and hipIpcOpenEventHandle")
H_SRC: Final = Source(document="clr source", place="hipamd/src/hip_event.cpp, Event::query and Event::synchronize")

# torch
T_QRY: Final = Source(document=_TORCH, place="torch.Event.query and torch.cuda.Event.query")
T_NEV: Final = Source(document=_TORCH, place="torch.Event.query, on events not recorded; c10/cuda/CUDAEvent.h")
T_SYN: Final = Source(document=_TORCH, place="torch.cuda.Event.synchronize")
T_WAI: Final = Source(document=_TORCH, place="torch.cuda.Stream.wait_event and torch.Stream.wait_event")
T_WS: Final = Source(document=_TORCH, place="torch.cuda.Stream.wait_stream and torch.Stream.wait_stream")
T_STR: Final = Source(document=_TORCH, place="torch.Stream, class description and record_event")
T_SQ: Final = Source(document=_TORCH, place="torch.Stream.query")
T_SS: Final = Source(document=_TORCH, place="torch.Stream.synchronize")
T_GEN: Final = Source(document=_TORCH, place="torch.Event, class description, unsupported flags")
T_SEM: Final = Source(document=_TORCH, place="note CUDA semantics, CUDA streams")
T_ELA: Final = Source(document=_TORCH, place="torch.cuda.Event.elapsed_time; c10/cuda/CUDAEvent.h")
T_DEV: Final = Source(document=_TORCH, place="torch.cuda.Event, class description, on devices")
T_IPC: Final = Source(document=_TORCH, place="torch.cuda.Event.ipc_handle and from_ipc_handle")
T_PRI: Final = Source(document=_TORCH, place="torch.cuda.Stream, class description, on priority")
T_NBL: Final = Source(document=_TORCH, place="note CUDA semantics, use of pinned memory buffers")
T_CAP: Final = Source(document=_TORCH, place="note CUDA semantics, CUDA graphs, constraints")
#: The interface that every device's guard implements: record, block, queryEvent, queryStream, synchronizeStream.
T_GRD: Final = Source(document=_TORCH_SRC, place="c10/core/impl/DeviceGuardImplInterface.h")
T_POOL: Final = Source(document=_TORCH_SRC, place="c10/cuda/CUDAStream.h, note on the stream pool")
#: Which calls give up the interpreter's lock: synchronize does, query does not.
T_GIL: Final = Source(document=_TORCH_SRC, place="torch/csrc/Event.cpp")

# torch_musa
M_DOC: Final = Source(document=_MUSA, place="torch_musa/core/stream.py, docstrings of Stream and Event")
#: MUSAGuardImpl implements the interface of T_GRD, and so promises what that header says.
M_GRD: Final = Source(document=_MUSA, place="torch_musa/csrc/core/GuardImpl.h, MUSAGuardImpl")
M_POOL: Final = Source(document=_MUSA, place="torch_musa/csrc/core/MUSAStream.cpp, stream pool")
M_ELA: Final = Source(document=_MUSA, place="torch_musa/csrc/core/MUSAEvent.h, elapsed_time")
M_BLOG: Final = Source(document="Moore Threads blog", place="article on MUSA events, stated CUDA compatibility")

# OpenCL
O_STA: Final = Source(document=_OPENCL, place="Execution model, command states")
O_ORD: Final = Source(document=_OPENCL, place="Execution model, prerequisites in an in-order command-queue")
O_DEP: Final = Source(document=_OPENCL, place="Execution model, prerequisites expressed through events")
O_NBL: Final = Source(document=_OPENCL, place="Execution model, blocking and non-blocking commands")
O_CON: Final = Source(document=_OPENCL, place="Execution model, multiple command-queues in one context")
O_FLU: Final = Source(document=_OPENCL, place="Flush and Finish, clFlush")
O_FIN: Final = Source(document=_OPENCL, place="Flush and Finish, clFinish")
O_MRK: Final = Source(document=_OPENCL, place="Markers, barriers and waiting for events, clEnqueueMarkerWithWaitList")
O_BAR: Final = Source(document=_OPENCL, place="Markers, barriers and waiting for events, clEnqueueBarrierWithWaitList")
O_INF: Final = Source(document=_OPENCL, place="Event objects, clGetEventInfo, note on the execution status")
O_WFE: Final = Source(document=_OPENCL, place="Event objects, clWaitForEvents")
O_REL: Final = Source(document=_OPENCL, place="Event objects, clReleaseEvent")
O_CCQ: Final = Source(document=_OPENCL, place="Command-queues, clCreateCommandQueueWithProperties")
O_CRQ: Final = Source(document=_OPENCL, place="Command-queues, clReleaseCommandQueue")
O_RDB: Final = Source(document=_OPENCL, place="Reading, writing and copying buffer objects, clEnqueueReadBuffer")
O_MEM: Final = Source(document=_OPENCL, place="Memory consistency model, synchronization points")
O_THR: Final = Source(document=_OPENCL, place="Multiple host threads, thread safety of API calls")
O_PRF: Final = Source(document=_OPENCL, place="Profiling operations on memory objects and kernels")

# The reference device
REF_MODEL: Final = Source(document="stream-conformance model", place="conformance/model.py")
