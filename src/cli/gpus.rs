//! `pyprof-advise gpus`: which boards `--gpu` knows, and what is known of each.

use clap::Subcommand;

use super::{Outcome, examples, output};
use crate::gpu::load::{self, built_in};
use crate::gpu::select;
use crate::gpu::show;

/// What can be asked of the GPU table.
#[derive(Debug, Subcommand)]
pub(super) enum GpusCommand {
    /// Every board with the names --gpu takes
    #[command(after_help = examples::GPUS_LIST)]
    List,
    /// One board as the TOML file it is, with sources: a start for a file of your own. Of your own
    /// file: how it is read
    #[command(after_help = examples::GPUS_SHOW)]
    Show {
        /// A name from `gpus list`, or a TOML file
        name: String,
    },
}

pub(super) fn run(command: GpusCommand) -> Outcome {
    match command {
        GpusCommand::List => output::print(&list()),
        GpusCommand::Show { name } => {
            let spec = select::find(&name)?;
            match load::text_of(&spec.gpu.id).filter(|_| built_in().contains(&spec)) {
                Some(file) => output::print(file),
                None => output::print(&show::show(&spec)),
            }
        }
    }
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
