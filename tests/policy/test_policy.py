"""The deployed policy: units and bounds of the log, exact round trips, clear refusals."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from phyb.errors import DataError
from phyb.networks import MLP, Standardizer
from phyb.policy.actor import Actor
from phyb.policy.flow import OneStep
from phyb.policy.policy import Policy, load_policy
from phyb.policy.vae import PerturbedDecoder


def of(actor):
    standardizer = Standardizer(jnp.array([1.0, -2.0, 3.0]), jnp.array([0.5, 10.0, 0.0]))
    return Policy(actor, standardizer, jnp.array([-2.0, 0.0]), jnp.array([0.5, 7.0]))


@pytest.fixture(scope="module")
def policy():
    return of(Actor(jax.random.key(0), 3, 2, (8, 8)))


@pytest.fixture(scope="module", params=["perturbed-decoder", "one-step-flow"])
def of_another_kind(request):
    if request.param == "one-step-flow":
        return of(OneStep(jax.random.key(1), 3, 2, (8,)))
    decoder, perturbation = (MLP(jax.random.key(1), sizes) for sizes in ((3 + 4, 8, 2), (3 + 2, 6, 5, 2)))
    return of(PerturbedDecoder(decoder, perturbation, jnp.asarray(0.25)))


@pytest.fixture
def observations():
    return np.random.default_rng(0).normal([1, -2, 3], [1, 20, 1], (50, 3)).astype(np.float32)


def test_actions_are_the_squashed_mean_in_the_units_of_the_log(policy, observations):
    mean = policy.actor(policy.standardizer(observations)).mean
    expected = np.array([-2.0, 0.0]) + (np.tanh(mean) + 1) / 2 * np.array([2.5, 7.0])
    np.testing.assert_allclose(policy.act(observations), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(policy.normalized(observations), np.tanh(mean), rtol=1e-5, atol=1e-6)


def test_one_observation_or_a_batch_of_any_numbers(policy, observations):
    batch = policy.act(observations)
    assert batch.shape == (50, 2)
    assert isinstance(batch, np.ndarray)
    assert policy.act(observations[7]).shape == (2,)
    np.testing.assert_allclose(policy.act(observations[7].astype(np.float64)), batch[7], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(policy.act(jnp.asarray(observations[:3])), batch[:3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2,), (4,), (5, 2), (3, 1), ()])
def test_observations_of_another_size_are_refused(policy, shape):
    with pytest.raises(ValueError, match="has 3 numbers"):
        policy.act(np.zeros(shape))


@pytest.mark.parametrize("push", [-50.0, 50.0])
def test_actions_never_leave_the_bounds(push):
    rng = np.random.default_rng(0)
    low = rng.uniform(-100, 100, 256).astype(np.float32)
    high = low + rng.uniform(0.01, 100, 256).astype(np.float32)
    actor = Actor(jax.random.key(0), 1, 256, ())
    actor = eqx.tree_at(lambda a: a.trunk.biases[-1], actor, jnp.full(512, push))
    bold = Policy(actor, Standardizer(jnp.zeros(1), jnp.ones(1)), jnp.asarray(low), jnp.asarray(high))
    action = bold.act(np.zeros(1))
    assert np.all(action >= low)
    assert np.all(action <= high)
    np.testing.assert_allclose(action, high if push > 0 else low, rtol=1e-5)


def test_a_saved_policy_acts_bit_for_bit_the_same(policy, observations, tmp_path):
    folder = policy.save(tmp_path / "run" / "policy")
    for place in (folder, str(folder), tmp_path / "run"):
        loaded = load_policy(place)
        np.testing.assert_array_equal(loaded.act(observations), policy.act(observations))
        assert eqx.tree_equal(loaded, policy)


def test_other_actors_act_within_bounds_and_come_back_bit_for_bit(of_another_kind, observations, tmp_path):
    actions = of_another_kind.act(observations)
    assert actions.shape == (50, 2)
    assert np.all((actions >= [-2.0, 0.0]) & (actions <= [0.5, 7.0]))
    assert np.all(np.std(actions, axis=0) > 0.01)
    loaded = load_policy(of_another_kind.save(tmp_path))
    np.testing.assert_array_equal(loaded.act(observations), actions)
    assert eqx.tree_equal(loaded, of_another_kind)
    about = json.loads((tmp_path / "policy.json").read_text())
    networks = {"perturbed-decoder": {"latent": 4, "perturbation_hidden": [6, 5]}, "one-step-flow": {}}
    expected = {"hidden": [8], **networks[about["kind"]]}
    assert {name: about[name] for name in about if name in {"hidden", "latent", "perturbation_hidden"}} == expected


def test_what_a_later_version_may_note_beside_is_passed_over(policy, tmp_path):
    path = policy.save(tmp_path) / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"note": "anything"}))
    assert eqx.tree_equal(load_policy(tmp_path), policy)


def test_the_description_is_plain_json(policy, tmp_path):
    about = json.loads((policy.save(tmp_path) / "policy.json").read_text())
    assert (about["observation_size"], about["action_size"], about["hidden"]) == (3, 2, [8, 8])


@pytest.mark.parametrize("name", ["policy.json", "policy.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "cut", "empty"])
def test_damaged_or_missing_files_are_named(policy, tmp_path, name, damage):
    policy.save(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).unlink()
    if damage != "missing":
        (tmp_path / name).write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    with pytest.raises(DataError) as error:
        load_policy(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"observation_size": 4},
        {"action_size": -1},
        {"hidden": [8]},
        {"hidden": "88"},
        {"hidden": None},
        {"observation_size": 3.0},
        {"hidden": [10**12, 8]},
        {"hidden": 8},
        {"kind": "oracle"},
        {"kind": ["tanh-gaussian"]},
        {"kind": "perturbed-decoder"},
        {"kind": "perturbed-decoder", "latent": [4], "perturbation_hidden": [8]},
        {"kind": "perturbed-decoder", "latent": 4, "perturbation_hidden": 8},
        {"kind": "perturbed-decoder", "latent": 4, "perturbation_hidden": [8]},
    ],
)
def test_a_description_that_does_not_fit_the_arrays_is_refused(policy, tmp_path, change):
    policy.save(tmp_path)
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError) as error:
        load_policy(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_description_that_is_no_description_is_refused(policy, tmp_path):
    policy.save(tmp_path)
    for text in ("[]", "3", '{"format": 1}'):
        (tmp_path / "policy.json").write_text(text)
        with pytest.raises(DataError, match="policy"):
            load_policy(tmp_path)


def test_a_single_flipped_bit_is_noticed(policy, tmp_path):
    path = policy.save(tmp_path) / "policy.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-7] + bytes([content[-7] ^ 1]) + content[-6:])
    with pytest.raises(DataError, match="checksum"):
        load_policy(tmp_path)


def test_a_policy_of_the_first_version_without_a_checksum_loads(policy, tmp_path):
    path = policy.save(tmp_path) / "policy.json"
    path.write_text(
        json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != "sha256"})
    )
    assert eqx.tree_equal(load_policy(tmp_path), policy)


def test_a_folder_without_a_policy_is_refused(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(DataError, match="there is no policy here"):
            load_policy(place)
