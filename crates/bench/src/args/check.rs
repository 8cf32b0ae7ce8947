//! Whether the options of `ssdkit bench` agree with each other and with the
//! drive: what clap cannot see.
//!
//! Opens nothing. Fails with words that say which option to change.

use super::{BenchArgs, Precondition, Rw};
use drive::error::Error;
use drive::spec::file::one_shard_only;
use drive::spec::{DriveSpec, MemorySpec, NullSpec, StorageSpec, Store};
use load::blocks::{Completion, Dispatch};
use load::driver::ClockKind;
use measure::units;
use workload::{Sizes, Varied};

impl BenchArgs {
    /// Whether the options agree with each other and with the drive.
    pub fn check(&self) -> Result<(), Error> {
        if !self.jobs.is_empty() {
            self.check_jobs()?;
        }
        self.check_alone()
    }

    /// The same of its load alone.
    pub(super) fn check_alone(&self) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Usage(text.into()));
        if self.read_percent.is_some() && !self.rw.is_mixed() {
            return refuse("--read-percent is for --rw rw and randrw only: leave it out");
        }
        if (self.zipf.is_some() || self.hot.is_some()) && !self.rw.is_random() {
            return refuse(
                "--zipf and --hot are for random addresses: take --rw randread or the like",
            );
        }
        if (self.fua_every.is_some() || self.flush_every.is_some()) && !self.rw.writes() {
            return refuse(
                "--fua-every and --flush-every need writes: take --rw randwrite or the like",
            );
        }
        let steady = self.precondition() == Precondition::Steady;
        if (self.steady_rounds.is_some() || self.steady_round.is_some()) && !steady {
            return refuse(
                "--steady-rounds and --steady-round are for --precondition steady: add it",
            );
        }
        let is_ours = matches!(self.drive, DriveSpec::Memory(_) | DriveSpec::File(_));
        if steady && self.range.is_some() && !is_ours {
            return refuse(
                "--precondition steady writes over all of the drive, also what is outside \
                 --range: take --precondition seq, which writes the range, or leave --range out",
            );
        }
        if self.rate.is_some() && self.blocks.batch.is_some() {
            return refuse(
                "--batch is for a closed loop, and with --rate each request goes when it arrives: \
                 leave one of them out",
            );
        }
        let has_layer = self.blocks.are_given()
            || matches!(self.drive, DriveSpec::Null(_) | DriveSpec::Storage(_));
        self.bursts.check(self.rate.is_some(), has_layer)?;
        self.bursts.check_time(self.end())?;
        if self.bssplit.is_some() && self.bursts.pauses().is_some() {
            return refuse("--pause tells the rate of each burst in bytes, of one size: take --bs");
        }
        if self.range.is_some_and(|r| r.len < self.most_bytes()) {
            return refuse(
                "--range is shorter than one request of --bs: write LENGTH or OFFSET+LENGTH, \
                 with units, as in 1G+64M",
            );
        }
        if self.verify && self.rw == Rw::Trim && !self.are_whole_blocks() {
            return refuse(
                "--verify of trims needs whole blocks, as a drive may ignore the trim of a part: \
                 take a --bs that is a multiple of 4k",
            );
        }
        if self.report.is_some() && self.report == self.blocks.trace {
            return refuse("--report and --trace are one file: give each its own");
        }
        if self.report.is_some() && self.explains {
            return refuse(
                "--report is a page of a bench or replay alone, and explaining makes none: leave --report out",
            );
        }
        if self.faults.are_given() {
            if !is_ours {
                return refuse("--fault is for a drive of this process: take mem: or a drive file");
            }
            if self.snapshot.is_some() {
                return refuse(
                    "--snapshot saves a drive without faults: save it first, and give --fault to \
                     the bench of ssd:FILE,copy=yes",
                );
            }
            self.faults.read(self.seed)?;
        }
        if self.slowest.is_some() {
            self.check_slowest(is_ours)?;
        }
        match &self.snapshot {
            Some(_) if !is_ours => {
                return refuse("--snapshot saves a drive of this process: take mem: or ssd:");
            }
            Some(path) => {
                if let DriveSpec::Memory(spec) = &self.drive
                    && spec.shards > 1
                {
                    return Err(one_shard_only(&self.drive.to_string()));
                }
                drive::image::check_new(path)?;
            }
            None => {}
        }
        match &self.drive {
            DriveSpec::Memory(spec) => {
                if self.blocks.are_given() {
                    self.check_below()?;
                }
                self.check_kept(spec)
            }
            // What it keeps is known when it is open.
            DriveSpec::File(_) if self.blocks.are_given() => self.check_below(),
            DriveSpec::File(_) => Ok(()),
            DriveSpec::Nbd(_) | DriveSpec::Channel(_) => self.check_served(),
            DriveSpec::Null(spec) => self.check_null(spec),
            DriveSpec::Storage(spec) => self.check_storage(spec),
        }
    }

    /// Whether the options agree with a drive that somebody serves.
    fn check_served(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Usage(text));
        let scheme = self.drive.served_by().unwrap_or_default();
        if self.clock == Some(ClockKind::Virtual) {
            let text = "--clock virtual needs a drive in this process: take mem: or --clock real";
            return refuse(text.into());
        }
        if self.blocks.are_given() {
            return refuse(format!(
                "{scheme} drives have no block layer here: leave out its options, from --cores \
                 to --batch"
            ));
        }
        if self.writes() && !self.destroy {
            return refuse(format!(
                "this writes over what is on {}, and nobody here knows what that is: add \
                 --destroy if it may be lost",
                self.drive
            ));
        }
        Ok(())
    }

    /// Whether somebody can tell where the time of requests went.
    fn check_slowest(&self, is_ours: bool) -> Result<(), Error> {
        let who = if self.explains { "explain" } else { "--slowest" };
        let refuse = |text: &str| Err(Error::Usage(format!("{who} {text}")));
        if !is_ours {
            let what = match &self.drive {
                DriveSpec::Null(_) => "null: drives",
                DriveSpec::Nbd(_) => "nbd: drives",
                DriveSpec::Channel(_) => "channel: drives",
                _ => "devices and files",
            };
            return refuse(&format!(
                "is for a drive of this process, as {what} do not tell where time goes: take mem: \
                 or a drive file"
            ));
        }
        if self.clock() == ClockKind::Real {
            return refuse("tells of drive time, to the nanosecond: take --clock virtual");
        }
        if self.blocks.are_given() {
            return refuse(
                "is for a drive without a block layer: leave out its options, from \
                 --cores to --batch, or take --trace, which tells what waited there",
            );
        }
        Ok(())
    }

    /// Whether the options agree with a layer above any drive.
    fn check_layer(&self) -> Result<(), Error> {
        self.blocks.check(if self.rate.is_some() { u32::MAX } else { self.qd })?;
        let refuse = |text: &str| Err(Error::Usage(text.into()));
        let cores = self.blocks.cores() as u64;
        if self.verify && cores > 1 && self.clock() == ClockKind::Real {
            return refuse(
                "--verify knows what one thread writes: take --cores 1, or --clock virtual",
            );
        }
        if self.rate.is_some_and(|rate| rate < cores) {
            return refuse("--rate is shared by the cores, at least one a second: lower --cores");
        }
        if self.blocks.pin && self.clock() == ClockKind::Virtual {
            return refuse("--pin is for threads, and virtual time has one: take --clock real");
        }
        Ok(())
    }

    /// Whether the options agree with a null drive.
    fn check_null(&self, spec: &NullSpec) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Usage(text.into()));
        if self.verify || self.precondition() != Precondition::None {
            return refuse("a null: drive keeps nothing: leave out --verify and --precondition");
        }
        if self.clock() == ClockKind::Virtual && !spec.is_timed() {
            return refuse(
                "--clock virtual needs a drive that takes time: add completion_nsec, as in \
                 null:completion_nsec=10us, or take --clock real",
            );
        }
        if self.blocks.completion.is_some_and(|c| c != Completion::Poll) {
            return refuse("a null: drive wakes nobody: take --completion poll, or leave it out");
        }
        self.check_whole_blocks("a null: drive")?;
        self.check_no_dispatch("a null: drive has submit_queues= and hw_queue_depth= in its name")?;
        self.check_layer()
    }

    /// Whether the options agree with a block device or file.
    fn check_storage(&self, spec: &StorageSpec) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Usage(text.into()));
        if self.clock == Some(ClockKind::Virtual) {
            return refuse("--clock virtual needs a drive in this process: take mem: or null:");
        }
        if spec.read_only && self.writes() {
            return refuse("read_only=yes takes no writes: take --rw randread or read, or no key");
        }
        if spec.poll.is_some() && !spec.direct {
            return refuse("the page cache cannot be polled: take poll=no or direct=yes");
        }
        self.check_no_dispatch("a block device or file has queues= and depth= in its name")?;
        self.check_layer()
    }

    /// That options of mem: drives are not given for another, which has what
    /// `instead` says.
    fn check_no_dispatch(&self, instead: &str) -> Result<(), Error> {
        if self.blocks.dispatch.is_some() || self.blocks.dispatch_depth.is_some() {
            let text = format!("--dispatch and --dispatch-depth are for mem: drives; {instead}");
            return Err(Error::Usage(text));
        }
        Ok(())
    }

    /// That requests are whole blocks, as `who` keeps no bytes.
    fn check_whole_blocks(&self, who: &str) -> Result<(), Error> {
        if self.are_whole_blocks() {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "{who} keeps no bytes of a block, so --bs and --range must be multiples of 4k: \
             change them"
        )))
    }

    /// Whether the block layer's options agree with a drive in memory.
    fn check_below(&self) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Usage(text.into()));
        let hosted = matches!(self.blocks.dispatch, Some(Dispatch::Hosted(_)));
        if hosted && self.clock() == ClockKind::Virtual {
            return refuse(
                "a hosted drive has a thread of its own: take --clock real, or --dispatch inline",
            );
        }
        if !hosted && self.blocks.completion.is_some_and(|c| c != Completion::Poll) {
            return refuse(
                "an inline drive wakes nobody: take --dispatch hosted, or --completion poll",
            );
        }
        self.check_layer()
    }

    /// Whether what is only read of a drive that stays was ever written.
    pub fn check_written(&self, new: bool) -> Result<(), Error> {
        if !new || self.precondition.is_some() || self.is_any(|load| load.reads() < 100) {
            return Ok(());
        }
        Err(Error::Usage(
            "nothing was ever written to this drive, and what was never written is read in no \
             time: add --precondition seq, which writes it first"
                .into(),
        ))
    }

    /// Whether reads and writes are of whole units of a device or file, which it takes none
    /// without.
    pub fn check_unit(&self, unit: u64) -> Result<(), Error> {
        let one = Sizes::One(self.bs);
        let sizes = self.varied().unwrap_or(Varied { reads: one, others: one });
        let offset = self.range.map_or(0, |range| range.offset);
        // No drive has units that are larger than that.
        let are_whole = u32::try_from(unit).is_ok_and(|unit| sizes.are_multiples_of(unit));
        if self.rw == Rw::Trim || are_whole && offset.is_multiple_of(unit) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "the drive takes multiples of {}: correct --bs, --bssplit or --range",
            units::size_binary(unit)
        )))
    }

    /// Whether the options agree with what the drive keeps.
    pub fn check_kept(&self, spec: &MemorySpec) -> Result<(), Error> {
        if spec.store != Store::Memory && !self.are_whole_blocks() {
            return Err(Error::Usage(format!(
                "store={} keeps no bytes of a block, so --bs and --range must be multiples of \
                 4k: change them, or take store=memory",
                spec.store.name()
            )));
        }
        if self.verify && spec.store == Store::None {
            let text = "--verify needs data to compare: take store=memory or store=checksum";
            return Err(Error::Usage(text.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::Line;

    #[test]
    fn requests_are_of_whole_units() {
        for (rest, unit, is_taken) in [
            ("--rw randread --bs 512", 512, true),
            ("--rw randread --bs 512", 4096, false),
            ("--rw randread --bs 4608", 4096, false),
            ("--rw randrw --bssplit 512/50:4k/50", 4096, false),
            ("--rw randrw --bssplit 512/50:4k/50", 512, true),
            ("--rw randread --bssplit 8k/50:4k/50 --range 512+64k", 4096, false),
            ("--rw randwrite --bs 4k", 4096, true),
            ("--rw trim --bs 512", 4096, true),
            ("--rw randread --bs 512", 1, true),
        ] {
            let line = format!("bench ./drive {rest}");
            let args = Line::parse_from(line.split_whitespace()).args;
            let told = args.check_unit(unit).map_err(|e| e.to_string());
            assert_eq!(told.is_ok(), is_taken, "{line}: {told:?}");
            assert!(told.err().is_none_or(|text| text.contains("multiples of 4 KiB")));
        }
    }
}
