import gymnasium
import pytest

from phyb.envs.making import env_errors
from phyb.errors import UsageError


def test_remarks_on_bodies_that_gymnasium_brings_are_not_shown(capfd, tmp_path, monkeypatch):
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    with env_errors("HalfCheetah-v5"):
        gymnasium.make("HalfCheetah-v5").close()
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
    assert mujoco.get_mju_user_warning() is None


def test_remarks_on_other_bodies_reach_their_owner():
    mujoco = pytest.importorskip("mujoco")
    heard: list[str] = []
    mujoco.set_mju_user_warning(heard.append)
    try:
        with env_errors("phyb/Liquidation-v0"):
            mujoco.MjModel.from_xml_string('<mujoco><compiler settotalmass="1"/><worldbody><body><freejoint/>'
                                           '<geom size="1"/></body></worldbody></mujoco>')  # fmt: skip
        with env_errors("HalfCheetah-v5"):
            gymnasium.make("HalfCheetah-v5").close()
        assert heard, "MuJoCo says nothing of an old attribute any more: the remark needs no silencing"
        assert len(heard) == 1
        assert mujoco.get_mju_user_warning() is not None
    finally:
        mujoco.set_mju_user_warning(None)


def test_an_unknown_id_is_an_error_to_act_on():
    with pytest.raises(UsageError, match="NoSuch-v0"), env_errors("NoSuch-v0"):
        gymnasium.make("NoSuch-v0")
