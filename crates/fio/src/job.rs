//! A job: what the keys of a section ask, with what those of `[global]` do.
//!
//! Defaults are fio's. Guarantees: each key is followed, told in [`Job::notes`], or
//! refused with its line; nothing panics, whatever is in a file. What only a drive can
//! say, such as whether an offset is on it, is seen later.

use workload::Varied;

use crate::error::{At, JobError};
use crate::file::{Key, Section};
use crate::plan::MOST_TASKS;
use crate::value::Amount;

mod draft;

use draft::Draft;
pub(crate) use draft::{PERCENTILES, valued};

/// Keys of `[global]` that are read for all sections together, at most.
const MOST_LOOKS: usize = 1 << 18;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Both.
    Both,
    /// Trims.
    Trims,
}

/// How addresses are skewed: by which law, and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// Zipf's, with this theta.
    Zipf(f64),
    /// Pareto's, with this share.
    Pareto(f64),
}

/// Its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// What they do.
    pub does: Does,
    /// Whether addresses are random.
    pub is_random: bool,
    /// Reads among them, in percent.
    pub reads: u8,
    /// Their sizes.
    pub sizes: Varied,
    /// Whether a random block comes again only after all of them.
    pub has_map: bool,
    /// How addresses are skewed, where they are.
    pub skew: Option<Skew>,
    /// After so many writes a flush; 0 is never.
    pub flush_every: u32,
}

/// Where they go, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// The first byte, or where in the drive.
    pub offset: Amount,
    /// Bytes that each clone of the job begins later.
    pub increment: u64,
    /// Bytes that are used; all of the rest of the drive where not said.
    pub size: Option<Amount>,
    /// Bytes that are read and written; `size` where not said.
    pub io_size: Option<Amount>,
    /// How often that.
    pub loops: u64,
    /// Requests of each loop, at most.
    pub requests: Option<u64>,
}

/// How long, in ns of drive time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasts {
    /// The longest.
    pub runtime: Option<u64>,
    /// Whether it lasts that, whatever it has done.
    pub is_timed: bool,
    /// What is not counted, before.
    pub ramp: u64,
}

/// When requests begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests out, at most.
    pub depth: u32,
    /// Requests that arrive a second, where they do.
    pub rate: Option<u64>,
    /// Whether they arrive at exponential distances.
    pub is_poisson: bool,
    /// A pause in ns after so many requests, where there is one.
    pub think: Option<(u64, u64)>,
}

/// How it stands to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Company {
    /// How many of it there are.
    pub clones: u32,
    /// Whether it begins when those before it have ended.
    pub waits: bool,
    /// Whether it begins a group.
    pub is_new_group: bool,
    /// Whether figures of a group are told together.
    pub is_together: bool,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// What it is for, in the file's words.
    pub description: Option<String>,
    /// Where it begins.
    pub at: At,
    /// Its own keys that have a value, without those of `[global]`, by their plain names.
    pub own: Vec<(String, String)>,
    /// The file or drive that it names, with its folder.
    pub filename: Option<String>,
    /// fio's engine, where it names one.
    pub engine: Option<String>,
    /// Whether it passes the page cache.
    pub is_direct: bool,
    /// Its requests.
    pub access: Access,
    /// Where they go.
    pub extent: Extent,
    /// How long.
    pub lasts: Lasts,
    /// When they begin.
    pub pace: Pace,
    /// How it stands to others.
    pub company: Company,
    /// Whether what it writes and reads is checked.
    pub is_checked: bool,
    /// What its random numbers come from.
    pub seed: u64,
    /// Percentiles to tell, 0 to 100.
    pub percentiles: Vec<f64>,
    /// What of its keys is not as in fio, or means nothing here.
    pub notes: Vec<String>,
}

/// The jobs of sections in order; `globals` has the keys of `[global]` sections before.
/// With names in `only`, sections of other names are left out.
pub fn jobs(
    sections: &[Section],
    globals: &mut Vec<Key>,
    only: &[String],
) -> Result<Vec<Job>, JobError> {
    let (mut jobs, mut looks) = (Vec::new(), 0);
    // What globals ask is read once for all sections until the next of them, but for those
    // that say by themselves what it means.
    let mut common: Option<Draft> = None;
    for section in sections {
        if section.is_global() {
            globals.extend(section.keys.iter().cloned());
            common = None;
        } else if only.is_empty() || only.contains(&section.name) {
            if jobs.len() as u64 >= MOST_TASKS {
                let what = format!("there are more than {MOST_TASKS} jobs: split the file");
                return Err(JobError::Line { at: section.at.clone(), what });
            }
            let draft = match common.take() {
                Some(draft) if !section.keys.iter().any(is_base) => draft,
                _ => {
                    looks += globals.len();
                    if looks > MOST_LOOKS {
                        let what = "[global] has too many keys to be read again so often: write \
                                    all of it, and kb_base, once and before the jobs";
                        return Err(JobError::Line { at: section.at.clone(), what: what.into() });
                    }
                    drafted(globals, section)?
                }
            };
            jobs.push(Job::new(section, draft.clone())?);
            common = Some(draft).filter(|_| !section.keys.iter().any(is_base));
        }
    }
    Ok(jobs)
}

/// Whether what other keys mean depends on it.
fn is_base(key: &Key) -> bool {
    key.name == "kb_base"
}

/// What the keys of globals ask in a section.
fn drafted(globals: &[Key], section: &Section) -> Result<Draft, JobError> {
    let mut draft = Draft::default();
    for key in globals.iter().chain(&section.keys).filter(|key| is_base(key)) {
        draft.set_base(key)?;
    }
    for key in globals {
        draft.take(key)?;
    }
    Ok(draft)
}

impl Job {
    /// A section, after what globals ask.
    fn new(section: &Section, mut draft: Draft) -> Result<Job, JobError> {
        for key in &section.keys {
            draft.take(key)?;
        }
        draft.finish(section)
    }
}

#[cfg(test)]
mod tests;
