"""An environment whose numbers identify each step: it counts its steps."""

import gymnasium
import numpy as np

ENV_ID = "Counting-v0"


class Counting(gymnasium.Env):
    """The observation is (episode, step); an episode ends after 3 steps, by turns terminated, truncated and both."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(np.array([-1, 0], np.float32), np.array([1, 4], np.float32))

    def __init__(self):
        self.episode, self.time = -1, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.time += 1
        over, kind = self.time == 3, self.episode % 3
        return self._observation(), float(self.time), over and kind != 1, over and kind != 0, {}

    def _observation(self):
        return np.array([self.episode, self.time], np.float32)


def register():
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(ENV_ID, f"{__name__}:Counting", disable_env_checker=True)
