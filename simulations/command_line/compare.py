"""Declaration of the command ``compare``."""

from __future__ import annotations

from analytic_secagg.console.arguments import Configurable
from analytic_secagg.console.declaration import Command
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import MODES
from simulations.compare.baselines import BASELINES
from simulations.compare.options import CompareOptions


def _examples() -> str:
    modes = [mode for mode in MODES.values() if mode.options]
    takers: tuple[Configurable, ...] = (*LEARNERS.values(), *BASELINES.values(), *modes)
    options = "\n".join(f"  {taker.name:9} {', '.join(taker.options) or 'none'}" for taker in takers)
    return f"""examples:
  analytic-secagg compare
      digits, 20 clients, Dirichlet 0.1, every mode that is installed
  analytic-secagg compare --dataset breast_cancer --partition iid --partition shards:2 --dropout 0.2
      two ways to distribute the rows; a fifth of the clients drop out
  analytic-secagg compare --data features.npz --clients 100,1000 --modes plain --json out.json --html out.html
      your own features (arrays x_train, y_train, x_test, y_test), two cohort sizes, two reports
  analytic-secagg compare --modes committee --option helpers=4 --option corrupt=1
      a committee that tolerates one unavailable or malicious helper
  analytic-secagg compare --learner fedhip --option alphas=1,10,100
      a model for each client, tested on a fifth of its own rows
  analytic-secagg compare --learner all --baselines all --partition iid --partition dirichlet:0.01 --modes plain
      every closed form, FedAvg and FedProx, on even parts and on very heterogeneous ones
  analytic-secagg compare --dataset diabetes --learner all --partition iid --evaluate
      real targets: R2 in place of accuracy, linear models with an intercept, each evaluated through one more sum
  analytic-secagg compare --learner all --sweep d_phi=64,256 --baselines all --modes plain --frontier front.svg
      what accuracy costs: every closed form, FedAvg and FedProx, by bytes, messages and seconds
  analytic-secagg compare --epsilon 1,8 --clients 100 --partition iid --seeds 5
      also accuracy with differential privacy: distributed, central and local noise, and none

options of learners, baselines and modes (--option NAME=VALUE for all that have it, --option WHOSE.NAME=VALUE for one):
{options}
  deepafl's d_phi and d_f are, when left out, twice the features rounded up to a power of two, at most 1024

"""


COMMAND = Command(
    name="compare",
    summary="train closed forms over several privacy modes and check each run against its pooled model, bit for bit",
    examples=_examples(),
    options=CompareOptions,
    run="simulations.compare.command:run",
    fine="every run equals its pooled model",
    finding="one does not",
)
