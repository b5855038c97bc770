"""What a device's allocator makes of a Trace: the caching allocator, workspace rules, Timeline, recorded snapshots."""

from __future__ import annotations

from .allocators import Allocator, Settings, settings_for
from .bfc import BfcAllocator, BfcSettings, pool_limit, system_reserve
from .blocks import BlockState, SegmentState
from .caching_allocator import CachingAllocator, DeviceFull, SegmentSource
from .history import Action, ActionKind, History, record_history
from .invariants import broken_invariants
from .least_capacity import least_capacity, least_capacity_of
from .live import LiveMemory
from .mxnet import StoragePool, StoragePoolSettings, TempSpace
from .onnx_arena import ArenaSettings
from .orders import reserved_in_other_orders
from .program import Program, compile_trace
from .recorded import Divergence, Frame, RecordedEvent, ReplayResult, Snapshot, read_snapshot, replay
from .settings import AllocatorSettings
from .timeline import (
    Failure,
    LiveBlock,
    Peak,
    SpanPeak,
    Timeline,
    run_program,
    simulate,
)
from .workspace import (
    CUBLAS_RULES,
    NOTHING,
    DeviceFacts,
    Persistent,
    Rule,
    Transient,
    Workspace,
    WorkspaceTable,
    cublas_workspace,
    cublas_workspace_size,
)

__all__ = [
    "CUBLAS_RULES",
    "NOTHING",
    "Action",
    "ActionKind",
    "Allocator",
    "AllocatorSettings",
    "ArenaSettings",
    "BfcAllocator",
    "BfcSettings",
    "BlockState",
    "CachingAllocator",
    "DeviceFacts",
    "DeviceFull",
    "Divergence",
    "Failure",
    "Frame",
    "History",
    "LiveBlock",
    "LiveMemory",
    "Peak",
    "Persistent",
    "Program",
    "RecordedEvent",
    "ReplayResult",
    "Rule",
    "SegmentSource",
    "SegmentState",
    "Settings",
    "Snapshot",
    "SpanPeak",
    "StoragePool",
    "StoragePoolSettings",
    "TempSpace",
    "Timeline",
    "Transient",
    "Workspace",
    "WorkspaceTable",
    "broken_invariants",
    "compile_trace",
    "cublas_workspace",
    "cublas_workspace_size",
    "least_capacity",
    "least_capacity_of",
    "pool_limit",
    "read_snapshot",
    "record_history",
    "replay",
    "reserved_in_other_orders",
    "run_program",
    "settings_for",
    "simulate",
    "system_reserve",
]
