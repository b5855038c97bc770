"""The scripts: where each lies in its public repository, how it is started, and what data it needs."""

from __future__ import annotations

import dataclasses
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
    on_path: str = ""
    """A folder of the repository that its authors put on PYTHONPATH."""
    job: tuple[str, dict[str, object]] | None = None
    """The same training as a job with its options, where one can be written; files are those of `jobs/`."""
    worst_batch: bool = False
    """Whether the largest batch is looked for."""
    gpus: int = 1
    """For how many of them it is started."""
    follows: tuple[str, ...] | None = None
    """Whether it has an `evaluation` and a `saving`, where that is not in the code of its repository."""

    @property
    def name(self) -> str:
        words = self.line.split()
        return f"{self.repository}: {self.folder}/{words[0]}".replace("/./", "/") + (
            f" {' '.join(words[1:4])}" if len(words) > 1 else ""
        )


def _examples(folder: str, line: str, **more: object) -> PublicScript:
    return PublicScript("pytorch/examples", line, folder, **more)  # type: ignore[arg-type]


def _four_gpus(folder: str, line: str) -> PublicScript:
    return _examples(f"distributed/{folder}", f"torchrun --nproc_per_node 4 {line}", gpus=4)


def _gan(folder: str) -> PublicScript:
    return PublicScript(
        "eriklindernoren/PyTorch-GAN", f"{folder}.py", f"implementations/{folder}", data.mnist, "../../data/mnist"
    )


def _lightning(folder: str, line: str) -> PublicScript:
    of_fabric = PublicScript(
        "Lightning-AI/pytorch-lightning", line, f"examples/{folder}", data.mnist, "../../../Datasets"
    )
    if folder.startswith("fabric"):
        return of_fabric
    return dataclasses.replace(of_fabric, make=data.mnist_for_lightning, place="../../Datasets")


def _tutorial(folder: str, make: Callable[[Path], None], place: str) -> PublicScript:
    return PublicScript("yunjey/pytorch-tutorial", "main.py", f"tutorials/{folder}", make, place)


def _learner(line: str) -> PublicScript:
    return PublicScript("vwxyzjn/cleanrl", f"cleanrl/{line}", on_path=".")


def _graphs(line: str, make: Callable[[Path], None], place: str) -> PublicScript:
    return PublicScript("pyg-team/pytorch_geometric", line, "examples", make, f"../data/{place}")


_OF_DOME = r"C:\Users\dome\datasets\landscape_img_folder"
"""Where its author has his pictures; to Linux it is the name of a folder."""
_MINIMIND = "--data_path {data}/text.jsonl --hidden_size 256 --num_hidden_layers 4 --num_workers 2"

SCRIPTS: tuple[PublicScript, ...] = (
    PublicScript(
        "karpathy/nanoGPT",
        "train.py",
        ".",
        data.token_files,
        "data/openwebtext",
        job=(
            "nanogpt.py",
            {
                "batch_size": 12,
                "precision": "amp-bf16",
                "accumulation": 40,
                "zero_grad": "after-step",
                "compile": "model",
            },
        ),
    ),
    PublicScript(
        "karpathy/nanoGPT",
        "train.py config/train_shakespeare_char.py",
        ".",
        lambda folder: data.token_files(folder, vocabulary=65),
        "data/shakespeare_char",
    ),
    PublicScript("karpathy/minGPT", "python projects/adder/adder.py", on_path="."),
    PublicScript(
        "karpathy/makemore",
        "makemore.py --device cuda",
        job=("makemore.py", {"batch_size": 32, "optimizer": "adamw", "zero_grad": "before-backward"}),
    ),
    PublicScript("karpathy/makemore", "makemore.py --device cuda --type rnn"),
    _examples("mnist", "main.py --save-model", make=data.mnist, place="../data", job=("mnist.py", {"batch_size": 64})),
    _examples("mnist_rnn", "main.py --accel --save-model", make=data.mnist, place="../data"),
    _examples("vae", "main.py", make=data.mnist, place="../data"),
    _examples("siamese_network", "main.py --save-model", make=data.mnist, place="../data"),
    _examples("mnist_forward_forward", "main.py", make=data.mnist, place="data"),
    _examples("dcgan", "main.py --dataset fake --accel"),
    _examples(
        "imagenet",
        "main.py -a resnet18 --dummy --gpu 0 -b 64 -j 2",
        job=("torchvision:resnet18", {"batch_size": 64, "optimizer": "sgd-momentum", "zero_grad": "before-backward"}),
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
    PublicScript("tkipf/pygcn", "train.py", "pygcn", data.cora, "../data/cora", on_path="."),
    PublicScript("locuslab/TCN", "add_test.py", "TCN/adding_problem"),
    PublicScript("locuslab/TCN", "copymem_test.py", "TCN/copy_memory"),
    _learner("ppo.py"),
    _learner("dqn.py --learning-starts 200 --save-model"),
    _learner("c51.py --learning-starts 200"),
    _gan("gan"),
    _gan("wgan_gp"),
    _gan("acgan"),
    _gan("dcgan"),
    _gan("infogan"),
    _gan("aae"),
    _gan("began"),
    _gan("cogan"),
    PublicScript("milesial/Pytorch-UNet", "WANDB_MODE=disabled python train.py --amp -b 4", ".", data.masks, "data"),
    PublicScript(
        "huggingface/pytorch-image-models",
        "train.py {data} --model resnet18 --num-classes 6 -b 8 --epochs 2 --amp",
        ".",
        data.folders_of_pictures,
        job=("timm_train.py", {"batch_size": 8, "precision": "amp-fp16", "zero_grad": "after-step"}),
    ),
    PublicScript(
        "pytorch/vision",
        "train.py --data-path {data} --model resnet18 -b 8 --epochs 2",
        "references/classification",
        data.folders_of_pictures,
        job=("vision_classification.py", {"batch_size": 8, "zero_grad": "before-backward"}),
    ),
    PublicScript(
        "pytorch/vision",
        "train.py --data-path {data} --dataset voc --model lraspp_mobilenet_v3_large -b 4 --epochs 2",
        "references/segmentation",
        data.voc,
    ),
    PublicScript(
        "pytorch/vision",
        "train.py --data-path {data} --model fasterrcnn_mobilenet_v3_large_320_fpn -b 2 --epochs 2",
        "references/detection",
        data.coco,
    ),
    PublicScript(
        "pytorch/vision",
        "train.py --dataset-dir {data} --labels-per-batch 4 --samples-per-label 4 --epochs 2",
        "references/similarity",
        data.fashion,
    ),
    PublicScript("Lightning-AI/pytorch-lightning", "bug_report_model.py", "examples/pytorch/bug_report"),
    _lightning("pytorch/basics", "autoencoder.py --trainer.max_epochs 2"),
    _lightning("pytorch/basics", "backbone_image_classifier.py --trainer.max_epochs 2"),
    _lightning("fabric/kfold_cv", "train_fabric.py --epochs 2"),
    PublicScript(
        "Lightning-AI/pytorch-lightning",
        "torchrun --nproc_per_node 1 train_torch.py --cuda",
        "examples/fabric/reinforcement_learning",
    ),
    PublicScript(
        "Lightning-AI/pytorch-lightning",
        "imagenet.py fit --model.data_path {data} --model.arch resnet18 --model.batch_size 8 --trainer.max_epochs 2",
        "examples/pytorch/domain_templates",
        data.folders_of_pictures,
        job=("torchvision:resnet18", {"batch_size": 8, "optimizer": "sgd-momentum", "zero_grad": "before-backward"}),
    ),
    PublicScript("karpathy/minGPT", "python projects/chargpt/chargpt.py", ".", data.one_text, ".", on_path="."),
    PublicScript(
        "karpathy/llm.c",
        "train_gpt2.py --input_bin {data}/train.bin --input_val_bin {data}/train.bin --model d12 --batch_size 8 "
        "--sequence_length 1024 --total_batch_size 16384 --dtype bfloat16 --val_loss_every 5 --write_tensors 0 "
        "--output_dir out --overfit_single_batch 0 --num_iterations 20 --flash 1 --tensorcores 1",
        ".",
        data.llm_c_tokens,
    ),
    _tutorial("01-basics/feedforward_neural_network", data.mnist, "../../data"),
    _tutorial("02-intermediate/convolutional_neural_network", data.mnist, "../../data"),
    _tutorial("02-intermediate/bidirectional_recurrent_neural_network", data.mnist, "../../data"),
    _tutorial("02-intermediate/language_model", data.ptb, "data"),
    _tutorial("03-advanced/generative_adversarial_network", data.mnist, "../../data"),
    _tutorial("03-advanced/variational_autoencoder", data.mnist, "../../data"),
    _graphs("gcn.py", data.planetoid, "Planetoid"),
    _graphs("gat.py", data.planetoid, "Planetoid"),
    _graphs("autoencoder.py --epochs 20", data.planetoid, "Planetoid"),
    _graphs("mutag_gin.py", data.molecules, "TU"),
    _graphs("proteins_topk_pool.py", data.proteins, "PROTEINS"),
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
    PublicScript("Diego999/pyGAT", "train.py", ".", data.cora, "data/cora"),
    PublicScript("Tiiiger/SGC", "citation.py"),
    PublicScript("salesforce/awd-lstm-lm", "main.py --data {data}/ --epochs 2 --save out.pt", ".", data.wikitext),
    PublicScript("TeaPearce/Conditional_Diffusion_MNIST", "script.py", ".", data.mnist, "data"),
    PublicScript(
        "facebookresearch/barlowtwins",
        "main.py {data} --workers 2 --batch-size 16 --epochs 2",
        ".",
        data.folders_of_pictures,
    ),
    PublicScript(
        "facebookresearch/dino",
        "torchrun --nproc_per_node 1 main_dino.py --arch vit_tiny --data_path {data}/train --output_dir out "
        "--batch_size_per_gpu 8 --num_workers 2 --epochs 2 --warmup_epochs 1",
        ".",
        data.folders_of_pictures,
    ),
    PublicScript(
        "yunjey/stargan",
        "main.py --mode train --dataset RaFD --rafd_image_dir {data}/train --rafd_crop_size 96 --image_size 64 "
        "--c_dim 6 --c2_dim 6 --batch_size 4 --use_tensorboard False --sample_step 20 --model_save_step 20 "
        "--num_workers 2",
        ".",
        data.folders_of_pictures,
    ),
    PublicScript("cs230-stanford/cs230-code-examples", "train.py", "pytorch/vision", data.fingers, "data/64x64_SIGNS"),
    PublicScript(
        "yenchenlin/nerf-pytorch",
        "run_nerf.py --config configs/lego.txt",
        ".",
        data.blender_scene,
        "data/nerf_synthetic/lego",
    ),
    PublicScript(
        "facebookresearch/detr",
        "TORCH_HOME={data} python main.py --coco_path {data} --batch_size 2 --epochs 2 --output_dir out",
        ".",
        data.coco_and_resnet,
    ),
    PublicScript("lucidrains/x-transformers", "train_copy.py", on_path="."),
    PublicScript("lucidrains/x-transformers", "train_parity.py", on_path="."),
    PublicScript(
        "fxia22/pointnet.pytorch",
        "train_classification.py --dataset {data} --dataset_type shapenet --batchSize 16 --nepoch 2 --workers 2",
        "utils",
        data.point_clouds,
        on_path=".",
    ),
    _learner("sac_continuous_action.py --env-id Pendulum-v1 --learning-starts 200"),
    _learner("td3_continuous_action.py --env-id Pendulum-v1 --learning-starts 200 --save-model"),
    _learner("ddpg_continuous_action.py --env-id Pendulum-v1 --learning-starts 200"),
    _learner("ppo_continuous_action.py --env-id Pendulum-v1"),
    PublicScript(
        "eriklindernoren/PyTorch-GAN",
        "cyclegan.py --dataset_name oomcast --n_cpu 2",
        "implementations/cyclegan",
        data.two_kinds_of_pictures,
        "../../data/oomcast",
    ),
    PublicScript(
        "eriklindernoren/PyTorch-GAN",
        "pix2pix.py --dataset_name pairs --n_cpu 2",
        "implementations/pix2pix",
        data.pictures_in_pairs,
        "../../data/pairs",
    ),
    _gan("ebgan"),
    _gan("softmax_gan"),
    _examples(
        "fast_neural_style",
        "TORCH_HOME={data} python neural_style/neural_style.py train --dataset {data}/pictures --save-model-dir out "
        "--accel --image-size 128",
        make=data.pictures_and_vgg,
    ),
    PublicScript("pytorch/ignite", "mnist.py", "examples/mnist", data.mnist, "."),
    _four_gpus("ddp-tutorial-series", "multigpu_torchrun.py 50 10"),
    _four_gpus("FSDP2", "example.py"),
    _four_gpus("tensor_parallelism", "tensor_parallel_example.py"),
    _four_gpus("tensor_parallelism", "sequence_parallel_example.py"),
    _four_gpus("tensor_parallelism", "fsdp_tp_example.py"),
    # Added in November 2026: lessons, diffusion, flows, time series, learners. Left out, since they call what today's
    # libraries no longer have (numpy, pandas, protobuf, torch, torchvision, librosa, lightning, accelerate): melgan,
    # Informer2020, pytorch-template, SupContrast, transformer-xl, vq-vae-2-pytorch, Lightning's build_your_own_trainer
    # and reinforce_learn_Qnet, transformers' run_mlm_no_trainer.
    PublicScript("karpathy/ng-video-lecture", "gpt.py"),
    PublicScript("karpathy/ng-video-lecture", "bigram.py"),
    PublicScript("cloneofsimo/minDiffusion", "superminddpm.py", ".", data.mnist, "data"),
    PublicScript("dome272/Diffusion-Models-pytorch", "ddpm.py", ".", data.folders_of_pictures, _OF_DOME),
    PublicScript("rosinality/glow-pytorch", "train.py {data}/train --n_flow 4", ".", data.folders_of_pictures),
    PublicScript("jingyaogong/minimind", f"train_pretrain.py {_MINIMIND}", "trainer", data.lines_of_json),
    PublicScript("jingyaogong/minimind", f"train_pretrain.py {_MINIMIND} --use_moe 1", "trainer", data.lines_of_json),
    PublicScript("XinJingHao/PPO-Continuous-Pytorch", "main.py"),
    PublicScript(
        "thuml/Time-Series-Library",
        "run.py --task_name long_term_forecast --is_training 1 --model_id test --model TimesNet --data ETTh1 "
        "--root_path {data} --d_model 64 --d_ff 64 --train_epochs 2 --num_workers 2",
        ".",
        data.hours_of_a_transformer,
    ),
    PublicScript(
        "aladdinpersson/Machine-Learning-Collection",
        "pytorch_simple_CNN.py",
        "ML/Pytorch/Basics",
        data.mnist,
        "dataset",
    ),
)
