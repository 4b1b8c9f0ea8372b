"""Loggers by name: what the services hear, with stand-ins for their packages."""

import sys
from typing import Any

import pytest

from phyb.errors import MissingExtraError, UsageError
from phyb.training.loggers import check_logger, listening

SETTINGS = {"algorithm": "bc", "steps": 20}


class Service:
    """Keeps all calls, under the names that wandb or mlflow give them; may fail at one of them."""

    def __init__(self, fails=""):
        self.calls, self.fails, self.summary = [], fails, self

    def __getattr__(self, name):
        def call(*words, **named):
            self.calls.append((name, words, named))
            if name == self.fails:
                raise ConnectionError("no network")
            return None if name == "active_run" else self

        return call

    def called(self, name):
        return [(*words, named) if named else words for call, words, named in self.calls if call == name]


@pytest.fixture
def service(monkeypatch):
    found = Service()
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, found)
    return found


def use(name: Any, folder, said, stop=None):
    (folder / "result.json").write_text('{"belief_return": 3.5, "task": "x", "std_error": null, "ok": true}')
    with listening(name, folder, SETTINGS, said.append) as heard:
        (callback,) = heard
        callback(10, {"stage": "policy", "loss": 0.5, "bad": float("nan"), "none": None, "list": [1]})
        if stop is not None:
            raise stop
        callback(20, {"stage": "evaluation", "belief_return": 2})


def test_wandb_hears_numbers_settings_and_the_result(service, tmp_path):
    use("wandb", tmp_path, said := [])
    ((init,),) = service.called("init")
    assert init == {"project": "phyb", "name": tmp_path.name, "group": tmp_path.name, "config": SETTINGS}
    assert service.called("log") == [
        ({"policy/loss": 0.5}, {"step": 10}),
        ({"evaluation/belief_return": 2}, {"step": 20}),
    ]
    assert service.called("update") == [({"result/belief_return": 3.5},)]
    assert service.called("finish") == [({"exit_code": 0},)]
    assert said == []


def test_mlflow_hears_numbers_settings_and_the_result(service, tmp_path):
    use("mlflow", tmp_path, [])
    assert service.called("start_run") == [({"run_name": tmp_path.name, "nested": False},)]
    assert service.called("log_params") == [(SETTINGS,)]
    assert service.called("log_metrics") == [
        ({"policy/loss": 0.5}, {"step": 10}),
        ({"evaluation/belief_return": 2}, {"step": 20}),
        ({"result/belief_return": 3.5},),
    ]
    assert service.called("end_run") == [("FINISHED",)]


@pytest.mark.parametrize(
    ("name", "last"), [("wandb", ("finish", ({"exit_code": 1},))), ("mlflow", ("end_run", ("FAILED",)))]
)
def test_a_run_that_breaks_off_is_marked(service, tmp_path, name, last):
    with pytest.raises(KeyboardInterrupt):
        use(name, tmp_path, [], KeyboardInterrupt())
    assert service.called(last[0]) == [last[1]]


@pytest.mark.parametrize(
    ("name", "fails"), [("wandb", "init"), ("wandb", "log"), ("mlflow", "log_params"), ("mlflow", "end_run")]
)
def test_a_service_that_fails_is_left_alone_and_the_run_goes_on(service, tmp_path, name, fails):
    service.fails = fails
    use(name, tmp_path, said := [])
    assert said == [f"The logger {name} failed and hears no more (ConnectionError: no network). The run goes on."]
    assert len(service.called(fails)) == 1


def test_a_callback_is_heard_as_it_is_and_tensorboard_needs_none(tmp_path):
    def callback(step, metrics):
        return True

    cases: tuple[Any, ...] = ((callback, [callback]), ("tensorboard", []), (None, []))
    for logger, expected in cases:
        check_logger(logger)
        with listening(logger, tmp_path, SETTINGS, print) as heard:
            assert heard == expected


@pytest.mark.parametrize(
    ("name", "module"), [("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "tensorboardX")]
)
def test_a_missing_package_is_named_by_its_extra(monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"the logger {name} .*phyb\[{name}\]"):
        check_logger(name)


def test_other_names_are_refused():
    with pytest.raises(UsageError, match=r"'neptune' is not known\. Known are tensorboard, wandb, mlflow"):
        check_logger("neptune")  # pyright: ignore[reportArgumentType]
