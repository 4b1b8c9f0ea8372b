"""The replay buffer: it holds the newest rows and yields no others."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phyb.data.dataset import Rows
from phyb.world.replay import ReplayBuffer


def numbered(numbers):
    column = jnp.asarray(numbers, jnp.float32)
    return Rows(column[:, None], column[:, None], column, column[:, None], column)


CAPACITY = 7
add = jax.jit(ReplayBuffer.add)
draw = jax.jit(lambda buffer: buffer.sample(jax.random.key(0), 200))


@given(rounds=st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_the_buffer_holds_the_newest_rows_and_yields_no_others(rounds):
    buffer, written = ReplayBuffer.empty(CAPACITY, 1, 1), []
    for number, counts in enumerate(rounds):
        numbers = [10.0 * number + place + 1.0 for place in range(5)]
        buffer = add(buffer, numbered(numbers), jnp.asarray(counts))
        written += [x for x, counted in zip(numbers, counts, strict=True) if counted]
    assert int(buffer.filled) == min(len(written), CAPACITY)
    if written:
        drawn = draw(buffer)
        assert set(drawn.rewards.tolist()) == set(written[-CAPACITY:])
        for leaf in drawn:
            np.testing.assert_array_equal(leaf.ravel(), drawn.rewards)


def test_rows_of_many_steps_are_added_step_by_step():
    steps = jax.tree.map(lambda leaf: leaf.reshape(2, 3, *leaf.shape[1:]), numbered([1, 2, 3, 4, 5, 6]))
    buffer = add(ReplayBuffer.empty(CAPACITY, 1, 1), steps, jnp.array([[True, False, True], [True, True, False]]))
    assert int(buffer.filled) == 4
    assert buffer.rows.rewards.tolist() == [1, 3, 4, 5, 0, 0, 0]
