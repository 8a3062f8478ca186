//! Simulates a description: a host clock per process, streams that execute work in order, and an
//! autograd tape.

use std::collections::{HashMap, HashSet};

use super::capture::{
    Call, Capture, Copy, Direction, Graph, Kernel, KernelShape, Memory, Range, RangeKind, Set,
    Sync, Thread, Where, Work,
};
use super::settings::Timing;
use super::text::{self, Line, Wrong};

/// Variables and their values.
type Env = Vec<(String, String)>;

/// A backward node on the tape.
struct Taped<'a> {
    node: String,
    seq: i64,
    below: &'a [Line],
    env: Env,
}

/// The clocks and counters of a process.
struct Process<'a> {
    at: Where,
    device: i64,
    now: i64,
    correlation: i64,
    seq: i64,
    in_backward: bool,
    tape: Vec<Taped<'a>>,
    loaded: HashSet<String>,
    /// The time at which each stream has finished its work.
    streams: HashMap<(i64, i64), i64>,
}

pub(super) struct Player<'a> {
    pub(super) capture: Capture,
    pub(super) timing: Timing,
    /// Folders of the user's files and of the libraries' files.
    pub(super) roots: [String; 2],
    pub(super) defines: HashMap<String, KernelShape>,
    templates: HashMap<String, (Vec<String>, &'a [Line])>,
    processes: Vec<Process<'a>>,
    current: usize,
    /// The graph launch whose nodes are being simulated: correlation id, end of its call.
    graph: Option<(i64, i64)>,
    /// Number of graphs and of graph nodes so far.
    graphs: i64,
    noise: u64,
}

/// Simulates all lines.
pub(super) fn simulate(lines: &[Line]) -> Result<Capture, Wrong> {
    let mut player = Player {
        capture: Capture {
            schema: "3.11.1".into(),
            tool: "2024.2.1.106".into(),
            ..Capture::default()
        },
        timing: Timing::default(),
        roots: [String::new(), String::new()],
        defines: HashMap::new(),
        templates: HashMap::new(),
        processes: Vec::new(),
        current: 0,
        graph: None,
        graphs: 0,
        noise: 0,
    };
    player.lines(lines, &Env::new())?;
    Ok(player.finish())
}

impl<'a> Player<'a> {
    fn lines(&mut self, lines: &'a [Line], env: &Env) -> Result<(), Wrong> {
        lines.iter().try_for_each(|line| self.line(line, env))
    }

    fn line(&mut self, line: &'a Line, env: &Env) -> Result<(), Wrong> {
        let wrong = |problem: String| (line.number, problem);
        let text = replace(&line.text, env).map_err(wrong)?;
        let (command, rest) = text.split_once(' ').unwrap_or((&text, ""));
        let rest = rest.trim();
        if !matches!(
            command,
            "process"
                | "thread"
                | "repeat"
                | "template"
                | "range"
                | "between"
                | "op"
                | "grad"
                | "graph"
        ) && let Some(below) = line.below.first()
        {
            return Err((below.number, format!("nothing can stand below `{command}`")));
        }
        match command {
            "process" => self.process(rest, line, env),
            "thread" => self.thread(rest, line, env),
            "repeat" => self.repeat(rest, line, env),
            "template" => self.template(rest, line).map_err(wrong),
            "use" => self.instantiate(rest, line.number, env),
            "range" => self.range(RangeKind::PushPop, rest, line, env),
            "between" => self.range(RangeKind::StartEnd, rest, line, env),
            "op" => self.op(rest, line, env),
            "grad" => Err(wrong("`grad` stands directly below an `op`".into())),
            "graph" => self.graph(rest, line, env),
            "backward" => self.backward(rest, line.number),
            _ => self.leaf(command, rest).map_err(wrong),
        }
    }

    /// Simulates a command without lines below it.
    fn leaf(&mut self, command: &str, rest: &str) -> Result<(), String> {
        match command {
            "format" => self.format(rest)?,
            "tool" => rest.clone_into(&mut self.capture.tool),
            "text" => self.text(rest)?,
            "timing" => self.timing(rest)?,
            "roots" => self.roots(rest)?,
            "device" => self.device(rest)?,
            "define" => self.define(rest)?,
            "drop" => self.capture.drops.push(rest.to_owned()),
            "sql" => self.capture.sql.push(rest.to_owned()),
            "open" => _ = self.open(RangeKind::PushPop, rest),
            "mark" => _ = self.open(RangeKind::Mark, rest),
            "wait" => self.here().now += text::time(rest)?,
            "overhead" => self.overhead(rest)?,
            "call" => self.plain_call(rest)?,
            "sync" => self.sync(rest)?,
            "kernel" => self.kernel(rest)?,
            "copy" => self.copy(rest)?,
            "set" => self.set(rest)?,
            _ => return Err(format!("no such command: `{command}`")),
        }
        Ok(())
    }

    fn process(&mut self, rest: &str, line: &'a Line, env: &Env) -> Result<(), Wrong> {
        let before = self.current;
        self.enter_process(rest)
            .map_err(|problem| (line.number, problem))?;
        self.lines(&line.below, env)?;
        self.current = before;
        Ok(())
    }

    fn enter_process(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.split_whitespace();
        let pid = text::int(words.next().unwrap_or_default())?;
        let (mut device, mut correlation) = (0, 1);
        for word in words {
            match text::option(word, &["device", "correlation"])? {
                ("device", value) => device = text::int(value)?,
                (_, value) => correlation = text::int(value)?,
            }
        }
        self.current = match self.processes.iter().position(|p| p.at.pid == pid) {
            Some(known) => known,
            None => {
                self.add_process(pid, device, correlation);
                self.processes.len() - 1
            }
        };
        Ok(())
    }

    fn add_process(&mut self, pid: i64, device: i64, correlation: i64) {
        let at = Where { pid, tid: pid };
        self.capture.processes.push((pid, device));
        self.capture.threads.push(Thread {
            at,
            name: "python".into(),
        });
        self.processes.push(Process {
            at,
            device,
            now: 1_000_000,
            correlation,
            seq: 0,
            in_backward: false,
            tape: Vec::new(),
            loaded: HashSet::new(),
            streams: HashMap::new(),
        });
    }

    /// The process whose lines are being simulated; 1000 if the description names none.
    fn here(&mut self) -> &mut Process<'a> {
        if self.processes.is_empty() {
            self.add_process(1000, 0, 1);
        }
        &mut self.processes[self.current]
    }

    fn thread(&mut self, rest: &str, line: &'a Line, env: &Env) -> Result<(), Wrong> {
        let (tid, name) = rest.split_once(' ').unwrap_or((rest, "python"));
        let tid = text::int(tid).map_err(|problem| (line.number, problem))?;
        let before = self.switch(tid, name);
        self.lines(&line.below, env)?;
        self.here().at.tid = before;
        Ok(())
    }

    /// Continues on thread `tid`; returns the previous one.
    fn switch(&mut self, tid: i64, name: &str) -> i64 {
        let at = Where {
            tid,
            ..self.here().at
        };
        if !self.capture.threads.iter().any(|t| t.at == at) {
            self.capture.threads.push(Thread {
                at,
                name: name.to_owned(),
            });
        }
        std::mem::replace(&mut self.here().at.tid, tid)
    }

    fn repeat(&mut self, rest: &str, line: &'a Line, env: &Env) -> Result<(), Wrong> {
        let mut words = rest.split_whitespace();
        let variable = words.next().unwrap_or_default();
        for value in words {
            let mut inner = env.clone();
            inner.insert(0, (variable.to_owned(), value.to_owned()));
            self.lines(&line.below, &inner)?;
        }
        Ok(())
    }

    fn template(&mut self, rest: &str, line: &'a Line) -> Result<(), String> {
        let mut words = rest.split_whitespace().map(str::to_owned);
        let name = words.next().ok_or("a template needs a name")?;
        match self
            .templates
            .insert(name.clone(), (words.collect(), &line.below))
        {
            Some(_) => Err(format!("template `{name}` is defined twice")),
            None => Ok(()),
        }
    }

    fn instantiate(&mut self, rest: &str, number: usize, env: &Env) -> Result<(), Wrong> {
        let mut words = rest.split_whitespace();
        let name = words.next().unwrap_or_default();
        let values: Vec<&str> = words.collect();
        let Some((variables, below)) = self.templates.get(name).cloned() else {
            return Err((number, format!("no template `{name}` above")));
        };
        if variables.len() != values.len() {
            return Err((
                number,
                format!(
                    "`{name}` takes {} words, not {}",
                    variables.len(),
                    values.len()
                ),
            ));
        }
        let mut inner: Env = Vec::new();
        inner.extend(
            variables
                .into_iter()
                .zip(values.into_iter().map(str::to_owned)),
        );
        inner.extend(env.iter().cloned());
        self.lines(below, &inner)
    }

    fn range(
        &mut self,
        kind: RangeKind,
        text: &str,
        line: &'a Line,
        env: &Env,
    ) -> Result<(), Wrong> {
        let open = self.open(kind, text);
        self.lines(&line.below, env)?;
        self.close(open);
        Ok(())
    }

    /// Pushes a range and returns it for [`Self::close`].
    fn open(&mut self, kind: RangeKind, text: &str) -> usize {
        let here = self.here();
        let (at, start) = (here.at, here.now);
        here.now += 500;
        self.capture.ranges.push(Range {
            at,
            kind,
            start,
            end: None,
            text: text.to_owned(),
        });
        self.capture.ranges.len() - 1
    }

    fn close(&mut self, range: usize) {
        self.here().now += 500;
        let now = self.here().now;
        self.capture.ranges[range].end = Some(now);
    }

    fn op(&mut self, rest: &str, line: &'a Line, env: &Env) -> Result<(), Wrong> {
        let seq = if self.here().in_backward {
            0
        } else {
            self.here().seq
        };
        let texts = self
            .op_texts(rest, seq)
            .map_err(|problem| (line.number, problem))?;
        let wait = self.timing.op;
        let open: Vec<usize> = texts
            .iter()
            .map(|text| {
                self.here().now += wait;
                self.open(RangeKind::PushPop, text)
            })
            .collect();
        for below in &line.below {
            match below.text.strip_prefix("grad ") {
                Some(node) => {
                    let node =
                        replace(node.trim(), env).map_err(|problem| (below.number, problem))?;
                    self.here().seq = seq + 1;
                    self.here().tape.push(Taped {
                        node,
                        seq,
                        below: &below.below,
                        env: env.clone(),
                    });
                }
                None => self.line(below, env)?,
            }
        }
        for range in open.into_iter().rev() {
            self.close(range);
        }
        Ok(())
    }

    /// The ranges of an `op` line, outermost first.
    fn op_texts(&self, rest: &str, seq: i64) -> Result<Vec<String>, String> {
        let (call, stack) = rest.split_once(" @ ").unwrap_or((rest, ""));
        let (call, inner) = call.split_once(" -> ").unwrap_or((call, ""));
        let mut words = call.split_whitespace();
        let full = words.next().ok_or("an `op` needs a name")?;
        let mut texts = Vec::new();
        let frames: Vec<String> = stack.split_whitespace().map(|f| self.frame(f)).collect();
        if !frames.is_empty() {
            texts.push(format!("{{'traceMarker': [{}]}}", frames.join(", ")));
        }
        let name = match full.rsplit_once('.') {
            Some((module, name)) => {
                let arguments = words.map(text::argument).collect::<Result<Vec<_>, _>>()?;
                let arguments = arguments.join(", ");
                texts.push(format!(
                    "{{'mod': '{module}', 'op': '{name}', 'args': [{arguments}]}}"
                ));
                name
            }
            None if words.next().is_some() => {
                return Err(format!(
                    "`{full}` has no module, so nothing writes down its arguments"
                ));
            }
            None => full,
        };
        let inner: Vec<&str> = match inner.trim() {
            "" => vec![name],
            names => names.split_whitespace().collect(),
        };
        texts.extend(inner.iter().map(|name| format!("{name}, seq = {seq}")));
        Ok(texts)
    }

    fn frame(&self, frame: &str) -> String {
        match frame.strip_prefix("lib:") {
            Some(file) => format!("'{}{file}'", self.roots[1]),
            None => format!("'{}{frame}'", self.roots[0]),
        }
    }

    fn backward(&mut self, rest: &str, number: usize) -> Result<(), Wrong> {
        let main = self.here().at.tid;
        let tid = match rest {
            "" => main + 1,
            tid => text::int(tid).map_err(|problem| (number, problem))?,
        };
        self.switch(tid, "autograd");
        self.here().in_backward = true;
        while let Some(taped) = self.here().tape.pop() {
            self.here().now += self.timing.op;
            let open = self.open(
                RangeKind::PushPop,
                &format!("{}, seq = {}", taped.node, taped.seq),
            );
            self.lines(taped.below, &taped.env)?;
            self.close(open);
        }
        let here = self.here();
        here.in_backward = false;
        here.at.tid = main;
        Ok(())
    }

    fn overhead(&mut self, rest: &str) -> Result<(), String> {
        let took = text::time(rest)?;
        let here = self.here();
        let (at, start) = (here.at, here.now);
        here.now += took;
        self.capture.overheads.push((at, start, start + took));
        Ok(())
    }

    /// Records a call that takes `took`; returns its correlation id.
    fn call(&mut self, name: &str, took: i64) -> i64 {
        let between = self.timing.between;
        let here = self.here();
        let call = Call {
            at: here.at,
            start: here.now,
            end: here.now + took,
            name: name.to_owned(),
            correlation: here.correlation,
        };
        here.correlation += 1;
        here.now = call.end + between;
        let correlation = call.correlation;
        self.capture.calls.push(call);
        correlation
    }

    fn plain_call(&mut self, rest: &str) -> Result<(), String> {
        let (name, took) = rest
            .split_once(' ')
            .ok_or("expected an API name and a time")?;
        let took = text::time(took)?;
        self.call(name, took);
        Ok(())
    }

    fn sync(&mut self, rest: &str) -> Result<(), String> {
        let (kind, name) = match rest {
            "event" => (1, "cudaEventSynchronize"),
            "wait" => (2, "cudaStreamWaitEvent"),
            "stream" => (3, "cudaStreamSynchronize"),
            "device" => (4, "cudaDeviceSynchronize"),
            _ => return Err(format!("`{rest}`: expected stream, device, event or wait")),
        };
        let here = self.here();
        let start = here.now;
        let drained = here.streams.values().copied().max().unwrap_or(start);
        let end = match kind {
            2 => start + 1_500,
            _ => (drained + 3_000).max(start + 2_500),
        };
        let correlation = self.call(name, end - start);
        let work = self.work(correlation, start + 500, end - 500, 7);
        self.capture.syncs.push(Sync { work, kind });
        Ok(())
    }

    fn work(&mut self, correlation: i64, start: i64, end: i64, stream: i64) -> Work {
        let here = self.here();
        Work {
            start,
            end,
            pid: here.at.pid,
            device: here.device,
            stream,
            correlation,
            node: None,
        }
    }

    /// Queues work that may start at `ready` and takes about `took`.
    fn enqueue(
        &mut self,
        correlation: i64,
        ready: i64,
        took: i64,
        stream: i64,
        start: Option<i64>,
    ) -> Work {
        let took = self.vary(took);
        let gap = self.timing.gap;
        let here = self.here();
        let free = here
            .streams
            .get(&(here.device, stream))
            .map_or(i64::MIN, |end| end + gap);
        let start = start.unwrap_or(ready.max(free));
        here.streams.insert((here.device, stream), start + took);
        self.work(correlation, start, start + took, stream)
    }

    /// Varies a duration by SplitMix64 over a counter: the same in every simulation and on every
    /// machine.
    fn vary(&mut self, took: i64) -> i64 {
        self.noise = self.noise.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.noise;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let percent = i64::try_from((z ^ (z >> 31)) % 2001).unwrap_or_default() - 1000;
        took + took * self.timing.jitter * percent / 1_000_000
    }

    fn kernel(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.split_whitespace();
        let (Some(name), Some(grid), Some(took)) = (words.next(), words.next(), words.next())
        else {
            return Err("expected `kernel NAME GRID TIME`".into());
        };
        let mut shape = match self.defines.get(name) {
            Some(shape) => shape.clone(),
            None if self.defines.is_empty() => KernelShape::named(name),
            None => return Err(format!("no kernel `{name}` is defined")),
        };
        let (grid, took) = (text::dims(grid)?, text::time(took)?);
        let (mut stream, mut start, mut api) = (7, None, "cudaLaunchKernel");
        for word in words {
            let known = [&KernelShape::KEYS[..], &["stream", "start", "launch"]].concat();
            match text::option(word, &known)? {
                ("stream", value) => stream = text::int(value)?,
                ("start", value) => start = Some(text::time(value)?),
                ("launch", value) => api = value,
                (key, value) => shape.set(key, value)?,
            }
        }
        let (correlation, ready) = self.launch(&shape.name, api);
        let mut work = self.enqueue(correlation, ready, took, stream, start);
        if self.graph.is_some() {
            self.graphs += 1;
            work.node = Some(self.graphs);
        }
        self.capture.kernels.push(Kernel { work, grid, shape });
        Ok(())
    }

    /// Simulates the call that starts a kernel; returns its correlation id and the earliest start on
    /// the GPU.
    fn launch(&mut self, kernel: &str, api: &str) -> (i64, i64) {
        if let Some(graph) = self.graph {
            return graph;
        }
        let queue = self.timing.queue;
        if api == "none" {
            let here = self.here();
            here.correlation += 1;
            return (here.correlation - 1, here.now + queue);
        }
        let first = self.here().loaded.insert(kernel.to_owned());
        let took = self.timing.launch + if first { self.timing.first_launch } else { 0 };
        let ready = self.here().now + took + queue;
        (self.call(api, took), ready)
    }

    fn copy(&mut self, rest: &str) -> Result<(), String> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [direction, memory, bytes, took, options @ ..] = words.as_slice() else {
            return Err("expected `copy h2d|d2h|d2d|p2p pageable|pinned|device SIZE TIME`".into());
        };
        let direction = match *direction {
            "h2d" => Direction::ToDevice,
            "d2h" => Direction::ToHost,
            "d2d" => Direction::OnDevice,
            "p2p" => Direction::Peer,
            other => return Err(format!("`{other}`: expected h2d, d2h, d2d or p2p")),
        };
        let memory = match *memory {
            "pageable" => Memory::Pageable,
            "pinned" => Memory::Pinned,
            "device" => Memory::Device,
            other => return Err(format!("`{other}`: expected pageable, pinned or device")),
        };
        let (bytes, took) = (text::size(bytes)?, text::time(took)?);
        let (mut stream, mut api) = (7, "cudaMemcpyAsync");
        for word in options {
            match text::option(word, &["stream", "api"])? {
                ("stream", value) => stream = text::int(value)?,
                (_, value) => api = value,
            }
        }
        let ready = self.here().now + self.timing.launch + self.timing.queue;
        let correlation = self.here().correlation;
        let work = self.enqueue(correlation, ready, took, stream, None);
        // CUDA stages pageable memory synchronously, and a call without `Async` waits, so the host
        // blocks.
        let blocks = memory == Memory::Pageable || !api.ends_with("Async");
        let done = if blocks { work.end + 2_000 } else { ready };
        let in_call = done - self.here().now;
        self.call(api, in_call);
        let (from, to) = match direction {
            Direction::ToDevice => (memory, Memory::Device),
            Direction::ToHost => (Memory::Device, memory),
            Direction::OnDevice | Direction::Peer => (Memory::Device, Memory::Device),
        };
        self.capture.copies.push(Copy {
            work,
            bytes,
            direction,
            from,
            to,
        });
        Ok(())
    }

    fn set(&mut self, rest: &str) -> Result<(), String> {
        let (bytes, took) = rest.split_once(' ').ok_or("expected `set SIZE TIME`")?;
        let (bytes, took) = (text::size(bytes)?, text::time(took)?);
        let ready = self.here().now + self.timing.launch + self.timing.queue;
        let correlation = self.call("cudaMemsetAsync", self.timing.launch);
        let work = self.enqueue(correlation, ready, took, 7, None);
        self.capture.sets.push(Set { work, bytes });
        Ok(())
    }

    fn graph(&mut self, rest: &str, line: &'a Line, env: &Env) -> Result<(), Wrong> {
        let ready = self.here().now + self.timing.launch + self.timing.queue;
        let correlation = self.call("cudaGraphLaunch", self.timing.launch);
        self.graphs += 1;
        if line.below.is_empty() {
            let took = text::time(rest).map_err(|problem| (line.number, problem))?;
            let work = self.enqueue(correlation, ready, took, 7, None);
            let id = self.graphs;
            self.capture.graphs.push(Graph { work, id });
            return Ok(());
        }
        self.graph = Some((correlation, ready));
        self.lines(&line.below, env)?;
        self.graph = None;
        Ok(())
    }

    /// Sorts everything by start and determines the end of the capture.
    fn finish(mut self) -> Capture {
        let host = self.processes.iter().map(|p| p.now).max();
        let streams = self
            .processes
            .iter()
            .flat_map(|p| p.streams.values().copied())
            .max();
        let capture = &mut self.capture;
        capture.end = host.max(streams).unwrap_or_default() + 1_000_000;
        capture.kernels.sort_by_key(|k| k.work.start);
        capture.copies.sort_by_key(|c| c.work.start);
        capture.sets.sort_by_key(|s| s.work.start);
        capture.syncs.sort_by_key(|s| s.work.start);
        capture.graphs.sort_by_key(|g| g.work.start);
        capture.calls.sort_by_key(|c| c.start);
        capture.ranges.sort_by_key(|r| r.start);
        self.capture
    }
}

/// Replaces `{variable}` in `text`. An unknown word in braces is a mistake; any other text in braces
/// (`{lambda()#1}`) is unchanged.
fn replace(text: &str, env: &Env) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let word = after.split_once('}').map(|(word, _)| word);
        let word =
            word.filter(|w| !w.is_empty() && w.chars().all(|c| c.is_alphanumeric() || c == '_'));
        match word {
            Some(word) => {
                let (_, value) = env
                    .iter()
                    .find(|(variable, _)| variable == word)
                    .ok_or_else(|| format!("no variable `{{{word}}}` here"))?;
                out.push_str(value);
                rest = &after[word.len() + 1..];
            }
            None => {
                out.push('{');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}
