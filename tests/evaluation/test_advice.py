"""How far to trust a ranking, in sentences that follow the numbers."""

import pytest

from phyb.evaluation.advice import advice


def estimate(mean, rank, behind=0.0, error=1.0, drift=0.0):
    return {
        "mean": mean,
        "std_error": 1.0,
        "rank": rank,
        "behind_best": behind,
        "behind_best_std_error": error,
        "drift": drift,
    }


def ranking(*means, error=1.0, discount=0.99, real=None, pool=(), drift=0.0, fitted=None):
    """Candidates a, b, ... with these means in every estimate, but for `fitted`, those of fitted Q."""

    def row(at):
        def estimates(all_means):
            rank = 1 + sum(other > all_means[at] for other in all_means)
            return estimate(all_means[at], rank, max(all_means) - all_means[at], error, drift)

        return {
            "name": "abcdefgh"[at],
            "run": f"runs/{'abcdefgh'[at]}",
            "env_id": "X-v0",
            "estimates": {
                "belief_return": estimates(means),
                "model_average": estimates(means),
                "fitted_q": estimates(fitted or means),
            },
            "real_return": None if real is None else real[at],
            "real_std_error": None if real is None else 1.0,
        }

    return {
        "candidates": [row(at) for at in range(len(means))],
        "protocol": {"discount": discount, "trained_on_pool": list(pool)},
    }


def text_of(*means, **kwargs):
    return " ".join(advice(ranking(*means, **kwargs)))


def test_a_clear_leader_is_named_and_so_is_the_winners_curse():
    text = text_of(9.0, 1.0, 0.0)
    assert "All estimates put a first." in text
    assert text.count("a leads by more than two standard errors") == 3
    assert "best of 3 noisy estimates is biased upwards" in text
    assert "cannot be distinguished" not in text


def test_differences_within_two_standard_errors_are_ties():
    text = text_of(9.0, 7.5, 0.0)
    assert "a cannot be distinguished from b:" in text
    assert "a cannot be distinguished from b and c:" in text_of(9.0, 7.5, 0.0, error=5.0)
    assert "a cannot be distinguished from b and c:" in text_of(9.0, 7.5, 0.0, error=None)
    assert "leads" not in text_of(9.0, 7.5, 0.0, error=5.0)


def test_disagreement_names_the_best_of_each():
    text = text_of(9.0, 1.0, fitted=(1.0, 9.0))
    assert "disagree on the best" in text
    assert "fitted Q: b" in text
    assert "All estimates put" not in text


def test_equal_candidates_are_called_equal():
    text = text_of(5.0, 5.0)
    assert "equal in every estimate" in text
    assert "leads" not in text
    assert "All estimates put a and b first." in text_of(5.0, 5.0, 1.0)


def test_one_candidate_is_not_ranked():
    text = text_of(5.0)
    assert "nothing is ranked" in text
    assert "flatters" not in text


@pytest.mark.parametrize(("count", "warned"), [(1, False), (2, True), (4, True), (5, False)])
def test_a_rank_correlation_over_few_candidates_means_little(count, warned):
    means = [float(number) for number in range(count)]
    text = text_of(*means, real=[mean + 10 for mean in means])
    assert ("rank correlation over" in text) == warned
    assert "No real return" not in text


def test_without_real_returns_nothing_was_checked():
    assert "No real return is known" in text_of(9.0, 1.0)


def test_a_belief_above_the_real_return_is_reported():
    assert "above the real return of a:" in text_of(9.0, 1.0, real=[5.0, 1.0])
    assert "above the real return" not in text_of(9.0, 1.0, real=[8.0, 1.0])


def test_the_unit_of_fitted_q_and_whether_it_settled():
    assert "discounted (gamma = 0.99)" in text_of(9.0, 1.0)
    assert "not discounted here" in text_of(9.0, 1.0, discount=1.0)
    assert "had not settled" not in text_of(9.0, 1.0, drift=-1.9)
    assert "had not settled for a and b: raise --fit-steps" in text_of(9.0, 1.0, drift=-2.1)


def test_who_was_trained_on_the_evaluation_pool_is_reported():
    assert "--pool-of" not in text_of(9.0, 1.0)
    assert "a was trained on the pool" in text_of(9.0, 1.0, 0.0, pool=["a"])
    assert "a and b were trained on the pool" in text_of(9.0, 1.0, 0.0, pool=["a", "b"])
    assert "All candidates were trained on the pool" in text_of(9.0, 1.0, pool=["a", "b"])


def test_the_standing_caveats_are_always_there():
    for text in (text_of(1.0), text_of(9.0, 1.0), text_of(5.0, 5.0)):
        assert "lower bound only if" in text
        assert "extrapolates" in text
