"""Scripts of the frameworks above torch. Their packages are in no extra of oomcast: see docs/howto/run-a-script.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import data, framework_data
from .table import PublicScript

__all__ = ["FRAMEWORKS"]


def _transformers(folder: str, line: str, make: Callable[[Path], None], **more: Any) -> PublicScript:
    """Metrics are looked for in the folder where the script runs, so the data are made there."""
    return PublicScript("huggingface/transformers", line, f"examples/pytorch/{folder}", make, ".", **more)


def _accelerate(line: str, folder: str = "examples") -> PublicScript:
    return PublicScript("huggingface/accelerate", line, folder, framework_data.glue, ".")


def _diffusers(folder: str, line: str, make: Callable[[Path], None]) -> PublicScript:
    return PublicScript("huggingface/diffusers", f"accelerate launch {line}", f"examples/{folder}", make)


def _fastai(line: str, make: Callable[[Path], None]) -> PublicScript:
    return PublicScript(
        "fastai/fastai", f"FASTAI_HOME={{data}} TORCH_HOME={{data}}/torch python {line}", "nbs/examples", make
    )


def _detection(line: str) -> PublicScript:
    return PublicScript("pytorch/vision", f"train.py --data-path {{data}} {line}", "references/detection", data.coco)


_BOTH = ("evaluation", "saving")
_TEXT = "--train_file train.txt --validation_file validation.txt"
_TRAINER = "--do_train --do_eval --output_dir out --num_train_epochs 2 --per_device_train_batch_size 8"
_NO_TRAINER = "--output_dir out --num_train_epochs 2 --per_device_train_batch_size 8"
_PAIRS = "--model_name_or_path bert --train_file train.csv --validation_file validation.csv"
_QUESTIONS = "--model_name_or_path bert --train_file train.json --validation_file validation.json"
_PIPELINE = "--pretrained_model_name_or_path {data}/pipeline --resolution 64 --train_batch_size 4 --output_dir out"
_DOGS = "--instance_data_dir {data}/dog --instance_prompt dog"

_qa = _transformers(
    "question-answering", f"run_qa.py {_QUESTIONS} {_TRAINER} --max_seq_length 128", framework_data.questions
)

FRAMEWORKS: tuple[PublicScript, ...] = (
    _transformers(
        "language-modeling",
        f"run_clm.py --config_name gpt2 --tokenizer_name gpt2 {_TEXT} {_TRAINER}",
        framework_data.language_modeling,
    ),
    _transformers(
        "language-modeling",
        f"run_mlm.py --config_name bert --tokenizer_name bert {_TEXT} {_TRAINER} --line_by_line",
        framework_data.language_modeling,
    ),
    _transformers(
        "text-classification",
        f"run_glue.py {_PAIRS} {_TRAINER}",
        framework_data.sentence_pairs,
        job=("run_glue.py", {"batch_size": 8, "zero_grad": "after-step"}),
    ),
    _transformers(
        "text-classification",
        f"accelerate launch run_glue_no_trainer.py {_PAIRS} {_NO_TRAINER}",
        framework_data.sentence_pairs,
    ),
    _qa,
    _transformers(
        "summarization",
        f"run_summarization.py --model_name_or_path t5 --train_file train.json --validation_file validation.json "
        f"{_TRAINER} --predict_with_generate --bf16",
        framework_data.summaries,
    ),
    _transformers(
        "image-classification",
        f"run_image_classification.py --model_name_or_path vit --train_dir train --validation_dir val {_TRAINER} "
        "--remove_unused_columns False --ignore_mismatched_sizes True --fp16",
        framework_data.flowers,
    ),
    _accelerate("accelerate launch nlp_example.py --mixed_precision fp16"),
    dataclasses.replace(_accelerate("accelerate launch --multi_gpu --num_processes 4 nlp_example.py"), gpus=4),
    _accelerate("accelerate launch complete_nlp_example.py --checkpointing_steps epoch --output_dir out"),
    _accelerate("gradient_accumulation.py --gradient_accumulation_steps 4", "examples/by_feature"),
    _diffusers(
        "unconditional_image_generation",
        "train_unconditional.py --train_data_dir {data} --resolution 64 --train_batch_size 4 --num_epochs 1 "
        "--output_dir out --ddpm_num_inference_steps 20",
        framework_data.captioned_pictures,
    ),
    _diffusers(
        "text_to_image",
        f"train_text_to_image.py {_PIPELINE} --train_data_dir {{data}} --num_train_epochs 2 --checkpointing_steps 3 "
        "--validation_prompts dog --validation_epochs 1 --use_ema",
        framework_data.stable_diffusion,
    ),
    _diffusers(
        "text_to_image",
        f"train_text_to_image_lora.py {_PIPELINE} --train_data_dir {{data}} --mixed_precision fp16 "
        "--num_train_epochs 2 --checkpointing_steps 3 --validation_prompt dog --num_validation_images 1",
        framework_data.stable_diffusion,
    ),
    _diffusers(
        "dreambooth",
        f"train_dreambooth_lora.py {_PIPELINE} {_DOGS} --max_train_steps 20 --checkpointing_steps 5 "
        "--validation_prompt dog --validation_epochs 5",
        framework_data.stable_diffusion,
    ),
    _fastai("mnist_items.py", framework_data.mnist_pictures),
    _fastai("mnist_blocks.py", framework_data.mnist_pictures),
    PublicScript("fastai/fastai", "migrating_fastai.py", "nbs/examples", data.mnist, "../data"),
    PublicScript(
        "huggingface/pytorch-image-models",
        "train.py {data} --model vit_tiny_patch16_224 --num-classes 6 -b 16 --epochs 2 --opt adamw --amp "
        "--amp-dtype bfloat16 --model-ema --workers 2",
        ".",
        data.folders_of_pictures,
    ),
    _detection("--model maskrcnn_resnet50_fpn -b 2 --epochs 2 --workers 0"),
    _detection("--model retinanet_resnet50_fpn -b 2 --epochs 2 --amp"),
    PublicScript(
        "pytorch/vision",
        "train.py --data-path {data} --dataset voc --model deeplabv3_resnet50 -b 4 --epochs 2 --aux-loss --amp",
        "references/segmentation",
        data.voc,
    ),
    PublicScript(
        "ultralytics/yolov5",
        "train.py --data {data}/data.yaml --weights= --cfg models/yolov5n.yaml --img 160 --batch-size 4 --epochs 2 "
        "--workers 2",
        ".",
        data.yolo,
        follows=_BOTH,
    ),
    PublicScript(
        "ultralytics/yolov5",
        "yolo detect train data={data}/data.yaml model=yolo11n.yaml imgsz=160 batch=4 nbs=4 epochs=2 workers=2",
        ".",
        data.yolo,
        follows=_BOTH,
    ),
    PublicScript(
        "ultralytics/yolov5",
        "yolo classify train data={data} model=yolo11n-cls.yaml imgsz=96 batch=8 epochs=2 workers=0",
        ".",
        data.folders_of_pictures,
        follows=_BOTH,
    ),
    PublicScript(
        "pyg-team/pytorch_geometric", "reddit.py", "examples", framework_data.graph_of_posts, "../data/Reddit"
    ),
    *(
        dataclasses.replace(script, worst_batch=True)
        for script in (_qa, _detection("--model fasterrcnn_mobilenet_v3_large_fpn -b 2 --epochs 2"))
    ),
)
