"""Command lines: every command has help, wrong input is one message and exit code 2, and signals leave no half file."""

from __future__ import annotations

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

import click
import numpy as np
import pytest

from analytic_secagg.__main__ import SECTIONS
from analytic_secagg.console.command_line import Listed
from analytic_secagg.console.declaration import Command
from analytic_secagg.console.process import EXIT_CODES
from simulations.__main__ import EXPERIMENTS, main
from simulations.audit import command as audit_command
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
    if words[:1] != ["compare"]:
        return words
    small = [word for pair in zip(SMALL[::2], SMALL[1::2], strict=True) if pair[0] not in words for word in pair]
    return [*words[:1], *small, *words[1:]]


FEATURES = "features --backbone vgg11 --images i --weights w"
WRONG = {
    # options and their values
    "contrast": "contrast",
    "compare --clinets 5": "--clients",
    "compare --dataset digits --data x.npz": "--data",
    "compare --clients 1e3": "--clients",
    "compare --dropout 1": "--dropout",
    "compare --ridge nan": "--ridge",
    "compare --partition even": "--partition",
    "compare --format float32": "--format",
    "compare --format Q20.20": "26",
    "compare --modes plain,telepathy": "--modes",
    "compare --modes plain,,masked": "--modes",
    "compare --modes committee --clients 1": "committee",
    "compare --modes masked --clients 4 --dropout 0.5": "--dropout",
    "compare --modes committee --option corrupt=2": "corrupt",
    "compare --modes committee --option helpers=four": "helpers",
    "compare --learner svm": "--learner",
    "compare --learner all --ri 1": "RI process",
    "compare --learner safle --ri 0.5": "RI gamma",
    "compare --learner deepafl --option n_layer=3": "n_layers",
    "compare --learner deepafl --option d_phi=0": "feature",
    "compare --learner deepafl --ri 1": "RI gamma",
    "compare --learner fedhip --option alphas=much": "alphas",
    "compare --learner fedhip --option alphas=-1": "-1",
    "compare --learner random --sweep d_ph=8,16": "--sweep",
    "compare --dataset diabetes --learner logistic": "logistic",
    "compare --dataset diabetes --label-noise 0.1": "--label-noise",
    "compare --ri 1e30": "int64",
    "compare --ridge cv --ri 1": "RI gamma",
    "compare --dropout-anew": "--dropout",
    "compare --baselines fedavg --option rounds=0": "rounds",
    "compare --baselines fedavg --option mu=1": "fedavg.rounds",
    "compare --baselines dpsgd": "--epsilon",
    "compare --baselines dpsgd --epsilon 1 --option batch_size=3": "batch size",
    "compare --mean-share 0.5": "--epsilon",
    "compare --epsilon 0": "--epsilon",
    "compare --epsilon 1 --min-noise-shares 4": "4 noise shares",
    "compare --epsilon 1 --gram-share 1": "--gram-share",
    "compare --epsilon 1 --learner lda": "lda",
    "compare --epsilon 1 --learner deepafl --option gamma=1": "gamma",
    "compare --epsilon 1 --label-noise 0.1": "--label-noise",
    "compare --epsilon 1 --dropout 0.7": "rate",
    "compare --epsilon 1 --ridge cv": "--ridge",
    "compare --epsilon 1 --ri 1": "--ri",
    "audit --attacks magic": "--attacks",
    "audit --epsilon much": "--epsilon",
    "audit --limit rows=1": "--limit",
    "parameters --clients 10 --corruption 0.6 --dropout 0.6": "safely",
    "parameters --features 0": "--features",
    "parameters --security-bits inf": "--security-bits",
    "features --backbone resnet": "resnet18",
    f"{FEATURES} --out o --workers 0": "--workers",
    # data
    "compare --data dir.npz": "dir.npz",
    "compare --data pipe.npz": "pipe.npz",
    "compare --data empty.npz": "empty.npz",
    "compare --data keys.npz": "x_test",
    "compare --data negative.npz": "-1",
    "compare --data float_labels.npz": "float64",
    "compare --data pickled.npz": "never loaded",
    "compare --data huge.npz": "hold a value from 2^64 on",
    "compare --data liar.npz": "memory",
    "compare --data good.npz --format Q1.2": "Q1.2",
    "compare --data good.npz --columns rows.toml": "--columns",
    "compare --data rows.csv --columns none.toml": "none.toml",
    "compare --data rows.csv --columns real.toml": "rows.csv, line",
    "compare --data good.npz --partition shards:30": "90",
    "audit --data nan.npz": "NaN",
    "audit --data one.npz --clients 2 --rows 2": "rows",
    f"{FEATURES} --out o": "train and test",
    # places for results
    "compare --json ''": "--json",
    "compare --json missing/o": "missing",
    "compare --html dir.npz": "folder",
    "compare --html pipe.npz": "pipe.npz",
    f"compare --json {'n' * 250}": "too long",
    "compare --json o --plot ./o": "--json and --plot",
    "compare --data good.npz --html good.npz": "--data and --html",
}
"""Command lines, and the option, file or value that the message must name: one for each check that the code makes."""


@pytest.mark.parametrize("text", WRONG)
def test_wrong_input_is_one_message_code_2_and_no_file(
    text: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    assert main(words_of(text)) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert re.fullmatch(r"error: .+\n", output.err)
    assert WRONG[text] in output.err
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
    assert f"pip install '.[{extra}]'" in capsys.readouterr().err


# --- help ----------------------------------------------------------------------------------------------------

LISTED = [command for section in (EXPERIMENTS, *SECTIONS.values()) for command in section]


def examples(words: list[str], printed: str) -> list[list[str]]:
    """Each example of a command's help, as the words that follow the command's name."""
    name = " ".join(["analytic-secagg", *words])
    lines = re.findall(rf"^  {name}( .*)?$", printed.replace("\\\n", " "), flags=re.M)
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("listed", LISTED, ids=lambda listed: listed.name)
def test_every_command_has_help_with_examples_that_parse_and_exit_codes(
    listed: Listed, capsys: pytest.CaptureFixture[str]
) -> None:
    command = listed.load()
    assert command.name == listed.name
    assert not isinstance(command, Command) or callable(command.running())
    inner = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    for one in inner:
        words = [str(listed.name)] if one is command else [str(listed.name), str(one.name)]
        assert main([*words, "--help"]) == 0
        output = capsys.readouterr()
        assert output.err == ""
        codes = set(re.findall(r"(\d+)\s+\w", output.out.split("exit code: ")[1]))
        assert codes >= {"0", *map(str, EXIT_CODES)}
        own = examples(words, output.out)
        assert own
        for arguments in own:
            one.make_context("", arguments)


@pytest.mark.parametrize("words", [[], ["--help"]], ids=["no command", "help"])
def test_the_overview_names_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == (0 if words else 2)
    output = capsys.readouterr()
    text, silent = (output.out, output.err) if words else (output.err, output.out)
    assert silent == ""
    for listed in LISTED:
        assert re.search(rf"^ +{listed.name} +{re.escape(str(listed.short_help))}$", text, flags=re.M)


HEAVY = ("numpy", "scipy", "flint", "pydantic", "rich", "matplotlib", "sklearn", "torch", "flwr", "nvflare")
"""What the overview, its completion and a typing mistake need not wait for."""

ONE_COMMAND = ("scipy.stats", "scipy.optimize", "matplotlib", "sklearn", "torch", "jinja2", "PIL", "flwr", "nvflare")
"""What no refusal of a command's needs."""

ALL_HELP = (
    *ONE_COMMAND,
    "scipy.linalg",
    "scipy.sparse",
    "rich",
    "simulations.compare.comparison",
    "simulations.audit.audit",
)
"""What no command's help and no refusal of its options needs: what it computes with, and its tables."""

OF_DEPLOYMENTS = (*ALL_HELP, "pydantic", "cryptography", "analytic.afl", "analytic_secagg.site.site")
"""What none of a site's, a server's or an engine's commands needs for it: files and keys are read when it runs."""

DEPLOYING = [one.name for section in SECTIONS.values() for one in section]
EXPERIMENTING = [one.name for one in EXPERIMENTS]


@pytest.mark.parametrize(
    ("words", "code", "absent"),
    [
        ("--help", 0, HEAVY),
        ("--version", 0, HEAVY),
        ("comprae", 2, HEAVY),
        ("compare --clinets 5", 2, ALL_HELP),
        ("compare --data none.npz", 2, ONE_COMMAND),
        ("check-site --serve site.toml", 2, OF_DEPLOYMENTS),
    ],
)
def test_help_and_refusals_load_what_they_need(words: str, code: int, absent: tuple[str, ...], tmp_path: Path) -> None:
    program = (
        "import sys; from simulations.__main__ import main; "
        f"code = main({words.split()}); "
        f"print(*sorted(set({absent}) & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, ""), done.stderr


@pytest.mark.parametrize(
    ("commands", "absent"),
    [
        (EXPERIMENTING, tuple(one for one in ALL_HELP if one != "PIL")),  # features lists the images that it can read
        (DEPLOYING, OF_DEPLOYMENTS),
    ],
)
def test_no_help_loads_what_only_running_needs(commands: list[str], absent: tuple[str, ...]) -> None:
    """By modules and not by seconds: one process prints the help of all of them, one after the other."""
    program = (
        "import sys; from simulations.__main__ import main; "
        f"codes = [main([name, '--help']) for name in {commands}]; "
        f"print(*sorted(set({absent}) & set(sys.modules)), *filter(None, codes), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "\n")
    assert done.stdout.count("Usage: ") == len(commands)


@pytest.mark.parametrize(("said", "found"), [({}, "18"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")])
def test_idle_threads_of_blas_are_told_to_sleep_before_they_are_there(said: dict[str, str], found: str) -> None:
    """It is read once, when numpy and scipy are loaded."""
    program = """
import os, sys
class Finder:
    def find_spec(name, *more):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_THREAD_TIMEOUT"), file=sys.stderr)
sys.meta_path.insert(0, Finder)
sys.argv[1:] = ["compare", "--help"]
from simulations.__main__ import main
sys.exit(main())
"""
    own = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    done = subprocess.run([sys.executable, "-c", program], env=own | said, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, f"{found}\n")


def test_completion_knows_commands_options_and_values() -> None:
    def completed(line: str) -> set[str]:
        environment = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        done = subprocess.run(
            [sys.executable, "-m", "simulations"],
            env=os.environ | environment | {"_ANALYTIC_SECAGG_COMPLETE": "bash_complete"},
            capture_output=True,
            text=True,
            check=False,
        )
        return {line.partition(",")[2] for line in done.stdout.splitlines()}

    assert completed("analytic-secagg comp") == {"compare"}
    assert completed("analytic-secagg flower tr") == {"trial"}
    assert completed("analytic-secagg compare --dropout-a") == {"--dropout-anew"}
    assert completed("analytic-secagg compare --unit ") == {"record", "client"}


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"analytic-secagg \d+\.\d+\S*\n", capsys.readouterr().out)


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
    monkeypatch.setattr(module, name, lambda dataset, settings, _, **more: real(dataset, settings, tick, **more))
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
