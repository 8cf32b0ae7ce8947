//! The running of jobs: on one drive, a round after the other.
//!
//! Guarantees: the drive of a round is what the one before left; a clone does what a
//! bench of the same options does, to the bit in virtual time. A drive that
//! is new and read is written twice over before, as far as jobs use it. Fails as a bench does.

use std::ops::Range;
use std::time::Instant;

use bench::stand::{About, Stand, StandArgs, on_a_stand};
use bench::{IN_MEMORY, reads_holes};
use drive::error::Error;
use drive::spec::DriveSpec;
use load::cpu::Mark;
use load::driver::Driver;
use load::runner::{Part, Runner, joined, used_of};
use load::tally::Tally;
use load::verify::Verifier;
use load::watch::Watch;
use measure::why::MOST_LOADS;
use port::{BLOCK_BYTES, Shape};
use workload::Pattern;

use crate::job::Job;
use crate::plan::{Asked, Task, fit, rounds};

/// What a clone did.
pub struct Ran {
    /// Which.
    pub task: Task,
    /// Its round, from 0.
    pub round: usize,
    /// What was measured.
    pub tally: Tally,
    /// Bytes or requests that it was to do, and of what.
    pub asked: Asked,
    /// Processor time of its round: of the user and of the system, in seconds.
    pub cpu: (f64, f64),
    /// What measuring its round took on the wall, in seconds.
    pub wall: f64,
    /// The same with what was before it since the round before: making or opening the drive
    /// and writing it; and with reading back.
    pub wall_in_all: f64,
    /// Requests of all in its round.
    pub round_ios: u64,
    /// Whether it ran alone, so that what the drive did was for it.
    pub is_alone: bool,
    /// Why its figures mean nothing, whatever was measured, if they do not.
    pub void: Option<String>,
}

/// What all did.
pub struct All {
    /// The drive.
    pub about: About,
    /// The clones that ran, in order.
    pub ran: Vec<Ran>,
    /// Whether the drive was written before.
    pub is_preconditioned: bool,
    /// Clones of rounds that never began, since the one before was stopped or lost its drive.
    pub not_run: Vec<Task>,
    /// Why the file that the drive is in failed, if it did.
    pub file_failed: Option<String>,
}

/// How jobs are run.
pub struct How {
    /// The drive and what may be done to it.
    pub stand: StandArgs,
    /// Whether to keep where the time of requests goes.
    pub explains: bool,
    /// Whether the drive is written before; where not said, a new one that is read is.
    pub preconditions: Option<bool>,
}

/// Runs all jobs.
pub fn run(jobs: &[Job], how: &How, watch: &mut Watch) -> Result<All, Error> {
    let rounds = rounds(jobs)?;
    let since = Instant::now();
    let (all, file) = on_a_stand(&how.stand, watch, |stand, watch| {
        if let Some(why) = stand.about.tells_no_stories.as_ref().filter(|_| how.explains) {
            return Err(Error::Usage(format!("--explain: {why}")));
        }
        if how.explains && rounds.iter().flatten().nth(MOST_LOADS).is_some() {
            let text = format!("--explain tells of {MOST_LOADS} jobs at most: lower numjobs=");
            return Err(Error::Usage(text));
        }
        let asked = asked(jobs, &rounds, stand)?;
        let mut session = Session::new(jobs, how, stand, watch, since)?;
        let is_preconditioned = session.prepare(&asked.concat())?;
        let (mut ran, mut begun) = (Vec::new(), 0);
        for (round, asked) in rounds.iter().zip(asked) {
            ran.extend(session.round((begun, round), asked)?);
            begun += 1;
            if ran.iter().any(|one: &Ran| one.tally.interrupted || one.tally.lost.is_some()) {
                break;
            }
        }
        let not_run = rounds[begun..].concat();
        let about = session.stand.about.clone();
        Ok(All { about, ran, is_preconditioned, not_run, file_failed: None })
    })?;
    Ok(All { file_failed: file.err().map(|e| e.to_string()), ..all })
}

/// What all clones ask, where the drive takes that.
fn asked(jobs: &[Job], rounds: &[Vec<Task>], stand: &Stand) -> Result<Vec<Vec<Asked>>, Error> {
    let is_checked = jobs.iter().any(|job| job.is_checked);
    let of = |task: &Task| {
        let job = &jobs[task.job];
        let asked = job.asked(task, stand.shape.bytes)?;
        job.check(&asked, &stand.about)?;
        Ok(asked)
    };
    let each = |round: &Vec<Task>| {
        if is_checked && round.len() > 1 {
            let text = "verify= knows what one job at a time writes: add stonewall to each, and \
                        leave numjobs= out";
            return Err(Error::Usage(text.into()));
        }
        if round.len() > 1 && !stand.about.takes_arrivals {
            let text = "served drives take one job at a time: add stonewall to each";
            return Err(Error::Usage(text.into()));
        }
        let asked = round.iter().map(of).collect::<Result<Vec<Asked>, Error>>()?;
        fit(jobs, round, &asked, &stand.shape)?;
        Ok(asked)
    };
    rounds.iter().map(each).collect()
}

/// Jobs on a drive.
struct Session<'s, 'a> {
    jobs: &'s [Job],
    how: &'s How,
    stand: &'s mut Stand<'a>,
    watch: &'s mut Watch,
    verifier: Option<Verifier>,
    /// When the round before ended, or all began.
    since: Instant,
}

impl<'s, 'a> Session<'s, 'a> {
    fn new(
        jobs: &'s [Job],
        how: &'s How,
        stand: &'s mut Stand<'a>,
        watch: &'s mut Watch,
        since: Instant,
    ) -> Result<Session<'s, 'a>, Error> {
        let mut verifier = None;
        if jobs.iter().any(|job| job.is_checked) {
            if stand.shape.kept == 0 {
                let text = "verify= needs data to compare: take store=memory or store=checksum";
                return Err(Error::Usage(text.into()));
            }
            if !stand.about.is_new && how.preconditions != Some(true) {
                return Err(Error::Usage(
                    "verify= knows only what was written here, and something may be on this \
                     drive: add --precondition seq, which writes over it first"
                        .into(),
                ));
            }
            let are_blocks =
                |job: &Job| job.access.sizes.are_multiples_of(port::BLOCK_BYTES as u32);
            let unit = if jobs.iter().all(are_blocks) { port::BLOCK_BYTES } else { 512 };
            verifier = Some(Verifier::new(&stand.shape, unit, how.stand.seed)?);
        }
        Ok(Session { jobs, how, stand, watch, verifier, since })
    }

    /// Writes what all use of the drive before, where that is asked for, or where nothing
    /// was written to it and it is read. Says whether it did.
    fn prepare(&mut self, asked: &[Asked]) -> Result<bool, Error> {
        let about = &self.stand.about;
        let is_read = self.jobs.iter().any(Job::reads);
        let in_vain = about.is_new && is_read && self.how.preconditions.is_none();
        let in_memory = matches!(self.how.stand.drive, DriveSpec::Memory(_));
        if in_vain && about.is_ours && !in_memory && !self.jobs.iter().any(Job::writes) {
            return Err(Error::Usage(
                "nothing was ever written to this drive, and what was never written is read in \
                 no time: add --precondition seq, which writes it first"
                    .into(),
            ));
        }
        if !self.how.preconditions.unwrap_or(in_vain) {
            return Ok(false);
        }
        let (shape, seed) = (self.stand.shape, self.how.stand.seed);
        let mut runner = Runner { verifier: self.verifier.take(), ..Runner::new(self.watch) };
        for part in joined(asked.iter().map(used).collect()) {
            runner.write_over(self.stand.driver(), &shape, part, seed)?;
        }
        self.verifier = runner.verifier.take();
        Ok(true)
    }

    /// Runs a round.
    fn round(
        &mut self,
        (round, tasks): (usize, &[Task]),
        asked: Vec<Asked>,
    ) -> Result<Vec<Ran>, Error> {
        let shape = self.stand.shape;
        let parts = tasks.iter().zip(&asked);
        let parts = parts.map(|(task, asked)| self.jobs[task.job].part(asked, &shape));
        let mut parts = parts.collect::<Result<Vec<Part>, Error>>()?;
        let names: Vec<&str> = tasks.iter().map(|task| &*self.jobs[task.job].name).collect();
        self.watch.phase(&names.join(", "));
        let voids: Vec<_> = tasks.iter().zip(&asked).map(|of| self.void(of)).collect();
        let reads_back = self.verifier.is_some() && self.jobs[tasks[0].job].writes();
        let back = reads_back.then(|| (asked[0].pattern, asked[0].seed));
        let (watch, verifier) = (&mut *self.watch, self.verifier.take());
        let began = Mark::now();
        let explains = self.how.explains;
        let mut runner =
            Runner { verifier, explains, slowest: explains.into(), ..Runner::new(watch) };
        let tallies = self.stand.measured(|driver| measure(&mut runner, driver, &mut parts))?;
        // Time of a ramp is in no figure; a job without one counts from the beginning.
        let counts = tallies.iter().map(|tally| tally.after_ramp.unwrap_or(began));
        let (wall, cpu) = counts.min_by_key(|mark| mark.wall).unwrap_or(began).passed();
        let tallies = read_back(&mut runner, self.stand.driver(), &shape, back, tallies)?;
        self.verifier = runner.verifier.take();
        let wall_in_all = std::mem::replace(&mut self.since, Instant::now()).elapsed();
        let is_alone = tasks.len() == 1;
        let round_ios = tallies.iter().map(|tally| tally.all().count()).sum();
        let ran = tasks.iter().zip(asked).zip(tallies).zip(voids);
        let ran = ran.map(|(((&task, asked), tally), void)| Ran {
            task,
            round,
            tally,
            asked,
            cpu,
            wall,
            wall_in_all: wall_in_all.as_secs_f64(),
            round_ios,
            is_alone,
            void,
        });
        Ok(ran.collect())
    }

    /// Why figures of a clone that is about to run will mean nothing, if they will not: what
    /// is behind a file is known before.
    fn void(&self, (task, asked): (&Task, &Asked)) -> Option<String> {
        let DriveSpec::Storage(spec) = &self.how.stand.drive else { return None };
        if self.stand.about.is_in_memory {
            return Some(IN_MEMORY.into());
        }
        let Pattern { offset, length, .. } = asked.pattern;
        let reads = self.jobs[task.job].reads();
        if reads { reads_holes(&spec.path, offset..offset + length) } else { None }
    }
}

/// What a clone uses of the drive.
fn used(asked: &Asked) -> Range<u64> {
    let Pattern { offset, length, bs, varied, .. } = asked.pattern;
    let of =
        |unit: u64| varied.map_or(bs.is_multiple_of(unit), |v| v.are_multiples_of(unit as u32));
    let are_blocks = of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES);
    used_of(offset..offset + length, are_blocks)
}

/// Measures parts at the same time; a part alone as a bench does.
fn measure(
    runner: &mut Runner,
    driver: &mut dyn Driver,
    parts: &mut [Part],
) -> Result<Vec<Tally>, Error> {
    match parts {
        [part] => {
            runner.pauses = part.pauses;
            Ok(vec![runner.run(driver, &mut part.load, part.plan)?])
        }
        parts => runner.run_parts(driver, parts),
    }
}

/// Reads back what a run wrote that was checked, and adds what was wrong.
fn read_back(
    runner: &mut Runner,
    driver: &mut dyn Driver,
    shape: &Shape,
    back: Option<(Pattern, u64)>,
    mut tallies: Vec<Tally>,
) -> Result<Vec<Tally>, Error> {
    let Some((pattern, seed)) = back else { return Ok(tallies) };
    for tally in tallies.iter_mut().filter(|tally| !tally.interrupted && tally.lost.is_none()) {
        let back = runner.read_back(driver, shape, &pattern, seed)?;
        tally.add_read_back(&back);
    }
    Ok(tallies)
}
