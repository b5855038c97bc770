import subprocess
import sys
from pathlib import Path

import oomcast.simulate
import oomcast.trace


def test_the_public_names_exist_and_are_sorted_as_told() -> None:
    for room in (oomcast.simulate, oomcast.trace):
        assert all(hasattr(room, name) for name in room.__all__)
        assert len(set(room.__all__)) == len(room.__all__)
    assert {"simulate", "least_capacity", "replay", "read_snapshot", "AllocatorSettings"} <= set(
        oomcast.simulate.__all__
    )
    assert {"Trace", "verify", "read_trace", "write_trace"} <= set(oomcast.trace.__all__)


def loads_a_framework(code: str) -> bool:
    check = "import sys; sys.exit(any(name in sys.modules for name in ('torch', 'numpy')))"
    return subprocess.run([sys.executable, "-c", f"{code}\n{check}"], check=False).returncode == 1


def test_the_rooms_load_no_framework() -> None:
    assert not loads_a_framework("import oomcast.simulate, oomcast.trace")


def test_loading_a_framework_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("")
    assert loads_a_framework(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import numpy")
