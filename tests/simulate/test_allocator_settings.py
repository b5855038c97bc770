import pytest

from oomcast.errors import BadInput, UnknownName
from oomcast.simulate import AllocatorSettings
from oomcast.units import KiB, MiB


def test_defaults_are_those_of_torch() -> None:
    assert AllocatorSettings.parse("") == AllocatorSettings()
    assert AllocatorSettings().max_split_size is None
    assert not AllocatorSettings().expandable_segments


def test_every_setting_with_effect_is_read() -> None:
    settings = AllocatorSettings.parse(
        " max_split_size_mb:128, expandable_segments:True ,garbage_collection_threshold:0.8,"
        "large_segment_size_mb:32,max_non_split_rounding_mb:64,per_process_memory_fraction:0.5,backend:native"
    )
    assert settings == AllocatorSettings(
        max_split_size=128 * MiB,
        expandable_segments=True,
        garbage_collection_threshold=0.8,
        large_segment_size=32 * MiB,
        max_non_split_rounding=64 * MiB,
        per_process_memory_fraction=0.5,
    )


def test_settings_that_hold_no_device_memory_are_accepted() -> None:
    text = "pinned_use_background_threads:True,release_lock_on_cudamalloc:True,pinned_num_register_threads:8"
    assert AllocatorSettings.parse(text) == AllocatorSettings()


def test_an_unknown_key_shows_near_ones() -> None:
    with pytest.raises(UnknownName, match="max_split_size_mb"):
        AllocatorSettings.parse("max_split_size:128")


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:19",
        "max_split_size_mb:many",
        "large_segment_size_mb:10",
        "large_segment_size_mb:64,max_split_size_mb:40",
        "max_non_split_rounding_mb:5",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:nan",
        "expandable_segments:true",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[300:2]",
        "roundup_power2_divisions:[256:3]",
        "roundup_power2_divisions:[256]",
        "roundup_power2_divisions:[256:2",
        "backend:cudaMallocAsync",
        "max_split_size_mb",
        "max_split_size_mb:128;expandable_segments:True",
        ":128",
    ],
)
def test_what_torch_refuses_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        AllocatorSettings.parse(text)
    assert str(caught.value).endswith((".", "?"))
    assert "\n" not in str(caught.value)


def test_the_least_split_size_is_a_large_segment() -> None:
    assert AllocatorSettings.parse("max_split_size_mb:20").max_split_size == 20 * MiB


def test_one_number_of_divisions_holds_for_all_sizes() -> None:
    assert AllocatorSettings.parse("roundup_power2_divisions:4").roundup_power2_divisions == (4,) * 16


def test_divisions_by_size() -> None:
    settings = AllocatorSettings.parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]")
    # The first entry also holds for all smaller sizes, the last for all larger ones.
    assert settings.roundup_power2_divisions == (1,) * 9 + (2, 4) + (8,) * 5


@pytest.mark.parametrize(
    ("nbytes", "rounded"), [(1, 512), (511, 512), (512, 512), (513, 1024), (1 * MiB, 1 * MiB), (MiB + 1, MiB + 512)]
)
def test_sizes_are_multiples_of_512(nbytes: int, rounded: int) -> None:
    assert AllocatorSettings().round_size(nbytes) == rounded


@pytest.mark.parametrize(
    ("nbytes", "rounded"),
    [
        (1200, 1536),  # not above 4 × 512: plain rounding
        (3000, 3072),  # between 2048 and 4096 in steps of 512
        (4096, 4096),
        (5 * MiB + 1, 6 * MiB),  # between 4 and 8 MiB in steps of 1 MiB
        (7 * MiB, 7 * MiB),
        (7 * MiB + 1, 8 * MiB),
    ],
)
def test_rounding_to_four_divisions(nbytes: int, rounded: int) -> None:
    assert AllocatorSettings(roundup_power2_divisions=(4,) * 16).round_size(nbytes) == rounded


@pytest.mark.parametrize(
    ("mib", "rounded"), [(100, 100), (300, 300), (600, 768), (1100, 1280), (3000, 3072), (100_000, 106_496)]
)
def test_rounding_by_size(mib: int, rounded: int) -> None:
    settings = AllocatorSettings.parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]")
    assert settings.round_size(mib * MiB) == rounded * MiB


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [
        (512, 2 * MiB),
        (MiB, 2 * MiB),
        (MiB + 512, 20 * MiB),
        (10 * MiB - 512, 20 * MiB),
        (10 * MiB, 10 * MiB),
        (10 * MiB + 512, 12 * MiB),
    ],
)
def test_what_the_device_is_asked_for(rounded: int, segment: int) -> None:
    assert AllocatorSettings().segment_size(rounded) == segment


def test_settings_of_a_recording() -> None:
    divisions = {str(1 << index): 0 for index in range(16)} | {"256": 4}
    settings = AllocatorSettings.from_recording(
        {
            "PYTORCH_CUDA_ALLOC_CONF": "large_segment_size_mb:40,max_split_size_mb:100",
            "max_split_size": 100 * MiB,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": True,
            "roundup_power2_divisions": divisions,
        }
    )
    assert settings == AllocatorSettings(
        max_split_size=100 * MiB,
        expandable_segments=True,
        large_segment_size=40 * MiB,
        roundup_power2_divisions=(0,) * 8 + (4,) + (0,) * 7,
    )


def test_settings_of_a_recording_that_says_nothing_are_the_defaults() -> None:
    assert AllocatorSettings.from_recording({"max_split_size": -1}) == AllocatorSettings()
    assert AllocatorSettings.from_recording({"PYTORCH_CUDA_ALLOC_CONF": "from:the_future"}) == AllocatorSettings()


def test_direct_construction_is_checked_too() -> None:
    with pytest.raises(BadInput):
        AllocatorSettings(max_split_size=512 * KiB)
    with pytest.raises(BadInput):
        AllocatorSettings(roundup_power2_divisions=(2,))
    with pytest.raises(BadInput):
        AllocatorSettings(per_process_memory_fraction=0.0)
