//! `pyprof-advise gpus`: which boards `--gpu` knows, and what is known of each.

use clap::Subcommand;

use super::{Failure, Outcome, output};
use crate::base::text::plain;
use crate::gpu::{load, select, show};

/// What can be asked of the GPU table.
#[derive(Debug, Subcommand)]
pub(super) enum GpusCommand {
    /// Every board with the names --gpu takes
    List,
    /// What is known of one board, with sources
    Show {
        /// A name from `gpus list`, or a TOML file
        name: String,
        /// Print the board's TOML file, to start your own from
        #[arg(long)]
        toml: bool,
    },
}

pub(super) fn run(command: GpusCommand) -> Outcome {
    match command {
        GpusCommand::List => output::print(&list()),
        GpusCommand::Show { name, toml } => {
            let spec = select::find(&name).map_err(|e| Failure::Unusable(e.to_string()))?;
            if !toml {
                return output::print(&show::show(&spec));
            }
            let text = load::text(&spec.gpu.id).filter(|_| !name.ends_with(".toml"));
            output::print(text.ok_or_else(|| {
                Failure::Unusable(format!("`{}` is a TOML file already", plain(&name)))
            })?)
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
