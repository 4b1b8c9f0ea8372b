"""Settings of PhyB's policy optimisation."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from phyb.algorithms.starting import CloneConfig
from phyb.belief.backup import BeliefConfig
from phyb.fields import Count, Fraction, Layers, NonNegative, Positive, Share, Whole, at_least, not_if, only_if
from phyb.policy.critics import TargetVote, Vote
from phyb.policy.mirror import Scope


@dataclasses.dataclass(frozen=True)
class PhyBConfig(CloneConfig):
    """Settings of the policy optimisation."""

    belief: BeliefConfig = dataclasses.field(default_factory=BeliefConfig)

    # --- Mirror step ---
    improvement: Literal["candidates", "gradient"] = "candidates"
    """candidates: the mirror step is solved exactly on candidate actions, and the actor is fitted to their weights;
    gradient: the actor ascends the same objective at omega = 1 through the critics, with one action at each state. That
    takes a fraction of the time (see `phyb.policy.parametric`)."""
    behaviour_pull: Annotated[NonNegative, only_if("improvement", "gradient")] = 0.0
    """Weight of the log-likelihood of logged actions in the actor's objective. Higher stays nearer to the log."""
    normalize_q: Annotated[bool, only_if("improvement", "gradient")] = True
    """Divide the critics' values by their mean size in the actor's objective, so that `step_size` and
    `behaviour_pull` mean the same at any scale of values."""
    fixed_spread: Annotated[NonNegative, only_if("improvement", "gradient")] = 0.0
    """Standard deviation of actions before the tanh, held fixed; 0 learns it. Higher averages the critics over a wider
    neighbourhood, lower follows them more exactly."""
    potential_mix: Annotated[Fraction, only_if("improvement", "candidates")] = 0.9
    """omega, the potential of the mirror step: 1 is relative entropy (softmax), 0 is Euclidean (sparse). Lower drops
    poor candidates entirely."""
    step_size_rule: Literal["target", "fixed"] = "target"
    """target: beta is chosen so that the divergence from the reference meets `target_divergence`, whatever the scale
    of values; fixed: beta is `step_size` (paper)."""
    step_size: Annotated[Positive, only_if("step_size_rule", "fixed")] = 0.1
    """beta with the rule fixed, in units of the reward range. Lower takes bolder steps away from the reference."""
    target_divergence: Annotated[Positive, only_if("step_size_rule", "target")] = 1.5
    """How far, in nats at omega = 1, one step may go from the reference. Higher improves faster and trusts the
    critics more."""
    final_divergence: Annotated[Share, only_if("step_size_rule", "target")] = 1.0
    """The target falls linearly to this share of itself over the run. Lower lets the policy come to rest, so that noise
    in the critics does not carry it on; 1 keeps it going."""
    step_size_scope: Annotated[Scope, only_if("step_size_rule", "target")] = "batch"
    """batch: one beta for all rows, so that steps are large where actions matter; state: one beta for each row."""

    value_estimator: Annotated[Literal["amortised", "direct"], only_if("improvement", "candidates")] = "amortised"
    """Value of imagined successors: a network that learned the mirror step's value, or the mirror step itself on fresh
    candidates at every successor, ranked by the current critics and backed up by the target critics (released code).
    That costs hundreds of times more."""

    # --- Candidates ---
    actor_candidates: Annotated[Count, only_if("improvement", "candidates")] = 6
    """Candidate actions drawn from the actor at each state. More make the step more exact and cost time."""
    reference_candidates: Annotated[Count, only_if("improvement", "candidates")] = 6
    """Candidate actions drawn from the reference policy. More make the regularised value more exact."""
    logged_candidates: Annotated[Whole, only_if("improvement", "candidates")] = 4
    """On logged rows, candidates drawn near the logged action. Higher keeps good logged actions in view."""
    logged_noise: Annotated[Positive, not_if("logged_candidates", 0)] = 0.1
    """Spread around the logged action, before the tanh. Lower stays closer to the log."""

    # --- Networks and optimisers ---
    actor: str = "tanh-gaussian"
    """Kind of the policy's network: tanh-gaussian, a name that was registered, or package.module:Class; see
    docs/extending.md."""
    policy_hidden: Layers = (128, 128, 128)
    """Units per hidden layer of actor, critics and value. Wider fits finer detail and costs time."""
    actor_learning_rate: Positive = 1e-3
    """Step of the actor's optimiser. Lower follows the mirror step more smoothly."""
    critic_learning_rate: Positive = 2e-3
    """Step of the critics' and the value's optimiser. Lower is steadier, higher tracks a changing policy."""
    final_learning_rate: Share = 0.05
    """Learning rates fall linearly to this share of themselves over the run. 1 keeps them constant (paper)."""
    target_rate: Share = 0.01
    """Share by which the target critics and the target value follow per update. Lower is steadier and slower."""
    reference_rate: Share = 2e-3
    """Share by which the reference policy follows the actor per update. Lower takes smaller policy steps; the paper
    uses 1e-5 with 2,000,000 updates. The reference is the policy that is evaluated and deployed."""
    improve_with: Literal["online", "target"] = "online"
    """Critics that score the candidates: the current ones, or the target critics, which are steadier."""
    critics: Annotated[int, at_least(2)] = 2
    """Number of critics. More make targets steadier and cost time."""
    critic_layer_norm: bool = False
    """Normalise the hidden layers of critics and value. On keeps values bounded where there is no data."""
    critic_vote: Vote = "least"
    """least: an action is worth the least of the critics' values (released code); mean: their mean. The gap between
    the critics enters every backup, so that with a long horizon the least may lie far below the truth of each."""
    value_vote: Annotated[TargetVote, only_if("improvement", "gradient")] = "least"
    """The vote that the value learns from, and so the targets. random-pair, the least of two that are drawn anew in
    every update, is less pessimistic than the least of many."""

    # --- Rows and rollouts ---
    real_batch_size: Count = 128
    """Logged rows per update. Larger is smoother and slower."""
    rollouts: Count = 128
    """Imagined rollouts that advance by one step per update; also the imagined rows per update."""
    rollout_length: Count = 1000
    """Most steps of an imagined rollout before it starts anew from the log. Lower stays nearer to the data."""
    real_fraction: Fraction = 0.5
    """Weight of logged rows in every loss; the rest goes to imagined rows. Higher trusts the log more than the
    models."""
    real_target: Literal["logged", "belief"] = "logged"
    """Critic target on logged rows: the logged reward and successor, or the belief about that state and action."""

    # --- Schedule ---
    return_steps: Whole = 0
    """Steps of fitting critics and value to the log's discounted returns before the first update. Values then start
    at the right scale; without it a long horizon takes ten thousands of updates to fill them. 0 starts from noise."""
    clone_spread: Annotated[Positive, not_if("clone_steps", 0)] = 1.0
    """Spread of the cloned policy's actions relative to the log's. Lower starts nearer to the mean action, which is
    what is deployed, and takes smaller steps from it."""
    rollback: Annotated[bool, not_if("pool_size", 1)] = False
    """Before every evaluation (`evaluate_every`), compare the policy in whole episodes of every model alone with the
    incumbent, the last one that was a clear gain, at first the clone. Go back to it if the policy has clearly lost,
    with steps half as large from then on. A run in which no gain was ever clear ends with its start. Needs two
    models or more."""
    evaluation_steps: Whole = 0
    """Updates at the start that only evaluate the cloned policy. Raise it where early values are poor guides."""

    def __post_init__(self) -> None:
        if self.improvement == "gradient" and self.step_size_rule != "fixed":
            raise ValueError(
                "step_size_rule must be fixed with improvement gradient, which has no candidates to measure"
            )

    def numbers_in_update(self, observation_size: int, model_hidden: tuple[int, ...]) -> int:
        """Numbers that one update holds: candidates at all states, and what the drawn models say of the rollouts."""
        width = sum(self.policy_hidden)
        candidates = self.actor_candidates + self.reference_candidates + self.logged_candidates
        candidates = candidates if self.improvement == "candidates" else self.critics
        asked = self.belief.ensemble_size * self.rollouts
        successors = asked * self.belief.noise_samples
        numbers = 3 * (self.real_batch_size + self.rollouts) * candidates * width
        numbers += 2 * (asked * sum(model_hidden) + successors * (observation_size + width))
        return numbers + (successors * candidates * width if self.value_estimator == "direct" else 0)
