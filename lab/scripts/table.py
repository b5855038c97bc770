"""The scripts: where each lies in its public repository, how it is started, and what data it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import data

__all__ = ["SCRIPTS", "PublicScript"]


@dataclass(frozen=True)
class PublicScript:
    repository: str
    """`owner/name`."""
    line: str
    """The command, from `folder`; {data} is the folder that `make` filled."""
    folder: str = "."
    """Within the repository."""
    make: Callable[[Path], None] | None = None
    """Fills a folder with data."""
    place: str = ""
    """Where the script wants that folder, from `folder`; "" where it can be told."""
    job: tuple[str, dict[str, object]] | None = None
    """The same training as a job with its options, where one can be written."""

    @property
    def name(self) -> str:
        words = self.line.split()
        return f"{self.repository}: {self.folder}/{words[0]}".replace("/./", "/") + (
            f" {' '.join(words[1:4])}" if len(words) > 1 else ""
        )


def _examples(folder: str, line: str, **more: object) -> PublicScript:
    return PublicScript("pytorch/examples", line, folder, **more)  # type: ignore[arg-type]


def _gan(folder: str) -> PublicScript:
    return PublicScript(
        "eriklindernoren/PyTorch-GAN", f"{folder}.py", f"implementations/{folder}", data.mnist, "../../data/mnist"
    )


def _hf(folder: str, line: str, make: Callable[[Path], None]) -> PublicScript:
    return PublicScript("huggingface/transformers", line, f"examples/pytorch/{folder}", make)


_TEXT = "--train_file {data}/train.txt --validation_file {data}/validation.txt"
_ROWS = "--train_file {data}/train.csv --validation_file {data}/validation.csv"
_TRAINER = "--do_train --output_dir out --num_train_epochs 1 --per_device_train_batch_size 8"

SCRIPTS: tuple[PublicScript, ...] = (
    PublicScript("karpathy/nanoGPT", "train.py", ".", data.token_files, "data/openwebtext"),
    PublicScript(
        "karpathy/nanoGPT",
        "train.py config/train_shakespeare_char.py",
        ".",
        lambda folder: data.token_files(folder, vocabulary=65),
        "data/shakespeare_char",
    ),
    PublicScript("karpathy/minGPT", "python projects/adder/adder.py"),
    PublicScript("karpathy/makemore", "makemore.py --device cuda"),
    PublicScript("karpathy/makemore", "makemore.py --device cuda --type rnn"),
    _examples("mnist", "main.py --save-model", make=data.mnist, place="../data"),
    _examples("mnist_rnn", "main.py --accel --save-model", make=data.mnist, place="../data"),
    _examples("vae", "main.py", make=data.mnist, place="../data"),
    _examples("siamese_network", "main.py --save-model", make=data.mnist, place="../data"),
    _examples("mnist_forward_forward", "main.py", make=data.mnist, place="data"),
    _examples("dcgan", "main.py --dataset fake --accel"),
    _examples(
        "imagenet",
        "main.py -a resnet18 --dummy --gpu 0 -b 64 -j 2",
        job=("torchvision:resnet18", {"batch_size": 64, "optimizer": "sgd-momentum"}),
    ),
    _examples("word_language_model", "main.py --accel --epochs 2", make=data.wikitext, place="data/wikitext-2"),
    _examples(
        "word_language_model",
        "main.py --accel --epochs 2 --model Transformer --use-optimizer",
        make=data.wikitext,
        place="data/wikitext-2",
    ),
    _examples(
        "super_resolution",
        "main.py --upscale_factor 3 --accel --batchSize 4",
        make=data.chair_pictures,
        place="dataset",
    ),
    PublicScript("tkipf/pygcn", "train.py", "pygcn", data.cora, "../data/cora"),
    PublicScript("locuslab/TCN", "add_test.py", "TCN/adding_problem"),
    PublicScript("locuslab/TCN", "copymem_test.py", "TCN/copy_memory"),
    PublicScript("vwxyzjn/cleanrl", "cleanrl/ppo.py"),
    PublicScript("vwxyzjn/cleanrl", "cleanrl/dqn.py --learning-starts 200 --save-model"),
    PublicScript("vwxyzjn/cleanrl", "cleanrl/c51.py --learning-starts 200"),
    _gan("gan"),
    _gan("wgan_gp"),
    _gan("acgan"),
    PublicScript("milesial/Pytorch-UNet", "WANDB_MODE=disabled python train.py --amp -b 4", ".", data.masks, "data"),
    _hf(
        "language-modeling",
        f"run_clm.py --config_name {{data}}/gpt2 --tokenizer_name {{data}}/gpt2 {_TEXT} {_TRAINER}",
        data.gpt_and_text,
    ),
    _hf(
        "language-modeling",
        f"run_mlm.py --config_name {{data}}/bert --tokenizer_name {{data}}/bert {_TEXT} {_TRAINER}",
        data.bert_and_text,
    ),
    PublicScript(
        "huggingface/pytorch-image-models",
        "train.py {data} --model resnet18 --num-classes 6 -b 8 --epochs 2 --amp",
        ".",
        data.folders_of_pictures,
    ),
    PublicScript(
        "pytorch/vision",
        "train.py --data-path {data} --model resnet18 -b 8 --epochs 2",
        "references/classification",
        data.folders_of_pictures,
    ),
    PublicScript("Lightning-AI/pytorch-lightning", "bug_report_model.py", "examples/pytorch/bug_report"),
    PublicScript(
        "Lightning-AI/pytorch-lightning",
        "train_torch.py --save-model",
        "examples/fabric/image_classifier",
        data.mnist,
        "../../../Datasets",
    ),
    PublicScript(
        "Lightning-AI/pytorch-lightning",
        "train_fabric.py --save-model",
        "examples/fabric/image_classifier",
        data.mnist,
        "../../../Datasets",
    ),
    PublicScript(
        "huggingface/diffusers",
        "accelerate launch train_unconditional.py --train_data_dir {data} --resolution 64 --train_batch_size 4 "
        "--num_epochs 1 --output_dir out --ddpm_num_inference_steps 20",
        "examples/unconditional_image_generation",
        lambda folder: data.folders_of_pictures(folder, ("train",)),
    ),
)
