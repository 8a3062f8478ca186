//! py-spy's `--format chrometrace`: a list of events at which functions begin and end.

use indexmap::IndexMap;
use serde::Deserialize;

use super::model::{HostLine, HostProfile, name};

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    name: String,
    ph: String,
    /// In us.
    ts: f64,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    args: Place,
}

#[derive(Deserialize, Default)]
struct Place {
    #[serde(default)]
    filename: String,
    #[serde(default)]
    line: u32,
}

/// The functions of a thread that have not ended, and when the last one began or ended.
#[derive(Default)]
struct Stack {
    open: Vec<usize>,
    now: f64,
}

/// `None` if the file is something else, or is damaged. A trace of PyTorch is an object, not a list.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let events: Vec<Event> = serde_json::from_str(text).ok()?;
    let mut events = events
        .into_iter()
        .filter(|event| event.cat == "py-spy")
        .peekable();
    events.peek()?;
    let mut functions: IndexMap<(String, u32, String), f64> = IndexMap::new();
    let mut threads: IndexMap<u64, Stack> = IndexMap::new();
    for event in events {
        let thread = threads.entry(event.tid).or_default();
        if let Some((_, us)) = (thread.open.last()).and_then(|at| functions.get_index_mut(*at)) {
            *us += (event.ts - thread.now).max(0.0);
        }
        thread.now = event.ts;
        if event.ph == "B" {
            let key = (
                name(&event.args.filename),
                event.args.line,
                name(&event.name),
            );
            let entry = functions.entry(key);
            thread.open.push(entry.index());
            entry.or_default();
        } else {
            thread.open.pop();
        }
    }
    let lines = functions.into_iter().filter(|(_, us)| *us > 0.0);
    let lines = lines.map(|((file, line, function), us)| HostLine {
        file,
        line,
        function,
        calls: 0,
        self_ns: us * 1e3,
        ..HostLine::default()
    });
    Some(HostProfile::of("py-spy", lines))
}
