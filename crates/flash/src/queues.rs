//! The submission queues of a drive, and the rule by which its controller fetches
//! from them.
//!
//! Here is what a profile says of them, after the command arbitration of the NVM
//! Express base specification (2.0, 3.4.4); what a controller does with it is in
//! docs/controller.md. Nothing here fails.

/// Most queues that a drive may have.
pub const MAX_QUEUES: u32 = 64;

/// Most commands that all of them hold together.
pub const MOST_QUEUED: u32 = 1024;

/// Most that a class may have fetched in its turn.
pub const MAX_WEIGHT: u32 = 256;

/// By which rule commands are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arbitration {
    /// The queues take turns.
    #[default]
    RoundRobin,
    /// The classes take turns, each as long as its weight says, and in a class its
    /// queues; what is urgent goes before all of them.
    Weighted,
}

/// Of a queue, how urgent its commands are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// Before all others.
    Urgent,
    /// The first of those that share by weights.
    High,
    /// The second.
    #[default]
    Medium,
    /// The third.
    Low,
}

impl Class {
    /// All of them, in their order.
    pub const ALL: [Class; 4] = [Class::Urgent, Class::High, Class::Medium, Class::Low];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        ["urgent", "high", "medium", "low"][self as usize]
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// A drive's submission queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queues {
    /// How many, 1 to [`MAX_QUEUES`].
    pub count: u32,
    /// Commands of each that may be inside, until they complete; 0 for an equal part
    /// of [`MOST_QUEUED`].
    pub depth: u32,
    /// The rule.
    pub arbitration: Arbitration,
    /// Commands that are fetched from a queue before it is another's turn; 0 for all
    /// that it has.
    pub burst: u32,
    /// The class of each, in turn; [`Class::Medium`] where nothing is said.
    pub classes: Vec<Class>,
    /// Commands that are fetched of classes high, medium and low in their turn, 1 to
    /// [`MAX_WEIGHT`].
    pub weights: [u32; 3],
}

impl Default for Queues {
    fn default() -> Queues {
        let arbitration = Arbitration::default();
        Queues { count: 1, depth: 0, arbitration, burst: 1, classes: Vec::new(), weights: [1; 3] }
    }
}

impl Queues {
    /// Whether they are more than one line, without a bound of its own.
    pub fn is_on(&self) -> bool {
        self.count > 1 || self.depth > 0
    }

    /// Commands of each that may be inside.
    pub fn depth(&self) -> u32 {
        if self.depth > 0 { self.depth } else { MOST_QUEUED / self.count }
    }

    /// The class of a queue.
    pub fn class(&self, queue: u32) -> Class {
        self.classes.get(queue as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_follows() {
        let queues = Queues { count: 3, classes: vec![Class::Urgent], ..Queues::default() };
        assert!(queues.is_on() && !Queues::default().is_on());
        assert_eq!((queues.depth(), Queues { depth: 7, ..queues.clone() }.depth()), (341, 7));
        assert_eq!(
            [0, 1, 2].map(|queue| queues.class(queue).name()),
            ["urgent", "medium", "medium"]
        );
        assert!(Class::ALL.iter().all(|class| Class::from_name(class.name()) == Some(*class)));
    }
}
