//! `ssdkit completions` and `ssdkit man`: what shells and `man` know of the
//! command line, from the command line itself.
//!
//! Fails when the output cannot be written, and when there is no such command.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::Man;

use crate::cli::Cli;
use drive::error::Error;

/// Examples of [`CompletionsArgs`].
pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ssdkit completions bash > ~/.local/share/bash-completion/completions/ssdkit
  ssdkit completions zsh > ~/.zfunc/_ssdkit
  ssdkit completions fish > ~/.config/fish/completions/ssdkit.fish";

/// Examples of [`ManArgs`].
pub(crate) const MAN_EXAMPLES: &str = "\
Examples:
  ssdkit man | man -l -
  ssdkit man rules check | man -l -
  ssdkit man bench > ~/.local/share/man/man1/ssdkit-bench.1";

/// Options of `ssdkit completions`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct CompletionsArgs {
    /// For which shell.
    pub shell: Shell,
}

/// Options of `ssdkit man`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ManArgs {
    /// Of this command, and of one of its own, as in `rules check`; without one, of all.
    pub command: Vec<String>,
}

/// Prints what the shell completes.
pub fn completions(args: &CompletionsArgs, out: &mut dyn Write) -> Result<(), Error> {
    let mut text = Vec::new();
    generate(args.shell, &mut Cli::command(), "ssdkit", &mut text);
    Ok(out.write_all(&text)?)
}

/// Prints a manual page.
pub fn man(args: &ManArgs, out: &mut dyn Write) -> Result<(), Error> {
    let mut all = Cli::command();
    all.build();
    let mut one = &all;
    for name in &args.command {
        one = one.find_subcommand(name).ok_or_else(|| {
            let names: Vec<&str> = one.get_subcommands().map(|one| one.get_name()).collect();
            let names = match names.is_empty() {
                true => format!("`{}` has none", one.get_name()),
                false => format!("take one of {}", names.join(", ")),
            };
            Error::Usage(format!("there is no command {name:?}: {names}"))
        })?;
    }
    Ok(Man::new(one.clone()).render(out)?)
}
