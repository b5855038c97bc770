"""Tiny data and models in the layouts that frameworks above torch read; models have random weights."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from .data import folders_of_pictures, pictures, save_pretrained, save_tokenizer, sentences, text_files

__all__ = [
    "captioned_pictures",
    "flowers",
    "glue",
    "graph_of_posts",
    "language_modeling",
    "mnist_pictures",
    "questions",
    "sentence_pairs",
    "stable_diffusion",
    "summaries",
]


# -- Hugging Face ------------------------------------------------------------------------------------------------------

_METRIC = '''"""A metric of the name that a script asks for, so that nothing is fetched."""
import datasets
import evaluate


class Metric(evaluate.Metric):
    def _info(self):
        return evaluate.MetricInfo(
            description="", citation="", features=datasets.Features({features})
        )

    def _compute(self, predictions, references, **more):
        return {{"{name}": sum(p == r for p, r in zip(predictions, references)) / len(references)}}
'''
_NUMBERS = '{"predictions": datasets.Value("int32"), "references": datasets.Value("int32")}'
_TEXTS = '{"predictions": datasets.Value("string"), "references": datasets.Value("string")}'
_ANSWERS = (
    '{"predictions": {"id": datasets.Value("string"), "prediction_text": datasets.Value("string")}, '
    '"references": {"id": datasets.Value("string"), "answers": datasets.features.Sequence('
    '{"text": datasets.Value("string"), "answer_start": datasets.Value("int32")})}}'
)


def _metric(folder: Path, name: str, features: str = _NUMBERS) -> None:
    """`evaluate.load(name)` looks for a folder of that name before it asks the hub."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / f"{name}.py").write_text(_METRIC.format(name=name, features=features))


def language_modeling(folder: Path) -> None:
    """Text, a GPT-2, a BERT, and the metric that the three scripts of that folder load."""
    text_files(folder)
    save_tokenizer(folder / "gpt2", "gpt2")
    save_tokenizer(folder / "bert", "bert")
    _metric(folder, "accuracy")


def sentence_pairs(folder: Path) -> None:
    """For run_glue.py: two sentences and a label in each row."""
    text_files(folder)
    save_tokenizer(folder / "bert", "bert")
    _metric(folder, "accuracy")


def glue(folder: Path) -> None:
    """The names by which accelerate's examples ask the hub, as folders beside them."""
    save_tokenizer(folder / "bert-base-cased", "bert")
    mrpc = folder / "nyu-mll" / "glue" / "mrpc"
    mrpc.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 300), ("validation", 60), ("test", 60)):
        pairs = zip(sentences(count), sentences(count, 90), strict=True)
        rows = [{"sentence1": one, "sentence2": two, "label": n % 2, "idx": n} for n, (one, two) in enumerate(pairs)]
        (mrpc / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parts = "\n".join(f"  - split: {part}\n    path: mrpc/{part}.jsonl" for part in ("train", "validation", "test"))
    (mrpc.parent / "README.md").write_text(f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{parts}\n---\n")
    _metric(folder, "glue")


def questions(folder: Path) -> None:
    """For run_qa.py: SQuAD's fields, of contexts whose lengths differ widely."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 240), ("validation", 60)):
        rows: list[dict[str, Any]] = []
        for number, context in enumerate(sentences(count, 110)):
            first = context.split()[0]
            answers = {"text": [first], "answer_start": [0]}
            rows.append({"id": str(number), "context": context, "question": f"what {first}", "answers": answers})
        (folder / f"{part}.json").write_text(json.dumps({"data": rows}))
    save_tokenizer(folder / "bert", "bert")
    _metric(folder, "squad", _ANSWERS)


def summaries(folder: Path) -> None:
    """For run_summarization.py, which generates in its evaluation."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 200), ("validation", 40)):
        rows = [{"text": text, "summary": " ".join(text.split()[:6])} for text in sentences(count, 60)]
        (folder / f"{part}.json").write_text("\n".join(map(json.dumps, rows)))
    sizes = {"num_layers": 2, "d_model": 128, "d_ff": 256, "num_heads": 4, "d_kv": 32}
    save_tokenizer(folder / "t5", "t5", **sizes, decoder_start_token_id=0, pad_token_id=0)
    _metric(folder, "rouge", _TEXTS)


def flowers(folder: Path) -> None:
    """For run_image_classification.py: pictures by class, and a ViT of two layers."""
    folders_of_pictures(folder)
    save_pretrained(folder / "vit", "vit", num_hidden_layers=2, hidden_size=192, num_attention_heads=3)
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224}}
    (folder / "vit" / "preprocessor_config.json").write_text(json.dumps(processor))
    _metric(folder, "accuracy")


# -- diffusers ---------------------------------------------------------------------------------------------------------


def captioned_pictures(folder: Path) -> None:
    """An image folder of `datasets`, with a text for each picture."""
    pictures(folder / "train", 24, 64, suffix="png")
    rows = [{"file_name": f"{n:04}.png", "text": text} for n, text in enumerate(sentences(24))]
    (folder / "train" / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))


def stable_diffusion(folder: Path) -> None:
    """A pipeline of Stable Diffusion's parts, each with a few narrow layers, and captioned pictures beside it."""
    captioned_pictures(folder)
    pictures(folder / "dog", 5, 64)
    from oomcast.capture.torch.vision_operators import prepare_torchvision

    prepare_torchvision()  # whose operators may be built for another torch
    diffusers = importlib.import_module("diffusers")
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = [chr(code) for code in range(33, 127)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)
    text = CLIPTextConfig(
        vocab_size=len(words), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4
    )
    blocks = ("CrossAttnDownBlock2D", "DownBlock2D"), ("UpBlock2D", "CrossAttnUpBlock2D")
    unet = diffusers.UNet2DConditionModel(
        block_out_channels=(64, 128),
        layers_per_block=1,
        sample_size=32,
        down_block_types=blocks[0],
        up_block_types=blocks[1],
        cross_attention_dim=64,
    )
    vae = diffusers.AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
    )
    diffusers.StableDiffusionPipeline(
        vae=vae,
        text_encoder=CLIPTextModel(text),
        tokenizer=tokenizer,
        unet=unet,
        scheduler=diffusers.DDPMScheduler(num_train_timesteps=1000),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder / "pipeline")


# -- fastai: each data set in the folder that `untar_data` would have unpacked -----------------------------------------


def mnist_pictures(home: Path) -> None:
    """And a ResNet-18 where torch.hub keeps what it has fetched."""
    for part in ("training", "testing"):
        for digit in range(10):
            pictures(home / "data" / "mnist_png" / part / str(digit), 80, 28, "L")
    import torch

    from oomcast.capture.torch.vision_operators import prepare_torchvision

    prepare_torchvision()
    from torchvision.models import ResNet18_Weights, resnet18

    checkpoints = home / "torch" / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    torch.save(resnet18().state_dict(), checkpoints / ResNet18_Weights.IMAGENET1K_V1.url.rpartition("/")[2])


# -- PyG ---------------------------------------------------------------------------------------------------------------


def graph_of_posts(root: Path) -> None:
    """Reddit's two files: 4,000 posts whose numbers of neighbours differ widely."""
    import numpy
    from scipy import sparse

    folder, nodes = root / "raw", 4000
    folder.mkdir(parents=True, exist_ok=True)
    generator = numpy.random.default_rng(9)
    degrees = numpy.minimum(generator.zipf(1.7, nodes), 300)
    rows = numpy.repeat(numpy.arange(nodes), degrees)
    graph = sparse.coo_matrix(
        (numpy.ones(len(rows)), (rows, generator.integers(0, nodes, len(rows)))), shape=(nodes, nodes)
    )
    sparse.save_npz(folder / "reddit_graph.npz", graph)
    numpy.savez(
        folder / "reddit_data.npz",
        feature=generator.standard_normal((nodes, 64)).astype("float32"),
        label=generator.integers(0, 41, nodes),
        node_types=numpy.arange(nodes) % 3 + 1,
    )
