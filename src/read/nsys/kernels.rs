//! Kernel executions.

use super::activities::NsysRecords;
use crate::profile::{ConfigId, Kernel, LaunchConfig, SerialNumber, Span, StrId};
use crate::read::builder::Builder;
use crate::read::cupti::{Cupti, correlation, count32, id32, launch_config};
use crate::read::names::{Distinct, PartName, PartNames, StringTable, TableName, TableNames};
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::{Cells, Db, Sink};

/// The kernels of one part of the table.
#[derive(Clone, Default)]
struct Part {
    names: PartNames,
    configs: Distinct<LaunchConfig>,
    profile_configs: Vec<ConfigId>,
    rows: Vec<Row>,
    skipped: SkippedRows,
}

#[derive(Clone, Copy)]
struct Row {
    span: Span,
    /// `globalPid`, if the export has it.
    process: Option<i64>,
    correlation: Option<SerialNumber>,
    device: u32,
    stream: u32,
    context: u32,
    /// Number in [`Part::configs`].
    config: u32,
    name: PartName,
    /// The node of a CUDA graph that it ran as.
    node: Option<i64>,
}

const COLUMNS: [&str; 19] = [
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

impl Sink for Part {
    fn row(&mut self, cells: &Cells<'_>) {
        self.skipped.rows += 1;
        let Some(span) = self.skipped.gpu_span(cells.int(0), cells.int(1)) else {
            return;
        };
        let Some(device) = self.skipped.owner(count32(cells.int(2))) else {
            return;
        };
        self.rows.push(Row {
            span,
            process: cells.int(6),
            correlation: correlation(cells.int(5)),
            device,
            stream: id32(cells.int(4)).unwrap_or_default(),
            context: id32(cells.int(3)).unwrap_or_default(),
            config: self.configs.number(launch_config(|at| cells.int(at), 9)),
            name: self.names.of_cell(cells, 7),
            node: cells.int(8).filter(|node| *node != 0),
        });
    }
}

/// Kernels that are in the profile without names, because the string table is read later.
#[derive(Default)]
pub(super) struct UnnamedKernels {
    names: TableNames,
    /// The name of every kernel of the profile.
    of_kernels: Vec<TableName>,
    skipped: SkippedRows,
}

impl UnnamedKernels {
    /// Adds the kernels to the profile.
    pub(super) fn read(
        &mut self,
        db: &Db,
        table: &str,
        records: &mut NsysRecords<'_>,
        builder: &mut Builder,
        progress: &dyn Progress,
    ) -> Result<(), ReadError> {
        let rows = db.most_rows(table)?;
        builder.profile.kernels.reserve(rows);
        self.of_kernels.reserve(rows);
        db.stream(table, &COLUMNS, &Part::default(), progress, |part| {
            self.skipped.add(&std::mem::take(&mut part.skipped));
            self.names.add(&mut part.names);
            let known = part.profile_configs.len();
            for &config in part.configs.values().iter().skip(known) {
                part.profile_configs.push(builder.config(config));
            }
            for row in part.rows.drain(..) {
                let config = part.profile_configs.get(row.config as usize);
                let Some((&config, name)) = config.zip(part.names.in_table(row.name)) else {
                    continue;
                };
                self.of_kernels.push(name);
                let kernel = Kernel {
                    span: row.span,
                    name: StrId(0),
                    process: records.process(builder, row.process, row.correlation),
                    device: records.device(builder, row.process, row.device),
                    stream: row.stream,
                    context: row.context,
                    correlation: row.correlation,
                    config,
                    in_graph: row.node.is_some(),
                    captured: records.captured(builder, row.node, row.process),
                };
                builder.profile.kernels.push(kernel);
            }
        })
    }

    /// Ids of the string table.
    pub(super) fn name_ids(&self) -> impl Iterator<Item = i64> {
        self.names.ids()
    }

    /// Names the kernels. They must be in the order in which they were read.
    pub(super) fn name(self, strings: &StringTable, builder: &mut Builder) {
        let profile = &mut builder.profile;
        let names = self.names.resolve(strings, &mut profile.strings);
        for (kernel, name) in profile.kernels.iter_mut().zip(self.of_kernels) {
            kernel.name = names.get(name).unwrap_or(kernel.name);
        }
        self.skipped.note(profile, "kernel", "device", "name");
    }
}
