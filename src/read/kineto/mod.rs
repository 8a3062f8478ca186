//! PyTorch profiler traces: the Chrome JSON that `torch.profiler` (Kineto) exports, plain or gzip, from
//! torch 1.8 to today, NVIDIA and AMD.
//!
//! The text is read in one pass: events become rows while another thread unpacks it, and neither the
//! text nor the events are kept.
//!
//! A kernel is joined to its launch by the correlation id, and the launch to the operators around it by
//! time and thread, as in every other format. `External id` is not used.

use std::path::Path;

use super::builder::Builder;
use super::magic::first_byte;
use super::pruning::Pruning;
use super::reader::{Input, Progress, ReadError, Reader};
use crate::base::units;
use crate::profile::{Container, DataKind, Format, Kernel, KernelId, Message, Profile, RangeArgs};

mod about;
mod events;
mod flows;
mod json;
mod load;
mod number;
mod window;

use about::About;
use events::Rows;
pub(crate) use json::after_string as after_json_string;
pub(super) use load::beginning as unpacked_beginning;
#[cfg(test)]
pub(crate) use window::in_pieces;
pub(crate) use window::{LONGEST_VALUE, More, TextWindow};

use json::{End, Outcome, Strays};

/// The format of PyTorch profiler traces.
pub static FORMAT: Format = Format {
    id: "kineto_json",
    name: "PyTorch profiler JSON trace",
    ranges: "operators and annotations",
    container: Container::Json,
    range_args: RangeArgs::TraceEvent,
    how_to_capture: "\n  Profile again with both activities, while the GPU works:\n    \
         with torch.profiler.profile(\n        \
         activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,\n    \
         ) as prof:\n        \
         train_step()\n        \
         torch.cuda.synchronize()\n    \
         prof.export_chrome_trace(\"net.pt.trace.json.gz\")",
    record_operators: "record CPU operators too: \
         `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`",
    name_operators: "register what launches them as an operator (`torch.library.custom_op`), or name \
         it with `torch.profiler.record_function`",
    is_of_pytorch: true,
    has_stacks: true,
    has_graph_captures: false,
    how_to_record: &[
        (
            DataKind::Shapes,
            "tensor shapes: torch.profiler with `record_shapes=True`",
        ),
        (
            DataKind::LaunchConfig,
            "launch configurations, which torch.profiler does not record for these kernels",
        ),
        (
            DataKind::Steps,
            "numbered steps: `prof.step()` after each iteration",
        ),
        (
            DataKind::ApiCalls,
            "the CUDA API call that issued it: start the profiler before the work is launched",
        ),
        (
            DataKind::Layers,
            "layer names: torch.profiler with `with_stack=True`",
        ),
    ],
};

/// The code of the note on a trace of an accelerator that is no NVIDIA or AMD GPU.
pub(crate) const OTHER_ACCELERATOR: &str = "other_accelerator";

/// The code of the note on a trace whose end is missing.
pub(crate) const TRACE_CUT: &str = "trace_cut";

/// The key of the events in an object.
const EVENTS: &[u8] = b"\"traceEvents\"";

/// Reads PyTorch profiler traces.
#[derive(Debug)]
pub(super) struct Kineto;

impl Reader for Kineto {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn recognizes(&self, input: &Input<'_>) -> bool {
        if input.tables.is_some() {
            return false;
        }
        let head = load::beginning(input.head);
        match first_byte(&head) {
            Some(b'[') => contains(&head, b"\"ph\""),
            // Properties of many GPUs and of the job may precede the events.
            Some(b'{') => contains(&head, EVENTS) || load::holds(input.path, EVENTS),
            _ => false,
        }
    }

    fn read(
        &self,
        path: &Path,
        pruning: Option<&dyn Pruning>,
        progress: &dyn Progress,
    ) -> Result<Profile, ReadError> {
        let mut rows = Rows::new(Builder::new(&FORMAT, path));
        let (outcome, damage) = load::streamed(path, progress, |more| json::read(more, &mut rows))?;
        let about = std::mem::take(&mut rows.about);
        if outcome.end == End::NoTrace {
            return Err(ReadError::new(
                path,
                "expected a PyTorch profiler trace, found JSON without `traceEvents`",
                "give the file written by `export_chrome_trace` or `tensorboard_trace_handler`",
            ));
        }
        if rows.is_foreign() {
            return Err(ReadError::new(
                path,
                "expected a PyTorch profiler trace, found a Chrome trace of another program: no event in it is an \
                 operator, a CUDA or HIP call, or a kernel",
                "give the file written by `export_chrome_trace` or `tensorboard_trace_handler` of torch.profiler",
            ));
        }
        rows.complete();
        note_damage(&mut rows, outcome, damage);
        let (counters, other_accelerator) = (rows.counters, rows.other_accelerator);
        let coarse = !rows.fractions;
        let messages = std::mem::take(&mut rows.messages);
        let regions = std::mem::take(&mut rows.regions);
        let mut profile = rows
            .builder
            .finish(|key, device| about.describe(key.ordinal(), device));
        profile.schema_version.clone_from(&about.schema);
        profile.loaders.clone_from(&about.loaders);
        profile.cpu_use = about.cpu_use;
        profile.unrecorded = about.unrecorded;
        profile.switches.clone_from(&about.switches);
        profile.switches.sort_by(|a, b| a.name.cmp(&b.name));
        profile.switches.dedup();
        profile.unix_zero_ns = unix_zero_ns(&profile, about.base_ns);
        for process in &mut profile.processes {
            process.rank = about.rank;
            process.world_size = about.world_size;
            process.group_size = about.group_size;
        }
        let messages = of_kernels(&messages, &profile.kernels).into_iter();
        profile.messages = messages
            .map(|(kernel, args)| Message { kernel, args })
            .collect();
        profile.graph_regions = of_kernels(&regions, &profile.kernels);
        record(&mut profile, &about);
        if let Some((name, events)) = other_accelerator.filter(|_| !profile.recorded.kernels) {
            profile.note(
                OTHER_ACCELERATOR,
                format!(
                    "It holds {} of {name}: only work on NVIDIA and AMD GPUs is analyzed.",
                    units::counted(events, "event")
                ),
            );
        }
        notes(&mut profile, counters, coarse);
        if let Some(pruning) = pruning {
            pruning.prune(&mut profile);
        }
        Ok(profile)
    }
}

/// Runs `read` on the unpacked text of a trace, as far as it can be unpacked.
///
/// # Errors
/// When the file cannot be read, or is larger than any trace.
pub(crate) fn trace_text<T>(
    path: &Path,
    progress: &dyn Progress,
    read: impl FnOnce(More<'_>) -> T,
) -> Result<T, ReadError> {
    Ok(load::streamed(path, progress, read)?.0)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

/// Adds notes about the parts that could not be read.
fn note_damage(rows: &mut Rows, outcome: Outcome, damage: Option<String>) {
    let skipped = std::mem::take(&mut rows.skipped);
    let profile = &mut rows.builder.profile;
    for (table, kind) in [
        (&skipped.kernels, "kernel"),
        (&skipped.calls, "API call"),
        (&skipped.ranges, "range"),
        (&skipped.copies, "copy"),
        (&skipped.sets, "memset"),
        (&skipped.syncs, "synchronization"),
        (&skipped.overheads, "overhead"),
    ] {
        table.note(profile, kind, "device", "size");
    }
    if let Some(first) = rows.unreadable.first {
        let (verb, count) = match rows.unreadable.count {
            1 => ("was", "1 event".to_owned()),
            n => ("were", format!("{} events", units::count(n))),
        };
        profile.note(
            "rows_skipped",
            format!(
                "{count} of the trace could not be read as JSON and {verb} skipped: {} in all, the \
                 first at byte {}.",
                units::bytes(rows.unreadable.bytes as f64),
                units::count(first)
            ),
        );
    }
    note_strays(profile, &outcome.strays);
    match (damage, outcome.end) {
        (Some(text), End::Cut) => profile.note(
            TRACE_CUT,
            format!(
                "{text} The trace ends in the middle, at byte {} of the unpacked text.",
                units::count(outcome.bytes)
            ),
        ),
        (Some(text), _) => profile.note(TRACE_CUT, text),
        (None, End::Cut) => profile.note(
            TRACE_CUT,
            format!(
                "The trace ends in the middle, at byte {} of its text: the program was killed while it wrote it, \
                 or the copy did not finish. What is there was read; the rest is missing from all figures.",
                units::count(outcome.bytes)
            ),
        ),
        (None, End::TooLong) => profile.note(
            TRACE_CUT,
            format!(
                "Reading stopped at a value of more than {}, which no event of a trace is; what \
                 comes before it was read, the rest is missing from all figures.",
                units::bytes(LONGEST_VALUE as f64)
            ),
        ),
        (None, End::Whole | End::NoTrace) => {}
    }
}

/// Adds notes about what stands beside the trace and was left out.
fn note_strays(profile: &mut Profile, strays: &Strays) {
    if let Some(first) = strays.first {
        profile.note(
            "trace_damaged",
            format!(
                "At byte {} of the trace stands something that is no member of it ({} like this), as when a \
                 bracket was changed and the list of events ends too early. It was left out and is \
                 missing from all figures.",
                units::count(first),
                units::counted(strays.count, "place")
            ),
        );
    }
    if let Some(second) = strays.second_list {
        profile.note(
            "trace_damaged",
            format!(
                "The trace holds more than one `traceEvents`. Only the first list with events was read; \
                 {}, from byte {} on, were left out and are missing from all figures.",
                units::counted(strays.second_events, "event"),
                units::count(second)
            ),
        );
    }
    if let Some(behind) = strays.behind {
        profile.note(
            "trace_damaged",
            format!(
                "The trace ends at byte {}, but {} follow: a second trace, or the rest of one that was \
                 closed too early. They were left out and are missing from all figures.",
                units::count(behind),
                units::bytes(strays.bytes_behind as f64)
            ),
        );
    }
}

/// What events of kernels describe, with the handles of the kernels, which have been sorted in the meantime.
fn of_kernels<T: Copy>(described: &[(Kernel, T)], kernels: &[Kernel]) -> Vec<(KernelId, T)> {
    /// Maximum number of kernels with the same start that are compared; bounds the work for hostile
    /// files.
    const MOST: usize = 64;
    let mut found: Vec<(KernelId, T)> = described
        .iter()
        .filter_map(|(described, text)| {
            let from = kernels.partition_point(|k| k.span.start < described.span.start);
            let same = |k: &Kernel| {
                (k.span, k.name, k.stream, k.correlation)
                    == (
                        described.span,
                        described.name,
                        described.stream,
                        described.correlation,
                    )
            };
            let at = from + kernels.iter().skip(from).take(MOST).position(same)?;
            Some((KernelId::new(at), *text))
        })
        .collect();
    found.sort_by_key(|(kernel, _)| *kernel);
    found.dedup_by_key(|(kernel, _)| *kernel);
    found
}

/// The time of the calendar at time 0 of a trace. Without a base, times are those of the calendar, where they
/// look like it.
fn unix_zero_ns(profile: &Profile, base_ns: Option<i64>) -> Option<i64> {
    let calls = profile.calls.first().map(|call| call.span.start);
    let first = calls.or_else(|| Some(profile.kernels.first()?.span.start))?;
    let zero = base_ns.unwrap_or(0);
    let unix = zero.checked_add(first)?;
    PLAUSIBLE_NS.contains(&unix).then_some(zero)
}

/// From 2015 to 2100: no clock that counts from the start of a machine or a program.
const PLAUSIBLE_NS: std::ops::Range<i64> = 1_420_070_400_000_000_000..4_102_444_800_000_000_000;

/// Fills in which data was recorded. `ProfilerActivity.CUDA` is one switch: with kernels or calls,
/// copies and synchronizations are recorded too.
fn record(profile: &mut Profile, about: &About) {
    let has_dims = || {
        let mut args = profile.ranges.iter().filter_map(|range| range.args);
        args.any(|id| profile.text(id).contains("\"Input Dims\""))
    };
    let shapes = about.shapes.unwrap_or_else(has_dims);
    let recorded = &mut profile.recorded;
    recorded.shapes = shapes;
    recorded.kernels = !profile.kernels.is_empty();
    recorded.api_calls = !profile.calls.is_empty();
    recorded.ranges = !profile.ranges.is_empty();
    let cuda = recorded.kernels || recorded.api_calls;
    recorded.copies = cuda;
    recorded.syncs = cuda;
    recorded.environment = about.environment;
}

fn notes(profile: &mut Profile, counters: u64, coarse: bool) {
    const BOTH: &str = "`activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`";
    let recorded = profile.recorded;
    if counters > 0 {
        profile.note(
            "counters_only",
            format!(
                "The trace holds hardware counters of {} kernels instead of the kernels themselves: \
                 it was taken with the CUPTI range profiler. Leave out \
                 `experimental_config=_ExperimentalConfig(profiler_metrics=...)`.",
                units::count(counters)
            ),
        );
    }
    if !recorded.kernels {
        profile.note(
            "kernels_missing",
            format!("The trace holds no kernels; profile with {BOTH}."),
        );
    }
    if !recorded.api_calls {
        profile.note(
            "calls_missing",
            format!(
                "The trace holds no CUDA or HIP API calls, so kernels cannot be tied to the code \
                 that launched them; profile with {BOTH}."
            ),
        );
    }
    if !recorded.ranges {
        profile.note(
            "ranges_missing",
            format!(
                "The trace holds no operators, so kernels cannot be tied to operators and layers; \
                 profile with {BOTH} and `record_shapes=True`."
            ),
        );
    }
    if coarse && recorded.kernels {
        profile.note(
            "whole_microseconds",
            "All times are whole microseconds (PyTorch before 2.2 writes them so): kernels of a few \
             microseconds are measured roughly.",
        );
    }
    if recorded.environment {
        profile.note(
            "environment_block",
            "The trace carries environment variables of the captured machine, which may hold \
             secrets; nothing of them is kept or printed here, but think before you share the file.",
        );
    }
}
