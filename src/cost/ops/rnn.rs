//! Recurrent layers and cells. The cost is that of their GEMMs: every weight matrix is multiplied once
//! with every time step of every sequence.

use super::call::{
    Bytes, Call, Entry, Given, WorkPart, count, elements, product, size, sum, total,
};
use crate::base::DType;
use crate::correlate::{ArgValue, Tensor};
use crate::cost::kernel_name::{Family, Role};
use crate::cost::model::{Dims, FlopsClass, GemmSize, OpCost, UnknownCost};

const LAYERS: Entry = Entry {
    names: &[
        "cudnn_rnn",
        "miopen_rnn",
        "lstm",
        "gru",
        "rnn_tanh",
        "rnn_relu",
    ],
    namespaces: &[],
    family: Family::Rnn,
    class: FlopsClass::Exact,
    flops: "2 T B times the elements of all weight matrices = 2 T B g H (I + H) per layer and direction",
    bytes: "x + all weights and biases once + y; states and reserve space not counted",
    backward: "data and weight gradients: the forward's FLOPs each",
    source: "closed form of the layers' GEMMs; equals torch.utils.flop_counter for GRU and RNN",
    handler: layers,
};

const CELL: Entry = Entry {
    names: &["lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"],
    flops: "2 B g H (I + H), g = 4, 3, 1",
    bytes: "both GEMMs: A + W + b + [B, g H] each",
    handler: cell,
    ..LAYERS
};

const FUSED_CELL: Entry = Entry {
    names: &["thnn_fused_lstm_cell", "thnn_fused_gru_cell"],
    class: FlopsClass::Convention,
    flops: "10 (LSTM) or 8 (GRU) per hidden element",
    bytes: "both gate matrices + old state + new states",
    backward: "",
    source: "convention: adds, multiplies and activations of the gate equations",
    handler: fused_cell,
    ..LAYERS
};

pub(super) const ENTRIES: &[Entry] = &[
    LAYERS,
    Entry {
        names: &["cudnn_rnn_backward", "miopen_rnn_backward"],
        flops: "data and weight gradients: the forward's FLOPs each",
        bytes: "the forward's for each of the two",
        backward: "",
        ..LAYERS
    },
    CELL,
    Entry {
        names: &["forward"],
        namespaces: &["LSTMCell", "GRUCell", "RNNCell"],
        ..CELL
    },
    FUSED_CELL,
    Entry {
        names: &[
            "thnn_fused_lstm_cell_backward",
            "thnn_fused_lstm_cell_backward_impl",
        ],
        flops: "10 per hidden element",
        bytes: "gradients of the new states + old and new state + gates; their gradients and the old state's written",
        handler: fused_lstm_cell_backward,
        ..FUSED_CELL
    },
];

fn rnn_dims(rows: u64, n: u64, k: u64) -> Dims {
    Dims::Gemm(GemmSize {
        batch: 1,
        m: rows,
        n,
        k,
        contiguous: (false, true, true),
    })
}

/// The cost of the forward, or of the two gradients, which have the same size.
fn parts(call: &Call, flops: u64, bytes: Bytes, dims: Dims) -> Result<OpCost, UnknownCost> {
    if !call.backward && !call.name.ends_with("_backward") {
        return call.one(flops, bytes, dims);
    }
    call.cost_of(vec![
        WorkPart::new(Role::Dgrad, flops, bytes, dims),
        WorkPart::new(Role::Wgrad, flops, bytes, dims),
    ])
}

fn layers(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let vendor = vendor(call).is_some();
    let rows = match *x.shape.as_slice() {
        [steps, batch, _] => product([steps, batch]),
        // Packed sequences: all their steps in one dimension.
        [steps, _] if vendor => steps,
        _ => return Err(UnknownCost::BadArguments),
    };
    let weights = if vendor {
        call.tensors(1, &["weight"])
    } else {
        call.tensors(2, &["params"])
    };
    let cost = match weights {
        Ok(weights) if !weights.is_empty() => listed(call, x, rows, &weights),
        _ if vendor => described(call, x, rows),
        _ => Err(UnknownCost::NoShapes),
    };
    cost.map(|cost| OpCost {
        sequence: steps_in_sequence(call, x),
        ..cost
    })
}

/// The steps that run one after the other: each reads the state after the one before. Layers may overlap in one
/// direction; in two, every step of a layer reads the last step of each direction of the layer below.
fn steps_in_sequence(call: &Call, x: &Tensor) -> u64 {
    let at = vendor(call).map_or(4, |described| described.layers);
    let layers = match (bidirectional(call), call.int(at, &["num_layers"]).value()) {
        (Ok(true), Some(layers)) => size(layers).unwrap_or(1),
        _ => 1,
    };
    product([time_steps(call, x), layers.max(1)])
}

/// The time steps of a layer. The lengths of packed sequences are not recorded, but no step has more rows than
/// there are sequences (torch/nn/utils/rnn.py: the first of `batch_sizes` is the largest).
fn time_steps(call: &Call, x: &Tensor) -> u64 {
    let at = vendor(call).map_or(8, |described| described.layers + 1);
    let [first, second, _] = *x.shape.as_slice() else {
        let rows = x.shape.first().copied().unwrap_or(1);
        return rows.div_ceil(sequences(call).unwrap_or(rows).max(1)).max(1);
    };
    let steps = match call.flag(at, &["batch_first"]).or(false) {
        Ok(true) => second,
        Ok(false) => first,
        Err(_) => first.min(second),
    };
    steps.max(1)
}

/// The number of sequences, from the state before the first step: `[layers and directions, sequences, width]`.
fn sequences(call: &Call) -> Option<u64> {
    let state = call.tensor(vendor(call)?.state, &["hx"]).ok()?;
    let [_, sequences, _] = *state.shape.as_slice() else {
        return None;
    };
    Some(sequences)
}

/// The cost from the weight tensors. Projections are matrices like the others.
fn listed(call: &Call, x: &Tensor, rows: u64, weights: &[&Tensor]) -> Result<OpCost, UnknownCost> {
    let matrices = || weights.iter().filter(|w| w.shape.len() == 2);
    let elements = sum(matrices().map(|w| count(&w.shape)));
    let all = sum(weights.iter().map(|w| count(&w.shape)));
    let first = weights.first().ok_or(UnknownCost::BadArguments)?;
    // The weights of the input, [g H, I], then those of the state: as many columns as the result is wide.
    let gates = first.shape.first().copied().unwrap_or(0);
    let hidden = weights
        .get(1)
        .and_then(|w| w.shape.get(1))
        .copied()
        .unwrap_or(0);
    let directions = match bidirectional(call) {
        Ok(true) => 2,
        Ok(false) => 1,
        Err(_) => directions(x, weights, hidden),
    };
    let y = product([rows, hidden, directions]);
    let like = Tensor {
        shape: Vec::new(),
        dtype: first.dtype.or(x.dtype),
        strides: None,
    };
    let bytes = total([call.bytes(x), call.dense(all, &like), call.dense(y, x)]);
    let dims = rnn_dims(rows, gates, hidden);
    parts(call, product([2, rows, elements]), bytes, dims)
}

/// The number of directions, from the weights. Deeper layers read the results of all directions; in a
/// single layer, the input's weights are there once per direction. Where the input is as wide as the
/// state, two layers look like two directions: then it is one, which writes less.
fn directions(x: &Tensor, weights: &[&Tensor], hidden: u64) -> u64 {
    let widths = || {
        let matrices = weights.iter().filter(|w| w.shape.len() == 2);
        matrices.filter_map(|w| w.shape.get(1).copied())
    };
    let input = x.shape.last().copied().unwrap_or(0);
    let both = if input == hidden {
        widths().any(|width| width == hidden.saturating_mul(2))
    } else {
        widths().filter(|width| *width == input).count() > 1
    };
    if both { 2 } else { 1 }
}

/// The positions of the layer description in the arguments of a vendor's operator.
#[derive(Debug, Clone, Copy)]
struct Described {
    /// The state before the first step.
    state: usize,
    mode: usize,
    hidden: usize,
    projection: Option<usize>,
    layers: usize,
    bidirectional: usize,
}

/// The layer description of `_cudnn_rnn(x, weight, stride0, buffer, hx, cx, mode, hidden_size,
/// proj_size, num_layers, ...)`. MIOpen's operator has neither the flat buffer nor projections. The
/// backward operators list the output and three gradients before the mode, and MIOpen's also has the
/// flat buffer.
fn vendor(call: &Call) -> Option<Described> {
    let cudnn = |first: usize| Described {
        state: 4,
        mode: first,
        hidden: first + 1,
        projection: Some(first + 2),
        layers: first + 3,
        bidirectional: first + 7,
    };
    let miopen = |state: usize, first: usize| Described {
        state,
        mode: first,
        hidden: first + 1,
        projection: None,
        layers: first + 2,
        bidirectional: first + 6,
    };
    Some(match call.name {
        "cudnn_rnn" => cudnn(6),
        "cudnn_rnn_backward" => cudnn(10),
        "miopen_rnn" => miopen(3, 5),
        "miopen_rnn_backward" => miopen(4, 10),
        _ => return None,
    })
}

fn bidirectional(call: &Call) -> Result<bool, UnknownCost> {
    let at = vendor(call).map_or(7, |described| described.bidirectional);
    call.flag(at, &["bidirectional"]).or(false)
}

/// The cost from the layer description, if the list of weights is not recorded.
fn described(call: &Call, x: &Tensor, rows: u64) -> Result<OpCost, UnknownCost> {
    let at = vendor(call).ok_or(UnknownCost::NoShapes)?;
    let need = |given: Given<i64>| given.value().ok_or(UnknownCost::NoShapes).and_then(size);
    // cudnnRNNMode_t: relu, tanh, LSTM, GRU.
    let gates = match need(call.int(at.mode, &["mode"]))? {
        0 | 1 => 1,
        2 => 4,
        3 => 3,
        _ => return Err(UnknownCost::BadArguments),
    };
    let hidden = need(call.int(at.hidden, &["hidden_size"]))?;
    let layers = need(call.int(at.layers, &["num_layers"]))?;
    let projected = match at.projection {
        Some(place) => size(call.int(place, &["proj_size"]).or(0)?)?,
        None => 0,
    };
    let directions = if bidirectional(call)? { 2 } else { 1 };
    let input = x.shape.last().copied().unwrap_or(0);
    let state = if projected == 0 { hidden } else { projected };
    let per_layer = |input: u64| {
        let gate_rows = gates * directions;
        let recurrent = product([gate_rows, hidden, input.saturating_add(state)]);
        recurrent.saturating_add(product([directions, projected, hidden]))
    };
    let deeper =
        per_layer(state.saturating_mul(directions)).saturating_mul(layers.saturating_sub(1));
    let matrices = per_layer(input).saturating_add(deeper);
    let biases = product([2, layers, directions, gates, hidden]);
    let y = product([rows, state, directions]);
    let elements = sum([matrices, biases]);
    let bytes = total([call.bytes(x), call.dense(elements, x), call.dense(y, x)]);
    let dims = rnn_dims(rows, gates.saturating_mul(hidden), state);
    parts(call, product([2, rows, matrices]), bytes, dims)
}

/// The cost of a cell's two GEMMs: `[B, I] x [I, g H]` and `[B, H] x [H, g H]`.
fn cell(call: &Call) -> Result<OpCost, UnknownCost> {
    let x = call.input()?;
    let h = state(call)?;
    let gates = match (call.name, call.origin) {
        ("lstm_cell", _) | (_, super::name::Origin::Other("LSTMCell")) => 4,
        ("gru_cell", _) | (_, super::name::Origin::Other("GRUCell")) => 3,
        _ => 1,
    };
    let (Some(&input), Some(&hidden)) = (x.shape.last(), h.shape.last()) else {
        return Err(UnknownCost::BadArguments);
    };
    let batch = match *x.shape.as_slice() {
        [b, _] => b,
        [_] => 1,
        _ => return Err(UnknownCost::BadArguments),
    };
    let n = product([gates, hidden]);
    let gemm = |k: u64| {
        let elements = [product([batch, k]), product([n, k]), n, product([batch, n])];
        call.dense(sum(elements), x)
    };
    let bytes = total([gemm(input), gemm(hidden)]);
    let flops = product([2, batch, n, input.saturating_add(hidden)]);
    parts(
        call,
        flops,
        bytes,
        rnn_dims(batch, n, input.saturating_add(hidden)),
    )
}

/// The hidden state, alone or as the first of a pair.
fn state<'a>(call: &Call<'a>) -> Result<&'a Tensor, UnknownCost> {
    match call.arg(1, &["hx"]) {
        Some(ArgValue::Tensor(t)) => Ok(t),
        Some(ArgValue::List(items)) => match items.first() {
            Some(ArgValue::Tensor(t)) => Ok(t),
            _ => Err(UnknownCost::NoShapes),
        },
        // Without a state argument, the module creates one of zeros, whose size is not recorded.
        _ => Err(UnknownCost::NoShapes),
    }
}

/// The cost of the gates' gradients. Reads the gradients of the new states, the old and the new state
/// and the four gates; writes the gradients of the gates and the old state.
fn fused_lstm_cell_backward(call: &Call) -> Result<OpCost, UnknownCost> {
    let state = call.tensor(2, &["cx"])?;
    let gates = call.tensor(4, &["workspace"])?;
    let hidden = count(&state.shape);
    let states = [0, 1, 3].map(|at| call.bytes_of(call.optional(at, &[])));
    let bytes = total([
        total(states),
        call.bytes(state),
        call.dense(hidden, state),
        call.bytes(gates),
        call.dense(count(&gates.shape), gates),
    ]);
    let dims = elements(hidden);
    call.gradient(product([hidden, 10]), bytes, dims)
}

fn fused_cell(call: &Call) -> Result<OpCost, UnknownCost> {
    let gates = call.tensor(0, &["input_gates"])?;
    let hidden_gates = call.tensor(1, &["hidden_gates"])?;
    let (per_element, share, states) = if call.name == "thnn_fused_lstm_cell" {
        (10, 4, 3)
    } else {
        (8, 3, 2)
    };
    call.forward_only()?;
    let hidden = count(&gates.shape) / share;
    let bytes = total([
        call.bytes(gates),
        call.bytes(hidden_gates),
        call.dense(product([hidden, states]), gates),
        Ok(call.bytes_as(call.optional(3, &["input_bias"]), DType::Fp32)),
        Ok(call.bytes_as(call.optional(4, &["hidden_bias"]), DType::Fp32)),
    ]);
    call.one(product([hidden, per_element]), bytes, elements(hidden))
}
