"""The training loop that a job file stands for, in each framework, for real: the loop of docs/reference/job-file.md.

The text of this file is put into every case that runs a job file, and may run under a Python that has the framework but
not oomcast: it imports nothing of ours, and a framework only where it is used.
"""

from __future__ import annotations

import importlib
import inspect

MYPY = False
if MYPY:  # typing is not imported in earnest: its memory would be in the figure
    from collections.abc import Callable
    from typing import Any

__all__ = ["train"]


def train(job: Any, framework: str, batch_size: int, steps: int, device: str) -> None:
    """Train the job's model for some steps; `device` is cpu or cuda."""
    {"torch": _torch, "keras": _keras, "jax": _jax, "mxnet": _mxnet}[framework](job, batch_size, steps, device)


def _torch(job: Any, batch_size: int, steps: int, device: str) -> None:
    torch = importlib.import_module("torch")
    tree = importlib.import_module("torch.utils._pytree")
    model = job.model().train().to(device)
    own = getattr(job, "optimizer", None)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = own(model.parameters()) if own else torch.optim.AdamW(trained, lr=1e-3)
    batches = iter(job.batches(batch_size)) if hasattr(job, "batches") else None
    move = lambda item: item.to(device) if isinstance(item, torch.Tensor) else item  # noqa: E731
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        batch = next(batches) if batches is not None else job.batch(batch_size)
        batch = tree.tree_map(move, batch)
        loss = job.loss(model, batch) if hasattr(job, "loss") else _torch_loss(torch, tree, model, batch)
        loss.backward()
        optimizer.step()


def _torch_loss(torch: Any, tree: Any, model: Any, batch: Any) -> Any:
    """The output's own loss; else cross entropy on (x, y); else the mean of the output."""
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    output = model(**batch) if isinstance(batch, dict) else model(batch[0] if pair else batch)
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own
    first = next(leaf for leaf in tree.tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad)
    target = batch[1] if pair else None
    if target is not None and not target.dtype.is_floating_point:
        return torch.nn.functional.cross_entropy(first, target)
    return first.float().mean()


def _keras(job: Any, batch_size: int, steps: int, device: str) -> None:
    keras, tf = importlib.import_module("keras"), importlib.import_module("tensorflow")
    if device == "cpu":
        # Grappler rewrites a graph otherwise in every process, and its peak differs by up to a tenth.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    with keras.device("gpu" if device == "cuda" else "cpu"):
        model = job.model()
        batch = tf.nest.map_structure(lambda item: _filled(item, tf), job.batch(batch_size))
        own = getattr(job, "optimizer", None)
        if not model.compiled or own is not None:
            whole_numbers = not hasattr(job, "loss") and tf.convert_to_tensor(batch[1]).dtype.is_integer
            loss = "sparse_categorical_crossentropy" if whole_numbers else "mean_squared_error"
            loss = model._compile_config.config.get("loss") if model.compiled else loss
            optimizer = own(model.trainable_variables if model.compiled else None) if own else None
            model.compile(optimizer or keras.optimizers.AdamW(1e-3), loss=loss, jit_compile=False)
        model.jit_compile = False
        if not hasattr(job, "loss"):
            for _ in range(steps):
                model.train_on_batch(*tf.nest.map_structure(lambda item: _filled(item, tf), job.batch(batch_size)))
            return
        model(batch[0] if isinstance(batch, tuple) else batch)
        model.optimizer.build(model.trainable_variables)

        @tf.function(jit_compile=False)  # type: ignore[untyped-decorator]
        def step(data: Any) -> Any:
            with tf.GradientTape() as tape:
                value = job.loss(model, data)
            gradients = tape.gradient(value, [variable.value for variable in model.trainable_variables])
            model.optimizer.apply(gradients, model.trainable_variables)
            return value

        for _ in range(steps):
            step(tf.nest.map_structure(lambda item: _filled(item, tf), job.batch(batch_size)))


def _filled(item: Any, tf: Any) -> Any:
    """An array for a description of one."""
    return tf.zeros(item.shape, item.dtype) if isinstance(item, tf.TensorSpec) else item


def _jax(job: Any, batch_size: int, steps: int, device: str) -> None:
    jax, optax = importlib.import_module("jax"), importlib.import_module("optax")

    def batch() -> Any:
        return jax.tree.map(
            lambda leaf: jax.numpy.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf,
            job.batch(batch_size),
        )

    first = batch()
    params, state, apply, view = _jax_model(jax, job.model(), first[0] if isinstance(first, tuple) else first)
    own = getattr(job, "optimizer", None)
    optimizer = own(params) if own else optax.adamw(1e-3)

    def loss(params: Any, state: Any, key: Any, batch: Any) -> Any:
        if hasattr(job, "loss"):
            value = job.loss(view(params, state), batch)
            return value if isinstance(value, tuple) else (value, state)
        x, y = batch
        output, state = apply(params, state, key, x)
        if jax.numpy.issubdtype(y.dtype, jax.numpy.integer):
            return optax.softmax_cross_entropy_with_integer_labels(output, y).mean(), state
        return ((output - y) ** 2).mean(), state

    def step(params: Any, state: Any, opt_state: Any, key: Any, batch: Any) -> Any:
        (value, state), gradients = jax.value_and_grad(loss, has_aux=True)(params, state, key, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), state, opt_state, value

    compiled = jax.jit(step, donate_argnums=(0, 1, 2) if getattr(job, "donate", False) else ())
    opt_state, key = optimizer.init(params), jax.random.key(0)
    for _ in range(steps):
        params, state, opt_state, value = compiled(params, state, opt_state, key, batch())
    jax.block_until_ready(value)


_FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False, "use_running_average": False}


def _jax_model(jax: Any, built: Any, x: Any) -> tuple[Any, Any, Callable[..., Any], Callable[..., Any]]:
    """Parameters, state, `apply(params, state, key, x)`, and what the job's own loss is given."""
    key, package = jax.random.key(0), type(built).__module__ + "".join(base.__module__ for base in type(built).__mro__)
    if isinstance(built, tuple):
        init, forward = built
        return init(key, x), {}, lambda p, s, k, x: (forward(p, x), s), lambda p, s: p
    if "flax.nnx" in package:
        nnx = importlib.import_module("flax.nnx")
        graph, params, rest = nnx.split(built, nnx.Param, ...)

        def run(params: Any, state: Any, key: Any, x: Any) -> Any:
            model = nnx.merge(graph, params, state)
            model.train()
            output = model(x)
            return output, nnx.split(model, nnx.Param, ...)[2]

        return params, rest, run, lambda p, s: nnx.merge(graph, p, s)
    if "equinox" in package:
        equinox = importlib.import_module("equinox")
        params, rest = equinox.partition(built, equinox.is_inexact_array)
        return (
            params,
            {},
            lambda p, s, k, x: (jax.vmap(equinox.combine(p, rest))(x), s),
            lambda p, s: equinox.combine(p, rest),
        )
    if "flax" not in package:  # a transformed function of Haiku
        return built.init(key, x), {}, lambda p, s, k, x: (built.apply(p, k, x), s), lambda p, s: p
    known = inspect.signature(type(built).__call__).parameters
    flags = {name: value for name, value in _FLAGS.items() if name in known}
    state = dict(built.init({"params": key, "dropout": key}, x, **flags))
    params = state.pop("params", {})

    def apply(params: Any, state: Any, key: Any, x: Any) -> Any:
        given = {"params": params, **state}
        output = built.apply(given, x, rngs={"dropout": key}, mutable=list(state) or False, **flags)
        return (output[0], dict(output[1])) if state else (output, state)

    return params, state, apply, lambda p, s: {"params": p, **s}


def _mxnet(job: Any, batch_size: int, steps: int, device: str) -> None:
    mx: Any = importlib.import_module("mxnet")
    context = mx.gpu() if device == "cuda" else mx.cpu()
    # A job for a GPU says mx.gpu() itself; on a CPU that must mean the CPU.
    if device == "cpu":
        mx.gpu = lambda *_: context
    model = job.model()
    model.collect_params().reset_ctx(context)
    own = getattr(job, "optimizer", None)
    trainer = own(model.collect_params()) if own else "adam"
    if not isinstance(trainer, mx.gluon.Trainer):
        trainer = mx.gluon.Trainer(model.collect_params(), trainer)
    for _ in range(steps):
        batch = job.batch(batch_size)
        batch = [item.as_in_context(context) for item in batch] if isinstance(batch, (tuple, list)) else batch
        with mx.autograd.record():
            if hasattr(job, "loss"):
                loss = job.loss(model, batch)
            else:
                output = model(batch[0])
                classes = len(batch[1].shape) < len(output.shape)
                kind = mx.gluon.loss.SoftmaxCrossEntropyLoss if classes else mx.gluon.loss.L2Loss
                loss = kind()(output, batch[1])
        loss.backward()
        trainer.step(batch_size)
    mx.nd.waitall()
