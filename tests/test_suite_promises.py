"""The suite's own promises can be broken, and then it says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("workers", [[], ["-n", "1"]], ids=["here", "in a worker"])
def test_a_process_that_is_left_behind_fails_the_session(tmp_path: Path, workers: list[str]) -> None:
    if workers:
        pytest.importorskip("xdist")
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path / "conftest.py")
    source = tmp_path / "conftest.py"
    source.write_text(source.read_text().replace("_GRACE = 10.0", "_GRACE = 0.5"))
    leaving = "import subprocess\n\ndef test_leaves():\n    subprocess.Popen(['sleep', '61'], start_new_session=True)\n"
    (tmp_path / "test_leaving.py").write_text(leaving)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, "test_leaving.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "sleep 61" in done.stdout
    assert "1 passed" in done.stdout
    assert done.returncode == 1


def test_no_folder_of_frameworks_is_put_on_the_path_of_all_its_tests() -> None:
    """A conftest.py puts its folder on the path: `import jax` would then find the folder of JAX' tests."""
    named_like_frameworks = {"jax", "tensorflow", "mxnet", "onnx"}
    for conftest in Path(__file__).parent.rglob("conftest.py"):
        assert not named_like_frameworks & {entry.name for entry in conftest.parent.iterdir()}, conftest


def test_every_file_of_tests_has_a_name_of_its_own() -> None:
    """Folders of tests are no packages: pytest takes two files of one name for one module, and stops at the second.

    It is seen only where both are run.
    """
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
