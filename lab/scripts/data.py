"""Tiny data in the forms that public scripts read; nothing here is anybody's data."""

from __future__ import annotations

import random
import struct
from pathlib import Path

__all__ = [
    "bert_and_text",
    "chair_pictures",
    "cora",
    "folders_of_pictures",
    "gpt_and_text",
    "masks",
    "mnist",
    "pictures",
    "token_files",
    "wikitext",
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

    pictures(root / "imgs", 24, 128, suffix="jpg")
    (root / "masks").mkdir(parents=True, exist_ok=True)
    for number in range(24):
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


def _sentences(count: int, longest: int = 24) -> list[str]:
    generator = random.Random(3)
    return [" ".join(generator.choices(_WORDS, k=generator.randint(4, longest))) for _ in range(count)]


def _text_files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.txt").write_text("\n".join(_sentences(3000)))
    (folder / "validation.txt").write_text("\n".join(_sentences(400)))
    for name, count in (("train", 300), ("validation", 60)):
        lines = [
            f'"{one}","{two}",{n % 2}'
            for n, (one, two) in enumerate(zip(_sentences(count), _sentences(count, 40), strict=True))
        ]
        (folder / f"{name}.csv").write_text("sentence1,sentence2,label\n" + "\n".join(lines))


def wikitext(folder: Path) -> None:
    """The three files that word_language_model reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text("\n".join(_sentences(2000)))


def cora(folder: Path) -> None:
    """1,600 papers with 64 words each, and citations among them, in the form of Cora's two files."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(4)
    rows = [[str(n), *(str(generator.randrange(2)) for _ in range(64)), f"class{n % 7}"] for n in range(1600)]
    (folder / "cora.content").write_text("\n".join("\t".join(row) for row in rows))
    (folder / "cora.cites").write_text("\n".join(f"{n}\t{(n * 7 + 1) % 1600}" for n in range(1600)))


def _tokenizer(folder: Path, kind: str) -> None:
    """A word tokenizer with that model's special tokens, and a configuration of two layers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, PreTrainedTokenizerFast

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
    layers = {"num_hidden_layers": 2} if kind == "bert" else {"n_layer": 2}
    AutoConfig.for_model(kind, vocab_size=1024, **layers).save_pretrained(folder)


def bert_and_text(folder: Path) -> None:
    _text_files(folder)
    _tokenizer(folder / "bert", "bert")


def gpt_and_text(folder: Path) -> None:
    _text_files(folder)
    _tokenizer(folder / "gpt2", "gpt2")
