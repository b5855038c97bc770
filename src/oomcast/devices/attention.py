"""What a card's compute capability decides about attention kernels.

torch's choice (`sdp_utils.cpp`) asks these questions of a card, and no others. So two cards with equal traits run every
attention call with the same kernel, under the same libraries. The choice itself is in
`oomcast.capture.torch.personality`; this is apart from it, since it needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AttentionTraits", "attention_traits"]

_NEWEST = 121
"""torch 2.13 has attention kernels for compute capabilities up to 12.1."""


@dataclass(frozen=True, slots=True)
class AttentionTraits:
    """The answers of one compute capability."""

    has_efficient: bool
    """The memory-efficient kernels, from Maxwell (5.0) on."""
    has_flash: bool
    """Flash and cuDNN attention, and the memory-efficient kernels in bfloat16, from Ampere (8.0) on."""
    single_alignment: int
    """Head sizes must divide by this in fp32 for the memory-efficient kernels."""
    half_alignment: int
    """The same in float16 and bfloat16."""
    small_shared_memory: bool
    """Flash attention's backward refuses some head sizes above 192 (8.6 to 8.9, 12.0 and 12.1)."""
    prefers_cudnn: bool
    """cuDNN comes first, where its version is new enough, under CUDA 13 (9.x and 10.x)."""
    prefers_cudnn_before_cuda_13: bool
    """And under CUDA 12 as well (9.0, 10.0 and 10.3)."""
    prefers_cudnn_in_torch_2_9: bool
    """And in torch 2.9, whatever CUDA it has (9.0 and 10.0)."""
    is_hopper: bool
    """9.0: the first whose larger head sizes fit cuDNN's kernels (torch 2.9)."""
    is_newer_than_hopper: bool
    """Fused kernels know it from torch 2.7 on."""
    is_data_center: bool
    """Larger head sizes fit cuDNN's kernels (9.0 and 10.x)."""
    has_wide_heads_late: bool
    """10.7 gets them with a later cuDNN than the others."""

    def takes_single_like(self, other: AttentionTraits) -> bool:
        """Whether each fp32 call that the memory-efficient kernel takes on the other card is taken by it here too.

        Flash and cuDNN attention take no fp32, so only the alignment of the heads can be in the way.
        """
        # An older torch has no fused kernels for a newer card.
        is_known = other.is_newer_than_hopper or not self.is_newer_than_hopper
        return self.has_efficient and is_known and self.single_alignment <= other.single_alignment


def attention_traits(compute_capability: tuple[int, int]) -> AttentionTraits:
    major, minor = compute_capability
    sm = major * 10 + minor
    # 128 bits on tensor cores (in half precision from Volta on), and at least 4 elements from Ampere on.
    return AttentionTraits(
        has_efficient=50 <= sm <= _NEWEST,
        has_flash=80 <= sm <= _NEWEST,
        single_alignment=4 if sm >= 80 else 1,
        half_alignment=8 if sm >= 70 else 1,
        small_shared_memory=86 <= sm <= 89 or 120 <= sm <= 121,
        prefers_cudnn=major in (9, 10),
        prefers_cudnn_before_cuda_13=major in (9, 10) and minor in (0, 3),
        prefers_cudnn_in_torch_2_9=major in (9, 10) and minor == 0,
        is_hopper=sm == 90,
        is_newer_than_hopper=sm > 90,
        is_data_center=sm == 90 or 100 <= sm <= 109,
        has_wide_heads_late=sm == 107,
    )
