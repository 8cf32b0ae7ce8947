//! Why requests take what they take: what two looks at a served drive say of the time
//! between them, as lines.
//!
//! Guarantees: what is shown are names and numbers of ours, whatever the server said.
//! Nothing here fails.

use measure::causes::Causes;
use measure::slowest::Slow;
use measure::units;
use measure::why::Why;

use crate::explained::Look;

/// Slowest requests that are shown, at most.
const SLOWEST: usize = 10;

/// What was between two looks.
#[derive(Clone, Debug)]
pub(super) struct Between {
    seconds: f64,
    causes: Causes,
    /// The slowest, and how many ns ago each ended.
    slowest: Vec<(Slow, u64)>,
}

impl Between {
    /// None where the server is another one now.
    pub fn looks(before: &Look, after: &Look) -> Option<Between> {
        let seconds = after.at.saturating_sub(before.at) as f64 / 1e9;
        let mut slowest = after.slowest_since(before);
        slowest.truncate(SLOWEST);
        let causes = after.causes_since(before);
        after.follows(before).then_some(Between { seconds, causes, slowest })
    }

    /// As lines of so many columns at most, but for what is wider alone.
    pub fn lines(&self, columns: usize) -> Vec<String> {
        let why = Why::of_one(&self.causes);
        let time = units::time_ns(self.seconds * 1e9);
        let mut text = format!("requests that ended in {time}\n");
        if why.kinds().next().is_none() {
            return vec![format!("no request ended in {time}")];
        }
        text += &why.tables(columns);
        let slowest = self.slowest.iter().map(|(slow, ago)| (slow, *ago, None));
        text += "\n";
        text += &why.requests(slowest, "ended ago", columns);
        text.lines().map(Into::into).collect()
    }
}
