"""Controls beside `rl_focal`: the start of its training, and `log_linear` on the models of that start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlfocal.base.names import RL_FOCAL, START_METHOD, TEAM_LOG_LINEAR
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Policy
from rlfocal.methods.log_linear import fit_log_linear
from rlfocal.methods.reference import BestSingleModel
from rlfocal.methods.registry import Entry, MethodArguments, MethodBase, register
from rlfocal.methods.trained import RLFocal


def _enter(name: str, asks: str, answers: str, *, keeps_fusion: bool) -> None:
    def make(making: MethodArguments) -> Start:
        return Start(RLFocal(RL_FOCAL[0], store=making.store), keeps_fusion)

    entry = Entry(
        name, asks, answers, role="control", reads=("question", "outputs"), with_task="as an input",
        protocols=("frozen",), fewest_models=2, needs=() if keeps_fusion else ("log-probs",),
        is_default=False, has_budgets=keeps_fusion,
        source="a control, evaluated wherever `rl_focal` is", make=make,
    )  # fmt: skip
    register(entry)(Start)


@dataclass(frozen=True)
class Start(MethodBase):
    """The best constant pool of `rl_focal` before training.

    Where answers are only graded, there is no such pool, and the most accurate model decides.
    """

    agents: RLFocal
    keeps_fusion: bool
    """Whether members have the weights of the start; if not, `log_linear` fits their weights."""

    def recipe(self, n_train: int) -> str:
        return f"{self.revision} {self.agents.recipe(n_train)}"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Policy]:
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal.methods.rl_focal.agents import PoolAgents

        # No seed matters to the start, and no episode.
        agents = self.agents.load_agents(train, 0)
        if agents is None:
            [agents] = replace(self.agents, store=None, changes={"joint_episodes": 0}).fit(train, [0])
        if not isinstance(agents, PoolAgents) or agents.simple_policies is None:
            single = BestSingleModel().fit(train, seeds)
            return [*single]
        at_start = agents.restore_start()
        return [at_start if self.keeps_fusion else fit_log_linear(train, at_start.team)]


_enter(
    START_METHOD,
    "the best constant pool: where `rl_focal` starts",
    "as `rl_focal` before training: a log-linear ensemble, weighted by the odds of being right",
    keeps_fusion=True,
)
_enter(TEAM_LOG_LINEAR, f"as `{START_METHOD}`", "as `log_linear`", keeps_fusion=False)
