"""Networks: linear layers, the recurrent agent, and what agents read.

Initialisation is PyTorch's (uniform within 1/sqrt(fan_in)), which the published results of this field rest on. The GRU is PyTorch's too:
two bias vectors, and the reset gate multiplies the hidden term including its bias.

The agent's unroll carries a hand-written derivative, for three reasons: gates can stay separate arrays (slicing one wide array inside the
loop defeats vectorisation), weight gradients can be one product per chunk of time instead of one per step, and the loop can end with the
longest episode in the batch, which automatic differentiation does not allow. Chunks are short enough to stay in cache.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int) -> Float[Array, "..."]:
    """PyTorch's default: uniform within one over the square root of the fan-in."""
    bound = fan_in**-0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Linear(eqx.Module):
    """An affine map of the last axis, weights as `[out, in]`."""

    weight: Float[Array, "out in"]
    bias: Float[Array, " out"] | None

    @staticmethod
    def init(key: PRNGKeyArray, size_in: int, size_out: int, bias: bool = True) -> Linear:
        """Fresh weights."""
        weight_key, bias_key = jax.random.split(key)
        return Linear(uniform(weight_key, (size_out, size_in), size_in), uniform(bias_key, (size_out,), size_in) if bias else None)

    def __call__(self, x: Float[Array, "... in"]) -> Float[Array, "... out"]:
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class MLP(eqx.Module):
    """Linear layers with ReLU between them."""

    layers: tuple[Linear, ...]

    @staticmethod
    def init(key: PRNGKeyArray, sizes: tuple[int, ...], last_bias: bool = True) -> MLP:
        """Fresh weights for layers of the given widths, input and output included."""
        keys = jax.random.split(key, len(sizes) - 1)
        last = len(sizes) - 2
        return MLP(
            tuple(Linear.init(k, a, b, bias=last_bias or i < last) for i, (k, a, b) in enumerate(zip(keys, sizes, sizes[1:], strict=False)))
        )

    def __call__(self, x: Float[Array, "... in"]) -> Float[Array, "... out"]:
        for layer in self.layers[:-1]:
            x = jax.nn.relu(layer(x))
        return self.layers[-1](x)


class GRU(eqx.Module):
    """A gated recurrent unit; the leading axis of its weights runs over the gates reset, update, new."""

    input_weight: Float[Array, "3 H I"]
    hidden_weight: Float[Array, "3 H H"]
    input_bias: Float[Array, "3 H"]
    hidden_bias: Float[Array, "3 H"]

    @staticmethod
    def init(key: PRNGKeyArray, size_in: int, hidden: int) -> GRU:
        """Fresh weights: everything uniform within 1/sqrt(hidden), as PyTorch's cell."""
        keys = jax.random.split(key, 4)
        shapes = ((3, hidden, size_in), (3, hidden, hidden), (3, hidden), (3, hidden))
        return GRU(*(uniform(k, shape, hidden) for k, shape in zip(keys, shapes, strict=True)))

    def step(self, x: Float[Array, "*R I"], h: Float[Array, "*R H"]) -> Float[Array, "*R H"]:
        """The next hidden state."""
        return _cell(self.input_gates(x), h, jnp.swapaxes(self.hidden_weight, 1, 2), self.hidden_bias[2])[0]

    def input_gates(self, x: Float[Array, "*R I"]) -> tuple[Array, Array, Array]:
        """What the input contributes to each gate; hidden biases that are merely added join here."""
        weight, bias, hidden = self.input_weight, self.input_bias, self.hidden_bias
        return (
            x @ weight[0].T + (bias[0] + hidden[0]),
            x @ weight[1].T + (bias[1] + hidden[1]),
            x @ weight[2].T + bias[2],
        )


def _cell(
    gates: tuple[Array, Array, Array], h: Float[Array, "*R H"], weight: Float[Array, "3 H H"], bias: Float[Array, " H"]
) -> tuple[Array, ...]:
    """One step from the gates' inputs: the hidden state, then what the derivative needs."""
    reset, update, new = gates
    r = jax.nn.sigmoid(reset + h @ weight[0])
    z = jax.nn.sigmoid(update + h @ weight[1])
    hidden_new = h @ weight[2] + bias
    n = jnp.tanh(new + r * hidden_new)
    return n + z * (h - n), r, z, n, hidden_new


class Trunk(eqx.Module):
    """What every agent of this field begins with: linear, ReLU, GRU."""

    encode: Linear
    memory: GRU

    @staticmethod
    def init(key: PRNGKeyArray, size_in: int, hidden: int) -> Trunk:
        """Fresh weights."""
        encode_key, memory_key = jax.random.split(key)
        return Trunk(Linear.init(encode_key, size_in, hidden), GRU.init(memory_key, hidden, hidden))

    def step(self, x: Float[Array, "*R I"], h: Float[Array, "*R H"]) -> Float[Array, "*R H"]:
        """The next hidden state."""
        return self.memory.step(jax.nn.relu(self.encode(x)), h)

    def unroll(self, x: Float[Array, "T1 R I"], moments: Int[Array, ""]) -> Float[Array, "T1 R H"]:
        """Hidden states along time, meaningful at the first `moments` moments; inputs are data, no gradient flows to them."""
        return _unroll((self.encode, self.memory), _whole_chunks(jax.lax.stop_gradient(x)), -(-moments // CHUNK))[: x.shape[0]]


class AgentNet(eqx.Module):
    """The agent every method of the paper shares: the trunk, and a linear layer of values."""

    encode: Linear
    memory: GRU
    decode: Linear

    @staticmethod
    def init(key: PRNGKeyArray, size_in: int, hidden: int, size_out: int) -> AgentNet:
        """Fresh weights."""
        encode_key, memory_key, decode_key = jax.random.split(key, 3)
        return AgentNet(
            Linear.init(encode_key, size_in, hidden), GRU.init(memory_key, hidden, hidden), Linear.init(decode_key, hidden, size_out)
        )

    @property
    def torch_names(self) -> dict[str, str]:
        """PyMARL's names of these weights."""
        gates = {f"memory.{ours}": f"rnn.{theirs}_l0" for ours, theirs in _GRU_NAMES.items()}
        return {"encode": "fc1", "decode": "fc2"} | gates

    def step(self, x: Float[Array, "*R I"], h: Float[Array, "*R H"]) -> tuple[Float[Array, "*R H"], Float[Array, "*R A"]]:
        """The next hidden state and the output there."""
        h = Trunk(self.encode, self.memory).step(x, h)
        return h, self.decode(h)

    def unroll(self, x: Float[Array, "T1 R I"], moments: Int[Array, ""]) -> tuple[Float[Array, "T1 R H"], Float[Array, "T1 R A"]]:
        """Hidden states and outputs along time, meaningful at the first `moments` moments; inputs are data, no gradient flows to them."""
        hidden = Trunk(self.encode, self.memory).unroll(x, moments)
        return hidden, self.decode(hidden)


CHUNK = 8  # moments handled at once
Layers = tuple[Linear, GRU]


def _whole_chunks(x: Float[Array, "T1 R I"]) -> Float[Array, "T2 R I"]:
    missing = -x.shape[0] % CHUNK
    return jnp.pad(x, ((0, missing), (0, 0), (0, 0)))


def _read(x: Float[Array, "T2 R F"], chunk: Int[Array, ""]) -> Float[Array, "C R F"]:
    return lax.dynamic_slice_in_dim(x, chunk * CHUNK, CHUNK, 0)


def _forward(layers: Layers, x: Float[Array, "T2 R I"], chunks: Int[Array, ""]) -> tuple[Array, ...]:
    """Hidden states, then what the derivative needs: the gates and the encoder's output."""
    encode, memory = layers
    weight, bias = jnp.swapaxes(memory.hidden_weight, 1, 2), memory.hidden_bias[2]
    start = jnp.zeros((x.shape[1], weight.shape[-1]))

    def chunk(c: Array, carry: tuple[Array, tuple[Array, ...]]) -> tuple[Array, tuple[Array, ...]]:
        h, tracks = carry
        encoded = jax.nn.relu(encode(_read(x, c)))

        def step(h: Array, gates: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, ...]]:
            out = _cell(gates, h, weight, bias)
            return out[0], out

        h, out = lax.scan(step, h, memory.input_gates(encoded))
        return h, tuple(lax.dynamic_update_slice_in_dim(t, v, c * CHUNK, 0) for t, v in zip(tracks, (*out, encoded), strict=True))

    blank = jnp.zeros((x.shape[0], *start.shape))
    return lax.fori_loop(0, chunks, chunk, (start, (blank,) * 6))[1]


@jax.custom_vjp
def _unroll(layers: Layers, x: Float[Array, "T2 R I"], chunks: Int[Array, ""]) -> Float[Array, "T2 R H"]:
    return _forward(layers, x, chunks)[0]


def _unroll_forward(layers: Layers, x: Array, chunks: Array) -> tuple[Array, tuple[Any, ...]]:
    tracks = _forward(layers, x, chunks)
    return tracks[0], (tracks, layers, x, chunks)


def _unroll_backward(residuals: tuple[Any, ...], d_hidden: Array) -> tuple[Layers, Array, None]:
    (hidden, *gates, encoded), layers, x, chunks = residuals
    memory: GRU = layers[1]
    previous = jnp.concatenate([jnp.zeros_like(hidden[:1]), hidden[:-1]])

    def step(d_h: Array, at: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        d_out, h, r, z, n, hidden_new = at
        d_h = d_h + d_out
        d_n = d_h * (1 - z) * (1 - n * n)
        d_z = d_h * (h - n) * z * (1 - z)
        d_r = d_n * hidden_new * r * (1 - r)
        d_hidden_new = d_n * r
        weight = memory.hidden_weight
        return d_h * z + d_r @ weight[0] + d_z @ weight[1] + d_hidden_new @ weight[2], (d_r, d_z, d_n, d_hidden_new)

    def chunk(i: Array, carry: tuple[Array, Layers]) -> tuple[Array, Layers]:
        d_h, total = carry
        c = chunks - 1 - i
        h, e = _read(previous, c), _read(encoded, c)
        d_h, (d_r, d_z, d_n, d_hidden_new) = lax.scan(step, d_h, (_read(d_hidden, c), h, *(_read(g, c) for g in gates)), reverse=True)
        weight = memory.input_weight
        d_e = (d_r @ weight[0] + d_z @ weight[1] + d_n @ weight[2]) * (e > 0)
        here = (
            Linear(_product(d_e, _read(x, c)), _over_rows(d_e)),
            GRU(
                jnp.stack([_product(d, e) for d in (d_r, d_z, d_n)]),
                jnp.stack([_product(d, h) for d in (d_r, d_z, d_hidden_new)]),
                jnp.stack([_over_rows(d) for d in (d_r, d_z, d_n)]),
                jnp.stack([_over_rows(d) for d in (d_r, d_z, d_hidden_new)]),
            ),
        )
        return d_h, jax.tree.map(jnp.add, total, here)

    blank = jax.tree.map(jnp.zeros_like, layers)
    return lax.fori_loop(0, chunks, chunk, (jnp.zeros_like(hidden[0]), blank))[1], jnp.zeros_like(x), None


def _product(left: Float[Array, "C R F"], right: Float[Array, "C R G"]) -> Float[Array, "F G"]:
    return jnp.einsum("crf,crg->fg", left, right)


def _over_rows(x: Float[Array, "C R F"]) -> Float[Array, " F"]:
    return jnp.sum(x, axis=(0, 1))


_unroll.defvjp(_unroll_forward, _unroll_backward)


_GRU_NAMES = {"input_weight": "weight_ih", "hidden_weight": "weight_hh", "input_bias": "bias_ih", "hidden_bias": "bias_hh"}


def torch_sequential(ours: str, theirs: str, layers: int) -> dict[str, str]:
    """Names of an MLP that PyTorch holds as a sequence of layers and activations; a single layer stands alone there."""
    if layers == 1:
        return {f"{ours}.layers.0": theirs}
    return {f"{ours}.layers.{i}": f"{theirs}.{2 * i}" for i in range(layers)}


def distance(predicted: Float[Array, "*B F"], target: Float[Array, "*B F"]) -> Float[Array, "*B"]:
    """Euclidean over the last axis; the small offset keeps it differentiable at zero (and is PyTorch's)."""
    return jnp.sqrt(jnp.sum((predicted - target + 1e-6) ** 2, axis=-1))


def agent_inputs(obs: Shaped[Array, "*B N O"], previous: Int[Array, "*B N"], n_actions: int) -> Float[Array, "*B N I"]:
    """What one agent reads: its observation, its previous action as one-hot (zeros for -1), its id as one-hot."""
    n_agents = obs.shape[-2]
    identity = jnp.broadcast_to(jnp.eye(n_agents), (*obs.shape[:-1], n_agents))
    return jnp.concatenate([obs.astype(jnp.float32), jax.nn.one_hot(previous, n_actions), identity], axis=-1)
