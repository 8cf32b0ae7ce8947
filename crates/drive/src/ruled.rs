//! Drives made of rules: `target=rules`.
//!
//! Such a drive is a block drive as any; what becomes of each request its rule set decides
//! ([`ruled::Ruled`]). Fails where the set does not suit the drive, or the drive has what no set
//! is carried out on.

use device::OpenChannel;
use ftl::{Halt, Over, Start, Target};
use port::{Shape, Time};
use ruled::{Ruled, RuledConfig, RuledError, SetInstaller};

use crate::error::Error;
use crate::lower::{Flash, Lower};
use crate::remote;
use crate::say::say;
use crate::spec::DriveConfig;
use crate::whole::{self, Cut, Drive, Ended};

/// What whoever makes or opens a drive, or a target, of rules is to know of it: blocks that its
/// set gives to nobody, flushes that it refuses.
pub fn warning(config: &DriveConfig) -> Option<String> {
    let rules = config.rules.as_ref().filter(|_| config.control.is_none())?;
    let set = &rules.set().name.text;
    let blocks = ruled::nobodys(rules, config.size).map(|(from, to)| {
        let last = to - 1;
        format!("blocks {from} to {last} are no application's of the set {set}, and are refused")
    });
    let flushes = ruled::refuses_flushes(rules).then(|| {
        format!(
            "the set {set} refuses flushes: who asks for one gets an error; a rule \
             `when op == flush then pass` lets them through"
        )
    });
    let all: Vec<String> = blocks.into_iter().chain(flushes).collect();
    (!all.is_empty()).then(|| format!("{}: {}", config.name, all.join("; ")))
}

/// Tells it.
pub(crate) fn warn(config: &DriveConfig) {
    warning(config).into_iter().for_each(say);
}

/// The target on what is below it: new, or recovered from what that holds from some time on.
pub(crate) fn start<D: OpenChannel>(
    config: &DriveConfig,
    seed: u64,
    flash: D,
    found: Option<Time>,
) -> Result<(Ruled<D>, Time), Error> {
    let rules = config.rules.as_ref().expect("a drive of rules was resolved with a set");
    let set_up = RuledConfig {
        bytes: config.size,
        rules: (**rules).clone(),
        control: config.control.clone(),
        remotes: remote::of(config, seed, flash.kept())?,
    };
    let started = match found {
        Some(now) => Ruled::recover(flash, &set_up, now),
        None => Ruled::new(flash, &set_up).map(|target| (target, Time::ZERO)),
    };
    started.map_err(|e| {
        let text = format!("{}: {e}", config.name);
        match e {
            RuledError::Halt(Halt::Memory(e)) => Error::Memory(e),
            RuledError::Halt(_) | RuledError::Unread(_) | RuledError::Remote { .. } => {
                Error::Failed(text)
            }
            _ => Error::Usage(text),
        }
    })
}

impl Drive for Ruled<Flash> {
    whole::is_one_target!();

    fn rules(&self) -> Option<SetInstaller> {
        Some(self.installer())
    }

    /// Ends its remote drives behind it, also where it ends badly.
    fn end(mut self: Box<Self>, now: Time) -> Result<Ended, Error> {
        let (at, closed) = whole::close(&mut *self, now);
        let remotes: Vec<_> = self.take_remotes().collect();
        let ended = whole::ended(Box::new(self.into_below()), closed, at);
        for remote in remotes {
            remote.end(at).map_err(|e| Error::Failed(format!("the remote drive: {e}")))?;
        }
        ended
    }

    /// Its remote drives go with it.
    fn cut(self: Box<Self>) -> Cut {
        whole::cut(Box::new(self.into_below()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::lives_as;
    use crate::spec::DriveSpec;
    use crate::stack::{build, check, needs_blocks, needs_stories};
    use crate::whole::Observed;
    use port::{BlockOp, BlockReq, Buffer, Port, Ring};

    const SMALL: &str = "mem:tlc,size=16M,groups=2,pus=2,pages=16,target=rules";
    const PIECE: u64 = 16 << 10;

    fn config(rest: &str) -> Result<DriveConfig, String> {
        let spec = format!("{SMALL}{rest}").parse().map_err(|e| format!("{e}"))?;
        let DriveSpec::Memory(spec) = spec else { panic!("{rest}") };
        spec.resolve().map_err(|e| Error::from(e).to_string())
    }

    /// With any set and any layers, written over and over it is ended and found again, and
    /// all is there.
    #[test]
    fn any_set_and_any_layers_go_together() {
        for rest in [
            "",
            ",rules=latency:2",
            ",rules=learn:latency:2",
            ",rules=throughput:3",
            ",rules=longevity",
            ",parity=4",
        ] {
            for more in ["", ",side=host", ",cache=protected", ",buffer_rate=1GB/s,read_cache=1m"] {
                for rules in [&[][..], &["above:read,delay=1ms", "below:write,delay=1us"]] {
                    lives(&format!("{rest}{more}"), rules);
                }
            }
        }
    }

    fn lives(rest: &str, rules: &[&str]) {
        let config = config(rest).unwrap_or_else(|e| panic!("{rest}: {e}"));
        lives_as(rest, config, rules, |drive, config| {
            let rules = drive.rules().expect("it has rules").rules();
            assert_eq!(rules.set().name, config.rules.as_ref().unwrap().set().name);
            // Of two applications each was missed once, where rules were learnt.
            assert_eq!(rules.hits().undecided(), if rest.contains("learn") { 2 } else { 0 });
        });
    }

    /// Where there is room nothing is collected, however fast it is written.
    #[test]
    fn a_new_drive_collects_nothing() {
        let mut drive = build(&config(",rules=longevity").unwrap(), 1).unwrap();
        let (mut cmds, mut done, mut now) = (Ring::new(64), Ring::new(64), Time::ZERO);
        for id in 0..drive.shape().bytes / PIECE {
            let (fua, placement, queue) = (false, 0, 0);
            let (op, offset, len) = (BlockOp::Write, id * PIECE, PIECE);
            let buffer = Buffer::zeroed(PIECE as usize).unwrap();
            cmds.put(|| BlockReq { id, op, fua, placement, queue, offset, len, buffer });
            drive.submit(now, &mut cmds);
            while !cmds.is_empty() {
                now = drive.next_event().expect("it is inside");
                drive.advance(now, &mut done);
                done.drain().for_each(drop);
                drive.submit(now, &mut cmds);
            }
        }
        let counters = drive.counters();
        assert_eq!((counters.collections, counters.gc), (0, 0));
    }

    /// What it cannot have is refused by the name of what is in the way.
    #[test]
    fn what_it_cannot_have_is_refused() {
        for (rest, says) in [
            (",shards=2", "1 with target=batch, kv or rules"),
            (",streams=2", "1 with target=batch, kv or rules"),
            (",map_unit=16k", "4k with target=rules"),
            (",keys=5", "only with target=kv"),
            (",targets=2,rules=minimal+minimal+latency", "with a + between"),
            (",rules=minimal+latency", "with a + between"),
            (",rules=speed", "it takes minimal, latency"),
            (",rules=latency:0", "it takes minimal, latency"),
            (",rules=learn:", "it takes minimal, latency"),
            (",rules=learn:minimal", "cannot be added to a drive that runs"),
            (",rules=latency:5", "more than the drive has units (4)"),
            (",rules=./there/is/none.rules", "cannot read the rule set ./there/is/none.rules"),
        ] {
            let told = config(rest).map(|_| ()).expect_err(rest);
            assert!(told.contains(says), "{rest}: {told}");
        }
        let told = "mem:tlc,size=16M,rules=latency".parse::<DriveSpec>();
        let Ok(DriveSpec::Memory(spec)) = told else { panic!("it is a name") };
        assert!(spec.resolve().unwrap_err().to_string().contains("only with target=rules"));
        let config = config("").unwrap();
        needs_blocks(&config).unwrap();
        assert!(needs_stories(&config).unwrap_err().to_string().contains("target=pblk"));
        check(&config, 1).unwrap();
    }

    /// A file with a set: what is wrong is told with line, column and caret; what the drive
    /// has no units for, when it is made.
    #[test]
    fn a_file_is_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.rules");
        let name = path.display();
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            config(&format!(",rules={name}"))
        };
        let good = "set mine application 0 lba 0..4K units 0..4
            rule all priority 0 when op != idle then pass";
        let fine = with(good).unwrap();
        assert_eq!(fine.rules.as_ref().unwrap().set().name.text, "mine");
        assert_eq!(fine.effective()["rules"]["set"], "mine");
        let told = with(&good.replace("pass", "past")).map(|_| ()).unwrap_err();
        assert!(told.starts_with(&format!("{name}:2:54: error: ")), "{told}");
        assert!(told.contains("^^^^"), "{told}");
        let many = with(&good.replace("units 0..4", "units 0..5")).unwrap();
        let told = check(&many, 1).map(|_| ()).unwrap_err();
        assert!(told.to_string().contains("up to 5, and the drive has 4"), "{told}");
        assert_eq!(told.exit_code(), 2);
    }
}
