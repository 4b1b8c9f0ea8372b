"""The first lines of the page: a verdict, the result in large numbers, and one paragraph."""

from __future__ import annotations

from html import escape
from typing import Literal

from phyb.envs.tasks import normalized_score
from phyb.report.elements import Section, cards, show
from phyb.training.records import RunData, number

NO_SIMULATOR = "No simulator was given, so the only estimate of the return is the one under the belief."
NO_ESTIMATE = "No simulator was given and no models were learned, so there is no estimate of the return."
Kind = Literal["good", "caution", "bad", "open"]


def verdict(run: RunData) -> tuple[Kind, str]:
    """What the run amounts to, in one sentence: is the policy better than the log, and can the estimate be trusted?"""
    get = {key: number(value) for key, value in run.result.items()}.get
    true, belief, behaviour = get("mean_return"), get("belief_return"), get("behaviour_return")
    poor = run.diagnostics.get("better_than_trivial") is False
    value = belief if true is None else true
    if not run.result:
        return "open", "Not finished: this run has not been evaluated yet."
    if value is None:
        return "open", "Not known: nothing estimates the return of this policy."
    error = get("belief_std_error" if true is None else "std_error") or 0.0
    better = behaviour is None or value - 2.0 * error > behaviour
    if true is None and poor:
        return "bad", "Do not trust the estimate: the models are no better than predicting no change."
    if true is None:
        gain = "earns more than the log" if better else "earns no more than the log"
        return ("caution" if better else "bad"), f"Under the belief the policy {gain}; nothing has tested it."
    if not better:
        return "bad", "No gain: in the simulator the policy earns no more than the log."
    bound = run.result.get("belief_is_lower_bound")
    if bound is False:
        return "caution", "The policy beats the log, but the belief promised more than the simulator gave."
    end = "" if behaviour is not None else ", and the log's own return is not known"
    gain = "The policy was tested" if behaviour is None else "The policy beats the log"
    held = ", and the belief was a lower bound" if bound else ""
    return "good", f"{gain} in the simulator{held}{end}."


def headline(run: RunData) -> Section:
    """The verdict; score, regret, and whether the return under the belief is a lower bound."""
    mean, error = (number(run.result.get(key)) for key in ("mean_return", "std_error"))
    optimum, regret = (number(run.result.get(key)) for key in ("optimal_return", "regret"))
    belief, behaviour = (number(run.result.get(key)) for key in ("belief_return", "behaviour_return"))
    episodes, bound = number(run.result.get("episodes")), run.result.get("belief_is_lower_bound")
    sentences: list[str] = []
    items: list[tuple[str, str, str]] = []
    if mean is not None:
        over = f" over {episodes:,.0f} episodes" if episodes is not None else ""
        margin = f" ± {show(error, 2)} (standard error{over})" if error is not None else ""
        log = f"; the policy that made the log earned {show(behaviour, 2)}" if behaviour is not None else ""
        sentences.append(f"The policy earns {show(mean, 2)}{margin} per episode{log}.")
        score = number(run.result.get("normalized_score"))
        best = None if optimum is None or run.task is None else normalized_score(run.task, optimum)
        remark = f"the optimum is {show(best, 2)}" if best is not None else f"mean return {show(mean, 2)}"
        items.append(("Mean return", show(mean, 2), "") if score is None else ("Score", show(score, 2), remark))
    elif run.result:
        sentences.append(NO_SIMULATOR if run.has_pool else NO_ESTIMATE)
    if regret is not None and optimum:
        items.append(("Regret", show(regret, 2), show(100 * regret / abs(optimum), 2, " % of the optimum")))
        sentences.append(f"The best possible policy would earn {show(optimum, 2)}.")
    if belief is not None and bound is not None:
        sentences.append(
            f"The return under the belief, {show(belief, 2)}, {'is' if bound else 'is not'} a lower "
            "bound of the true return within two standard errors."
        )
        remark = f"belief {show(belief, 2)}, true {show(mean, 2)}"
        items.append(("Belief is a lower bound", "yes" if bound else "no", remark))
    elif belief is not None:
        items.append(("Return under the belief", show(belief, 2), f"behaviour {show(behaviour, 2)}"))
    kind, words = verdict(run)
    html = f'<p class="verdict {kind}">{escape(words)}</p>' + (cards(items) if items else "")
    html += f'<p class="after">{escape(" ".join(sentences))}</p>' if sentences else ""
    return Section("headline", "In short", [], html=html)
