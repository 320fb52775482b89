from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.extras import needs

from analytic_secagg.datasets import load_npz
from analytic_secagg.errors import DataError, OutputError, UsageError
from simulations.__main__ import main
from simulations.data import features_command as backbones
from simulations.data.extractors import FeatureSettings, image_transform, load_backbone, pick_device
from simulations.data.features_command import extract_features
from simulations.data.images import find_images

torch = needs("torch")
torchvision = needs("torchvision")


@pytest.fixture(scope="module")
def resnet(tmp_path_factory) -> Path:
    """Randomly initialised ResNet-18 weights in a file, batch norm with statistics of its own."""
    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
    file = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(model.state_dict(), file)
    return file


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """Two classes of small made images, of several sizes and modes: 4 for training, 2 for testing."""
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    shapes = {"train": [(32, 32, 3), (20, 50, 3), (40, 30), (32, 32, 4)], "test": [(32, 32, 3), (60, 24, 3)]}
    for part, all_shapes in shapes.items():
        for number, shape in enumerate(all_shapes):
            path = folder / part / ("cats" if number % 2 else "ants") / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)
    return folder


def _settings(weights: Path, **others) -> FeatureSettings:
    return FeatureSettings(backbone="resnet18", weights=str(weights), device="cpu", batch_size=2, **others)


def _directly(model, paths, transform, *, batch: int = 2):
    """Features by torchvision alone, in the same batches."""
    rows = [transform(Image.open(path).convert("RGB")) for path in paths]
    with torch.inference_mode():
        results = [model(torch.stack(rows[start : start + batch])) for start in range(0, len(rows), batch)]
    return torch.cat(results).numpy()


def _headless_resnet(weights: Path):
    model = torchvision.models.resnet18(weights=None)
    model.load_state_dict(torch.load(weights, weights_only=True))
    model.fc = torch.nn.Identity()
    return model.eval()


def _afl_transform(image):
    """AFL's preprocessing in torchvision's functions: 224 x 224, mean and deviation 0.5."""
    functional = torchvision.transforms.functional
    resized = functional.resize(image, [224, 224])
    return functional.pil_to_tensor(resized).float() / 255 * 2 - 1


def test_features_are_those_of_direct_torchvision_calls(images, resnet, tmp_path):
    train, test = find_images(images)
    ticks: list[int] = []
    settings = _settings(resnet, transform="afl")
    extract_features(train, test, settings, tmp_path / "features.npz", tick=ticks.append)
    dataset = load_npz(tmp_path / "features.npz")  # what compare reads
    model = _headless_resnet(resnet)
    assert dataset.x_train.shape == (4, 512)
    for features, part in ((dataset.x_train, train), (dataset.x_test, test)):
        # The one difference is how (x - 0.5) / 0.5 is rounded, 2^-24 an entry. These 18 layers keep the size of their
        # input, so they make it larger by far less than a thousand times.
        np.testing.assert_allclose(features, _directly(model, part.paths, _afl_transform), rtol=1e-4, atol=1e-4)
        exact = _directly(model, part.paths, image_transform("resnet18", "afl"))
        assert features.tobytes() == exact.tobytes()
    assert dataset.x_train.std() > 0.01
    assert dataset.y_train.tolist() == [0, 0, 1, 1]
    assert dataset.y_test.tolist() == [0, 1]
    assert sum(ticks) == 6
    with np.load(tmp_path / "features.npz") as archive:
        assert archive["classes"].tolist() == ["ants", "cats"]
        assert json.loads(str(archive["settings"]))["transform"] == "afl"
    assert [path.name for path in tmp_path.iterdir()] == ["features.npz"]


def test_equal_and_blank_images_are_said(images, resnet, tmp_path, capsys):
    shutil.copytree(images, folder := tmp_path / "images")
    shutil.copy(folder / "train/ants/0.png", folder / "test/ants/again.png")
    for name, value in (("black", 0), ("black-too", 0)):
        Image.fromarray(np.full((32, 32), value, dtype=np.uint8)).save(folder / "train/cats" / f"{name}.png")
    said = ["features", "--backbone", "resnet18", "--weights", str(resnet), "--batch-size", "1", "--device", "cpu"]
    assert main([*said, "--images", str(folder), "--out", str(tmp_path / "f.npz")]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[0].startswith("images read: 5 RGB, 3 L, 1 RGBA; ")
    assert f"WARNING: 2 of 9 images are of one color, such as {folder}/train/cats/black-too.png" in lines
    (equal,) = (line for line in lines if "repeat another one" in line)
    assert equal.startswith("WARNING: 2 of 9 rows of features repeat another one, such as ")
    assert "WARNING: 1 of 3 test rows are training rows too, on which nothing is tested" in lines
    folders = ["--images", str(images / "train"), "--test-images", str(images / "test")]
    assert main([*said, *folders, "--out", str(tmp_path / "g.npz")]) == 0
    assert "WARNING" not in (printed := capsys.readouterr().out)
    assert "4 training and 2 test rows of 512 features, 2 classes" in printed


def test_by_itself_it_takes_imagenets_mean_and_deviation_and_averages_mirrors_on_request(images, resnet, tmp_path):
    train, test = find_images(images)
    functional, model = torchvision.transforms.functional, _headless_resnet(resnet)

    def imagenet(image):
        resized = functional.pil_to_tensor(functional.resize(image, [224, 224])).float() / 255
        return functional.normalize(resized, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])

    straight = _directly(model, train.paths, imagenet)
    mirrored = _directly(model, train.paths, lambda image: imagenet(functional.hflip(image)))
    for mirror, expected in ((False, straight), (True, (straight + mirrored) / 2)):
        extract_features(train, test, _settings(resnet, mirror=mirror), tmp_path / f"{mirror}.npz")
        with np.load(tmp_path / f"{mirror}.npz") as archive:
            np.testing.assert_allclose(archive["x_train"], expected, rtol=1e-3, atol=1e-3)
            assert json.loads(str(archive["settings"]))["mirror"] is mirror
    assert np.abs(straight - mirrored).max() > 0.01  # or there would be nothing to average


def test_the_weights_own_transform(images, resnet, tmp_path):
    train, test = find_images(images)
    extract_features(train, test, _settings(resnet, transform="weights"), tmp_path / "features.npz")
    own = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    expected = _directly(_headless_resnet(resnet), train.paths, own)
    assert load_npz(tmp_path / "features.npz").x_train.tobytes() == expected.tobytes()


def _small_state(model) -> dict:
    """Random weights of any size in a few kilobytes: entry (i, j, ...) is number i + j + ... of a short row."""
    generator = torch.Generator().manual_seed(1)

    def tensor(shape):
        row = 0.02 * torch.randn(sum(shape) - len(shape) + 1, generator=generator)
        return row.as_strided(shape, [1] * len(shape))

    return {key: tensor(value.shape) for key, value in model.state_dict().items()}


@pytest.mark.parametrize(("name", "n_features"), [("vgg11", 4096), ("vit_b_16", 768)])
def test_other_backbones_end_before_their_last_layer(name, n_features, images, tmp_path):
    with torch.device("meta"):
        full = torchvision.models.get_model(name, weights=None).eval()
    state = _small_state(full)
    full.load_state_dict(state, assign=True)
    torch.save(state, tmp_path / "weights.pth")
    model = load_backbone(name, str(tmp_path / "weights.pth"))
    row = image_transform(name)(Image.open(find_images(images)[1].paths[0]).convert("RGB"))[None]
    last = full.classifier[6] if name == "vgg11" else full.heads.head
    with torch.inference_mode():
        features, logits = model(row), full(row)
        assert features.shape == (1, n_features)
        assert features.std() > 0
        assert torch.equal(last(features), logits)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_default_weights_are_torchvisions_own(resnet, monkeypatch):
    # What cannot run here is the download itself: torchvision's hub call is the only thing replaced.
    asked = []

    def from_hub(url, *args, **kwargs):
        asked.append((url, kwargs.get("check_hash")))
        return torch.load(resnet, weights_only=True)

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", from_hub)
    model = load_backbone("resnet18", "DEFAULT")
    assert asked == [(torchvision.models.ResNet18_Weights.DEFAULT.url, True)]
    rows = torch.ones(1, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(model(rows), _headless_resnet(resnet)(rows))

    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", offline)
    with pytest.raises(DataError, match=r"cannot download ResNet18_Weights.* with --weights"):
        load_backbone("resnet18", "DEFAULT")


def test_safetensors_and_another_head_serve_too(resnet, tmp_path):
    from safetensors.torch import save_file

    state = torch.load(resnet, weights_only=True)
    state["fc.weight"], state["fc.bias"] = torch.zeros(7, 512), torch.zeros(7)
    save_file(state, tmp_path / "weights.safetensors")
    rows = torch.ones(1, 3, 64, 64)
    with torch.inference_mode():
        features = load_backbone("resnet18", str(tmp_path / "weights.safetensors"))(rows)
        assert torch.equal(features, _headless_resnet(resnet)(rows))


@pytest.mark.parametrize("pool", ["mean", "mean-deviation"])
def test_the_maps_of_several_layers_are_pooled(pool, images, resnet, tmp_path):
    train, test = find_images(images)
    extract_features(train, test, _settings(resnet, layers=("layer3", "layer4"), pool=pool), tmp_path / "two.npz")
    model = _headless_resnet(resnet)
    inputs = torch.stack([image_transform("resnet18")(Image.open(path).convert("RGB")) for path in test.paths])
    with torch.inference_mode():
        third = torch.nn.Sequential(*list(model.children())[:7])(inputs)
        maps = third, model.layer4(third)
        parts = [(own.mean((2, 3)), own.std((2, 3), unbiased=False)) for own in maps]
    expected = torch.cat(
        [one for means, spread in parts for one in ((means,) if pool == "mean" else (means, spread))], 1
    )
    found = load_npz(tmp_path / "two.npz").x_test
    assert found.shape == (2, 768 if pool == "mean" else 1536)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError, match="no layer 'layer5': did you mean layer4"):
        extract_features(train, test, _settings(resnet, layers=("layer5",)), tmp_path / "none.npz")


def sizes(paths):
    """A source of one's own: sizes of files."""
    return np.array([[path.stat().st_size, len(path.name)] for path in paths])


def test_a_function_of_ones_own_reads_what_it_likes(images, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    words = ["features", "--backbone", "test_backbones:sizes", "--images", str(images), "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "sizes.npz")]) == 0
    assert "4 training and 2 test rows of 2 features, 2 classes" in capsys.readouterr().out
    paths = find_images(images)[0].paths
    assert load_npz(tmp_path / "sizes.npz").x_train.tolist() == sizes(paths).tolist()
    for wrong, message in (("test_backbones:nothing", "names no function"), ("test_backbones:find_images", "error")):
        words[2] = wrong
        assert main([*words, "--out", str(tmp_path / "none.npz")]) == 2, message


def test_timm_takes_random_weights_of_a_file(images, tmp_path):
    timm = needs("timm")
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", pretrained=False, num_classes=3)
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    settings = replace(_settings(tmp_path / "weights.pth"), backbone="timm:resnet10t")
    train, test = find_images(images)
    extract_features(train, test, settings, tmp_path / "last.npz")
    extract_features(train, test, replace(settings, layers=("layer3",)), tmp_path / "third.npz")
    assert load_npz(tmp_path / "last.npz").x_train.shape == (4, 512)
    assert load_npz(tmp_path / "third.npz").x_train.shape == (4, 256)


def test_transformers_read_images_and_texts_from_folders_of_models(images, tmp_path):
    transformers = needs("transformers")
    config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor().save_pretrained(tmp_path / "vit")
    settings = FeatureSettings(backbone=f"transformers:{tmp_path / 'vit'}", device="cpu", batch_size=2)
    extract_features(*find_images(images), settings, tmp_path / "images.npz")
    assert load_npz(tmp_path / "images.npz").x_train.shape == (4, 16)
    folder = texts(tmp_path / "letters")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "day"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    config = transformers.BertConfig(
        vocab_size=8, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    settings = replace(settings, backbone=f"transformers-text:{tmp_path / 'bert'}")
    extract_features(*find_images(folder, reads="texts"), settings, tmp_path / "texts.npz")
    one_by_one = replace(settings, batch_size=1)  # padding of a batch has no part in a mean
    extract_features(*find_images(folder, reads="texts"), one_by_one, tmp_path / "single.npz")
    found, single = load_npz(tmp_path / "texts.npz").x_train, load_npz(tmp_path / "single.npz").x_train
    np.testing.assert_allclose(found, single, rtol=1e-4, atol=1e-5)
    needs("sentence_transformers")  # which averages over tokens where a folder does not say otherwise
    settings = replace(settings, backbone=f"sentence-transformers:{tmp_path / 'bert'}")
    extract_features(*find_images(folder, reads="texts"), settings, tmp_path / "sentences.npz")
    np.testing.assert_allclose(load_npz(tmp_path / "sentences.npz").x_train, found, rtol=1e-3, atol=1e-4)


def texts(folder: Path) -> Path:
    """Letters of two kinds."""
    for part in ("train", "test"):
        for kind, text in (("glad", "good day good"), ("sad", "bad")):
            (folder / part / kind).mkdir(parents=True)
            (folder / part / kind / "1.txt").write_text(text)
    return folder


class TestGoingOn:
    @pytest.fixture
    def chunked(self, monkeypatch):
        monkeypatch.setattr(backbones, "CHUNK_IMAGES", 2)

    def test_a_stopped_run_goes_on_with_the_same_bytes(self, images, resnet, tmp_path, chunked, monkeypatch):
        train, test = find_images(images)
        extract_features(train, test, _settings(resnet), tmp_path / "whole.npz")

        done: list[int] = []

        def stop_after_the_first_chunk(n: int) -> None:
            done.append(n)
            if sum(done) > 2:
                raise KeyboardInterrupt

        out = tmp_path / "features.npz"
        with pytest.raises(KeyboardInterrupt):
            extract_features(train, test, _settings(resnet), out, tick=stop_after_the_first_chunk)
        assert not out.exists()
        chunk = self._first_chunk(out)
        assert {path.name for path in chunk.parent.iterdir()} == {"settings.json", chunk.name}
        first = np.load(chunk)
        ticks: list[int] = []
        extract_features(train, test, _settings(resnet, workers=1), out, tick=ticks.append)
        assert sum(ticks) == 6
        assert out.read_bytes() == (tmp_path / "whole.npz").read_bytes()
        assert load_npz(out).x_train[:2].tobytes() == first.tobytes()
        assert not chunk.parent.exists()

    def test_finished_chunks_are_not_computed_again(self, images, resnet, tmp_path, chunked):
        train, test = find_images(images)
        out = tmp_path / "features.npz"
        self._stop(train, test, resnet, out)
        marked = np.full((2, 512), 7, dtype=np.float32)
        np.save(self._first_chunk(out), marked)
        extract_features(train, test, _settings(resnet), out)
        np.testing.assert_array_equal(load_npz(out).x_train[:2], marked)

    def test_chunks_of_other_settings_are_refused(self, images, resnet, tmp_path, chunked):
        train, test = find_images(images)
        out = tmp_path / "features.npz"
        self._stop(train, test, resnet, out)
        with pytest.raises(DataError, match="differs in batch_size, transform"):
            extract_features(train, test, replace(_settings(resnet, transform="weights"), batch_size=1), out)
        other = tmp_path / "other.pth"
        state = torch.load(resnet, weights_only=True)
        state["conv1.weight"] += 1
        torch.save(state, other)
        with pytest.raises(DataError, match="differs in weights"):
            extract_features(train, test, _settings(other), out)

    def test_a_chunk_whose_images_changed_is_computed_again(self, images, resnet, tmp_path, chunked):
        folder, out = shutil.copytree(images, tmp_path / "images"), tmp_path / "features.npz"
        self._stop(*find_images(folder), resnet, out)
        changed = find_images(folder)[0].paths[0]
        Image.fromarray(np.zeros((32, 32, 3), dtype=np.uint8)).save(changed)
        extract_features(*find_images(folder), _settings(resnet), out)
        expected = _directly(_headless_resnet(resnet), find_images(folder)[0].paths, image_transform("resnet18"))
        assert load_npz(out).x_train.tobytes() == expected.tobytes()

    def test_damaged_chunks_are_named(self, images, resnet, tmp_path, chunked):
        train, test = find_images(images)
        out = tmp_path / "features.npz"
        self._stop(train, test, resnet, out)
        chunk = self._first_chunk(out)
        chunk.write_bytes(chunk.read_bytes()[:100])
        with pytest.raises(DataError, match=r"train-00000000-\w+\.npy .*delete it"):
            extract_features(train, test, _settings(resnet), out)
        np.save(chunk, np.zeros((3, 512), dtype=np.float32))
        with pytest.raises(DataError, match=r"must hold float32 of shape \(2, features\)"):
            extract_features(train, test, _settings(resnet), out)
        (chunk.parent / "settings.json").write_text("{")
        with pytest.raises(DataError, match=r"settings\.json is damaged"):
            extract_features(train, test, _settings(resnet), out)

    def _first_chunk(self, out: Path) -> Path:
        (chunk,) = out.with_name("features.npz.parts").glob("train-00000000-*.npy")
        return chunk

    def _stop(self, train, test, resnet, out) -> None:
        def stop(n: int) -> None:
            if list(out.with_name("features.npz.parts").glob("train*")):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            extract_features(train, test, _settings(resnet), out, tick=stop)


class TestRefusals:
    @pytest.mark.parametrize("content", [b"", b"no image", None], ids=["empty", "text", "cut off"])
    def test_an_unreadable_image_is_named(self, content, images, resnet, tmp_path):
        whole = find_images(images)[0].paths[0].read_bytes()
        for part in ("train", "test"):
            (tmp_path / part / "ants").mkdir(parents=True)
            (tmp_path / part / "ants" / "good.png").write_bytes(whole)
        (tmp_path / "train" / "ants" / "bad.png").write_bytes(whole[:-1000] if content is None else content)
        train, test = find_images(tmp_path)
        with pytest.raises(DataError, match=r"cannot read the image .*train/ants/bad\.png"):
            extract_features(train, test, _settings(resnet), tmp_path / "features.npz")
        assert not (tmp_path / "features.npz").exists()

    def test_weights_that_do_not_fit(self, resnet, tmp_path):
        with pytest.raises(DataError, match=r"does not fit vgg11: .*Missing key"):
            load_backbone("vgg11", str(resnet))
        state = torch.load(resnet, weights_only=True)
        state["conv1.weight"] = torch.zeros(64, 1, 7, 7)
        torch.save(state, tmp_path / "gray.pth")
        with pytest.raises(DataError, match=r"does not fit resnet18: .*size mismatch for conv1"):
            load_backbone("resnet18", str(tmp_path / "gray.pth"))

    @pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
    def test_weights_that_are_none(self, suffix, tmp_path):
        file = tmp_path / f"weights{suffix}"
        with pytest.raises(DataError, match="cannot read weights from"):
            load_backbone("resnet18", str(file))
        file.write_bytes(b"not a state dict")
        with pytest.raises(DataError, match="it must be a state dict"):
            load_backbone("resnet18", str(file))

    def test_a_whole_pickled_model_is_never_loaded(self, tmp_path):
        torch.save(torch.nn.Linear(1, 1), tmp_path / "model.pth")
        with pytest.raises(DataError, match="it must be a state dict"):
            load_backbone("resnet18", str(tmp_path / "model.pth"))
        torch.save({"epoch": 3, "state_dict": {}}, tmp_path / "checkpoint.pth")
        with pytest.raises(DataError, match="save the state dict alone"):
            load_backbone("resnet18", str(tmp_path / "checkpoint.pth"))

    def test_weights_with_nan(self, images, resnet, tmp_path):
        state = torch.load(resnet, weights_only=True)
        state["layer4.1.bn2.weight"][0] = torch.nan
        torch.save(state, tmp_path / "nan.pth")
        with pytest.raises(DataError, match="features hold NaN"):
            extract_features(*find_images(images), _settings(tmp_path / "nan.pth"), tmp_path / "features.npz")

    def test_folders_without_what_is_needed(self, images, tmp_path):
        with pytest.raises(DataError, match="needs the subfolders train and test"):
            find_images(images / "train")
        with pytest.raises(DataError, match="does not exist"):
            find_images(images / "train", tmp_path / "nowhere")
        with pytest.raises(DataError, match="needs a subfolder of images for every class"):
            find_images(images / "train", tmp_path)
        (tmp_path / "ants").mkdir()
        with pytest.raises(DataError, match="needs a subfolder of images for every class"):
            find_images(images / "train", tmp_path)
        (tmp_path / "ants" / "0.png").write_bytes(find_images(images)[0].paths[0].read_bytes())
        with pytest.raises(DataError, match="only one has cats"):
            find_images(images / "train", tmp_path)

    def test_a_place_that_cannot_be_written_is_said_before_any_work(self, images, resnet, tmp_path):
        with pytest.raises(OutputError, match="does not exist"):
            extract_features(*find_images(images), _settings(resnet), tmp_path / "no" / "features.npz")
        (tmp_path / "features.npz.parts").write_text("in the way")
        with pytest.raises(OutputError, match=r"features\.npz\.parts"):
            extract_features(*find_images(images), _settings(resnet), tmp_path / "features.npz")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"backbone": "lenet"},
            {"backbone": ":f"},
            {"transform": "none"},
            {"device": "tpu"},
            {"batch_size": 0},
            {"workers": 0},
            {"weights": ""},
            {"pool": "mean-deviation"},
            {"backbone": "torchvision:resnet50"},
            {"backbone": "os:listdir"},
            {"backbone": "os:listdir", "weights": "", "layers": ("layer4",)},
        ],
    )
    def test_settings_out_of_range(self, wrong):
        with pytest.raises(UsageError):
            FeatureSettings(**({"backbone": "resnet18", "weights": "DEFAULT"} | wrong))

    def test_no_gpu(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(UsageError, match="finds no GPU"):
            pick_device("cuda")
        assert pick_device("auto") == "cpu"
