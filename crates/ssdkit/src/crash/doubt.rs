//! What of a run makes it doubtful that a check which held says anything.
//!
//! Guarantees: what is doubted is told and changes no result. May fail: the check cannot be run.

use crash::Event;
use drive::error::Error;
use files::Operation;
use measure::units;

use super::hunt::Hunt;
use super::lives::Life;

/// What the program said on standard output, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Bytes in all.
    pub bytes: u64,
    /// Lines that ended.
    pub lines: u64,
    /// In so many writes.
    pub writes: u64,
    /// Nothing was done to files, nor synced, after the first of them.
    pub is_at_the_end: bool,
}

impl Said {
    /// What was said in a run.
    pub fn of(events: &[Event]) -> Said {
        let mut said = Said { is_at_the_end: true, ..Said::default() };
        for event in events {
            match event {
                Event::Output { stream: 1, data } => {
                    said.bytes += data.len() as u64;
                    said.lines += data.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    said.writes += 1;
                }
                Event::Operation(Operation::Forget { .. }) => {}
                Event::Operation(_) => said.is_at_the_end &= said.writes == 0,
                _ => {}
            }
        }
        said
    }

    /// In words, where something was said.
    pub fn text(&self) -> Option<String> {
        let Said { bytes, writes, is_at_the_end, .. } = *self;
        let at = if is_at_the_end { ", after all else" } else { "" };
        (bytes > 0).then(|| format!("said {bytes} B in {}{at}", units::exactly(writes, "write")))
    }

    /// Several lines at the end may be those of a program that does not know when it is heard.
    fn is_late(&self) -> bool {
        self.is_at_the_end && self.lines > 1
    }
}

/// What is doubtful of a life that a check is about to look at.
pub fn of(life: &Life, hunt: &Hunt<'_>) -> Result<Vec<String>, Error> {
    let said = Said::of(life.explorer.events());
    let mut doubts = Vec::new();
    if said.is_late() {
        doubts.push(format!(
            "all {} that the program said came when it was done, so that at no cut before is it \
             held to one: what goes to a pipe is held back by most programs; have it print at \
             once (stdbuf -oL, python -u, fflush)",
            units::exactly(said.lines, "line")
        ));
    }
    let begins_with_nothing = said.bytes == 0 && life.run.initial.is_empty();
    if !begins_with_nothing && hunt.holds_of_nothing()? {
        doubts.push(
            "the check holds of an empty folder as well, with all that the program said: it misses \
             nothing that is gone; have it ask for what was there and for what was acknowledged \
             ($SSDKIT_SAID)"
                .to_owned(),
        );
    }
    Ok(doubts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::Inode;

    #[test]
    fn what_is_said_after_all_else_is_late_where_it_is_more_than_a_line() {
        let said = |text: &str| Event::Output { stream: 1, data: text.into() };
        let sync = || Event::Operation(Operation::SyncAll);
        let closed = || Event::Operation(Operation::Forget { inode: Inode(2) });
        let aside = || Event::Output { stream: 2, data: b"a note\n".to_vec() };
        let late = |events: &[Event]| Said::of(events).is_late();
        assert!(late(&[sync(), aside(), sync(), said("1\n2\n3\n"), closed()]));
        assert!(late(&[sync(), said("1\n"), said("2\n")]));
        assert!(!late(&[sync(), said("done\n")]), "one line is in its place");
        assert!(!late(&[sync(), said("1\n"), sync(), said("2\n")]));
        assert!(!late(&[sync(), aside()]));
        let all = Said::of(&[sync(), said("1\n2\n")]);
        assert_eq!(all.text().as_deref(), Some("said 4 B in 1 write, after all else"));
        assert_eq!(Said::of(&[sync()]).text(), None);
    }
}
