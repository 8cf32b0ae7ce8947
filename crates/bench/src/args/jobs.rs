//! `--job`: loads beside that of `--rw`, each with options of its own.
//!
//! What a job may say are options of the bench that are a load's, as `key=value` with
//! the bench's own words, and its queue. Parsing opens nothing; what does not go
//! together is refused with the number of the job.

use std::str::FromStr;

use clap::{Args, Command, FromArgMatches};
use drive::error::Error;
use drive::spec::DriveSpec;
use flash::Queues;
use measure::why::MOST_LOADS;
use port::random::STEP;

use super::{BenchArgs, Precondition};

/// Options of the bench that a job may have.
const KEYS: [&str; 12] = [
    "rw",
    "read_percent",
    "bs",
    "bssplit",
    "qd",
    "threads",
    "rate",
    "arrivals",
    "range",
    "zipf",
    "hot",
    "placement",
];

/// fio's names of these, as the bench itself takes them.
const ALIASES: [&str; 5] = ["readwrite", "rwmixread", "blocksize", "iodepth", "numjobs"];

/// A load beside the first.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its options, as if it were a bench of its own.
    pub args: BenchArgs,
    /// The submission queue that it was given.
    pub queue: Option<u32>,
}

impl FromStr for Job {
    type Err = String;

    fn from_str(text: &str) -> Result<Job, String> {
        // The drive is that of the bench: this one is put in its place.
        let mut line = vec!["job".to_string(), "mem:null".into()];
        let (mut queue, mut placement) = (None, None);
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "queue" if queue.is_some() => return Err("queue= is there twice".into()),
                "queue" => {
                    let number = value.parse().map_err(|_| "queue= is a number from 0 on")?;
                    queue = Some(number);
                }
                "placement" if placement.is_some() => {
                    return Err("placement is there twice".into());
                }
                "placement" => {
                    placement = Some(match value {
                        "" | "yes" => true,
                        "no" => false,
                        _ => return Err("placement= is yes or no".into()),
                    });
                }
                key if KEYS.contains(&key) || ALIASES.contains(&key) => {
                    line.push(format!("--{}={value}", key.replace('_', "-")));
                }
                _ => return Err(format!("`{key}` is none of {}, queue", KEYS.join(", "))),
            }
        }
        if placement == Some(true) {
            line.push("--placement".into());
        }
        let command = BenchArgs::augment_args(Command::new("job"));
        let read = command.try_get_matches_from(line);
        let args = read.and_then(|matches| BenchArgs::from_arg_matches(&matches));
        let args = args.map_err(|e| {
            let text = e.to_string();
            let lines = text.lines().take_while(|line| !line.is_empty()).map(str::trim);
            lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_string()
        })?;
        Ok(Job { args, queue })
    }
}

/// An error of load `n`, which says so; the first load's is that of the bench.
pub(crate) fn of_job(n: usize, error: Error) -> Error {
    match error {
        Error::Usage(text) if n > 0 => Error::Usage(format!("--job, number {n}: {text}")),
        error => error,
    }
}

impl BenchArgs {
    /// Whether somebody has pictures of it, or may make some of its JSON.
    pub(crate) fn is_drawn(&self) -> bool {
        self.json || self.draws_dies()
    }

    /// The same of what pictures of dies need.
    pub(crate) fn draws_dies(&self) -> bool {
        self.pictures || self.report.is_some()
    }

    /// Whether it is so of any load.
    pub fn is_any(&self, of: impl Fn(&BenchArgs) -> bool) -> bool {
        of(self) || self.jobs.iter().any(|job| of(&job.args))
    }

    /// All loads: the first is that of the bench itself. Each has the bench's drive, end
    /// and clock, and random numbers of its own.
    pub fn all_jobs(&self) -> Vec<BenchArgs> {
        let of = |(n, job): (u64, &Job)| BenchArgs {
            drive: self.drive.clone(),
            time: self.time,
            ramp: self.ramp,
            clock: self.clock,
            precondition: self.precondition,
            seed: self.seed.wrapping_add(STEP.wrapping_mul(n)),
            ..job.args.clone()
        };
        let first = BenchArgs { jobs: Vec::new(), ..self.clone() };
        [first].into_iter().chain((1..).zip(&self.jobs).map(of)).collect()
    }

    /// Whether there can be several loads at once.
    pub(super) fn check_jobs(&self) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Usage(format!("--job: {text}")));
        if !matches!(self.drive, DriveSpec::Memory(_) | DriveSpec::File(_)) {
            return refuse("several loads are for a drive of this process: take mem: or a file's");
        }
        if self.time.is_none() {
            return refuse("several loads run for a time: add --time");
        }
        let pauses = self.bursts.pauses().is_some();
        if self.blocks.are_given() || self.verify || pauses {
            return refuse("the block layer, --verify and --pause know one load: leave them out");
        }
        if self.explains && self.jobs.len() >= MOST_LOADS {
            let text = format!("explain tells of {MOST_LOADS} loads at most: take fewer");
            return refuse(&text);
        }
        if self.precondition() == Precondition::Steady {
            return refuse("the steady state is one of one load: take --precondition seq");
        }
        for (n, job) in self.all_jobs().iter().enumerate().skip(1) {
            job.check_alone().map_err(|e| of_job(n, e))?;
        }
        Ok(())
    }

    /// The queue of each load, of a drive that has these: that which it was given, or
    /// else theirs in turn. Refused where one has not room for all that its loads ask.
    pub fn queues_of_jobs(&self, queues: &Queues) -> Result<Vec<u8>, Error> {
        let (jobs, mut asked) = (self.all_jobs(), vec![0u64; queues.count as usize]);
        let given = [None].into_iter().chain(self.jobs.iter().map(|job| job.queue));
        let mut all = Vec::new();
        for (n, (job, given)) in jobs.iter().zip(given).enumerate() {
            let queue = given.unwrap_or(n as u32 % queues.count);
            let Some(asked) = asked.get_mut(queue as usize) else {
                return Err(Error::Usage(format!(
                    "--job, number {n}: there is no queue {queue}, as the drive has {}, from 0 \
                     on: give it more, queues={}",
                    queues.count,
                    queue.saturating_add(1)
                )));
            };
            // An open loop has as many places as its queue.
            let open = job.rate.map(|_| u64::from(queues.depth()));
            *asked += open.unwrap_or(u64::from(job.qd) * u64::from(job.threads));
            if queues.is_on() && *asked > u64::from(queues.depth()) {
                return Err(Error::Usage(format!(
                    "load {n}: queue {queue} holds {} commands, and its loads may ask for \
                     {asked} at once: lower qd, or give each a queue of its own (queue=)",
                    queues.depth()
                )));
            }
            all.push(queue as u8);
        }
        Ok(all)
    }
}
