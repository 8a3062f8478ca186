//! The rows of a profile by their handles. A handle of another profile may have no row.

use super::{
    ApiCall, CallId, Device, DeviceId, HostRange, Kernel, KernelId, Process, ProcessId, Profile,
    RangeId, Thread, ThreadId,
};

impl Profile {
    /// A process.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get(id.idx())
    }

    /// A thread.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(id.idx())
    }

    /// A GPU.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(id.idx())
    }

    /// A kernel execution.
    pub fn kernel(&self, id: KernelId) -> Option<&Kernel> {
        self.kernels.get(id.idx())
    }

    /// A call of the CUDA API.
    pub fn call(&self, id: CallId) -> Option<&ApiCall> {
        self.calls.get(id.idx())
    }

    /// A range of the host.
    pub fn range(&self, id: RangeId) -> Option<&HostRange> {
        self.ranges.get(id.idx())
    }
}
