//! stub
use clap::Subcommand;
#[derive(Debug, Subcommand)]
pub(super) enum RulesCommand { List }
