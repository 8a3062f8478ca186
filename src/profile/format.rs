//! Descriptions of input formats. Each reader declares one [`Format`]; nothing above the readers depends
//! on which one it is.

use std::fmt;

/// An input format in the words of its reader: what it is called, how its content is stored, and how
/// to record more with the tool that writes it.
pub struct Format {
    /// The permanent word for rules and machines, such as `nsys_sqlite`.
    pub id: &'static str,
    /// The name in reports and errors, such as `Nsight Systems SQLite export`.
    pub name: &'static str,
    /// What its host ranges are called, in the plural.
    pub ranges: &'static str,
    /// How its content is stored.
    pub container: Container,
    /// What [`HostRange::args`](super::HostRange::args) holds.
    pub range_args: RangeArgs,
    /// How to record a profile with kernels: indented lines, each after a line break.
    pub how_to_capture: &'static str,
    /// How to record operators, for a profile without any.
    pub record_operators: &'static str,
    /// How to name what kernels were launched by, for a profile that has operators.
    pub name_operators: &'static str,
    /// Whether PyTorch writes it, whatever the program runs.
    pub is_of_pytorch: bool,
    /// Whether it can hold Python call stacks of the host.
    pub has_stacks: bool,
    /// Whether it can hold the capture of a CUDA graph, which names the kernels of its replays.
    pub has_graph_captures: bool,
    /// How to record other data, where the tool has a way of its own.
    pub how_to_record: &'static [(DataKind, &'static str)],
}

/// How the content of a file is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// An SQLite database.
    Sqlite,
    /// JSON text, plain or gzip.
    Json,
}

/// The notation of the arguments of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeArgs {
    /// The sizes that `emit_nvtx` writes: `[[64, 128], []]`.
    Sizes,
    /// A JSON object, the `args` of a trace event. It may hold strides, dtypes and a call stack.
    TraceEvent,
}

/// Data that a profile may lack and that tools record in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// Shapes of the operands of operators.
    Shapes,
    /// Launch configurations of kernels.
    LaunchConfig,
    /// Numbered steps.
    Steps,
    /// The API calls that launched GPU work.
    ApiCalls,
    /// Names of layers.
    Layers,
}

impl Format {
    /// How to record this data; `None` where the tool has no way of its own.
    pub fn how_to_record(&self, data: DataKind) -> Option<&'static str> {
        self.how_to_record
            .iter()
            .find(|(kind, _)| *kind == data)
            .map(|(_, how)| *how)
    }
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}
