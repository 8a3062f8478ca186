//! From a run to PyProf's records: the ranges around every launch, sorted into PyProf's bins.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::sequence::Numbering;
use super::{Dir, Place, Pool, Record, Text, event, names};
use crate::correlate::literal::{self, Literal};
use crate::correlate::{Direction, Missing, OpCall, Run, ScopeId};
use crate::profile::{Format, Kernel, Number, Range, RangeKind, StrId};

/// The record of every kernel, also of those PyProf drops, in order of their start.
pub fn records(run: &Run) -> impl Iterator<Item = Record> + '_ {
    let mut writer = Writer::new(run);
    (0..run.profile.kernels.len()).filter_map(move |at| writer.record(at))
}

/// Parts of paths that make PyProf leave a line out of a trace: PyTorch's and PyProf's own files.
const OWN_FILES: [&str; 9] = [
    "/torch/nn/modules/",
    "/torch/nn/functional.py",
    "/torch/tensor.py",
    "/torch/autograd/__init__.py",
    "/torch/_jit_internal.py",
    "/pyprof/nvtx/nvmarker.py",
    "/apex/optimizers/",
    "/torch/_utils.py",
    "/torch/optim/",
];

/// What a range's text is to PyProf.
#[derive(Debug, Clone)]
enum Bin {
    Marker {
        module: Text,
        op: Text,
    },
    Layer(Text),
    Trace(Vec<Text>),
    Repr,
    /// Reentrant checkpointing's own node: PyProf looks through it.
    Ignored,
    Other,
}

/// A range around a launch; equal ones above it are left out.
#[derive(Debug, Clone, Copy)]
struct Node {
    range: u32,
    parent: Option<u32>,
}

/// The ranges around a scope.
#[derive(Debug, Clone, Copy, Default)]
struct Chain {
    /// Innermost node.
    node: Option<u32>,
    /// Text of the innermost trace marker.
    trace: Option<StrId>,
}

/// What stands around a launch, and its sequence numbers in ascending order.
type Around = (Arc<Place>, Arc<[u64]>);

struct Writer<'r> {
    run: &'r Run,
    pool: Pool,
    bins: FxHashMap<StrId, Bin>,
    nodes: Vec<Node>,
    /// One per scope.
    chains: Vec<Chain>,
    /// By scope, and whether its work is forward work done again.
    places: FxHashMap<(Option<ScopeId>, bool), Around>,
    unknown: Arc<Place>,
    names: FxHashMap<StrId, (Text, Text)>,
    numbering: Numbering,
}

impl<'r> Writer<'r> {
    fn new(run: &'r Run) -> Writer<'r> {
        let mut pool = Pool::default();
        let unknown = pool.place(Place {
            dir: Dir::Na,
            mods: vec!["na".into()],
            ..Place::default()
        });
        let mut writer = Writer {
            run,
            pool,
            bins: FxHashMap::default(),
            nodes: Vec::new(),
            chains: Vec::with_capacity(run.scopes.len()),
            places: FxHashMap::default(),
            unknown,
            names: FxHashMap::default(),
            numbering: Numbering::default(),
        };
        for scope in &run.scopes {
            let chain = writer.chain(scope.range.row(), scope.parent);
            writer.chains.push(chain);
        }
        writer
    }

    /// The ranges around a scope: those around its parent, which comes first in the table, and its
    /// own. A text that surrounds itself counts once: programs leave hundreds of equal ranges open.
    fn chain(&mut self, range: u32, parent: Option<ScopeId>) -> Chain {
        let outer = parent
            .and_then(|p| self.chains.get(p.idx()).copied())
            .unwrap_or_default();
        let Some(own) = self.run.profile.ranges.get(range as usize) else {
            return outer;
        };
        let (trace, counted) = match self.bin(own.text) {
            Bin::Trace(_) => (Some(own.text), false),
            // A layer inside a layer of its name is one more layer, unless it was never closed.
            Bin::Layer(_) => (outer.trace, own.span.end != i64::MAX),
            _ => (outer.trace, false),
        };
        let repeated = !counted
            && self.up(outer.node).any(|other| {
                (other.text, other.seq, other.op_id, other.args)
                    == (own.text, own.seq, own.op_id, own.args)
            });
        if repeated {
            return Chain { trace, ..outer };
        }
        let node = u32::try_from(self.nodes.len()).ok();
        self.nodes.push(Node {
            range,
            parent: outer.node,
        });
        Chain { node, trace }
    }

    /// Ranges from a node outwards.
    fn up(&self, node: Option<u32>) -> impl Iterator<Item = &'r Range> + '_ {
        let mut next = node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(next? as usize)?;
            next = node.parent;
            self.run.profile.ranges.get(node.range as usize)
        })
    }

    fn bin(&mut self, text: StrId) -> &Bin {
        let (run, pool) = (self.run, &mut self.pool);
        self.bins
            .entry(text)
            .or_insert_with(|| bin_of(run.profile.text(text), pool))
    }

    fn record(&mut self, at: usize) -> Option<Record> {
        let profile = &self.run.profile;
        let kernel = profile.kernels.get(at)?;
        let link = self.run.links.get(at)?;
        let call = link.launch.and_then(|l| profile.calls.get(l.idx()));
        let thread = call.map(|c| c.thread);
        let op = link.op.and_then(|op| self.run.op_calls.get(op.idx()));
        // Around the replay of a CUDA graph stands nothing that is true of one of its kernels.
        let replayed = link.missing == Some(Missing::GraphReplay);
        let (place, ids) = match thread {
            Some(_) if !replayed => self.place(link.scope, op),
            _ => (Arc::clone(&self.unknown), Arc::default()),
        };
        let numbers = match thread {
            Some(thread) => self.numbering.next(thread, &ids, &place),
            None => super::sequence::Numbers::default(),
        };
        let config = profile.config(kernel);
        let (short_name, long_name) = self.name(kernel);
        Some(Record {
            short_name,
            long_name,
            duration: kernel.span.ns(),
            place,
            seq: numbers.seq,
            alt: numbers.alt,
            sub: numbers.sub,
            tid: thread
                .and_then(|t| profile.threads.get(t.idx()))
                .map(|t| t.tid),
            device: profile
                .devices
                .get(kernel.device.idx())
                .map_or(0, |d| d.ordinal),
            stream: kernel.stream,
            grid: config.grid,
            block: config.block,
        })
    }

    fn name(&mut self, kernel: &Kernel) -> (Text, Text) {
        if let Some((short, long)) = self.names.get(&kernel.name) {
            return (Arc::clone(short), Arc::clone(long));
        }
        let long = names::long(self.run.profile.text(kernel.name));
        let pair = (self.pool.text(&names::short(&long)), self.pool.text(&long));
        self.names.insert(kernel.name, pair.clone());
        pair
    }

    fn place(&mut self, scope: Option<ScopeId>, op: Option<&OpCall>) -> Around {
        let recomputed = op.is_some_and(|op| op.recomputed);
        if let Some((place, ids)) = self.places.get(&(scope, recomputed)) {
            return (Arc::clone(place), Arc::clone(ids));
        }
        let chain = scope
            .and_then(|s| self.chains.get(s.idx()).copied())
            .unwrap_or_default();
        let mut around: Vec<&Range> = self.up(chain.node).collect();
        around.reverse();
        let (mut place, ids) = self.sort(&around, chain.trace, recomputed);
        if self.run.profile.format == Format::KinetoJson {
            self.take_from_trace(&mut place, &around, op);
        }
        let entry = (self.pool.place(place), Arc::from(ids));
        self.places.insert((scope, recomputed), entry.clone());
        entry
    }

    /// Sorts the ranges around a launch, outermost first, into PyProf's bins.
    fn sort(
        &mut self,
        around: &[&Range],
        trace: Option<StrId>,
        recomputed: bool,
    ) -> (Place, Vec<u64>) {
        let mut place = Place::default();
        let mut sequence: Vec<SeqMarker<'_>> = Vec::new();
        let mut other = None;
        let run = self.run;
        for range in around {
            let text = run.profile.text(range.text);
            match self.bin(range.text).clone() {
                Bin::Marker { module, op } => {
                    place.markers.push(self.pool.text(text));
                    place.mods.push(module);
                    place.ops.push(op);
                }
                Bin::Layer(name) => place.layer.push(name),
                Bin::Repr => place.reprs.push(self.pool.text(text)),
                Bin::Trace(_) | Bin::Ignored => {}
                Bin::Other if is_operator(range) => sequence.push(SeqMarker::new(run, range)),
                Bin::Other if !text.is_empty() => other = Some(range.text),
                Bin::Other => {}
            }
        }
        if let Some(Bin::Trace(lines)) = trace.map(|t| self.bin(t)) {
            place.trace.clone_from(lines);
        }
        let sequence = pruned(sequence);
        let backward = sequence.iter().any(SeqMarker::is_backward);
        place.dir = if backward && !recomputed {
            Dir::Bprop
        } else {
            Dir::Fprop
        };
        if place.ops.is_empty() {
            self.name_operator(&mut place, &sequence, other);
        }
        let mut ids: Vec<u64> = sequence.iter().filter_map(|m| m.seq).collect();
        ids.sort_unstable();
        ids.dedup();
        place.seq_markers = sequence.iter().map(|m| self.pool.text(&m.text)).collect();
        (place, ids)
    }

    /// What a trace of torch.profiler says in its own way: the operator with its arguments, the layer
    /// by modules and annotations, source lines by frames, and the direction.
    fn take_from_trace(&mut self, place: &mut Place, around: &[&Range], op: Option<&OpCall>) {
        place.trace = event::trace(self.run, around)
            .iter()
            .map(|line| self.pool.text(line))
            .collect();
        let layer = op.and_then(|op| event::layer(self.run, op.layer?));
        if place.layer.is_empty() {
            place.layer.extend(layer);
        }
        let Some(op) = op else { return };
        place.dir = match op.direction {
            Direction::Bprop => Dir::Bprop,
            _ => Dir::Fprop,
        };
        let args = op.args.filter(|_| !op.args_from_forward);
        if let Some(args) = args.and_then(|args| self.run.args.get(args.idx())) {
            place.markers = vec![self.pool.text(&event::marker(&op.op, args))];
        } else if op.args_from_forward || place.dir == Dir::Bprop {
            // Of a backward node the forward operator says more than the node.
            return;
        }
        let module = match op.op.module.as_str() {
            "" => "na",
            module => module,
        };
        place.mods = vec![self.pool.text(module)];
        place.ops = vec![self.pool.text(&op.op.name)];
    }

    /// Module and operator of a launch without PyProf's markers: backward nodes first, then any
    /// numbered range, then the innermost range there is.
    fn name_operator(
        &mut self,
        place: &mut Place,
        sequence: &[SeqMarker<'_>],
        other: Option<StrId>,
    ) {
        let mut ops: Vec<Text> = sequence
            .iter()
            .filter(|m| m.name.ends_with("backward") || m.name.ends_with("Backward"))
            .map(|m| self.pool.text(&forward_name(m.name)))
            .collect();
        if ops.is_empty() {
            ops = sequence.iter().map(|m| self.pool.text(m.name)).collect();
        }
        let na = self.pool.text("na");
        place.mods = vec![na; ops.len().max(1)];
        if let (true, Some(other)) = (ops.is_empty(), other) {
            ops.push(self.pool.text(self.run.profile.text(other)));
        }
        place.ops = ops;
    }
}

/// Whether PyTorch wrote a range for an operator: it carries a sequence number or an operator id.
fn is_operator(range: &Range) -> bool {
    let nests = matches!(
        range.kind,
        RangeKind::PushPop | RangeKind::CpuOp | RangeKind::Annotation
    );
    nests && (range.seq.is_some() || range.op_id.is_some())
}

fn bin_of(text: &str, pool: &mut Pool) -> Bin {
    let trimmed = text.trim_start();
    if trimmed.starts_with('{')
        && let Some(bin) = dictionary(text, pool)
    {
        return bin;
    }
    if let Some(name) = trimmed.strip_prefix("layer:") {
        return Bin::Layer(pool.text(name));
    }
    if text.contains("CheckpointFunctionBackward") {
        return Bin::Ignored;
    }
    Bin::Other
}

/// A text that is one of PyProf's own dictionaries, by its keys. PyProf looks for the words anywhere
/// in the text.
fn dictionary(text: &str, pool: &mut Pool) -> Option<Bin> {
    let entries = match literal::parse(text) {
        Ok(Literal::Dict(entries)) => entries,
        _ => literal::leading_entries(text),
    };
    let get = |key: &str| literal::lookup(&entries, key);
    if let Some(frames) = get("traceMarker").and_then(Literal::items) {
        let lines = frames.iter().filter_map(Literal::as_str);
        let users = lines.filter(|line| !OWN_FILES.iter().any(|own| line.contains(own)));
        return Some(Bin::Trace(users.map(|line| pool.text(line)).collect()));
    }
    if get("strRepr").is_some() {
        return Some(Bin::Repr);
    }
    Some(Bin::Marker {
        module: pool.text(get("mod")?.as_str()?),
        op: pool.text(get("op")?.as_str()?),
    })
}

/// A range of `emit_nvtx`.
#[derive(Debug, Clone)]
struct SeqMarker<'r> {
    name: &'r str,
    seq: Option<u64>,
    has_id: bool,
    /// As the program wrote it.
    text: String,
    /// PyProf sorts by this text, numbers included.
    key: String,
}

impl<'r> SeqMarker<'r> {
    fn new(run: &'r Run, range: &Range) -> SeqMarker<'r> {
        let name = run.profile.text(range.text);
        let mut text = name.to_owned();
        let mut key = String::new();
        if let Some(seq) = range.seq.map(Number::get) {
            text.push_str(&format!(", seq = {seq}"));
            key = seq.to_string();
        }
        if let Some(id) = range.op_id.map(Number::get) {
            text.push_str(&format!(", op_id = {id}"));
        }
        let sizes = range.args.map(|args| run.profile.text(args));
        if let Some(sizes) = sizes.filter(|s| s.starts_with('[')) {
            text.push_str(&format!(", sizes = {sizes}"));
        }
        key.push_str(name);
        key.push_str(", seq");
        SeqMarker {
            name,
            seq: range.seq.map(Number::get),
            has_id: range.op_id.is_some(),
            text,
            key,
        }
    }

    /// PyProf knows `Backward` and `Backward0`; newer autograd nodes also end in other digits.
    fn is_backward(&self) -> bool {
        let name = self.name.trim_end_matches(|c: char| c.is_ascii_digit());
        self.seq.is_some() && (name.ends_with("Backward") || self.name.ends_with("backward"))
    }
}

/// In PyProf's order, each text once, and of neighbours with one number and similar names the first.
fn pruned(mut markers: Vec<SeqMarker<'_>>) -> Vec<SeqMarker<'_>> {
    markers.sort_by(|a, b| (&a.key, &a.text).cmp(&(&b.key, &b.text)));
    markers.dedup_by(|a, b| a.text == b.text);
    let mut previous: Option<(&str, Option<u64>)> = None;
    markers.retain(|marker| {
        // Of ranges with operator ids, which PyProf cannot read, all are kept: one has the shapes.
        let number = marker.seq.filter(|_| !marker.has_id);
        let similar = previous.is_some_and(|(other, before)| {
            let alike = marker.name.contains(other) || other.contains(marker.name);
            number.is_some() && number == before && alike
        });
        previous = Some((marker.name, number));
        !similar
    });
    markers
}

/// `NllLossBackward` -> `NllLoss`, `torch::autograd::X_backward` -> `X`.
fn forward_name(name: &str) -> String {
    let mut name = name.to_owned();
    for word in [
        "torch",
        "autograd",
        "_backward",
        "::",
        "jit",
        "(anonymous namespace)",
    ] {
        if name.contains(word) {
            name = name.replace(word, "");
        }
    }
    match name.split_once("Backward") {
        Some((forward, _)) => forward.to_owned(),
        None => name,
    }
}
