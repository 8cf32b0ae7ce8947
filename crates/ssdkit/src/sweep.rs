//! `ssdkit sweep`: looks whether there is a sweep and the Python package, and becomes the
//! package's own command.
//!
//! Fails when the file is none of a sweep, or there is no interpreter that has the
//! package: both with exit code 2. All else is the package's (`python/ssdkit/sweep_command.py`).

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use clap::Args;

use drive::error::Error;
use drive::spec::text_of;

/// Who runs it, where nobody says otherwise.
const PYTHON: &str = "python3";
/// Ends well where the package is there.
const PROBE: &str = "from importlib.util import find_spec as find\n\
                     raise SystemExit(not (find('ssdkit') and find('ssdkit.sweep_command')))";

/// What `--help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit sweep examples/sweeps/depth-spare.toml
  ssdkit sweep examples/sweeps/knee.toml --out rows --json
  ssdkit sweep examples/sweeps/sobol.toml --out rows --scheduler tcp://10.0.0.1:8786

The package for Python runs it (pip install '.[sweep]' in a clone); SSDKIT_PYTHON names another
interpreter than python3.";

/// `ssdkit sweep`.
#[derive(Args, Clone, Debug)]
pub struct SweepArgs {
    /// What all runs have in common, and what changes.
    #[arg(value_name = "FILE.toml")]
    pub file: String,
    /// Keep the rows in this folder, and go on from those that are there.
    #[arg(long, value_name = "DIR")]
    pub out: Option<String>,
    /// A scheduler of Dask, as tcp://10.0.0.1:8786 [default: processes of this machine].
    #[arg(long, value_name = "ADDRESS")]
    pub scheduler: Option<String>,
    /// So many processes on this machine [default: one for each processor].
    #[arg(long, value_name = "N", conflicts_with = "scheduler")]
    pub workers: Option<u32>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Becomes the package's command. Comes back only with an error.
pub fn run(args: &SweepArgs) -> Error {
    let python = std::env::var("SSDKIT_PYTHON").unwrap_or_else(|_| PYTHON.into());
    if let Err(e) = check(&args.file).and_then(|()| probe(&python)) {
        return e;
    }
    let mut command = Command::new(&python);
    command.args(["-m", "ssdkit.sweep_command"]);
    command.args(args.out.iter().map(|folder| format!("--out={folder}")));
    command.args(args.scheduler.iter().map(|address| format!("--scheduler={address}")));
    command.args(args.workers.iter().map(|n| format!("--workers={n}")));
    command.args(args.json.then_some("--json"));
    // Modules are those that are installed, whatever lies in this folder.
    command.args(["--", &args.file]).env("PYTHONSAFEPATH", "1");
    Error::system(&format!("run {python}"), &command.exec())
}

/// Whether a file may be a sweep's.
fn check(file: &str) -> Result<(), Error> {
    let text = text_of(file).map_err(|e| Error::Usage(format!("{file}: {e}")))?;
    let is_base = |line: &str| line.trim_start().starts_with("[base]");
    text.lines().any(is_base).then_some(()).ok_or_else(|| {
        Error::Usage(format!(
            "{file}: no [base]: give the drive there, and what all runs have in common"
        ))
    })
}

/// Whether an interpreter has the package.
fn probe(python: &str) -> Result<(), Error> {
    let mut command = Command::new(python);
    command.args(["-c", PROBE]).env("PYTHONSAFEPATH", "1");
    let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
    let why = match status {
        Ok(status) if status.success() => return Ok(()),
        Ok(_) => format!("{python} has no package ssdkit"),
        Err(e) => format!("{python}: {e}"),
    };
    Err(Error::Usage(format!(
        "{why}: pip install '.[sweep]' in a clone of ssdkit installs it; SSDKIT_PYTHON names \
         another interpreter"
    )))
}
