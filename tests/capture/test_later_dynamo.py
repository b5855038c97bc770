"""torch's compiler is not loaded in a capture process until a job asks for it, and is whole then."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def _run(code: str) -> str:
    """In a process of its own, since torch's modules are those of the process."""
    start = """
        import sys
        from oomcast.capture.torch.hooks import HOOKS
        HOOKS.load()
        HOOKS.warm_up()
        import torch
        later = sys.modules["torch._dynamo"]
    """
    program = textwrap.dedent(start) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_training_step_loads_no_compiler() -> None:
    out = _run("""
        print(type(later).__name__, "torch._dynamo.eval_frame" in sys.modules, later.config.suppress_errors)
    """)
    assert out.split() == ["_Later", "False", "False"]


def test_the_module_that_stood_there_becomes_the_real_one() -> None:
    out = _run("""
        from torch._dynamo import OptimizedModule
        import torch._dynamo.eval_frame
        print(type(later).__name__, torch._dynamo is later, later.eval_frame.OptimizedModule is OptimizedModule)
        print(later.disable.__module__, later.graph_break.__module__)
    """)
    assert out.split() == ["module", "True", "True", "torch._dynamo.decorators", "torch._dynamo.decorators"]


def test_a_part_that_is_asked_for_first_is_loaded_once() -> None:
    out = _run("""
        from torch._dynamo import eval_frame as before_or_after
        import importlib
        again = importlib.import_module("torch._dynamo.eval_frame")
        print(again is before_or_after is later.eval_frame)
    """)
    assert out.split() == ["True"]
    out = _run("""
        import torch._dynamo.eval_frame as part
        print(part is later.eval_frame, part.__spec__.name, type(part.__spec__.loader).__name__)
    """)
    assert out.split() == ["True", "torch._dynamo.eval_frame", "SourceFileLoader"]


def test_what_optimizers_keep_from_tracing_is_kept_again_once_it_is_loaded() -> None:
    """torch remembers what `disable` returned: what it was given before there was a compiler must not stay."""
    out = _run("""
        def plain(x): return x
        inner = torch._disable_dynamo(plain)
        inner(1)
        print(vars(plain)["__dynamo_disable"] is plain)
        import torch._dynamo.eval_frame
        inner(1)
        print(vars(plain)["__dynamo_disable"] is plain)
    """)
    assert out.split() == ["True", "False"]


def test_a_compiled_function_runs() -> None:
    out = _run("""
        compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
        print(compiled(torch.ones(2)).tolist(), type(later).__name__)
    """)
    assert out.strip() == "[3.0, 3.0] module"


def test_who_keeps_a_function_from_being_traced_gets_the_real_thing() -> None:
    """A library does so when it is loaded, long before a model is compiled."""
    out = _run("""
        kept = torch.compiler.disable(lambda x: x)
        print(type(later).__name__, hasattr(kept, "_torchdynamo_disable"))
    """)
    assert out.split() == ["module", "True"]
    out = _run("""
        from torch._dynamo import graph_break
        print(type(later).__name__, graph_break.__module__)
    """)
    assert out.split() == ["module", "torch._dynamo.decorators"]
