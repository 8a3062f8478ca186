//! Builds small profiles for the tests of this module.

use super::{OpName, Run, Vocabulary, correlate};
use crate::profile::{
    ApiCall, ApiClass, ConfigId, Device, DeviceId, HostRange, Kernel, LaunchConfig, Process,
    ProcessId, Profile, RangeKind, RangeText, SerialNumber, Span, Thread, ThreadId,
};

/// Builds a profile; by default with one process, one thread and one device.
pub(crate) struct ProfileBuilder {
    pub profile: Profile,
    next: u64,
}

impl ProfileBuilder {
    pub(crate) fn new() -> ProfileBuilder {
        let mut profile = Profile::new(&crate::read::NSYS_SQLITE, "test");
        profile.devices.push(Device::default());
        profile.configs.push(LaunchConfig::default());
        let mut builder = ProfileBuilder { profile, next: 1 };
        builder.process();
        builder
    }

    /// Another process with one thread.
    pub(crate) fn process(&mut self) -> ThreadId {
        self.profile.processes.push(Process {
            pid: self.profile.processes.len() as u64,
            rank: None,
            world_size: None,
            group_size: None,
        });
        self.thread(ProcessId::new(self.profile.processes.len() - 1))
    }

    pub(crate) fn thread(&mut self, process: ProcessId) -> ThreadId {
        self.profile.threads.push(Thread { process, tid: 0 });
        ThreadId::new(self.profile.threads.len() - 1)
    }

    /// A range on thread 0; an end of 0 means never closed.
    pub(crate) fn range(&mut self, text: &str, start: i64, end: i64) -> &mut HostRange {
        self.range_on(ThreadId(0), text, start, end)
    }

    pub(crate) fn range_on(
        &mut self,
        thread: ThreadId,
        text: &str,
        start: i64,
        end: i64,
    ) -> &mut HostRange {
        let split = RangeText::split(text);
        let range = HostRange {
            span: Span {
                start,
                end: if end == 0 { i64::MAX } else { end },
            },
            thread,
            kind: RangeKind::PushPop,
            text: self.profile.strings.intern(split.name),
            domain: None,
            seq: split.seq.and_then(SerialNumber::new),
            op_id: split.op_id.and_then(SerialNumber::new),
            args: split.sizes.map(|s| self.profile.strings.intern(s)),
        };
        self.profile.ranges.push(range);
        self.profile.ranges.last_mut().unwrap()
    }

    /// A PyProf marker with one fp32 tensor argument.
    pub(crate) fn marker(&mut self, module: &str, op: &str, start: i64, end: i64) {
        let text = format!(
            "{{'mod': '{module}', 'op': '{op}', 'args': [{{'name': '', 'type': 'tensor', \
             'shape': (4, 8), 'dtype': 'float32'}}]}}"
        );
        self.range(&text, start, end);
    }

    /// A launch on thread 0 at `time`, and the kernel it starts 100 ns later, 10 ns long.
    pub(crate) fn launch(&mut self, time: i64) -> usize {
        self.launch_on(ThreadId(0), time)
    }

    pub(crate) fn launch_on(&mut self, thread: ThreadId, time: i64) -> usize {
        let correlation = self.next;
        let process = self.profile.threads[thread.idx()].process;
        self.call(thread, "cudaLaunchKernel", time, correlation);
        self.kernel(process, time + 100, correlation)
    }

    /// A call of 1 ns.
    pub(crate) fn call(
        &mut self,
        thread: ThreadId,
        name: &str,
        time: i64,
        correlation: u64,
    ) -> &mut ApiCall {
        let id = self.profile.strings.intern(name);
        self.profile.calls.push(ApiCall {
            span: Span {
                start: time,
                end: time + 1,
            },
            thread,
            correlation: SerialNumber::new(correlation),
            name: id,
            class: ApiClass::of(name),
        });
        self.profile.calls.last_mut().unwrap()
    }

    /// A kernel, which may have no launch.
    pub(crate) fn kernel(&mut self, process: ProcessId, start: i64, correlation: u64) -> usize {
        self.next = self.next.max(correlation) + 1;
        let name = self.profile.strings.intern("kernel");
        self.profile.kernels.push(Kernel {
            span: Span {
                start,
                end: start + 10,
            },
            name,
            device: DeviceId(0),
            process,
            stream: 7,
            context: 1,
            correlation: SerialNumber::new(correlation),
            config: ConfigId(0),
            in_graph: false,
            captured: None,
        });
        self.profile.kernels.len() - 1
    }

    /// Correlates the profile; operators not listed as unknown are known.
    pub(crate) fn run_knowing(mut self, knows: &(dyn Fn(&OpName) -> bool + Sync)) -> Run {
        self.profile.ranges.sort_by_key(|r| r.span.start);
        self.profile.calls.sort_by_key(|c| c.span.start);
        correlate(
            self.profile,
            &Vocabulary {
                knows_op: knows,
                is_communication: &|name| name.contains("nccl"),
            },
        )
    }

    pub(crate) fn run(self) -> Run {
        self.run_knowing(&|op| !op.name.starts_with("__getattr") && !op.module.is_empty())
    }
}
