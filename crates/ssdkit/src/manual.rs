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
    /// Of this command; without one, of all.
    pub command: Option<String>,
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
    let Some(name) = &args.command else { return Ok(Man::new(all).render(out)?) };
    match all.find_subcommand(name) {
        Some(one) => Ok(Man::new(one.clone()).render(out)?),
        None => {
            let names: Vec<&str> = all.get_subcommands().map(|one| one.get_name()).collect();
            let names = names.join(", ");
            Err(Error::Usage(format!("there is no command {name:?}: take one of {names}")))
        }
    }
}
