//! A large export of Nsight Systems: two processes, each with a thread for the forward and one for
//! the backward pass, ranges about ten deep, hundreds of operator names and shapes.

use std::path::Path;

use rusqlite::{Connection, Statement, params};

const SCHEMA: &str = "
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER, computeMajor INTEGER,
  computeMinor INTEGER, memoryBandwidth INTEGER, totalMemory INTEGER, clockRate INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
  gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
  blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, cacheConfig INTEGER, launchType INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
  endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
  int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL,
  jsonTextId INTEGER, jsonText TEXT);
";

/// Kinds of operators; numbers make their names distinct.
const OPERATORS: [(&str, &str); 8] = [
    ("linear", "addmm"),
    ("conv2d", "cudnn_convolution"),
    ("layer_norm", "native_layer_norm"),
    ("scaled_dot_product_attention", "_flash_attention_forward"),
    ("gelu", "gelu"),
    ("softmax", "_softmax"),
    ("add", "add"),
    ("dropout", "native_dropout"),
];

const KERNELS: [&str; 6] = [
    "ampere_sgemm_128x64_tn",
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)",
    "void cutlass::Kernel<cutlass_80_tensorop_s16816gemm_bf16_128x64_32x6_tn_align8>(Params)",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)",
];

/// Names in `StringIds`: the calls first, then the kernels.
const CALLS: [&str; 3] = [
    "cudaLaunchKernel_v7000",
    "cudaStreamIsCapturing_v10000",
    "cudaEventRecord_v3020",
];
const FIRST_KERNEL: usize = CALLS.len();
const KERNEL_NAMES: usize = 120;

/// Number of blocks of the model. Every step does the same in each.
const LAYERS: i64 = 48;
/// Number of operators per block.
const OPS: i64 = 12;

/// The state of a simulated program on one thread.
struct Writer<'c> {
    kernel: Statement<'c>,
    call: Statement<'c>,
    range: Statement<'c>,
    /// Ranges of the operator being written, to be sorted by start.
    ranges: Vec<(i64, i64, i64, String)>,
    made: usize,
    op_id: u64,
}

/// Writes an export with `kernels` kernels, 1.9 times as many calls and 4.8 times as many ranges.
pub(super) fn write(path: &Path, kernels: usize) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(SCHEMA).unwrap();
    conn.execute_batch("BEGIN").unwrap();
    strings(&conn);
    let mut writer = Writer {
        kernel: conn
            .prepare(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES \
                 (?1, ?2, ?3, 1, 7, ?4, ?5, ?6, ?6, 64, ?7, 1, 1, 256, 1, 1, 0, 49152, 0, 0, NULL, 0)",
            )
            .unwrap(),
        call: conn
            .prepare(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, 0, ?3, ?4, ?5, 0, NULL)",
            )
            .unwrap(),
        range: conn
            .prepare(
                "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) \
                 VALUES (?1, ?2, 59, ?3, ?4, 0)",
            )
            .unwrap(),
        ranges: Vec::new(),
        made: 0,
        op_id: 0,
    };
    let mut time = 1_000_000;
    let mut block = 0;
    while writer.made < kernels {
        time = writer.block(time, block);
        block += 1;
    }
    drop(writer);
    conn.execute_batch("COMMIT").unwrap();
}

fn strings(conn: &Connection) {
    let mut string = conn
        .prepare("INSERT INTO StringIds VALUES (?1, ?2)")
        .unwrap();
    for (id, name) in CALLS.iter().enumerate() {
        string.execute(params![id as i64, name]).unwrap();
    }
    for number in 0..KERNEL_NAMES {
        let name = KERNELS[number % KERNELS.len()];
        let name = format!("{name}_{}", number / KERNELS.len());
        let id = (FIRST_KERNEL + number) as i64;
        string.execute(params![id, name]).unwrap();
    }
    conn.execute(
        "INSERT INTO TARGET_INFO_GPU VALUES \
         (0, 'NVIDIA A100-SXM4-80GB', 108, 8, 0, 2039000000000, 85000000000, 1410000000)",
        [],
    )
    .unwrap();
}

impl Writer<'_> {
    /// Writes one block of the model, forward then backward: twelve operators each, in two processes.
    fn block(&mut self, start: i64, block: i64) -> i64 {
        const OP_NS: i64 = 24_000;
        let mut time = start;
        for backward in [false, true] {
            let end = time + OPS * OP_NS;
            for process in 0..2_i64 {
                self.around(time, end, thread_of(process, backward), block, backward);
            }
            // Alternating, as two concurrent processes would: rows are in order of time.
            for (op, process) in (0..OPS).flat_map(|op| [(op, 0_i64), (op, 1)]) {
                let at = time + 100 + op * OP_NS + process * 9_000;
                let number = block * OPS + op;
                self.operator(at, thread_of(process, backward), process, number, backward);
            }
            self.flush();
            time = end + 1_000;
        }
        time
    }

    /// Writes the user's ranges around a block.
    fn around(&mut self, start: i64, end: i64, thread: i64, block: i64, backward: bool) {
        if backward {
            return;
        }
        let step = format!("step {}", block / LAYERS);
        let layer = format!("layer:blocks.{}", block % LAYERS);
        let names = [step.as_str(), "model", "encoder", "layers", &layer];
        for (inset, name) in (0..).zip(names) {
            self.push(start + inset, end - inset, thread, name.to_owned());
        }
    }

    /// Writes one operator with its ranges, calls and kernel.
    fn operator(&mut self, at: i64, thread: i64, process: i64, number: i64, backward: bool) {
        let of_step = number % (LAYERS * OPS);
        let (outer, inner) = OPERATORS[(of_step % 8) as usize];
        let variant = of_step / 8 % 40;
        let id = self.op_id;
        self.op_id += 5;
        let rows = 64 * (1 + variant % 16);
        let sizes = format!("[[{rows}, 1024], [1024, {}], []]", 256 * (1 + variant % 5));
        let text = |name: String, id: u64| format!("{name}, op_id = {id}");
        if backward {
            let node = format!("{}Backward{}", capitalised(outer), variant % 3);
            let engine = format!("autograd::engine::evaluate_function: {node}, seq = {number}");
            self.push(at, at + 20_000, thread, text(engine, id));
            let node = format!("{node}, seq = {number}");
            self.push(at + 100, at + 19_000, thread, text(node, id + 1));
        } else {
            let name = format!("aten::{outer}_{variant}, seq = {number}");
            let name = format!("{}, sizes = {sizes}", text(name, id));
            self.push(at, at + 20_000, thread, name);
            let name = format!("aten::{inner}, seq = {number}");
            let name = format!("{}, sizes = {sizes}", text(name, id + 1));
            self.push(at + 500, at + 18_000, thread, name);
        }
        let empty = "aten::empty".to_owned();
        self.push(at + 600, at + 1_500, thread, text(empty, id + 2));
        let view = "aten::view".to_owned();
        self.push(at + 1_600, at + 2_000, thread, text(view, id + 3));
        if number % 2 == 0 {
            let last = format!("aten::{inner}_out");
            self.push(at + 2_100, at + 17_000, thread, text(last, id + 4));
        }
        self.launch(at + 3_000, thread, process, of_step);
    }

    fn launch(&mut self, at: i64, thread: i64, process: i64, number: i64) {
        self.made += 1;
        let correlation = self.made as i64;
        let mut call = |start: i64, length: i64, correlation: i64, name: i64| {
            self.call
                .execute(params![start, start + length, thread, correlation, name])
                .unwrap();
        };
        if number % 8 != 0 {
            call(at - 500, 200, 2_000_000_000 + correlation, 1 + number % 2);
        }
        call(at, 4_000, correlation, 0);
        let name = FIRST_KERNEL + (number as usize * 7) % KERNEL_NAMES;
        let globals = (process + 1) << 24;
        self.kernel
            .execute(params![
                at + 6_000,
                at + 6_000 + 2_000 + number % 9_000,
                process,
                correlation,
                globals,
                name as i64,
                1 + number % 200,
            ])
            .unwrap();
    }

    fn push(&mut self, start: i64, end: i64, thread: i64, text: String) {
        self.ranges.push((start, end, thread, text));
    }

    fn flush(&mut self) {
        self.ranges.sort_by_key(|r| (r.0, std::cmp::Reverse(r.1)));
        for (start, end, thread, text) in self.ranges.drain(..) {
            self.range
                .execute(params![start, end, text, thread])
                .unwrap();
        }
    }
}

fn thread_of(process: i64, backward: bool) -> i64 {
    ((process + 1) << 24) | (100 + i64::from(backward))
}

fn capitalised(name: &str) -> String {
    let parts = name.split('_').map(|part| {
        let (first, rest) = part.split_at(1.min(part.len()));
        format!("{}{rest}", first.to_ascii_uppercase())
    });
    parts.collect()
}
