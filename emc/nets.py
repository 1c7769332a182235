"""Networks: linear layers, the recurrent agent, and what agents read.

Initialisation is PyTorch's (uniform within 1/sqrt(fan_in)), which the published results of this field rest on. The GRU is PyTorch's too:
two bias vectors, and the reset gate multiplies the hidden term including its bias.

The agent's unroll carries a hand-written derivative, for two reasons: the loop can end with the longest lane of the batch, which automatic
differentiation does not allow, and everything is laid out for large products. Features lead and rows (agents of all lanes) trail, so one
product serves three gates, whose slices are contiguous; a step of some 64 rows stays in a core's cache.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], fan_in: int) -> Float[Array, "..."]:
    """PyTorch's default: uniform within one over the square root of the fan-in."""
    bound = fan_in**-0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


class Linear(eqx.Module):
    """An affine map of the last axis, weights as `[out, in]`; a stack of several has a leading axis."""

    weight: Float[Array, "*stack out in"]
    bias: Float[Array, "*stack out"] | None

    @staticmethod
    def init(key: PRNGKeyArray, size_in: int, size_out: int, bias: bool = True) -> Linear:
        """Fresh weights."""
        weight_key, bias_key = jax.random.split(key)
        return Linear(uniform(weight_key, (size_out, size_in), size_in), uniform(bias_key, (size_out,), size_in) if bias else None)

    def __call__(self, x: Float[Array, "... in"]) -> Float[Array, "... out"]:
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias

    def side_by_side(self, x: Float[Array, "stack in"]) -> Float[Array, "stack out"]:
        """What each layer of a stack makes of its own input, as one product with a block-diagonal matrix.

        Where outputs are few its zeros cost less than bringing a batch of inputs into the order that a product for each layer wants.
        """
        count, size_out, size_in = self.weight.shape
        apart = jnp.eye(count, dtype=self.weight.dtype)[:, None, :, None] * self.weight[:, :, None, :]
        y = (x.reshape(-1) @ apart.reshape(count * size_out, count * size_in).T).reshape(count, size_out)
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
        return self.after_first(self.layers[0](x))

    def after_first(self, x: Float[Array, "... width"]) -> Float[Array, "... out"]:
        """The answer, from what the first layer makes of the input."""
        for layer in self.layers[1:]:
            x = layer(jax.nn.relu(x))
        return x


def at_once(x: Float[Array, " in"], *layers: Linear) -> list[Float[Array, "... out"]]:
    """What several layers make of the same input, in one product; layers that are stacks answer stacked."""
    weight = jnp.concatenate([layer.weight.reshape(-1, x.shape[0]) for layer in layers])
    shapes = [layer.weight.shape[:-1] for layer in layers]
    bias = jnp.concatenate([jnp.zeros(math.prod(s)) if a.bias is None else a.bias.reshape(-1) for a, s in zip(layers, shapes, strict=True)])
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes))
    parts = jnp.split(x @ weight.T + bias, ends[:-1])  # in this order a batch of inputs stays rows
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


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
        reset, update, new = (x @ weight.T + bias for weight, bias in zip(self.input_weight, self.input_bias, strict=True))
        hidden_reset, hidden_update, hidden_new = (
            h @ weight.T + bias for weight, bias in zip(self.hidden_weight, self.hidden_bias, strict=True)
        )
        z = jax.nn.sigmoid(update + hidden_update)
        n = jnp.tanh(new + jax.nn.sigmoid(reset + hidden_reset) * hidden_new)
        return n + z * (h - n)


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

    def unroll(self, x: Float[Array, "M R I"], first: Bool[Array, "M R"], moments: Int[Array, ""]) -> Float[Array, "M H R"]:
        """Hidden states along lanes (see `lanes`), zero before each episode; meaningful at the first `moments` moments.

        Inputs are data: no gradient flows to them.
        """
        return _unroll((self.encode, self.memory, None), lax.stop_gradient(x), first, moments)[0]


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

    def unroll(
        self, x: Float[Array, "M R I"], first: Bool[Array, "M R"], moments: Int[Array, ""]
    ) -> tuple[Float[Array, "M H R"], Float[Array, "M R A"]]:
        """Hidden states and outputs along lanes, as `Trunk.unroll`."""
        return _unroll((self.encode, self.memory, self.decode), lax.stop_gradient(x), first, moments)


class FeedForwardTrunk(eqx.Module):
    """The trunk of agents that see the moment only: a second layer in place of the GRU."""

    encode: Linear
    inner: Linear

    @staticmethod
    def init(key: PRNGKeyArray, size_in: int, hidden: int) -> FeedForwardTrunk:
        """Fresh weights."""
        encode_key, inner_key = jax.random.split(key)
        return FeedForwardTrunk(Linear.init(encode_key, size_in, hidden), Linear.init(inner_key, hidden, hidden))

    def __call__(self, x: Float[Array, "*R I"]) -> Float[Array, "*R H"]:
        """What it makes of moments."""
        return jax.nn.relu(self.inner(jax.nn.relu(self.encode(x))))

    def step(self, x: Float[Array, "*R I"], h: Float[Array, "*R H"]) -> Float[Array, "*R H"]:
        """The same, whatever was before."""
        return self(x)


class FeedForwardNet(eqx.Module):
    """The same with a linear layer of values."""

    encode: Linear
    inner: Linear
    decode: Linear

    @staticmethod
    def init(key: PRNGKeyArray, size_in: int, hidden: int, size_out: int) -> FeedForwardNet:
        """Fresh weights."""
        trunk_key, decode_key = jax.random.split(key)
        trunk = FeedForwardTrunk.init(trunk_key, size_in, hidden)
        return FeedForwardNet(trunk.encode, trunk.inner, Linear.init(decode_key, hidden, size_out))

    def __call__(self, x: Float[Array, "*R I"]) -> tuple[Float[Array, "*R H"], Float[Array, "*R A"]]:
        """What it makes of moments, and the outputs there."""
        h = FeedForwardTrunk(self.encode, self.inner)(x)
        return h, self.decode(h)

    def step(self, x: Float[Array, "*R I"], h: Float[Array, "*R H"]) -> tuple[Float[Array, "*R H"], Float[Array, "*R A"]]:
        """The same, whatever was before."""
        return self(x)


Layers = tuple[Linear, GRU, Linear | None]


# What the derivative needs of a moment, features first, in one array: what it keeps as it is, then the factors by which a change of the new
# hidden state reaches the gates' inputs. The first three of these are the input's, the last three the hidden state's.
_HIDDEN, _UPDATE, _ENCODED, _FACTORS, KEPT = 0, 1, 2, 3, 7


def tape_moments(moments: int) -> int:
    """How many moments the tape of a derivative holds, where lanes have so many at most.

    Clearing a tape for the longest lanes that there could be would cost more than what is written on it, where episodes are far from their
    limit. A batch that does not fit is differentiated stretch by stretch, each but the last computed once more.
    """
    return min(moments, max(256, -(-moments // 3)))


class _Tape(eqx.Module):
    """What is kept for the derivative of the last stretch of moments, and what the others can be computed from again."""

    kept: Float[Array, "P 7 H R"]  # one row before the stretch, of which only the hidden state counts
    begun: Float[Array, "S H R"]  # the hidden state before each stretch; the last entry is never read


def _go(
    layers: Layers, x: Array, first: Array, begin: Array | int, end: Array, before: Array, tracks: Any, tape: _Tape | None
) -> tuple[Any, _Tape | None]:
    """Go from one moment to another: tracks of hidden states and outputs, if there are any, and the tape, if there is one."""
    encode, memory, decode = layers
    width = memory.hidden_bias.shape[-1]
    input_weight, hidden_weight = _stacked(memory.input_weight), _stacked(memory.hidden_weight)
    joint_bias = _stacked(memory.input_bias + memory.hidden_bias * np.array([[1.0], [1.0], [0.0]], x.dtype))[:, None]
    encode_bias, new_bias = _of(encode.bias)[:, None], memory.hidden_bias[2][:, None]

    def step(t: Array, carry: tuple[Array, Any, _Tape | None]) -> tuple[Array, Any, _Tape | None]:
        left, tracks, tape = carry
        before = jnp.where(_at(first, t), 0.0, left)
        encoded = jax.nn.relu(_rows_product(encode.weight, _at(x, t)) + encode_bias)
        from_input, from_hidden = input_weight @ encoded + joint_bias, hidden_weight @ before
        reset = jax.nn.sigmoid(from_input[:width] + from_hidden[:width])
        update = jax.nn.sigmoid(from_input[width : 2 * width] + from_hidden[width : 2 * width])
        hidden_new = from_hidden[2 * width :] + new_bias
        new = jnp.tanh(from_input[2 * width :] + reset * hidden_new)
        h = new + update * (before - new)
        if tracks:
            values = () if decode is None else lax.optimization_barrier(decode.weight @ h + _of(decode.bias)[:, None]).T
            tracks = jax.tree.map(partial(_put, t), tracks, (h, values))
        if tape is not None:
            of_new = (1 - update) * (1 - new * new)
            of_reset, of_update = of_new * hidden_new * reset * (1 - reset), (before - new) * update * (1 - update)
            length = jnp.asarray(tape.kept.shape[0] - 1, t.dtype)
            stretch, at = lax.div(t, length), lax.rem(t, length)
            kept = tape.kept
            for place, part in enumerate((h, update, encoded, of_new, of_reset, of_update, of_new * reset)):
                kept = lax.dynamic_update_slice(kept, part[None, None], _place(at + 1, place))
            tape = _Tape(kept, _put(jnp.where(at == 0, stretch, tape.begun.shape[0] - 1), tape.begun, left))
        return h, tracks, tape

    return lax.fori_loop(begin, end, step, (before, tracks, tape))[1:]


def _blank_tracks(layers: Layers, x: Float[Array, "M R I"]) -> tuple[Array, Any]:
    """Of hidden states and outputs."""
    decode = layers[2]
    hidden = jnp.zeros((x.shape[0], layers[1].hidden_bias.shape[-1], x.shape[1]), x.dtype)
    return hidden, () if decode is None else jnp.zeros((*x.shape[:2], decode.weight.shape[0]), x.dtype)


@jax.custom_vjp
def _unroll(layers: Layers, x: Float[Array, "M R I"], first: Bool[Array, "M R"], moments: Int[Array, ""]) -> tuple[Array, Any]:
    tracks = _blank_tracks(layers, x)
    return _go(layers, x, first, 0, moments, jnp.zeros_like(tracks[0][0]), tracks, None)[0]


def _unroll_forward(*arguments: Any) -> tuple[tuple[Array, Any], tuple[Any, ...]]:
    layers, x, first, moments = jax.tree.map(lambda leaf: leaf.value, arguments, is_leaf=lambda leaf: hasattr(leaf, "value"))
    length, tracks = tape_moments(x.shape[0]), _blank_tracks(layers, x)
    start = jnp.zeros_like(tracks[0][0])
    # Zeros that differ from network to network, as far as the compiler knows: of equal ones it would fill one and copy it for each loop.
    zero = jnp.where(jnp.isnan(_of(layers[0].bias)[0]), 1.0, 0.0)
    stretches = -(-x.shape[0] // length)
    tape = _Tape(jnp.full((length + 1, KEPT, *start.shape), zero, x.dtype), jnp.zeros((stretches + 1, *start.shape), x.dtype))
    tracks, tape = _go(layers, x, first, 0, moments, start, tracks, tape)
    return tracks, (tape, layers, x, first, moments)


def _unroll_backward(residuals: tuple[Any, ...], cotangent: tuple[Any, Any]) -> tuple[Any, None, None, None]:
    tape, layers, x, first, moments = residuals
    encode, memory, decode = layers
    d_hidden, d_out = (None if isinstance(d, SymbolicZero | tuple) else d for d in cotangent)
    length, (width, rows) = tape.kept.shape[0] - 1, tape.kept.shape[2:]
    stretches = -(-moments // length)
    # Materialised once: a product with a transposed operand is slower at every step.
    input_back, hidden_back, decode_back = lax.optimization_barrier(
        (_stacked(jnp.roll(memory.input_weight, 1, axis=0)).T, _stacked(memory.hidden_weight).T, () if decode is None else decode.weight.T)
    )

    def back(tape: _Tape, begin: Array, end: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
        def kept(at: Array, place: int, count: int = 1) -> Array:
            return lax.dynamic_slice(tape.kept, _place(at, place), (1, count, width, rows))[0]

        def step(i: Array, carry: tuple[Array, Any]) -> tuple[Array, Any]:
            d_h, total = carry
            t = end - 1 - i
            at, begins = t - begin + 1, _at(first, t)
            encoded, before = kept(at, _ENCODED)[0], jnp.where(begins, 0.0, kept(at - 1, _HIDDEN)[0])
            if d_hidden is not None:
                d_h = d_h + _at(d_hidden, t)
            d_decode = ()
            if d_out is not None:
                d_values = lax.optimization_barrier(_at(d_out, t).T)
                d_h = d_h + decode_back @ d_values
                d_decode = (_rows_product(d_values, kept(at, _HIDDEN)[0]), d_values)
            d_input, d_recurrent = (_stacked(d_h * kept(at, place, 3)) for place in (_FACTORS, _FACTORS + 1))
            d_encoded = (input_back @ d_input) * (encoded > 0)
            here = (
                (d_encoded @ _at(x, t), d_encoded),
                (_rows_product(d_input, encoded), _rows_product(d_recurrent, before), d_input, d_recurrent[2 * width :]),
                d_decode,
            )
            d_h = jnp.where(begins, 0.0, d_h * kept(at, _UPDATE)[0] + hidden_back @ d_recurrent)
            return d_h, jax.tree.map(jnp.add, total, here)

        return lax.fori_loop(0, end - begin, step, carry)

    def one(i: Array, carry: tuple[_Tape, Array, Any]) -> tuple[_Tape, Array, Any]:
        tape, d_h, total = carry
        stretch = stretches - 1 - i
        begin, end = stretch * length, jnp.minimum((stretch + 1) * length, moments)
        start = _at(tape.begun, stretch)
        tape = _Tape(lax.dynamic_update_slice(tape.kept, start[None, None], (0, _HIDDEN, 0, 0)), tape.begun)
        again = jnp.where(i == 0, begin, end)  # the last stretch is still on the tape
        tape = cast(_Tape, _go(layers, x, first, begin, again, start, (), tape)[1])
        return tape, *back(tape, begin, end, (d_h, total))

    def blank(*shape: int) -> Array:
        return jnp.zeros(shape, x.dtype)

    # What biases get is summed over rows after the loop.
    total = (
        (jnp.zeros_like(encode.weight), blank(width, rows)),
        (blank(3 * width, encode.weight.shape[0]), blank(3 * width, width), blank(3 * width, rows), blank(width, rows)),
        () if d_out is None or decode is None else (jnp.zeros_like(decode.weight), blank(decode.weight.shape[0], rows)),
    )
    if x.shape[0] <= length:
        total = back(tape, jnp.zeros_like(moments), moments, (blank(width, rows), total))[1]
    else:
        total = lax.fori_loop(0, stretches, one, (tape, blank(width, rows), total))[2]
    d_encode, (d_input, d_recurrent, d_gates, d_hidden_new), d_decode = total
    d_new, d_reset, d_update = jnp.sum(d_gates, axis=1).reshape(3, width)
    d_memory = GRU(
        jnp.roll(d_input.reshape(memory.input_weight.shape), -1, axis=0),  # there the new gate comes first
        d_recurrent.reshape(memory.hidden_weight.shape),
        jnp.stack([d_reset, d_update, d_new]),
        jnp.stack([d_reset, d_update, jnp.sum(d_hidden_new, axis=1)]),
    )
    d_layers = (
        Linear(d_encode[0], jnp.sum(d_encode[1], axis=1)),
        d_memory,
        Linear(d_decode[0], jnp.sum(d_decode[1], axis=1)) if d_decode else jax.tree.map(jnp.zeros_like, decode),
    )
    return d_layers, None, None, None


_unroll.defvjp(_unroll_forward, _unroll_backward, symbolic_zeros=True)


def _place(moment: Int[Array, ""], place: int) -> list[Array]:
    """Where something stands on a tape."""
    return [moment, *(jnp.asarray(index, moment.dtype) for index in (place, 0, 0))]


def _of(bias: Float[Array, " F"] | None) -> Float[Array, " F"]:
    if bias is None:
        raise TypeError("the layers of an agent have biases")
    return bias


def _stacked(x: Float[Array, "G H *rest"]) -> Float[Array, "GH *rest"]:
    """Gates below each other."""
    return x.reshape(-1, *x.shape[2:])


def _at(x: Shaped[Array, "M *rest"], t: Int[Array, ""]) -> Shaped[Array, "*rest"]:
    return lax.dynamic_index_in_dim(x, t, keepdims=False)


def _put(t: Int[Array, ""], track: Shaped[Array, "M *rest"], value: Shaped[Array, "*rest"]) -> Shaped[Array, "M *rest"]:
    return lax.dynamic_update_index_in_dim(track, value, t, 0)


def _rows_product(left: Float[Array, "F R"], right: Float[Array, "G R"]) -> Float[Array, "F G"]:
    """`left @ right.T` without a transposition."""
    return lax.dot_general(left, right, (((1,), (1,)), ((), ())))


_GRU_NAMES = {"input_weight": "weight_ih", "hidden_weight": "weight_hh", "input_bias": "bias_ih", "hidden_bias": "bias_hh"}


def torch_sequential(ours: str, theirs: str, layers: int) -> dict[str, str]:
    """Names of an MLP that PyTorch holds as a sequence of layers and activations; a single layer stands alone there."""
    if layers == 1:
        return {f"{ours}.layers.0": theirs}
    return {f"{ours}.layers.{i}": f"{theirs}.{2 * i}" for i in range(layers)}


def distance(predicted: Float[Array, "*B F"], target: Float[Array, "*B F"]) -> Float[Array, "*B"]:
    """Euclidean over the last axis; the small offset keeps it differentiable at zero (and is PyTorch's)."""
    return jnp.sqrt(jnp.sum((predicted - target + 1e-6) ** 2, axis=-1))
