//! `pyprof-advise gpus`: lists and shows the boards that `--gpu` knows.

use clap::Subcommand;

use super::examples;
use super::output::{self, CommandResult};
use crate::gpu::load::{self, Spec, built_in};
use crate::gpu::{calibration, select, show};

/// Commands of `gpus`.
#[derive(Debug, Subcommand)]
pub(super) enum GpusCommand {
    /// List every board with the names that --gpu accepts
    #[command(after_help = examples::GPUS_LIST)]
    List,
    /// Show a built-in board as a TOML file with sources, to start your own file from; or show how
    /// your own file is understood
    #[command(after_help = examples::GPUS_SHOW)]
    Show {
        /// A name from `gpus list`, or a TOML file
        name: String,
    },
}

pub(super) fn run(command: GpusCommand) -> CommandResult {
    match command {
        GpusCommand::List => output::print(&list()),
        GpusCommand::Show { name } => {
            let spec = select::find(&name)?;
            match load::text_of(&spec.gpu.id).filter(|_| built_in().contains(&spec)) {
                Some(file) => output::print(&format!("{file}{}", calibration(&spec))),
                None => output::print(&show::show(&spec)),
            }
        }
    }
}

/// The calibration of a built-in board, as part of its file.
fn calibration(spec: &Spec) -> String {
    let name = spec.gpu.architecture.split(" (").next().unwrap_or_default();
    calibration::of_architecture(name).map_or_else(String::new, |architecture| {
        show::reachable_table(spec, architecture)
    })
}

fn list() -> String {
    let specs = select::list();
    let width = specs.iter().map(|s| s.gpu.id.len()).max().unwrap_or(0);
    let mut text = String::new();
    for spec in specs {
        let mut aliases = spec.aliases.join(", ");
        if aliases.is_empty() {
            aliases.push('-');
        }
        text.push_str(&format!(
            "{:width$}  {:28}  {aliases}\n",
            spec.gpu.id, spec.gpu.name
        ));
    }
    text
}
