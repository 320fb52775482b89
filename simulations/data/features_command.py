"""The command ``features``: its arguments, and from them an npz file of features."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from federation.console.arguments import checked, file, whole
from federation.console.output_files import OutputFile, refuse_same_file
from federation.console.process import exit_codes
from simulations.data.backbones import (
    BACKBONES,
    DEFAULT_WEIGHTS,
    DEVICES,
    TRANSFORMS,
    FeatureSettings,
    extract_features,
)
from simulations.data.image_files import find_images

NAME = "features"
SUMMARY = "compute features of images with a frozen torchvision backbone, for compare --data"
EXAMPLES = """examples:
  python -m simulations features --backbone resnet18 --images cifar10 --weights DEFAULT --out features.npz
      cifar10/train/CLASS/*.png and cifar10/test/CLASS/*.png; torchvision downloads its weights
  python -m simulations features --backbone resnet18 --images train --test-images val --weights resnet18.pth \\
      --transform weights --out features.npz
      two folders, weights from a file, the preprocessing that these weights were trained with
  python -m simulations compare --data features.npz
      what the features are for

A run that was stopped goes on from FILE.parts when it is started again.

{exit_codes}"""

MOST_WORKERS = 256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``features`` understands."""
    parser.description = f"{SUMMARY[0].upper()}{SUMMARY[1:]}."
    parser.epilog = EXAMPLES.format(exit_codes=exit_codes("the file is written"))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--backbone", choices=tuple(BACKBONES), required=True, help="torchvision's name: 512, 4096 or 768 features"
    )
    parser.add_argument(
        "--images",
        type=checked(file),
        required=True,
        metavar="FOLDER",
        help="with train/CLASS/ and test/CLASS/, or just CLASS/",
    )
    parser.add_argument(
        "--test-images",
        type=checked(file),
        metavar="FOLDER",
        help="test images by CLASS/; --images then has the training images",
    )
    parser.add_argument(
        "--weights",
        type=checked(lambda text: str(file(text))),
        required=True,
        metavar="FILE|DEFAULT",
        help="a state dict (torch.save or safetensors), or torchvision's own, downloaded once",
    )
    parser.add_argument(
        "--transform",
        choices=TRANSFORMS,
        default="afl",
        help="afl: resize to 224 x 224, mean and deviation 0.5; weights: as torchvision's weights were trained "
        "(default: afl)",
    )
    parser.add_argument("--out", type=checked(file), required=True, metavar="FILE.npz", help="where the features go")
    parser.add_argument(
        "--batch-size",
        type=checked(lambda text: whole(text, at_least=1)),
        default=64,
        metavar="N",
        help="images at a time (default: 64)",
    )
    parser.add_argument("--device", choices=DEVICES, default="auto", help="auto takes a GPU when there is one")
    parser.add_argument(
        "--workers",
        type=checked(lambda text: whole(text, at_least=1, at_most=MOST_WORKERS)),
        default=4,
        metavar="N",
        help="threads that read images (default: 4)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compute and write; the exit code.

    Raises:
        FederationError: wrong input, or a file that cannot be written.
    """
    weights = None if arguments.weights == DEFAULT_WEIGHTS else Path(arguments.weights)
    refuse_same_file({"--weights": weights, "--out": arguments.out})
    OutputFile(arguments.out)  # says at once what would be in the way
    settings = FeatureSettings(
        backbone=arguments.backbone,
        weights=arguments.weights,
        transform=arguments.transform,
        batch_size=arguments.batch_size,
        device=arguments.device,
        workers=arguments.workers,
    )
    train, test = find_images(arguments.images, arguments.test_images)
    with _image_bar(settings.backbone, len(train.paths) + len(test.paths)) as tick:
        extract_features(train, test, settings, arguments.out, tick=tick)
    print(
        f"{arguments.out}: {len(train.paths)} training and {len(test.paths)} test rows of "
        f"{BACKBONES[settings.backbone].n_features} features, {len(train.classes)} classes"
    )
    return 0


@contextmanager
def _image_bar(label: str, n_images: int) -> Iterator[Callable[[int], None]]:
    """A bar over images on standard error, on terminals only; what feeds it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=n_images)
        yield lambda images: bar.advance(task, images)
