//! Kernel executions.

use super::devices::Gpus;
use super::{Pids, process_key};
use crate::profile::{Kernel, LaunchConfig, Span};
use crate::read::build::{
    Builder, Damage, Distinct, NameKey, Names, StringTable, correlation, count32, id32,
    launch_config,
};
use crate::read::sqlite::{Cells, Sink};

/// The kernels of one rowid range.
#[derive(Clone, Default)]
pub(super) struct Kernels {
    pub(super) names: Names,
    configs: Distinct<LaunchConfig>,
    rows: Vec<Row>,
    damage: Damage,
}

#[derive(Clone, Copy)]
struct Row {
    span: Span,
    /// `globalPid`, where the export has it.
    process: Option<i64>,
    correlation: u64,
    device: u32,
    stream: u32,
    context: u32,
    /// Number in [`Kernels::configs`].
    config: u32,
    name: NameKey,
    in_graph: bool,
}

impl Sink for Kernels {
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
            name,
            in_graph: cells.int(8).is_some_and(|node| node != 0),
        });
    }
}

/// Moves the kernels into the profile. Needs the calls: exports without `globalPid` leave only the
/// correlation id to tell a kernel's process.
pub(super) fn add(
    parts: Vec<Kernels>,
    strings: &StringTable,
    pids: &Pids,
    gpus: &Gpus,
    builder: &mut Builder,
) {
    let mut damage = Damage::default();
    let mut owners = None;
    let total = parts.iter().map(|part| part.rows.len()).sum();
    builder.profile.kernels.reserve_exact(total);
    for part in parts {
        damage.add(&part.damage);
        let names = part.names.resolve(strings, &mut builder.profile.strings);
        let configs: Vec<_> = part
            .configs
            .values()
            .iter()
            .map(|&config| builder.config(config))
            .collect();
        for row in part.rows {
            let process = match row.process {
                Some(global) => pids.process(builder, global),
                None => owners
                    .get_or_insert_with(|| builder.owners())
                    .of(row.correlation)
                    .unwrap_or_else(|| builder.process(0, || 0)),
            };
            let key = gpus.key(row.process.map(process_key), row.device);
            let Some(&config) = configs.get(row.config as usize) else {
                continue;
            };
            let device = builder.device(key);
            builder.profile.kernels.push(Kernel {
                span: row.span,
                name: names.get(row.name),
                device,
                process,
                stream: row.stream,
                context: row.context,
                correlation: row.correlation,
                config,
                in_graph: row.in_graph,
            });
        }
    }
    damage.note(&mut builder.profile, "kernel", "device", "name");
}
