"""What turns files into features: backbones of torchvision and timm, transformers, sentence-transformers, a function.

What the features of torchvision's own three are (their last layer, the classifier for ImageNet, is left out):

- ``resnet18``: the last stage after global average pooling, 512 numbers;
- ``vgg11``: the classifier without its last layer, after its second ReLU, 4096 numbers;
- ``vit_b_16``: the class token after the encoder's layer norm, 768 numbers.

``torchvision:NAME`` is any other of its models, of which ``layers`` name the submodules whose maps are pooled,
``timm:NAME`` one of timm's before its classifier, ``transformers:NAME`` a model of images and
``transformers-text:NAME`` one of texts, the mean of its last hidden states, ``sentence-transformers:NAME`` one of
texts. ``MODULE:FUNCTION`` is a function of a list of paths that returns a matrix with a row for each.

Every library comes with an extra, ``vision`` or ``features``, and is imported only when it is needed.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from analytic_secagg.console.arguments import count, file, items, whole
from analytic_secagg.console.declaration import option
from analytic_secagg.errors import DataError, UsageError
from analytic_secagg.spelling import nearest
from simulations.data.images import first_lines, vision

DEFAULT_WEIGHTS = "DEFAULT"
MOST_WORKERS = 256
NORMALS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "afl": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
"""Means and deviations of the transforms that resize to 224 x 224: what the backbones were trained with, and AFL's."""
TRANSFORMS = (*NORMALS, "weights")
DEVICES = ("auto", "cpu", "cuda")

POOLS = ("mean", "mean-deviation")
"""What becomes of a layer's maps: the mean of each, or with it their standard deviations."""

IMAGES, TEXTS, FILES = "images", "texts", "files"
"""What a source reads."""

LIBRARIES = {
    "torchvision": IMAGES,
    "timm": IMAGES,
    "transformers": IMAGES,
    "transformers-text": TEXTS,
    "sentence-transformers": TEXTS,
}
"""Before the colon of a backbone's name; any other word there is the module of a function, which reads files."""


BACKBONES = {"resnet18": "fc", "vgg11": "classifier.6", "vit_b_16": "heads"}
"""By torchvision's names the backbones of AFL's table 4, each with the submodule that the identity replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSettings:
    """How features are computed.

    Raises:
        UsageError: an unknown choice, or a number below 1.
    """

    backbone: str = option(
        f"{', '.join(BACKBONES)}: 512, 4096 or 768 features; or LIBRARY:NAME with {', '.join(LIBRARIES)}; or "
        "MODULE:FUNCTION",
        lambda text: _known_backbone(text),
        metavar="NAME",
    )
    weights: str | None = option(
        "of torchvision or timm: a state dict (torch.save or safetensors), or the library's own, downloaded once",
        lambda text: str(file(text)),
        metavar="FILE|DEFAULT",
        default=None,
        shown="none",
    )
    layers: tuple[str, ...] = option(
        "submodules of torchvision's or timm's model whose maps are pooled, such as layer3,layer4, in place of its "
        "last features",
        lambda text: tuple(items(text)),
        metavar="NAME,...",
        default=(),
        shown="none",
    )
    pool: str = option(
        "how a layer's maps are pooled: by means, or by means and standard deviations", choices=POOLS, default="mean"
    )
    transform: str = option(
        "imagenet: resize to 224 x 224, ImageNet's mean and deviation; afl: the same with 0.5 and 0.5, to reproduce "
        "that paper; weights: as torchvision tests its weights, the middle of a resized image",
        choices=TRANSFORMS,
        default="imagenet",
    )
    mirror: bool = option("average the features of each image and of its mirror image", default=False)
    batch_size: int = option("images at a time", count, default=64, metavar="N")
    device: str = option("auto takes a GPU when there is one", choices=DEVICES, default="auto")
    workers: int = option(
        "threads that read images",
        lambda text: whole(text, at_least=1, at_most=MOST_WORKERS),
        default=4,
        metavar="N",
    )

    def __post_init__(self) -> None:
        _known_backbone(self.backbone)
        for value, choices in ((self.transform, TRANSFORMS), (self.device, DEVICES), (self.pool, POOLS)):
            if value not in choices:
                raise UsageError(f"{value!r} is none of {', '.join(choices)}")
        is_module = self.library in ("torchvision", "timm")
        if is_module != bool(self.weights):
            raise UsageError(
                "--weights is of torchvision's and timm's models, which need it: a file, or DEFAULT; others say "
                "themselves where their weights are"
            )
        if not is_module and (self.layers or self.mirror):
            raise UsageError("--layers and --mirror are for torchvision's and timm's models; leave them out")
        if self.library == "torchvision" and not self.layers and self.name not in BACKBONES:
            raise UsageError(
                f"where the features of torchvision's {self.name} end is known of {', '.join(BACKBONES)} alone; name "
                "--layers"
            )
        if self.pool != POOLS[0] and not self.layers:
            raise UsageError("--pool is of the maps of --layers; name some, or leave it out")
        if min(self.batch_size, self.workers) < 1:
            raise UsageError(f"a batch size and workers are at least 1, not {self.batch_size} and {self.workers}")

    @property
    def library(self) -> str:
        """What stands before the colon: a library, or a module."""
        before, colon, _ = self.backbone.partition(":")
        return before if colon else "torchvision"

    @property
    def name(self) -> str:
        """What stands behind it: a model, or a function."""
        return self.backbone.partition(":")[2] or self.backbone

    @property
    def reads(self) -> str:
        """Whether it reads images, texts, or whatever files there are."""
        return LIBRARIES.get(self.library, FILES)


def _known_backbone(text: str) -> str:
    if text not in BACKBONES and not all(text.partition(":")):
        raise UsageError(
            f"needs one of {', '.join(BACKBONES)}, LIBRARY:NAME or MODULE:FUNCTION, not {text!r}"
            f"{nearest(text, BACKBONES)}"
        )
    return text


def load_backbone(name: str, weights: str = DEFAULT_WEIGHTS, *, layers: tuple[str, ...] = ()) -> Any:
    """The torchvision model without its head, in eval mode and float32, as an ``nn.Module``; whole where layers count.

    Args:
        name: one of ``BACKBONES``, or any model's where layers are named.
        weights: ``DEFAULT``, which torchvision downloads and keeps, or a file.
        layers: submodules whose maps will be pooled.

    Raises:
        UsageError: the vision extra is not installed, or torchvision has no such model.
        DataError: the weights cannot be had or read, or do not fit this backbone.
    """
    torch, models = vision("torch"), vision("torchvision").models
    if name not in models.list_models():
        raise UsageError(f"torchvision has no model {name!r}{nearest(name, models.list_models())}")
    state = _default_state(name) if weights == DEFAULT_WEIGHTS else _read_state(Path(weights))
    with torch.device("meta"):  # no memory and no random start: every tensor comes from the file
        model = models.get_model(name, weights=None)
    if not layers:
        head = BACKBONES[name]
        parent, _, last = head.rpartition(".")
        setattr(model.get_submodule(parent), last, torch.nn.Identity())
        state = {key: value for key, value in state.items() if not key.startswith(f"{head}.")}
    try:
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise DataError(
            f"{weights} does not fit {name}: {first_lines(str(error))}; name this backbone's weights"
        ) from error
    return model.float().eval().requires_grad_(False)


def image_transform(name: str, transform: str = "imagenet") -> Callable[[Any], Any]:
    """What turns a PIL image into the backbone's input, shape (3, 224, 224)."""
    if transform == "weights":
        chosen: Callable[[Any], Any] = vision("torchvision").models.get_model_weights(name).DEFAULT.transforms()
        return chosen
    steps = vision("torchvision.transforms")
    mean, deviation = NORMALS[transform]
    composed: Callable[[Any], Any] = steps.Compose(
        [steps.Resize((224, 224)), steps.ToTensor(), steps.Normalize(mean=mean, std=deviation)]
    )
    return composed


class Extractor(Protocol):
    """What makes features of files. Its parts load when the first file needs them."""

    def read(self, path: Path) -> Any:
        """Read one file, in a thread of its own."""
        ...

    def features(self, batch: list[Any]) -> NDArray[Any]:
        """Compute the features of what was read, shape (n, d)."""
        ...


def extractor(settings: FeatureSettings, device: str, looks: Looks) -> Extractor:
    """Return what makes features as the settings say.

    Args:
        settings: how.
        device: where.
        looks: gets what is odd in images that are read.

    Raises:
        UsageError: a library is missing, or no such function.
        DataError: weights that cannot be had or read.
    """
    if settings.library in ("torchvision", "timm"):
        return _Network(settings, device, looks)
    if settings.library in ("transformers", "transformers-text"):
        return _Transformer(settings, device, looks)
    return _Sentences(settings, device) if settings.library in LIBRARIES else _Function(settings)


@dataclass(frozen=True, slots=True)
class Looks:
    """What is odd in images that were read; several threads add to it.

    Args:
        kinds: of each image its mode, such as RGB or L.
        blank: images of one color.
        clipped: images more than half of whose pixels are white, as where values were cut off.
    """

    kinds: list[str] = field(default_factory=list)
    blank: list[Path] = field(default_factory=list)
    clipped: list[Path] = field(default_factory=list)

    def see(self, path: Path, kind: str, image: Any) -> None:
        """Look at an image of 8 bits a channel."""
        self.kinds.append(kind)
        if all(low == high for low, high in image.getextrema()):
            self.blank.append(path)
        elif 2 * min(image.histogram()[255::256]) > image.width * image.height:
            self.clipped.append(path)

    def said(self) -> Iterator[str]:
        """Yield sentences: kinds and depth of the images that were read, and how many are odd."""
        if self.kinds:
            counted = ", ".join(f"{n} {kind}" for kind, n in Counter(self.kinds).most_common())
            yield f"images read: {counted}; each becomes RGB with 8 bits a channel"
        for paths, what in (
            (self.blank, "of one color"),
            (self.clipped, "more than half white, as where values beyond 255 were cut off"),
        ):
            if paths:
                yield f"WARNING: {len(paths)} of {len(self.kinds)} images are {what}, such as {min(paths)}"


def read_image(path: Path, looks: Looks | None = None) -> Any:
    """An image file as an RGB PIL image.

    Args:
        path: the file.
        looks: gets what is odd in it.

    Raises:
        DataError: more than 8 bits a channel, which a conversion to RGB cuts off: X-rays would become white, or black.
    """
    with Image.open(path) as image:
        stored = " ".join(str(tile[3]) for tile in image.tile)  # Pillow opens RGB of 16 bits as RGB of 8
        if image.mode in DEEP_MODES or image.mode.startswith("I;") or DEEP_STORED.search(stored):
            raise DataError(
                f"{path} has more than 8 bits a pixel (mode {image.mode}), of which a backbone's input keeps 8: choose "
                "a window of values, as a viewer does, scale it to 0 to 255, and save the images with 8 bits"
            )
        converted = image.convert("RGB")
        if looks is not None:
            looks.see(path, image.mode, converted)
        return converted


DEEP_MODES = ("I", "F")
"""Pillow's modes of whole numbers of 32 bits and of float32; those of 16 bits begin with ``I;``."""

DEEP_STORED = re.compile(r"(?<!BGR);(12|16|32)")
"""How Pillow's decoders name channels of more than 8 bits; BGR;16 are three channels in 16 bits."""


class _Network:
    """A frozen network of torchvision or timm: its last features, or the pooled maps of some layers."""

    def __init__(self, settings: FeatureSettings, device: str, looks: Looks) -> None:
        self._settings, self._device, self._looks = settings, device, looks
        if settings.library == "timm":
            self._model, self._transform = _of_timm(settings)
        else:
            self._model = load_backbone(settings.name, settings.weights or DEFAULT_WEIGHTS, layers=settings.layers)
            self._transform = image_transform(settings.name, settings.transform)
        self._model.to(device)
        self._maps: dict[str, Any] = {}
        for layer in settings.layers:
            self._listen(layer)

    def _listen(self, layer: str) -> None:
        try:
            module = self._model.get_submodule(layer)
        except AttributeError as error:
            names = (name for name, _ in self._model.named_modules())
            raise UsageError(
                f"{self._settings.backbone} has no layer {layer!r}{nearest(layer, names)}; its modules are "
                f"{', '.join(name for name, _ in self._model.named_children())} and what is in them"
            ) from error
        module.register_forward_hook(lambda own, inputs, output: self._maps.__setitem__(layer, output))

    def read(self, path: Path) -> Any:
        return self._transform(read_image(path, self._looks))

    def features(self, batch: list[Any]) -> NDArray[Any]:
        stacked = vision("torch").stack(batch).to(self._device)
        result = self._of(stacked)
        if self._settings.mirror:
            result = (result + self._of(stacked.flip(3))) / 2
        found: NDArray[Any] = result.cpu().numpy()
        return found

    def _of(self, stacked: Any) -> Any:
        last = self._model(stacked)
        if not self._settings.layers:
            return last
        return vision("torch").cat([self._pooled(self._maps[layer]) for layer in self._settings.layers], dim=1)

    def _pooled(self, maps: Any) -> Any:
        """Means of maps of shape (n, c, ...), or of tokens of shape (n, t, c), with their deviations on request."""
        if maps.ndim == 2:
            return maps
        flat = maps.transpose(1, 2) if maps.ndim == 3 else maps.flatten(2)
        means = flat.mean(dim=2)
        if self._settings.pool == POOLS[0]:
            return means
        return vision("torch").cat([means, flat.std(dim=2, unbiased=False)], dim=1)


def _of_timm(settings: FeatureSettings) -> tuple[Any, Any]:
    """A model of timm's without its classifier, and the transform that its weights want."""
    timm = vision("timm", extra="features")
    try:
        model = timm.create_model(settings.name, pretrained=settings.weights == DEFAULT_WEIGHTS, num_classes=0)
    except Exception as error:  # an unknown name, or no way to the hub
        raise DataError(f"timm gives no {settings.name}: {first_lines(str(error))}; name another, or a file") from error
    if settings.weights is not None and settings.weights != DEFAULT_WEIGHTS:
        own, state = model.state_dict(), _read_state(Path(settings.weights))
        try:
            model.load_state_dict({key: state[key] for key in own})
        except (KeyError, RuntimeError) as error:
            raise DataError(
                f"{settings.weights} does not fit {settings.name}: {first_lines(str(error))}; name its weights"
            ) from error
    data = vision("timm.data", extra="features")
    transform = data.create_transform(**data.resolve_model_data_config(model), is_training=False)
    return model.float().eval().requires_grad_(False), transform


class _Transformer:
    """A transformer's last hidden states, averaged over an image's places or over a text's tokens."""

    def __init__(self, settings: FeatureSettings, device: str, looks: Looks) -> None:
        library = vision("transformers", extra="features")
        self._device, self._looks, self._is_text = device, looks, settings.reads == TEXTS
        kind = library.AutoTokenizer if self._is_text else library.AutoImageProcessor
        try:
            self._prepare = kind.from_pretrained(settings.name)
            model = library.AutoModel.from_pretrained(settings.name)
        except (OSError, ValueError) as error:
            raise DataError(
                f"transformers gives no {settings.name}: {first_lines(str(error))}; name a model or its folder"
            ) from error
        self._model = model.float().eval().requires_grad_(False).to(device)

    def read(self, path: Path) -> Any:
        return path.read_text(encoding="utf-8") if self._is_text else read_image(path, self._looks)

    def features(self, batch: list[Any]) -> NDArray[Any]:
        how = {"padding": True, "truncation": True} if self._is_text else {}
        inputs = self._prepare(batch, return_tensors="pt", **how).to(self._device)
        states = self._model(**inputs).last_hidden_state
        if self._is_text:
            mask = inputs["attention_mask"][:, :, None]
            means = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        else:
            means = states.mean(dim=1) if states.ndim == 3 else states.flatten(2).mean(dim=2)
        found: NDArray[Any] = means.cpu().numpy()
        return found


class _Sentences:
    """What sentence-transformers makes of a text."""

    def __init__(self, settings: FeatureSettings, device: str) -> None:
        library = vision("sentence_transformers", extra="features")
        try:
            self._model = library.SentenceTransformer(settings.name, device=device)
        except (OSError, ValueError) as error:
            raise DataError(
                f"sentence-transformers gives no {settings.name}: {first_lines(str(error))}; name a model or its folder"
            ) from error

    def read(self, path: Path) -> Any:
        return path.read_text(encoding="utf-8")

    def features(self, batch: list[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self._model.encode(batch, convert_to_numpy=True, show_progress_bar=False)
        return found


class _Function:
    """A function of one's own: a list of paths in, a matrix with a row for each out."""

    def __init__(self, settings: FeatureSettings) -> None:
        self._place, self._function = settings.backbone, function_of(settings.backbone)

    def read(self, path: Path) -> Any:
        return path

    def features(self, batch: list[Any]) -> NDArray[Any]:
        try:
            found = np.asarray(self._function(batch))
        except Exception as error:
            raise DataError(
                f"{self._place} raised {type(error).__name__} ({error}); call it with a list of paths to see why"
            ) from error
        if found.ndim != 2 or len(found) != len(batch) or found.dtype.kind not in "biuf":
            raise DataError(
                f"{self._place} must return a matrix of numbers with a row for each of {len(batch)} paths, not "
                f"{found.dtype} of shape {found.shape}"
            )
        return found


def function_of(place: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names.

    Raises:
        UsageError: there is none.
    """
    module, _, name = place.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{place} names no function ({error}); it must be importable from here") from error
    return found


def fingerprint(settings: FeatureSettings, device: str) -> dict[str, Any]:
    """Everything but the file that a feature depends on; the number of reading threads is not among it."""
    described = asdict(settings) | {"device": device, "weights": _weights_name(settings)}
    del described["workers"]
    described["layers"] = list(settings.layers)
    libraries = {"torch": "", "torchvision": "", "PIL": ""}
    if settings.library in LIBRARIES and settings.library != "torchvision":
        libraries[settings.library.removesuffix("-text").replace("-", "_")] = "features"
    versions = {name: str(vision(name, extra=extra or "vision").__version__) for name, extra in libraries.items()}
    return described | versions


def _weights_name(settings: FeatureSettings) -> str:
    if settings.library not in LIBRARIES:
        return _digest(Path(inspect.getfile(function_of(settings.backbone))))
    if not settings.weights:
        files = sorted(path for path in Path(settings.name).glob("**/*") if path.is_file())
        return ",".join(map(_digest, files)) or settings.name
    if settings.weights != DEFAULT_WEIGHTS:
        return _digest(Path(settings.weights))
    if settings.library == "timm":
        return str(vision("timm", extra="features").get_pretrained_cfg(settings.name).tag)
    return str(vision("torchvision").models.get_model_weights(settings.name).DEFAULT)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; name a weights file") from error


def _default_state(name: str) -> Mapping[str, Any]:
    weights = vision("torchvision").models.get_model_weights(name).DEFAULT
    try:
        state: Mapping[str, Any] = weights.get_state_dict(progress=True, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"cannot download {weights} from {weights.url} ({error}); download it elsewhere and name the file with "
            "--weights"
        ) from error
    return state


def _read_state(path: Path) -> Mapping[str, Any]:
    """The tensors of a file by name; nothing but tensors is ever unpickled."""
    torch = vision("torch")
    try:
        if path.suffix == ".safetensors":
            state = vision("safetensors.torch").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # pickle, zip and torch each have their own
        reason = first_lines(str(error)) or type(error).__name__
        raise DataError(
            f"cannot read weights from {path}: {reason}; it must be a state dict, written by "
            "torch.save(model.state_dict(), FILE) or as safetensors"
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise DataError(
            f"{path} must hold a state dict, names with tensors, and holds something else: save the state dict alone"
        )
    return state


def pick_device(asked: str) -> str:
    """Return where to compute: ``cpu`` or ``cuda``.

    Raises:
        UsageError: a GPU was asked for and there is none.
    """
    available = bool(vision("torch").cuda.is_available())
    if asked == "cuda" and not available:
        raise UsageError("torch finds no GPU here; use --device cpu, or auto, which takes one when there is one")
    return "cuda" if available and asked != "cpu" else "cpu"
