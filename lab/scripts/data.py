"""Tiny data in the forms that public scripts read; nothing here is anybody's data."""

from __future__ import annotations

import random
import struct
from pathlib import Path

__all__ = [
    "blender_scene",
    "chair_pictures",
    "coco",
    "coco_and_resnet",
    "cora",
    "fashion",
    "fingers",
    "folders_of_pictures",
    "hours_of_a_transformer",
    "lines_of_json",
    "llm_c_tokens",
    "masks",
    "mnist",
    "mnist_for_lightning",
    "molecules",
    "one_text",
    "pictures",
    "pictures_and_vgg",
    "pictures_in_pairs",
    "planetoid",
    "point_clouds",
    "proteins",
    "ptb",
    "save_pretrained",
    "save_tokenizer",
    "sentences",
    "text_files",
    "token_files",
    "two_kinds_of_pictures",
    "voc",
    "wikitext",
    "yolo",
]

_WORDS = tuple(
    "the cat sat on a mat and saw that it was good to be there while rain fell".replace(" ", "\n").splitlines()
)


def mnist(root: Path, images: int = 320) -> None:
    """The four files of MNIST, uncompressed, as torchvision keeps them."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(0)
    for name in ("train", "t10k"):
        pixels = generator.randbytes(images * 28 * 28)
        labels = bytes(number % 10 for number in range(images))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, images, 28, 28) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, images) + labels)


def mnist_for_lightning(root: Path) -> None:
    """All 60,000 pictures, which its scripts count on; its loader first looks whether there are any in `data`."""
    mnist(root, 60_000)
    mnist(root.parent / "pytorch" / "basics" / "data")


def pictures(folder: Path, count: int = 24, side: int = 96, mode: str = "RGB", suffix: str = "png") -> None:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(1)
    channels = {"RGB": 3, "L": 1}[mode]
    for number in range(count):
        data = generator.randbytes(side * side * channels)
        Image.frombytes(mode, (side, side), data).save(folder / f"{number:04}.{suffix}")


def folders_of_pictures(root: Path, parts: tuple[str, ...] = ("train", "val"), count: int = 12, side: int = 96) -> None:
    """Six classes in each part, as ImageFolder and timm read them."""
    for part in parts:
        for label in ("ant", "bee", "cat", "dog", "elk", "fox"):
            pictures(root / part / label, count, side, suffix="jpg")


def chair_pictures(root: Path) -> None:
    """BSDS300's folders, for super_resolution."""
    for part in ("train", "test"):
        pictures(root / "BSDS300" / "images" / part, 20, 320, suffix="jpg")


def masks(root: Path) -> None:
    """Images and masks of the same names, for Pytorch-UNet."""
    from PIL import Image

    pictures(root / "imgs", 60, 128, suffix="jpg")
    (root / "masks").mkdir(parents=True, exist_ok=True)
    for number in range(60):
        mask = Image.new("L", (128, 128))
        mask.paste(1, (0, 0, 64, 64))
        mask.save(root / "masks" / f"{number:04}_mask.gif")


def token_files(folder: Path, tokens: int = 100_000, vocabulary: int = 50_257) -> None:
    """nanoGPT's train.bin and val.bin."""
    import array

    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(2)
    for name in ("train", "val"):
        data = array.array("H", (generator.randrange(vocabulary) for _ in range(tokens)))
        (folder / f"{name}.bin").write_bytes(data.tobytes())


def llm_c_tokens(folder: Path, tokens: int = 200_000) -> None:
    """A file of llm.c: a header of 256 integers and tokens of 16 bits."""
    import array

    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(2)
    header = array.array("i", [20240520, 1, tokens, *([0] * 253)])
    data = array.array("H", (generator.randrange(50_257) for _ in range(tokens)))
    (folder / "train.bin").write_bytes(header.tobytes() + data.tobytes())


def one_text(folder: Path, name: str = "input.txt") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # minGPT's chargpt goes on from a line of Shakespeare's, whose letters must be there.
    (folder / name).write_text("\n".join([*sentences(2000), "O God, O God!"]))


def lines_of_json(folder: Path) -> None:
    """A text in each line, as language models are pretrained on."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": " ".join(sentences(12))}) for _ in range(1200)]
    (folder / "text.jsonl").write_text("\n".join(lines))


def ptb(folder: Path) -> None:
    one_text(folder, "train.txt")


def fashion(root: Path) -> None:
    """FashionMNIST has MNIST's format."""
    mnist(root)
    (root / "MNIST").rename(root / "FashionMNIST")


def voc(root: Path) -> None:
    """Pictures with a mask each, as PASCAL VOC 2012 lays them out."""
    from PIL import Image

    folder = root / "VOCdevkit" / "VOC2012"
    pictures(folder / "JPEGImages", 24, 160, suffix="jpg")
    (folder / "SegmentationClass").mkdir(parents=True, exist_ok=True)
    (folder / "ImageSets" / "Segmentation").mkdir(parents=True, exist_ok=True)
    for number in range(24):
        mask = Image.new("P", (160, 160))
        mask.paste(1 + number % 20, (0, 0, 80, 80))
        mask.save(folder / "SegmentationClass" / f"{number:04}.png")
    names = "\n".join(f"{number:04}" for number in range(24))
    for part in ("train", "val", "trainval"):
        (folder / "ImageSets" / "Segmentation" / f"{part}.txt").write_text(names)


def coco(root: Path) -> None:
    """Pictures with boxes and outlines, as COCO 2017 lays them out."""
    import json

    (root / "annotations").mkdir(parents=True, exist_ok=True)
    for part in ("train2017", "val2017"):
        pictures(root / part, 16, 240, suffix="jpg")
        images = [{"id": n, "file_name": f"{n:04}.jpg", "width": 240, "height": 240} for n in range(16)]
        boxes = [(n, k) for n in range(16) for k in range(1 + n % 4)]
        annotations = [
            {
                "id": 1 + number,
                "image_id": image,
                "category_id": 1 + k,
                "bbox": [10 + 20 * k, 10, 60, 80],
                "area": 4800,
                "iscrowd": 0,
                "segmentation": [[10 + 20 * k, 10, 70 + 20 * k, 10, 70 + 20 * k, 90, 10 + 20 * k, 90]],
            }
            for number, (image, k) in enumerate(boxes)
        ]
        categories = [{"id": n, "name": f"thing{n}", "supercategory": "thing"} for n in range(1, 91)]
        content = {"images": images, "annotations": annotations, "categories": categories, "info": {}, "licenses": []}
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))


def coco_and_resnet(root: Path) -> None:
    """COCO's files, and where torch.hub looks for it a ResNet-50 whose weights are random."""
    coco(root)
    _downloaded(root / "hub" / "checkpoints", "resnet50", "resnet50-0676ba61.pth")


def pictures_and_vgg(root: Path) -> None:
    """A folder of pictures, and a VGG-16 whose weights are random."""
    pictures(root / "pictures" / "all", 24, 300, suffix="jpg")
    _downloaded(root / "hub" / "checkpoints", "vgg16", "vgg16-397923af.pth")


def _downloaded(folder: Path, model: str, name: str) -> None:
    import torch

    from oomcast.capture.torch.vision_operators import prepare_torchvision

    prepare_torchvision()  # whose operators may be built for another torch
    from torchvision import models

    folder.mkdir(parents=True, exist_ok=True)
    torch.save(models.get_model(model).state_dict(), folder / name)


def two_kinds_of_pictures(root: Path) -> None:
    """CycleGAN's four folders."""
    for part in ("train", "test"):
        for kind in ("A", "B"):
            pictures(root / part / kind, 12, 288, suffix="jpg")


def pictures_in_pairs(root: Path) -> None:
    """pix2pix's: two pictures side by side in each."""
    from PIL import Image

    generator = random.Random(7)
    for part in ("train", "test", "val"):
        (root / part).mkdir(parents=True, exist_ok=True)
        for number in range(12):
            data = generator.randbytes(512 * 256 * 3)
            Image.frombytes("RGB", (512, 256), data).save(root / part / f"{number}.jpg")


def fingers(root: Path) -> None:
    """Pictures whose label is the first letter of their name, as cs230's examples read them."""
    for part in ("train", "val", "test"):
        pictures(root / f"{part}_signs", 6, 64, suffix="jpg")
        for picture in sorted((root / f"{part}_signs").glob("0*.jpg")):
            for label in range(6):
                (root / f"{part}_signs" / f"{label}_{picture.name}").write_bytes(picture.read_bytes())
            picture.unlink()


def blender_scene(root: Path) -> None:
    """Views of a scene as NeRF reads them: pictures with transparency, and where the camera stood."""
    import json

    from PIL import Image

    generator = random.Random(8)
    turn = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 4.0], [0.0, 0.0, 0.0, 1.0]]
    for part in ("train", "val", "test"):
        (root / part).mkdir(parents=True, exist_ok=True)
        frames = []
        for number in range(9):
            Image.frombytes("RGBA", (200, 200), generator.randbytes(160_000)).save(root / part / f"r_{number}.png")
            frames.append({"file_path": f"./{part}/r_{number}", "rotation": 0.01, "transform_matrix": turn})
        content = {"camera_angle_x": 0.69, "frames": frames}
        (root / f"transforms_{part}.json").write_text(json.dumps(content))


def point_clouds(root: Path) -> None:
    """Points of two kinds of things, as ShapeNet's part annotation lays them out."""
    import json

    generator = random.Random(9)
    kinds = {"Airplane": "02691156", "Chair": "03001627"}
    (root / "train_test_split").mkdir(parents=True, exist_ok=True)
    (root / "synsetoffset2category.txt").write_text("\n".join(f"{name}\t{kind}" for name, kind in kinds.items()))
    names = []
    for kind in kinds.values():
        for folder in ("points", "points_label"):
            (root / kind / folder).mkdir(parents=True, exist_ok=True)
        for number in range(40):
            points = [" ".join(f"{generator.random():.4f}" for _ in range(3)) for _ in range(300)]
            (root / kind / "points" / f"{number}.pts").write_text("\n".join(points))
            (root / kind / "points_label" / f"{number}.seg").write_text("\n".join(str(1 + n % 4) for n in range(300)))
            names.append(f"shape_data/{kind}/{number}")
    for part in ("train", "val", "test"):
        (root / "train_test_split" / f"shuffled_{part}_file_list.json").write_text(json.dumps(names))


def hours_of_a_transformer(root: Path) -> None:
    """ETTh1: two years of hours with seven columns."""
    import datetime

    root.mkdir(parents=True, exist_ok=True)
    generator = random.Random(10)
    first = datetime.datetime(2016, 7, 1)
    lines = ["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"]
    for hour in range(17_420):
        moment = first + datetime.timedelta(hours=hour)
        lines.append(",".join([f"{moment:%Y-%m-%d %H:%M:%S}", *(f"{generator.random():.3f}" for _ in range(7))]))
    (root / "ETTh1.csv").write_text("\n".join(lines))


def yolo(root: Path) -> None:
    """Pictures with boxes in text files, and the file that names them."""
    generator = random.Random(5)
    for part in ("train", "val"):
        pictures(root / "images" / part, 16, 160, suffix="jpg")
        (root / "labels" / part).mkdir(parents=True, exist_ok=True)
        for number in range(16):
            boxes = [f"{generator.randrange(3)} 0.5 0.5 0.3 0.4" for _ in range(1 + number % 5)]
            (root / "labels" / part / f"{number:04}.txt").write_text("\n".join(boxes))
    names = "names: {0: cat, 1: dog, 2: elk}"
    (root / "data.yaml").write_text(f"path: {root.resolve()}\ntrain: images/train\nval: images/val\n{names}\n")


def molecules(root: Path, name: str = "MUTAG") -> None:
    """120 small graphs in the text files of a TUDataset."""
    folder = root / name / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(6)
    edges, graph_of, labels, nodes = [], [], [], 0
    for graph in range(120):
        size = generator.randint(10, 28)
        for node in range(size - 1):
            first, second = nodes + node + 1, nodes + node + 2
            edges += [f"{first}, {second}", f"{second}, {first}"]
        graph_of += [str(graph + 1)] * size
        labels += [str(generator.randrange(7)) for _ in range(size)]
        nodes += size
    lines = {
        "A": edges,
        "graph_indicator": graph_of,
        "node_labels": labels,
        "graph_labels": [str(n % 2) for n in range(120)],
    }
    for part, content in lines.items():
        (folder / f"{name}_{part}.txt").write_text("\n".join(content) + "\n")


def proteins(root: Path) -> None:
    molecules(root, "PROTEINS")


def planetoid(root: Path) -> None:
    """Cora's eight files: 1,600 papers, the last 1,000 of them for testing."""
    import pickle

    import numpy
    from scipy import sparse

    folder = root / "Cora" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    words = sparse.random(1600, 64, density=0.1, format="csr", random_state=0, dtype=numpy.float32)
    labels = numpy.eye(7, dtype=numpy.int64)[numpy.arange(1600) % 7]
    parts = {
        "x": words[:140],
        "tx": words[600:],
        "allx": words[:600],
        "y": labels[:140],
        "ty": labels[600:],
        "ally": labels[:600],
        "graph": {n: [(n * 7 + 1) % 1600, (n * 3 + 2) % 1600] for n in range(1600)},
    }
    for name, content in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(content))
    (folder / "ind.cora.test.index").write_text("\n".join(str(n) for n in range(600, 1600)) + "\n")


def sentences(count: int, longest: int = 24) -> list[str]:
    generator = random.Random(3)
    return [" ".join(generator.choices(_WORDS, k=generator.randint(4, longest))) for _ in range(count)]


def text_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.txt").write_text("\n".join(sentences(3000)))
    (folder / "validation.txt").write_text("\n".join(sentences(400)))
    for name, count in (("train", 300), ("validation", 60)):
        lines = [
            f'"{one}","{two}",{n % 2}'
            for n, (one, two) in enumerate(zip(sentences(count), sentences(count, 40), strict=True))
        ]
        (folder / f"{name}.csv").write_text("sentence1,sentence2,label\n" + "\n".join(lines))


def wikitext(folder: Path) -> None:
    """The three files that word_language_model reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text("\n".join(sentences(2000)))


def cora(folder: Path) -> None:
    """1,600 papers with 64 words each, and citations among them, in the form of Cora's two files."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(4)
    rows = [[str(n), *(str(generator.randrange(2)) for _ in range(64)), f"class{n % 7}"] for n in range(1600)]
    (folder / "cora.content").write_text("\n".join("\t".join(row) for row in rows))
    (folder / "cora.cites").write_text("\n".join(f"{n}\t{(n * 7 + 1) % 1600}" for n in range(1600)))


def save_tokenizer(folder: Path, kind: str, **settings: object) -> None:
    """A word tokenizer with that model's special tokens, and a configuration of two layers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
    vocabulary = {word: number for number, word in enumerate([*special, *sorted(set(_WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        eos_token="<|endoftext|>",
        model_max_length=128,
    ).save_pretrained(folder)
    settings = settings or {"num_hidden_layers" if kind == "bert" else "n_layer": 2}
    save_pretrained(folder, kind, vocab_size=1024, **settings)


def save_pretrained(folder: Path, kind: str, **settings: object) -> None:
    """A model with its weights, which are random."""
    from oomcast.capture.torch.vision_operators import prepare_torchvision

    prepare_torchvision()  # whose operators may be built for another torch
    from transformers import AutoConfig, AutoModel

    AutoModel.from_config(AutoConfig.for_model(kind, **settings)).save_pretrained(folder)
