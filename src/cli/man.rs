//! `pyprof-advise man`: the manual page of the program or of a command, as troff.

use clap::Command;
use clap_mangen::Man;

use super::output::{self, CommandResult, Failure};
use crate::base::suggest::did_you_mean;

/// Prints the page of a command such as `["rules", "list"]`; of the program for an empty path.
pub(super) fn man(mut program: Command, path: &[String]) -> CommandResult {
    program.build();
    let command = find(&program, path)?;
    // The page's name is one word: `pyprof-advise-rules-list`.
    let name = std::iter::once("pyprof-advise").chain(path.iter().map(String::as_str));
    let page = Man::new(command.clone())
        .title(name.collect::<Vec<_>>().join("-"))
        .source(concat!("pyprof-advise ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut out)?;
    }
    let mut out = String::from_utf8_lossy(&out).into_owned();
    out.push_str(&examples(command));
    output::print(&out)
}

fn find<'a>(program: &'a Command, path: &[String]) -> Result<&'a Command, Failure> {
    path.iter().try_fold(program, |command, name| {
        command.find_subcommand(name).ok_or_else(|| {
            let near = did_you_mean(name, command.get_subcommands().map(Command::get_name));
            Failure::Unusable(format!("no command `{}`{near}", path.join(" ")))
        })
    })
}

/// The examples of `--help`, in no-fill mode so that their columns stay aligned.
fn examples(command: &Command) -> String {
    let Some(text) = command.get_after_help() else {
        return String::new();
    };
    let text = text.to_string();
    let text = text.strip_prefix("Examples:\n").unwrap_or(&text);
    let lines: Vec<String> = text.lines().map(line).collect();
    format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n"))
}

/// Escapes a line for troff, with hyphens that can be copied and pasted.
fn line(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    match escaped.starts_with(['.', '\'']) {
        true => format!("\\&{escaped}"),
        false => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_escaped_for_troff() {
        assert_eq!(line(".nf"), "\\&.nf");
        assert_eq!(line("a\\b --c"), "a\\eb \\-\\-c");
    }
}
