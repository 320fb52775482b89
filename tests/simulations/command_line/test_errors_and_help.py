"""A newcomer's walk through every command: wrong input, closed streams, missing extras, Ctrl-C, the help's examples."""

from __future__ import annotations

import math
import os
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from federation.console.arguments import nearest
from federation.console.command_parser import CommandParser
from federation.console.declaration import Command
from federation.console.process import EXIT_CODES, exit_codes
from simulations.__main__ import main
from simulations.audit import command as audit_command
from simulations.command_line.commands import COMMANDS
from simulations.compare import command as compare_command
from simulations.compare.comparison import Progress

SMALL = ("--modes", "plain", "--clients", "3")
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


def made(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.normal(size=(60, 3)),
        "y_train": np.arange(60) % 4,
        "x_test": rng.normal(size=(8, 3)),
        "y_test": np.arange(8) % 4,
    }
    return {key: value for key, value in (arrays | changes).items() if value is not None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data files, one good and one for every way to be wrong."""
    folder = tmp_path_factory.mktemp("data")
    np.savez(folder / "good.npz", **made())
    np.savez(folder / "keys.npz", **made(x_test=None, X_test=np.zeros(3)))
    np.savez(folder / "nan.npz", **made(x_train=np.full((60, 3), np.nan)))
    np.savez(folder / "negative.npz", **made(y_train=-np.ones(60, int)))
    np.savez(folder / "float_labels.npz", **made(y_train=np.ones(60)))
    np.savez(folder / "pickled.npz", **made(x_train=np.array([{}] * 60)))
    np.savez(folder / "huge.npz", **made(x_train=np.full((60, 3), 1e30)))
    np.savez(folder / "one.npz", **made(x_train=np.ones((1, 3)), y_train=np.zeros(1, int)))
    (folder / "empty.npz").write_bytes(b"")
    (folder / "rows.csv").write_text("size,kind\n1,a\nx,b\n")
    (folder / "real.toml").write_text('[columns.kind]\ncategories = ["a", "b"]\n[columns.size]\nrole = "target"\n')
    (folder / "rows.toml").write_text('[columns.size]\n[columns.kind]\nrole = "target"\ncategories = ["a", "b"]\n')
    (folder / "cut.npz").write_bytes((folder / "good.npz").read_bytes()[:300])
    with zipfile.ZipFile(folder / "liar.npz", "w") as archive:  # claims more than any memory holds
        text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000000), }"
        header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117) + b"\n"
        for key in made():
            archive.writestr(f"{key}.npy", header)
    os.mkfifo(folder / "pipe.npz")
    (folder / "dir.npz").mkdir()
    return folder


def words_of(text: str) -> list[str]:
    """A command line, with small sizes where it is compare's."""
    words = shlex.split(text)
    return [*words[:1], *SMALL, *words[1:]] if words[:1] == ["compare"] else words


WRONG = [
    # misspelt, abbreviated or superfluous
    ("comapre", "argument COMMAND: needs one of compare, audit, .*, not 'comapre': did you mean compare\\?"),
    ("--versio", "unknown argument --versio: did you mean --version\\?; see python -m simulations --help"),
    ("compare --clinets 5", "unknown argument --clinets: did you mean --clients\\?; see .* compare --help"),
    ("compare --client 5", "unknown argument --client: did you mean --clients\\?"),
    ("compare --quick --clinets 5", "unknown arguments --quick --clinets"),
    ("compare extra", "unknown argument extra; see python -m simulations compare --help"),
    (
        "compare --dataset Digits",
        "one of digits, .*lfw_people, not 'Digits': did you mean digits\\?",
    ),
    ("compare --learner deepafl --option n_layer=3", "not 'n_layer=3': did you mean n_layers\\?"),
    ("features --backbon resnet18", "unknown argument --backbon: did you mean --backbone\\?"),
    ("features --backbone resnet", "did you mean resnet18\\?"),
    ("features", "the following arguments are required: --images, --backbone, --out"),
    ("parameters 10", "unknown argument 10; see python -m simulations parameters --help"),
    # numbers: missing, no number, out of range, not finite, far too large
    ("compare --clients", "argument --clients: expected one argument"),
    ("compare --clients ''", "argument --clients: a list reads like one,two"),
    ("compare --clients 1e3", "needs a whole number from 1 to 1048576, not '1e3'"),
    ("compare --clients 99999999999999999999", "needs a whole number from 1 to 1048576"),
    ("compare --dropout inf", "at least 0 and below 1, .* not 'inf'"),
    ("compare --ridge inf", "argument --ridge: needs a finite number of at least 0, or cv, not 'inf'"),
    ("compare --learner safle --ri nan", "argument --ri: needs a finite number of at least 0, not 'nan'"),
    ("compare --learner safle --ri 0.5", "--ri must be a whole number, not 0.5"),
    ("compare --partition dirichlet:inf", "needs an ALPHA from 1e-06 to 1e\\+06, not inf"),
    ("compare --partition shards:2.5", "'shards:2.5' needs a whole number after the colon"),
    ("compare --learner deepafl --option gamma=nan", "gamma must be a finite number >= 0, not nan"),
    ("compare --epsilon 0", "--epsilon: needs numbers above 0 and at most 64, such as 0.5,1,2,4,8, not '0'"),
    ("compare --epsilon 1 --seeds 0", "--seeds: needs a whole number of at least 1, not '0'"),
    ("compare --epsilon 1 --delta x", "--delta: needs a finite number, not 'x'"),
    ("compare --epsilon 1 --promise 0", "--promise: needs a whole number of at least 1"),
    ("compare --epsilon 1 --gram-share 1", "--gram-share: needs a number between 0 and 1, not '1'"),
    ("audit --clients 1", "--clients: needs a whole number from 2 to 1048576, not '1'"),
    ("audit --rows nan", "--rows: needs a whole number from 2 to 2000, not 'nan'"),
    ("audit --coalitions 7", "--coalitions: needs a whole number from 0 to 6, not '7'"),
    ("audit --epsilon 1e308", "needs numbers above 0 and at most 64"),
    ("audit --epsilon none,1", "needs numbers above 0"),
    ("audit --epsilon much", "numbers above 0 and at most 64"),
    ("audit --attacks magic", "an attack is one of"),
    ("audit --modes sealed", "a mode is one of"),
    ("audit --json a --html a", "give each its own file"),
    ("parameters --clients ten", "--clients: needs a whole number from 2 to 1048576, not 'ten'"),
    ("parameters --clients 10 --corruption 0.6 --dropout 0.6", "cannot be summed safely"),
    ("parameters --corruption 2", "--corruption: needs a number from 0 to below 1, such as 0.1, not '2'"),
    ("parameters --clients 1", "--clients: needs a whole number from 2 to"),
    ("parameters --clients 5,", "without empty places"),
    ("parameters --security-bits inf", "needs a number above 0, such as 40, not 'inf'"),
    ("parameters --features 0", "needs a whole number from 1 to"),
    ("features --backbone vgg11 --images i --weights w --out o --workers 0", "a whole number from 1 to 256, not '0'"),
    ("features --backbone vgg11 --images i --weights w --out o --batch-size 0", "of at least 1, not '0'"),
    # arguments that are right alone
    ("compare --dropout-anew", "with --dropout 0 none do; add --dropout RATE"),
    ("compare --promise 3", "--promise needs --epsilon to have an effect; add --epsilon"),
    ("compare --mean-share 0.5", "--mean-share needs --epsilon"),
    (
        "compare --epsilon 1 --learner lda",
        "has a private form, afl, fedhip, random, logistic, deepafl, safle, not lda",
    ),
    ("compare --epsilon 1 --promise 4", "4 survivors are promised and 3 of 3 stay"),
    ("compare --epsilon 1 --label-noise 0.1", "--label-noise would reach them; leave out one"),
    (
        "compare --dataset diabetes --label-noise 0.1",
        "--label-noise is for class labels, and diabetes has real targets",
    ),
    ("compare --epsilon 1 --dropout 0.7", "a masked sum of 3 clients needs 2 to stay .* leaves 1; use a smaller rate"),
    ("compare --epsilon 1 --ridge cv", "--ridge cv has no private form, and --epsilon asks for one: state a ridge"),
    ("compare --epsilon 1 --ri 1", "--ri has no effect on what --epsilon adds: .* leave out one of the two"),
    ("compare --ridge cv --ri 1", "cv has no RI process, .*: leave --ri out, or state the ridge"),
    ("compare --epsilon 1 --learner deepafl --option gamma=1", "takes n_layers, d_phi, d_f with --option, not gamma"),
    ("compare --modes committee --clients 1", "needs at least 2 clients, not 1: the sum of one client is its vector"),
    ("compare --data rows.csv", "--columns is the schema of a table in --data"),
    ("compare --data good.npz --columns rows.toml", "--columns is the schema of a table in --data"),
    ("compare --data rows.csv --columns rows.toml", "line 3: column size needs a finite number: correct it"),
    ("compare --data rows.csv --columns real.toml", "rows.csv, line .: column size needs a finite number"),
    ("compare --data rows.csv --columns none.toml", "cannot read none.toml"),
    ("compare --data good.npz --partition shards:30", "needs at least 90 training rows, there are 60; use fewer"),
    ("compare --data good.npz --format Q1.2", "client 1: .* rows do not fit Q1.2"),
    ("audit --data one.npz --clients 2 --rows 2", "need more than 1 training rows"),
    ("audit --no-pictures", "add --html FILE"),
    # data files
    ("compare --data missing.npz", "cannot read missing.npz: No such file"),
    ("compare --data dir.npz", "cannot read dir.npz: Is a directory"),
    ("compare --data ''", "--data: needs the name of a file or folder, not an empty text"),
    ("compare --data pipe.npz", "pipe.npz is a pipe or device, .* write it to a file first"),
    ("compare --data empty.npz", "is no npz archive; write one with numpy.savez"),
    ("compare --data cut.npz", "is no npz archive"),
    ("compare --data keys.npz", "x_test not found among"),
    ("compare --data nan.npz", "60 of 60 rows hold NaN or infinity"),
    ("compare --data negative.npz", "not -1 to -1; renumber"),
    (
        "compare --data float_labels.npz",
        "whole numbers from 0 on or texts, in both parts alike, not float64",
    ),
    ("compare --data pickled.npz", "never loaded"),
    ("compare --data huge.npz", "no 16-bit format holds the largest value 1e\\+30: scale the features"),
    ("compare --data liar.npz", "not enough memory .*use fewer features, rows or clients"),
    ("audit --data nan.npz", "60 of 60 rows hold NaN"),
    # places for results
    ("compare --json ''", "--json: needs the name of a file or folder, not an empty text"),
    ("compare --json missing/o", "the folder missing does not exist; create it first"),
    ("compare --plot dir.npz", "it is a folder; name a file in it"),
    ("compare --html pipe.npz", "it is a device or pipe, not a file; name a file"),
    (f"compare --json {'n' * 250}", "File name too long; free space, or name another place"),
    ("compare --json o --plot ./o", "--json and --plot both name o; give each its own file"),
    ("compare --data good.npz --html good.npz", "--data and --html both name good.npz; give each its own file"),
    ("audit --json missing/o", "create it first"),
    ("audit --data good.npz --json good.npz", "--data and --json both name good.npz"),
    ("features --backbone vgg11 --images i --weights w --out missing/o", "the folder missing does not exist"),
    ("features --backbone vgg11 --images i --weights w --out w", "--weights and --out both name w"),
    ("features --backbone vgg11 --images i --weights w --out o", "i needs the subfolders train and test"),
    # learners, baselines and runs
    ("contrast", "argument COMMAND: needs one of compare, audit, features, parameters, not 'contrast'"),
    ("compare --speed 9", "unknown argument --speed"),
    ("compare --dataset iri", "needs one of digits, breast_cancer, diabetes, iris, .*lfw_people, not 'iri'"),
    ("audit --dataset diabetes", "attacks look for rows of classes; diabetes has real targets"),
    (
        "compare --learner svm",
        "a learner is one of afl, fedhip, random, logistic, lda, qda, deepafl, safle, or all of them",
    ),
    ("compare --learner afl,all", "or all of them as all, not 'all'"),
    ("compare --baselines sgd", "argument --baselines: a baseline is one of fedavg, fedprox"),
    ("compare --baselines fedavg --option mu=1", "fedavg.rounds"),
    ("compare --learner random --sweep d_ph=8,16", "--sweep: random takes .*, not 'd_ph=8': did you mean d_phi"),
    ("compare --baselines fedavg --option rounds=0", "a gradient baseline needs rounds"),
    ("compare --learner fedhip --option alphas=much", "alphas of fedhip must be numbers with commas"),
    ("compare --learner fedhip --option alphas=-1", "must be numbers from 0 to 2\\^52, not -1"),
    ("compare --learner all --ri 1", "logistic has no RI process"),
    ("compare --baselines dpsgd", "dpsgd is trained for privacy budgets: add --epsilon"),
    ("compare --baselines dpsgd --epsilon 1 --option batch_size=3", "a batch size of at least 16"),
    ("compare --dataset diabetes --learner logistic", "logistic has no RI process, and is for class labels"),
    ("compare --dataset digits --data x.npz", "argument --data: not allowed with argument --dataset"),
    ("compare --modes plain,telepathy", "argument --modes: a mode is one of plain, masked"),
    ("compare --modes plain,,masked", "argument --modes: a list reads like one,two"),
    ("compare --clients 0", "argument --clients: needs a whole number from 1 to 1048576, not '0'"),
    ("compare --clients ten", "argument --clients: needs a whole number from 1 to 1048576, not 'ten'"),
    (
        "compare --modes plain,masked --clients 1",
        "masked cannot serve 1 client: .*leave masked out of --modes: --modes plain serves",
    ),
    ("compare --partition even", "argument --partition: a partition is iid, dirichlet:ALPHA or shards:S"),
    ("compare --partition dirichlet:-1", "ALPHA from 1e-06 to 1e\\+06, not -1"),
    ("compare --clients 4 --partition shards:1000", "needs at least 4000 training rows, there are 1438; use fewer"),
    ("compare --dropout some", "argument --dropout: needs a number of at least 0 and below 1"),
    ("compare --dropout 1", "needs a number of at least 0 and below 1, such as 0.1 for a tenth, not '1'"),
    (
        "compare --modes masked --clients 4 --dropout 0.5",
        "masked needs 3 of 4 clients to stay to the end; --dropout 0.5 leaves 2",
    ),
    ("compare --ridge -1", "argument --ridge: needs a finite number of at least 0, or cv, not '-1'"),
    ("compare --ridge nan", "argument --ridge: needs a finite number of at least 0, or cv, not 'nan'"),
    ("compare --ri -1", "argument --ri: needs a finite number of at least 0, not '-1'"),
    ("compare --ri 1e30", "does not fit an int64 Gram; use a smaller one"),
    ("compare --format float32", "argument --format: a row format reads like Q5.11"),
    ("compare --format Q20.20", "add up to 1 to 26"),
    ("compare --format Q3.4", "client 1: .* rows do not fit Q3.4 \\(\\|x\\| < 8\\).* parameter clip"),
    ("compare --learner safle --option n_buckets=1024", "cells, more than 16384.*; n_buckets=.* fits: .* GiB at"),
    ("compare --seed -1", "argument --seed: needs a whole number of at least 0"),
    (
        "compare --modes plain --option n_layers=2",
        "afl takes .* out of intercept, clip, .*, not 'n_layers=2'",
    ),
    ("compare --modes committee --option corrupt=2", "0 to all but one are corrupt; not 2 and 2"),
    ("compare --modes committee --option helpers=four", "helpers of committee must be a whole number, not 'four'"),
    ("compare --learner deepafl --option d_phi=0", "DeepAFL needs at least one feature"),
    ("compare --learner deepafl --option projection=straight", "a projection is one of linear, nin, normal"),
    ("compare --learner deepafl --ri 1", "deepafl has no RI process, so --ri must stay 0"),
    ("compare --html .", "it is a folder; name a file in it"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=lambda value: value[-50:])
def test_wrong_input_is_one_message_code_2_and_no_file(
    text: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    assert main(words_of(text)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    assert re.search(message, output.err)
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("text", "module", "extra"),
    [
        ("compare --modes ckks", "tenseal", "he"),
        ("audit --modes masked+bfv", "tenseal", "he"),
        ("features --backbone vgg11 --images . --test-images . --weights w --out o", "torchvision.datasets", "vision"),
    ],
)
def test_a_missing_extra_is_named_with_what_installs_it(
    text: str,
    module: str,
    extra: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, module, None)  # importing it fails as if it were not there
    assert main(words_of(text)) == 2
    assert f"pip install 'analytic-secagg[{extra}]'" in capsys.readouterr().err


# --- help ----------------------------------------------------------------------------------------------------

LONG = {
    "compare --learner all --baselines": "trains fifty rounds of each baseline",
    "compare --epsilon": "trains seventy private models",
    "compare --learner fedhip": "every mode again, as in test_main",
    "compare --dataset breast_cancer": "every mode again, as in test_main",
    "compare --dataset diabetes": "every learner in every mode again, as in test_main",
    "compare --data features.npz": "half a minute of a thousand clients",
    "audit --html": "a minute, as in test_audit",
    "audit --data": "a minute, as in test_audit",
    "features --backbone resnet18 --images cifar10": "downloads weights",
    "features --backbone resnet18 --layers": "downloads weights",
    "features --backbone sentence": "downloads weights",
}
"""Examples of the help that are read but not run, by how they begin, and why. Those of one word run in test_main."""


def parser_of(command: Command[Any]) -> CommandParser:
    parser = CommandParser(prog=f"python -m simulations {command.name}")
    command.add_arguments(parser)
    return parser


def examples() -> list[list[str]]:
    """Every command of every command's help, as words."""
    found = []
    for command in COMMANDS:
        text = str(parser_of(command).epilog).replace("\\\n", " ")
        own = [shlex.split(line) for line in re.findall(r"^  python -m simulations (.*)$", text, flags=re.M)]
        assert len(own) >= 2, f"{command.name} needs two examples or more"
        found += own
    return found


def is_long(words: list[str]) -> bool:
    return len(words) == 1 or any(" ".join(words).startswith(start) for start in LONG)


def test_the_list_of_long_examples_is_honest() -> None:
    assert all(any(" ".join(words).startswith(start) for words in examples()) for start in LONG)


@pytest.mark.parametrize("words", examples(), ids=" ".join)
def test_the_parser_takes_every_example(words: list[str]) -> None:
    command = next(command for command in COMMANDS if words[0] == command.name)
    parser_of(command).parse_args(words[1:])


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples name: features, image folders, weights."""
    torch, torchvision = pytest.importorskip("torch"), pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    folder, rng = tmp_path_factory.mktemp("workbench"), np.random.default_rng(0)
    np.savez(folder / "features.npz", **made())
    for name in ("train/ants/1.png", "train/cats/2.png", "val/ants/3.png", "val/cats/4.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(rng.integers(0, 256, (30, 30, 3), dtype=np.uint8)).save(folder / name)
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18(weights=None).state_dict(), folder / "resnet18.pth")
    return folder


@pytest.mark.parametrize("words", [words for words in examples() if not is_long(words)], ids=" ".join)
def test_the_example_works(
    words: list[str], workbench: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workbench)
    monkeypatch.setattr("simulations.audit.command.SILENT_SECONDS", math.inf)  # a slow machine is told of its progress
    assert main(words) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out
    named = [words[place + 1] for place, word in enumerate(words) if word in ("--json", "--html", "--plot", "--out")]
    assert all((workbench / name).stat().st_size > 0 for name in named)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_help_ends_with_the_same_exit_codes(command: Command[Any]) -> None:
    codes = re.findall(r"(\d+)\s+\w", str(parser_of(command).epilog).split("exit code: ")[1])
    assert codes == ["0", *(["1"] if command.name in ("compare", "audit") else []), "2", "130", "141", "143"]
    same = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    assert " ".join(exit_codes("fine").split()) == f"exit code: 0 fine, {same}"


@pytest.mark.parametrize("words", [[], ["--help"]], ids=["no command", "help"])
def test_the_overview_has_a_line_for_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if words:
        with pytest.raises(SystemExit, match="0"):
            main(words)
    else:
        assert main(words) == 2
    output = capsys.readouterr()
    text, silent = (output.out, output.err) if words else (output.err, output.out)
    assert silent == ""
    for command in COMMANDS:
        assert re.search(rf"^ +{command.name}\s+{command.summary[:30]}", text, flags=re.M)
    assert "python -m federation.flower --help" in text
    assert words or text.endswith("error: needs a command, such as python -m simulations compare\n")


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert re.fullmatch(r"analytic-secagg \d+\.\d+\S*\n", capsys.readouterr().out)


def test_the_nearest_name() -> None:
    assert nearest("AFL", ["afl", "fedhip"]) == ": did you mean afl?"
    assert nearest("svm", ["afl", "fedhip"]) == ""
    assert nearest("afl", []) == ""


# --- streams and signals ---------------------------------------------------------------------------------------


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """What a shell makes of a line in which SIMULATIONS is the command."""
    line = line.replace("SIMULATIONS", f"{shlex.quote(sys.executable)} -m simulations")
    return subprocess.run(["bash", "-c", line], cwd=cwd, capture_output=True, check=False)


def test_streams_that_are_full_closed_narrow_or_poor(folder: Path, tmp_path: Path) -> None:
    """A full disk, closed streams, forty columns, and a terminal without the letters of the data set's name."""
    (tmp_path / "zürich.npz").write_bytes((folder / "good.npz").read_bytes())
    done = shell(
        "SIMULATIONS parameters --clients 10 > /dev/full; echo $?;"
        "SIMULATIONS compare --modes plain --clients 2 --json out.json >&- 2>&-; echo $?;"
        "PYTHONIOENCODING=ascii COLUMNS=40 SIMULATIONS compare --modes plain --clients 3 --data zürich.npz; echo $?",
        tmp_path,
    )
    full, closed, *rest = done.stdout.decode("ascii").splitlines()
    assert (full, closed, rest[0].split(":")[0], rest[-1]) == ("2", "0", "afl on z\\xfcrich", "0")
    assert done.stderr == b"error: cannot use the output: No space left on device; free space, or name another place\n"
    assert sorted(os.listdir(tmp_path)) == ["out.json", "zürich.npz"]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.usefixtures("ctrl_c")
def test_a_signal_while_the_program_loads(number: signal.Signals, tmp_path: Path) -> None:
    """Loading takes a second and more; -X importtime tells when it has begun."""
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "simulations", "compare", "--json", "out.json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        assert any("numpy" in line for line in process.stderr)
        process.send_signal(number)
        output, errors = process.communicate()
    said = [line for line in errors.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, output, said) == (SIGNALS[number], "", ["stopped; no file is half-written"])
    assert os.listdir(tmp_path) == []


@pytest.fixture
def ctrl_c() -> Iterator[Callable[..., None]]:
    """What stops this process as Ctrl-C does, which it and its children hear even in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda *ignored: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("module", "arguments"), [(audit_command, ["audit"]), (compare_command, ["compare", *SMALL])])
def test_ctrl_c_in_the_middle_leaves_no_file(
    module: Any,
    arguments: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ctrl_c: Callable[..., None],
) -> None:
    """An audit is stopped when it says what it does next, a comparison at a client's first contribution."""
    name, tick = arguments[0], ctrl_c if module is audit_command else Progress(tick=ctrl_c)
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda dataset, settings, _: real(dataset, settings, tick))
    assert main([*arguments, "--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html")]) == 130
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "stopped; no file is half-written\n")
    assert os.listdir(tmp_path) == []


def test_ctrl_c_while_a_file_is_written_leaves_what_was_there(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ctrl_c: Callable[..., None],
) -> None:
    (tmp_path / "out.json").write_text("before")
    monkeypatch.setattr(os, "fsync", ctrl_c)
    assert main(["compare", *SMALL, "--json", str(tmp_path / "out.json")]) == 130
    output = capsys.readouterr()
    assert output.err == "stopped; no file is half-written\n"
    assert "the run equals the pooled model" in output.out  # the numbers were there already
    assert os.listdir(tmp_path) == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "before"


def test_ctrl_c_in_features_leaves_whole_chunks_from_which_it_goes_on(
    workbench: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ctrl_c: Callable[..., None],
) -> None:
    monkeypatch.chdir(workbench)
    words = "features --backbone resnet18 --images train --test-images val --weights resnet18.pth --device cpu"
    arguments = [*words.split(), "--out", str(tmp_path / "out.npz")]
    writes: list[int] = []

    def stop_at_the_third(number: int) -> None:  # settings, training rows, test rows
        writes.append(number)
        if len(writes) == 3:
            ctrl_c()

    monkeypatch.setattr(os, "fsync", stop_at_the_third)
    assert main(arguments) == 130
    assert capsys.readouterr().err == "stopped; no file is half-written\n"
    assert os.listdir(tmp_path) == ["out.npz.parts"]
    assert sorted(name.split("-")[0] for name in os.listdir(tmp_path / "out.npz.parts")) == ["settings.json", "train"]
    assert main(arguments) == 0
    assert len(writes) == 5  # test rows and the whole: the training rows were there
    assert os.listdir(tmp_path) == ["out.npz"]
