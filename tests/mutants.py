"""`make mutants`: breaks a line of agents, GPU placement or extraction at a time, and sees a fast test fail.

Every mutant is applied alone to a copy of the tree, where the tests named for it have to fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOCAL, SEQUENTIAL = "rlfocal/methods/rl_focal/", "rlfocal/methods/rl_focal_sequential/"
METHODS, RIVALS = "rlfocal/methods/", "rivals/rlfocal_rivals/"
GPUS = "rlfocal/extraction/gpus.py"
MOST_SECONDS = 300


class Mutant(NamedTuple):
    """One wrong line."""

    name: str
    file: str
    right: str
    """Found once in the file"""
    wrong: str
    tests: str
    """pytest's arguments: files or names of tests, relative to tests/"""


UPDATE = "methods/test_mappo.py::test_an_update_is_eq_7_written_out"
COUNTS = "methods/test_mappo.py::test_every_setting_of_the_update_counts"
BY_TURNS = "methods/test_mappo.py::test_advantages_by_turns_are_gae_on_the_interleaved_sequence"
PAPERS = "methods/test_agents_environment.py::test_environment_is_the_papers"
SAMPLES = "methods/test_mappo.py::test_actions_are_drawn_by_the_policies"
WINDOW = "methods/test_online_learning.py::test_a_window_holds_what_all_members_answered"
TURNED = "methods/test_online_learning.py::test_rl_focal_online_follows_a_change_and_costs_little_without_one"
BRUTE = "methods/test_gated_log_linear.py::test_the_value_of_one_more_model_by_brute_force"
GATED = "rlfocal/methods/rl_focal/gated.py"
TURNS = "methods/test_online_policies.py::test_online_learners_follow_a_change_of_the_best_model"
UP_TO = "methods/test_online_policies.py::test_labels_from_a_document_on_change_nothing_up_to_it"
SAMPLING, DRAWN = "rlfocal/statistics/sampling.py", "statistics/test_sampling.py"
PROBES = "new_model/test_newcomer_probes.py"
CLEARLY_AHEAD = (
    "methods/test_online_learning.py::test_the_vote_answers_once_it_is_clearly_ahead_and_not_by_a_lucky_label"
)
COSTS = "methods/test_sequential_costs.py::"
ABSTAINING = "methods/test_sequential_abstaining.py::"
OWN_CHOICES = "extraction/test_unconditional.py::test_each_row_has_its_own_choices"
PROBING = "extraction/test_probing.py::"
REQUESTS = "rlfocal/extraction/engines/requests.py"
HIDDEN = "extraction/test_requests.py::test_every_token_has_its_score_whatever_the_cache_hides"
UNASKED = "methods/test_agents_math.py::test_models_that_were_not_asked_do_not_change_the_fusion"

MUTANTS = (
    Mutant("the ratio is always 1", FOCAL + "mappo.py",
        "ratio = log_ratio.exp()", "ratio = (log_ratio - log_ratio.detach()).exp()", UPDATE),
    Mutant("nothing is ever clipped", FOCAL + "mappo.py",
        "ratio.clamp(1 - clip, 1 + clip) * advantages", "ratio * advantages", f"{UPDATE} {COUNTS}"),
    Mutant("the critic's value is in no advantage", FOCAL + "mappo.py",
        "if not config.has_critic:", "if True:", f"{UPDATE} {COUNTS}"),
    Mutant("the Decider's baseline knows its pool", FOCAL + "mappo.py",
        "following = fusion_values[t] - decider_values[t] + lam", "following = lam", BY_TURNS),
    Mutant("advantages know no λ", FOCAL + "mappo.py",
        "decider_values[t + 1] + lam * following", "decider_values[t + 1] + following", BY_TURNS),
    Mutant("advantages know no γ", FOCAL + "mappo.py",
        "gamma * (decider_values[t + 1]", "(decider_values[t + 1]", BY_TURNS),
    Mutant("an advantage knows no later error", FOCAL + "mappo.py",
        "deltas[t] + gamma * lam * following", "deltas[t]",
        "methods/test_agents_math.py::test_advantages_are_the_discounted_sum_of_td_errors"),
    Mutant("each agent has the other's discount", FOCAL + "mappo.py",
        "decider_gamma, self.config.fusion_gamma", "fusion_gamma, self.config.decider_gamma", UPDATE),
    Mutant("rare successes weigh no more than others", FOCAL + "mappo.py",
        "if self.config.success_weighting:", "if False:", f"{UPDATE} {COUNTS}"),
    Mutant("entropy is punished", FOCAL + "mappo.py",
        "- config.entropy * self.share", "+ config.entropy * self.share", UPDATE),
    Mutant("the critic is not trained", FOCAL + "mappo.py",
        "loss = policy_loss + value_loss -", "loss = policy_loss -", UPDATE),
    Mutant("pools are not sampled", FOCAL + "mappo.py",
        "sample_pool(logits, noise", "sample_pool(logits, 0 * noise", SAMPLES),
    Mutant("answers are not sampled", FOCAL + "mappo.py",
        "[..., None, :], slot_noise[t])", "[..., None, :], 0 * slot_noise[t])", SAMPLES),
    Mutant("pools cost nothing beyond Eq (6)", FOCAL + "mappo.py",
        "return rollout.rewards - cost[..., None]", "return rollout.rewards", UPDATE),
    Mutant("the multiplier never rises", "rlfocal/methods/rl_focal/questions.py",
        "self.values * factor", "self.values * 1",
        "methods/test_mappo.py::test_the_multiplier_rises_where_pools_are_too_large"),
    Mutant("the multiplier rises without end", FOCAL + "mappo.py",
        "most=n_models\n", "most=float('inf')\n",
        "methods/test_mappo.py::test_budgets_that_stay_out_of_reach_do_not_drown_what_answers_earn"),
    Mutant("the pool's size costs nothing", FOCAL + "environment.py",
        "wrong = -1 - self.config.size_penalty", "wrong = -1 - 0", PAPERS),
    Mutant("the last pool answers", FOCAL + "environment.py",
        "torch.stack(pools[1:])", "torch.stack(pools[:-1])", PAPERS),
    Mutant("metrics look ahead", FOCAL + "environment.py",
        "by_stretch, self.first + t,", "by_stretch, self.first + t + 1,", PAPERS),
    Mutant("rows before the stream count in the window", "rlfocal/statistics/windows.py",
        "rows.clamp(max=length)", "rows.clamp(min=length, max=length)",
        "methods/test_agents_environment.py::test_window_metrics_equal_their_numpy_twins"),
    Mutant("the Decider sees no metric", FOCAL + "environment.py",
        "torch.cat([pools, looked_back,", "torch.cat([pools, 0 * looked_back,", PAPERS),
    Mutant("a gain has the wrong sign", GATED,
        "PoolValues(earned[1] - earned[0],", "PoolValues(earned[0] - earned[1],", BRUTE),
    Mutant("the pool's size is rewarded", GATED,
        "earned.append(score - cost)", "earned.append(score + cost)", BRUTE),
    Mutant("a pool of nobody scores as others do", GATED,
        "nobody = (others + asked == 0) |", "nobody =", BRUTE),
    Mutant("no budget is told when acting", FOCAL + "agents.py",
        "about = self.read_question_features(calls, told)", "about = self.read_question_features(calls)",
        "methods/test_gated_log_linear.py::test_within_a_budget_others_are_asked_than_without_one"),
    Mutant("the mean pool is not kept", FOCAL + "training.py",
        "networks.decider.question[0] -= lowered", "networks.decider.question[0] -= 0",
        "methods/test_fallback.py::test_the_mean_pool_is_kept_whatever_training_ended_with"),
    Mutant("Fusion's evidence of models that were not asked", FOCAL + "networks.py",
        "torch.where(asked, own, 0)", "own", UNASKED),
    Mutant("the standardised outputs of models that were not asked", FOCAL + "networks.py",
        "selected = outputs.sum(-1, keepdim=True) > 0", "selected = outputs.sum(-1, keepdim=True) >= 0",
        "methods/test_agents_math.py::test_standardised_outputs_of_models_that_were_not_asked_stay_0"),
    Mutant("online, metrics of models that were not asked", FOCAL + "online.py",
        "rows = rows[(self.is_asked[rows] >= pools[0, 0]).all(1)]", "pass", WINDOW),
    Mutant("online, the label is the answer", FOCAL + "online.py",
        "predictions = torch.cat(answers).numpy().astype(np.int64)", "predictions = documents.labels", UP_TO),
    Mutant("online, nothing is learned", FOCAL + "online.py", "learner.learn(rollout)", "pass",
        f"methods/test_online_learning.py::test_online_rl_focal_learns_and_does_not_only_watch {TURNED}"),
    Mutant("online, what was learned is never heard", FOCAL + "online.py",
        "return self.networks.fusion if leads or", "return self.networks.fusion if", TURNED),
    Mutant("online, the Decider never explores anew", FOCAL + "online.py",
        "self._explore(rollout)", "pass",
        "methods/test_online_learning.py::test_a_model_that_is_hardly_ever_asked_is_found_once_it_is_the_best"),
    Mutant("what was learned always decides", "rlfocal/methods/fallback.py",
        "gain.sum() > max(of_zero, margin) * error", "gain.sum() > -99 * error", "methods/test_fallback.py"),
    Mutant("the start decides where one model is as good", "rlfocal/methods/fallback.py",
        "start_rewards.sum() > alone", "start_rewards.sum() >= alone", "methods/test_fallback.py"),
    Mutant("shuffled labels are learned from", "rlfocal/methods/fallback.py",
        "0.0 if is_clear.any() else SHUFFLED_MARGIN", "0.0", "methods/test_fallback.py"),
    Mutant("graded answers are routed to one model", "rlfocal/methods/learning/routed.py",
        "np.hstack([np.ones((len(rows), 1)), rows]) @ self.weights",
        "np.hstack([np.ones((len(rows), 1)), 0 * rows]) @ self.weights", "methods/test_routed.py"),
    Mutant("a promise needs no certainty", "rlfocal/statistics/selective.py",
        "passes = binom.cdf(wrong, answered, target) <= level",
        "passes = wrong <= target * answered", "statistics/test_promises.py"),
    Mutant("every look is at five percent", "warehouse/sql/promises.sql",
        "0.05 * 6 / (pi() ** 2 * t.look ** 2)", "2.0", "evaluation/test_promising.py"),
    Mutant("a promise is made on rows it was fitted on", "rlfocal/evaluation/confidence.py",
        "method.fit(train.take(rest), [seed])", "method.fit(train.take(out), [seed])",
        "evaluation/test_promising.py"),
    Mutant("ties are accepted one by one", "rlfocal/statistics/selective.py",
        "np.flatnonzero(np.diff(probability[order], append=-1.0))", "np.arange(len(order))",
        "statistics/test_selective.py"),
    Mutant("online, the vote leads by the noise", "rlfocal/methods/learning/agents.py",
        "LEAD_STANDARD_ERRORS = 1.5", "LEAD_STANDARD_ERRORS = 0.0", CLEARLY_AHEAD),
    Mutant("online, the vote leads when behind", "rlfocal/methods/learning/agents.py",
        "float(comparison[1]) - float(comparison[0])", "float(comparison[0]) - float(comparison[1])",
        CLEARLY_AHEAD),
    Mutant("a bandit never learns", RIVALS + "online.py",
        "arms.learn(arm, context, float(turn.right[arm]))", "pass", f"{TURNS}[linucb] {TURNS}[thompson]"),
    Mutant("hedge answers with the label", RIVALS + "online.py",
        "turn.answer(int(vote(turn.calls.call_all(), log_weights)[0]))",
        "turn.calls.call_all(), turn.answer(int(turn._labels[0]))", f"{UP_TO}[hedge-choices]"),
    Mutant("hedge never learns", RIVALS + "online.py",
        "log_weights = reweigh(log_weights, ~turn.right, self.rate, self.share)", "pass", f"{TURNS}[hedge]"),
    Mutant("hedge punishes who was right", RIVALS + "online.py",
        "left = log_weights - rate * wrong", "left = log_weights - rate * ~wrong",
        "../rivals/tests/test_rivals_bandits.py::test_hedge_keeps_to_its_regret_bound"),
    Mutant("sliding_best never learns", RIVALS + "online.py",
        "n_right = n_right + last[-1]", "pass", f"{TURNS}[sliding_best]"),
    Mutant("sliding_best forgets nothing", RIVALS + "online.py",
        "n_right = n_right - last.pop(0)", "pass",
        "../rivals/tests/test_rivals_bandits.py::test_sliding_best_by_brute_force"),
    Mutant("the log-linear pool never learns", METHODS + "log_linear.py",
        "parameters + np.linalg.solve(precision, slope)", "parameters", f"{TURNS}[online_log_linear]"),
    Mutant("the log-linear pool forgets nothing", METHODS + "log_linear.py",
        "keep = np.exp(-1 / memory)", "keep = 1.0",
        "methods/test_online_log_linear.py::test_the_log_linear_pool_learns_as_written_out"),
    Mutant("cross-fitting on all rows", SEQUENTIAL + "softmax_regression.py",
        "(part[sample] != torch.arange(n_folds)[:, None])", "(part[sample] != torch.full((n_folds, 1), -1))",
        "methods/test_sequential_training.py::test_nothing_of_a_held_out_row_reaches_what_is_fitted_without_it"),
    Mutant("prices and rounds cost nothing", SEQUENTIAL + "decider.py",
        "penalty * self.size - self.cost", "penalty * self.size",
        COSTS + "test_what_was_paid_weighs_as_a_penalty_does "
        + COSTS + "test_a_cheap_model_is_asked_first_and_the_dear_one_where_it_is_unsure"),
    Mutant("an abstention is worth nothing", SEQUENTIAL + "decider.py",
        "np.maximum(self.features[:, 1], self.abstention_reward)", "self.features[:, 1]",
        ABSTAINING + "test_two_models_are_asked_as_optimal_stopping_with_abstentions_would"),
    Mutant("the best model alone never abstains", SEQUENTIAL + "training.py",
        "outcome(rows.correct[out, best], confidence, config.worth_of_abstaining) - cost",
        "rows.correct[out, best] - cost",
        ABSTAINING + "test_the_best_model_alone_may_abstain_too"),
    Mutant("a stage is left out though it pays", SEQUENTIAL + "decider.py",
        "max(worth) <= best", "min(worth) > best", COSTS + "test_stages_left_out_were_not_worth_their_round"),
    Mutant("every stage pays for the rounds of all", SEQUENTIAL + "decider.py",
        "config.round_penalty * number for", "config.round_penalty * len(sizes) for",
        COSTS + "test_prices_and_rounds_cost_what_the_settings_say"),
    Mutant("who adds least is asked next", SEQUENTIAL + "decider.py",
        "gives[gives.sum(1).argmax()] - gives", "gives - gives[gives.sum(1).argmin()]",
        COSTS + "test_complementary_models_are_asked_before_redundant_ones"),
    Mutant("a router's probability is the least likely slot's", SEQUENTIAL + "agents.py",
        "features.distribution[0, slot]", "features.distribution[0].min()",
        COSTS + "test_router_and_decide_give_the_same_probability"),
    Mutant("scales of the rows that are decided on", FOCAL + "agents.py",
        "        logits = self.networks.fusion(given, slots.open)\n",
        "        self.networks.fusion.standardiser.learn(slots.distributions)\n"
        "        logits = self.networks.fusion(given, slots.open)\n",
        "methods/test_agents_training.py::test_what_is_decided_with_a_document_does_not_matter"),
    Mutant("rl_focal's scales of the last documents alone", FOCAL + "networks.py",
        "self.standardiser.learn(outputs)", "self.standardiser.learn(outputs[-20:])",
        "methods/test_agents_training.py::test_scales_are_those_of_all_train_rows_and_of_no_test_row"),
    Mutant("cents that are never used up", FOCAL + "agents.py",
        "asked[model], most = 1, most - costs[model]", "asked[model] = 1",
        "methods/test_agents_budgets.py::test_the_agents_keep_to_cents"),
    Mutant("a budget in cents tells the largest in models", FOCAL + "agents.py",
        "if pool.sum() == b]", "]",
        "methods/test_agents_budgets.py::test_the_largest_pool_within_cents"),
    Mutant("the last giver of an answer settles ties", "rlfocal/statistics/windows.py",
        ".float().argmax(-1, keepdim=True)", ".float().cumsum(-1).argmax(-1, keepdim=True)", PAPERS),
    Mutant("GPUs: a lease keeps nobody away", GPUS,
        "flock(file, LOCK_EX | LOCK_NB)", "pass",
        "extraction/test_placement.py::test_gpus_are_taken_together_or_not_at_all "
        "extraction/test_placement.py::test_a_lease_ends_with_the_last_process_of_its_engine"),
    Mutant("GPUs: a lease ends with the engine's first process", "rlfocal/extraction/running/processes.py",
        "lease.guard()", "pass",
        "extraction/test_placement.py::test_a_lease_ends_with_the_last_process_of_its_engine"),
    Mutant("GPUs: whoever gave a lease keeps it", "rlfocal/extraction/running/processes.py",
        "lease.close()", "pass", "extraction/test_placement.py::test_a_job_that_ends_gives_its_gpus_back"),
    Mutant("GPUs: an engine sees all of them", "rlfocal/extraction/running/processes.py",
        "restrict_to(lease.devices)", "restrict_to(gpus._devices)",
        "extraction/test_placing.py::test_models_run_side_by_side_on_gpus_of_their_own"),
    Mutant("unconditional: after a prompt", "rlfocal/extraction/rows.py",
        'context="",', 'context="Answer:",',
        "extraction/test_unconditional.py::test_each_text_is_asked_once_after_nothing"),
    Mutant("unconditional: another choice's", "rlfocal/extraction/rows.py",
        "continuations[doc_id][choice]", "continuations[doc_id][choice - 1]", OWN_CHOICES),
    Mutant("probes: answers of other settings are taken over", "rlfocal/extraction/running/stored_answers.py",
        'json.loads(stored["settings"]) == settings', "True",
        PROBING + "test_the_newest_probe_of_the_same_engine_counts"),
    Mutant("probes: documents are asked again", "rlfocal/extraction/running/probing.py",
        "    left -= _find_asked(warehouse, probe_id)\n", "", PROBING + "test_a_document_is_asked_once"),
    Mutant("probes: choices alone are those of other documents", "rlfocal/extraction/running/worker.py",
        "job.fingerprint + suffix", "job.fingerprint + ALONE_SUFFIX",
        PROBING + "test_choices_alone_are_scored_with_each_batch"),
    Mutant("unconditional: added instead of taken off", "warehouse/sql/accuracy_norm.sql",
        "c.logprob - c.unconditional_logprob", "c.logprob + c.unconditional_logprob",
        "warehouse/test_views.py::test_accuracy_by_mutual_information "
        "warehouse/test_views.py::test_mutual_information_needs_every_choice"),
    Mutant("requests: a choice's first token is another's", REQUESTS,
        "first = next_tokens[prefix, suffix[0]]", "first = min(next_tokens.values())", HIDDEN),
    Mutant("requests: the token behind the first is not read", REQUESTS,
        "Request(prefix + suffix, len(prefix) + 1)", "Request(prefix + suffix, len(prefix) + 2)", HIDDEN),
    Mutant("requests: contexts are not read on their own", REQUESTS,
        "able.shares_prefixes or prefix not in longer", "prefix not in longer",
        "extraction/test_requests.py::test_contexts_are_read_without_their_tokens_log_probs"),
    Mutant("a stratum stops early", SAMPLING, "n - drawn.sum()]] += 1", "n - drawn.sum()]] += 0", DRAWN),
    Mutant("strata count alike", SAMPLING, "(sizes / sizes.sum()) ** 2", "(sizes / sizes.sum())", DRAWN),
    Mutant("a regression knows its own fold", SAMPLING, "away = folds[self.rows] != fold",
           "away = folds[self.rows] >= 0", DRAWN),
    Mutant("a newcomer is decided by its own fold", "rlfocal/new_model/team.py",
           "away, here = self.folds[rows] != fold, self", "away, here = self.folds[rows] >= 0, self", PROBES),
    Mutant("any gain is enough to join", "rlfocal/new_model/probing.py",
           'return "join" if any(low > 0 for low, _ in ends) else "unclear"', 'return "join"', PROBES),
    Mutant("no task is left to a newcomer", "rlfocal/new_model/probing.py",
           "effects[~away] = (lead * ahead[of])[~away]", "effects[~away] = 0.0", PROBES),
)  # fmt: skip


def main() -> int:
    """Prints what became of each mutant; 1 if one survived. Arguments: parts of the names to try alone."""
    chosen = [m for m in MUTANTS if not sys.argv[1:] or any(part in m.name for part in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("rlfocal", "warehouse", "flows", "tests", "pools", "benchmarks", "rivals"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests.split())
        if not passes(copy, " ".join(tests)):
            print("the tests fail on the tree as it is")
            return 1
        survivors = [mutant.name for mutant in chosen if not is_killed(copy, mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed")
    return int(bool(survivors))


def is_killed(copy: Path, mutant: Mutant) -> bool:
    """Whether every test named for it fails; the copy is left as it was."""
    file = copy / mutant.file
    before = file.read_text()
    if before.count(mutant.right) != 1:
        raise SystemExit(f"{mutant.name}: {mutant.right!r} is not there once in {mutant.file}")
    file.write_text(before.replace(mutant.right, mutant.wrong))
    left = [test for test in mutant.tests.split() if passes(copy, test)]
    file.write_text(before)
    print(f"survived {left}" if left else "killed", mutant.name, sep=": ", flush=True)
    return not left


def passes(copy: Path, tests: str) -> bool:
    """Whether these tests pass in the copy."""
    path = f"{copy}{os.pathsep}{copy / 'rivals'}"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
        + [f"tests/{test}" for test in tests.split()],
        cwd=copy, env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=MOST_SECONDS,
    )  # fmt: skip
    # A mutant that cannot be run proves nothing of the tests.
    if run.returncode not in (0, 1) or re.search(r"\d+ error", run.stdout):
        raise SystemExit(run.stdout + run.stderr)
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
