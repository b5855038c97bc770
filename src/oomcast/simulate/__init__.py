"""What a device's allocator makes of a Trace: the caching allocator, workspace rules, Timeline, recorded snapshots."""

from ._allocators import Allocator, Settings, settings_for
from ._blocks import BlockState, SegmentState
from ._caching_allocator import CachingAllocator, DeviceFull, SegmentSource
from ._history import Action, ActionKind, History, record_history
from ._invariants import broken_invariants
from ._least_capacity import least_capacity
from ._replay import Divergence, ReplayResult, replay
from ._settings import AllocatorSettings
from ._snapshot import Frame, RecordedEvent, Snapshot, read_snapshot
from ._timeline import Failure, LiveBlock, Peak, SpanPeak, Timeline, simulate
from ._workspace import (
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
from .bfc import BfcAllocator, BfcSettings, pool_limit, system_reserve
from .mxnet import StoragePool, StoragePoolSettings, TempSpace

__all__ = [
    "CUBLAS_RULES",
    "NOTHING",
    "Action",
    "ActionKind",
    "Allocator",
    "AllocatorSettings",
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
    "Peak",
    "Persistent",
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
    "cublas_workspace",
    "cublas_workspace_size",
    "least_capacity",
    "pool_limit",
    "read_snapshot",
    "record_history",
    "replay",
    "settings_for",
    "simulate",
    "system_reserve",
]
