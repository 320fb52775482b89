"""The command ``features``: an npz file of features from its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from federation.console.arguments import file
from federation.console.declaration import Command, option, part
from federation.console.output_files import OutputFile, refuse_same_file
from simulations.command_line.progress import image_bar
from simulations.data.backbones import BACKBONES, DEFAULT_WEIGHTS, FeatureSettings, extract_features
from simulations.data.images import find_images


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesOptions:
    """All that ``features`` understands."""

    images: Path = option("with train/CLASS/ and test/CLASS/, or just CLASS/", file, metavar="FOLDER")
    test_images: Path | None = option(
        "test images by CLASS/; --images then has the training images", file, default=None, metavar="FOLDER"
    )
    settings: FeatureSettings = part(FeatureSettings)
    out: Path = option("where the features go", file, metavar="FILE.npz")

    def __post_init__(self) -> None:
        weights = self.settings.weights
        refuse_same_file({"--weights": None if weights == DEFAULT_WEIGHTS else Path(weights), "--out": self.out})


def run(options: FeaturesOptions) -> int:
    """Compute and write; the exit code.

    Raises:
        FederationError: wrong input, or a file that cannot be written.
    """
    OutputFile(options.out)  # says at once what would be in the way
    train, test = find_images(options.images, options.test_images)
    with image_bar(options.settings.backbone, len(train.paths) + len(test.paths)) as tick:
        extract_features(train, test, options.settings, options.out, tick=tick)
    print(
        f"{options.out}: {len(train.paths)} training and {len(test.paths)} test rows of "
        f"{BACKBONES[options.settings.backbone].n_features} features, {len(train.classes)} classes"
    )
    return 0


COMMAND = Command(
    name="features",
    summary="compute features of images with a frozen torchvision backbone, for compare --data",
    examples="""examples:
  python -m simulations features --backbone resnet18 --images cifar10 --weights DEFAULT --out features.npz
      cifar10/train/CLASS/*.png and cifar10/test/CLASS/*.png; torchvision downloads its weights
  python -m simulations features --backbone resnet18 --images train --test-images val --weights resnet18.pth \\
      --transform weights --out features.npz
      two folders, weights from a file, the preprocessing that these weights were trained with
  python -m simulations compare --data features.npz
      what the features are for

A run that was stopped goes on from FILE.parts when it is started again.

""",
    options=FeaturesOptions,
    run=run,
    fine="the file is written",
)
