//! The drive that jobs name.
//!
//! A run has one drive. With `--drive` it is that; else all jobs must name the same.
//! Opens nothing but to see whether a path leads to a drive file. Fails with the line,
//! also where a file would have to be made that is no drive.

use drive::error::Error;
use drive::spec::{DriveSpec, Engine, Found, StorageSpec};
use measure::units::size_binary;
use port::BLOCK_BYTES;

use crate::error::JobError;
use crate::job::Job;
use crate::value::Amount;

/// What begins the name of a drive that is no path.
const SCHEMES: [&str; 7] = ["mem:", "ssd:", "nbd:", "channel:", "null:", "file:", "nbd+unix:"];

/// The drive of all jobs.
pub fn drive(given: Option<&DriveSpec>, jobs: &[Job]) -> Result<DriveSpec, Error> {
    if let Some(drive) = given {
        return drive.found();
    }
    let engine = engine(jobs).unwrap_or_default();
    let mut all = jobs.iter().map(|job| named(job, engine));
    let first = all.next().unwrap_or_else(|| Err(Error::Usage("there is no job".into())))?;
    for (job, drive) in jobs[1..].iter().zip(all) {
        if drive? != first {
            let what = format!(
                "[{}] names another drive than the jobs before: run it by itself, or give --drive",
                job.name
            );
            return Err(JobError::Line { at: job.at.clone(), what }.into());
        }
    }
    match first.found()? {
        DriveSpec::Storage(spec) => Ok(DriveSpec::Storage(made(spec, jobs)?)),
        drive => Ok(drive),
    }
}

/// The engine that a file or device has in fio. All jobs are asked for by one thread here,
/// which waits for each request where an engine has one at a time: so for a job alone.
fn engine(jobs: &[Job]) -> Option<Engine> {
    let name = |job: &Job| job.engine.clone().unwrap_or_else(|| "psync".into());
    let first = name(jobs.first()?);
    let found = Engine::ALL.into_iter().find(|engine| engine.name() == first)?;
    let is_alone = jobs.len() == 1 && jobs[0].company.clones == 1 && jobs[0].pace.rate.is_none();
    let is_same = jobs.iter().all(|job| name(job) == first);
    (is_same && (is_alone || !found.is_lone())).then_some(found)
}

/// Notes of each job whose engine the drive does not have, and of those that go through the
/// page cache.
pub fn note_engines(drive: &DriveSpec, jobs: &mut [Job]) {
    let has = match drive {
        DriveSpec::Storage(spec) => Some(spec.engine.name()),
        _ => None,
    };
    let is_cached = matches!(drive, DriveSpec::Storage(spec) if !spec.direct);
    for job in jobs {
        if is_cached {
            job.notes.push(
                "direct=0: requests go through the system's page cache, and figures are of memory \
                 as far as it serves them; fio first drops what that has of the file, and this does not"
                    .into(),
            );
        }
        let Some(asked) = job.engine.as_deref().filter(|&asked| has != Some(asked)) else {
            continue;
        };
        job.notes.push(match has {
            Some(has) => format!("ioengine={asked}: this drive has engine={has}, for all jobs"),
            None => format!(
                "ioengine={asked} has no other meaning on this drive: its name says how it is \
                 driven"
            ),
        });
    }
}

/// The drive that a job names.
fn named(job: &Job, engine: Engine) -> Result<DriveSpec, Error> {
    let wrong = |what: String| Error::from(JobError::Line { at: job.at.clone(), what });
    let name = job.filename.as_deref().ok_or_else(|| {
        wrong(format!("[{}] names no filename=: add it, or give --drive DRIVE", job.name))
    })?;
    let name = name.replace("\\:", ":");
    if SCHEMES.iter().any(|scheme| name.starts_with(scheme)) {
        return name.parse().map_err(|e| wrong(format!("filename={name}: {e}")));
    }
    if name.contains([':', ',']) {
        return Err(wrong(format!("filename={name}: a job has one drive, without `:` or `,`")));
    }
    let path = if name.contains('/') { name } else { format!("./{name}") };
    let direct = if job.is_direct { "yes" } else { "no" };
    let spec = format!("file:{path},engine={},direct={direct}", engine.name()).parse();
    spec.map_err(|e| wrong(format!("filename={path}: {e}")))
}

/// A file that is made where there is none, as large as its jobs need.
fn made(spec: StorageSpec, jobs: &[Job]) -> Result<StorageSpec, Error> {
    if spec.find()? != Found::Nothing {
        return Ok(spec);
    }
    let end = |job: &Job| match (job.extent.offset, job.extent.size) {
        (Amount::Bytes(offset), Some(Amount::Bytes(size))) => {
            let last = u64::from(job.company.clones - 1).checked_mul(job.extent.increment)?;
            offset.checked_add(size)?.checked_add(last)
        }
        _ => None,
    };
    let ends = jobs.iter().map(|job| Some((end(job)?, job))).collect::<Option<Vec<_>>>();
    let last = ends.and_then(|ends| ends.into_iter().max_by_key(|&(end, _)| end));
    if let (None, Some((size, job))) = (spec.size, last)
        && (size == 0 || !size.is_multiple_of(BLOCK_BYTES))
    {
        let what = format!(
            "[{}] ends at {} of a file that is to be made, and a drive has whole blocks of {}: \
             correct offset= and size=",
            job.name,
            size_binary(size),
            size_binary(BLOCK_BYTES)
        );
        return Err(JobError::Line { at: job.at.clone(), what }.into());
    }
    Ok(StorageSpec { size: spec.size.or(last.map(|(size, _)| size)), ..spec })
}
