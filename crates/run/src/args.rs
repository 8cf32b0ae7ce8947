//! The options of `ssdkit run`, parsed and checked.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use drive::fault_rules::FaultArgs;
use drive::spec::DriveSpec;
use files::{Journal, Options};
use measure::options::whole;
use measure::units;

/// `ssdkit run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The drive that the files are on: a drive file, or mem:PROFILE, whose files are gone at the
    /// end.
    #[arg(long, value_name = "DRIVE")]
    pub drive: DriveSpec,
    /// A folder whose files are on the drive; repeatable. It is made where it is not there, and
    /// filled with what the drive has under its name.
    #[arg(long = "map", value_name = "DIR", required = true)]
    pub maps: Vec<PathBuf>,
    /// Put an empty file system on the drive: all that it has is lost.
    #[arg(long)]
    pub format: bool,
    /// Of a new file system, what its journal promises about data [default: ordered; data with
    /// --speculate].
    #[arg(long, value_enum, value_name = "JOURNAL")]
    pub journal: Option<JournalKind>,
    /// Cut the power then, and kill the program: after so much time (with a unit: 2s, 50ms), or
    /// after so many changes to its files (a number).
    #[arg(long, value_name = "TIME|N", value_parser = cut)]
    pub cut_after: Option<Cut>,
    /// Answer syncs at once: the program goes on, and what others could see of it waits until
    /// what it depends on is durable. Of a file system with --journal data.
    #[arg(long)]
    pub speculate: bool,
    /// At the end do not write back what no sync asked for: it is lost.
    #[arg(long)]
    pub no_sync_at_end: bool,
    /// What the random numbers of a mem: drive's policies and of faults come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// What goes wrong on purpose.
    #[command(flatten)]
    pub faults: FaultArgs,
    /// Print the summary as one JSON object.
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What the journal of a new file system promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum JournalKind {
    /// New data are there before what makes them reachable.
    Ordered,
    /// Metadata alone have an order.
    Writeback,
    /// No journal.
    None,
    /// Data go through the journal: after a cut all files are as they were after some change.
    Data,
}

impl JournalKind {
    /// As the file system calls it.
    pub fn journal(self) -> Journal {
        match self {
            Self::Ordered => Journal::Ordered,
            Self::Writeback => Journal::Writeback,
            Self::None => Journal::None,
            Self::Data => Journal::Data,
        }
    }

    /// The option's word for a file system's journal.
    pub fn name_of(journal: Journal) -> String {
        let kinds = Self::value_variants().iter().filter(|it| it.journal() == journal);
        kinds.filter_map(|it| Some(it.to_possible_value()?.get_name().to_string())).collect()
    }
}

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// So long after the program began.
    Time(Duration),
    /// When so many changes to files were made.
    Changes(u64),
}

fn cut(text: &str) -> Result<Cut, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        return text.parse().map(Cut::Changes).map_err(|_| "at most 2^64 - 1 changes".into());
    }
    let ns = units::duration_ns(text).map_err(|e| e.to_string())?;
    Ok(Cut::Time(Duration::from_nanos(ns)))
}

impl RunArgs {
    /// How a new file system is made.
    pub fn options(&self, id: u64) -> Options {
        let default = if self.speculate { JournalKind::Data } else { JournalKind::Ordered };
        let journal = self.journal.unwrap_or(default).journal();
        Options { journal, id, ..Options::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_a_time_or_a_number() {
        assert_eq!(cut("100"), Ok(Cut::Changes(100)));
        assert_eq!(cut("50ms"), Ok(Cut::Time(Duration::from_millis(50))));
        assert_eq!(cut("1.5s"), Ok(Cut::Time(Duration::from_millis(1500))));
        assert!(cut("").is_err() && cut("soon").is_err() && cut("-1").is_err());
        assert!(cut("99999999999999999999").is_err());
    }
}
