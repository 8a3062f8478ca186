//! Kernel executions.

use super::devices::Gpus;
use super::{Pids, process_key};
use crate::profile::{ConfigId, Kernel, LaunchConfig, SerialNumber, Span, StrId};
use crate::read::build::{
    Builder, Distinct, Names, SkippedRows, StringTable, correlation, count32, id32, launch_config,
};
use crate::read::sqlite::{Cells, Db, Sink};
use crate::read::{Progress, ReadError};

/// The kernels of one rowid range.
#[derive(Clone, Default)]
struct Part {
    names: Names,
    configs: Distinct<LaunchConfig>,
    whole_configs: Vec<ConfigId>,
    rows: Vec<Row>,
    damage: SkippedRows,
}

#[derive(Clone, Copy)]
struct Row {
    span: Span,
    /// `globalPid`, where the export has it.
    process: Option<i64>,
    correlation: Option<SerialNumber>,
    device: u32,
    stream: u32,
    context: u32,
    /// Number in [`Part::configs`].
    config: u32,
    /// Placeholder of a name in [`Part::names`].
    name: StrId,
    in_graph: bool,
}

impl Sink for Part {
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "end",
        "deviceId=0",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
        "demangledName|mangledName|shortName",
        "graphNodeId",
        "gridX",
        "gridY",
        "gridZ",
        "blockX",
        "blockY",
        "blockZ",
        "registersPerThread",
        "staticSharedMemory",
        "dynamicSharedMemory",
        "localMemoryPerThread",
    ];

    fn row(&mut self, cells: &Cells<'_, '_>) {
        self.damage.rows += 1;
        let Some(span) = self.damage.gpu_span(cells.int(0), cells.int(1)) else {
            return;
        };
        let Some(device) = self.damage.owner(count32(cells.int(2))) else {
            return;
        };
        let name = match cells.int(7) {
            Some(id) => self.names.id(id),
            None => self.names.text(cells.bytes(7).unwrap_or_default()),
        };
        self.rows.push(Row {
            span,
            process: cells.int(6),
            correlation: correlation(cells.int(5)),
            device,
            stream: id32(cells.int(4)).unwrap_or_default(),
            context: id32(cells.int(3)).unwrap_or_default(),
            config: self.configs.number(launch_config(|at| cells.int(at), 9)),
            name: name.placeholder(),
            in_graph: cells.int(8).is_some_and(|node| node != 0),
        });
    }
}

/// What the kernels in the profile still lack: their names.
#[derive(Default)]
pub(super) struct Kernels {
    pub(super) names: Names,
    damage: SkippedRows,
}

impl Kernels {
    /// Moves the kernels into the profile. Needs the calls: exports without `globalPid` leave only
    /// the correlation id to tell a kernel's process.
    pub(super) fn read(
        &mut self,
        db: &Db,
        table: &str,
        (pids, gpus): (&Pids, &Gpus),
        builder: &mut Builder,
        progress: &dyn Progress,
    ) -> Result<(), ReadError> {
        let mut owners = None;
        builder.profile.kernels.reserve(db.most_rows(table)?);
        db.stream(table, &Part::default(), progress, |part| {
            self.damage.add(&std::mem::take(&mut part.damage));
            self.names.add(&mut part.names);
            let known = part.whole_configs.len();
            for &config in part.configs.values().iter().skip(known) {
                part.whole_configs.push(builder.config(config));
            }
            for row in part.rows.drain(..) {
                let process = match row.process {
                    Some(global) => pids.process(builder, global),
                    None => owners
                        .get_or_insert_with(|| builder.owners())
                        .of(row.correlation)
                        .unwrap_or_else(|| builder.process(0, || 0)),
                };
                let key = gpus.key(row.process.map(process_key), row.device);
                let Some(&config) = part.whole_configs.get(row.config as usize) else {
                    continue;
                };
                let device = builder.device(key);
                builder.profile.kernels.push(Kernel {
                    span: row.span,
                    name: part.names.whole(row.name),
                    device,
                    process,
                    stream: row.stream,
                    context: row.context,
                    correlation: row.correlation,
                    config,
                    in_graph: row.in_graph,
                });
            }
        })
    }

    pub(super) fn name(self, strings: &StringTable, builder: &mut Builder) {
        let profile = &mut builder.profile;
        let names = self.names.resolve(strings, &mut profile.strings);
        for kernel in &mut profile.kernels {
            kernel.name = names.of(kernel.name);
        }
        self.damage.note(profile, "kernel", "device", "name");
    }
}
