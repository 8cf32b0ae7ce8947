//! The arbiter: from which queue a command is fetched next (NVM Express base
//! specification 2.0, 3.4.4).
//!
//! Guarantees: while something waits, it names a queue that has some; queues of a
//! class get equal shares, and classes shares as their weights are, where all of
//! them have something; what is urgent goes first. A queue whose burst was cut short
//! by the turn of another class goes on with it. Nothing here fails.

use flash::queues::{Arbitration, Class, Queues};

/// Queues by number, a bit for each.
pub(crate) type Set = u64;

/// Queues that take turns, a burst each.
struct Round {
    members: Set,
    /// Whose turn it is, and how many commands more.
    turn: u32,
    left: u32,
}

impl Round {
    fn new(members: Set) -> Round {
        // As if the last one's turn were over.
        Round { members, turn: Set::BITS - 1, left: 0 }
    }

    fn has_some(&self, waiting: Set) -> bool {
        self.members & waiting != 0
    }

    /// The next queue of those with something.
    fn next(&mut self, waiting: Set, burst: u32) -> Option<u32> {
        let mine = self.members & waiting;
        if self.left == 0 || mine >> self.turn & 1 == 0 {
            let behind = mine & (Set::MAX << self.turn << 1);
            let from = if behind != 0 { behind } else { mine };
            if from == 0 {
                return None;
            }
            (self.turn, self.left) = (from.trailing_zeros(), burst);
        }
        self.left -= 1;
        Some(self.turn)
    }
}

/// Which queue is next.
pub(crate) struct Arbiter {
    /// Commands of a queue in a row.
    burst: u32,
    urgent: Round,
    /// Classes high, medium and low; with round robin the first has all queues.
    classes: [Round; 3],
    weights: [u32; 3],
    /// Whose turn it is, and how many commands more.
    turn: usize,
    left: u32,
}

impl Arbiter {
    /// That of some queues.
    pub fn new(queues: &Queues) -> Arbiter {
        let is_weighted = queues.arbitration == Arbitration::Weighted;
        let of = |class: Class| {
            let is_of = |&queue: &u32| match is_weighted {
                true => queues.class(queue) == class,
                false => class == Class::High,
            };
            Round::new((0..queues.count).filter(is_of).fold(0, |set, queue| set | 1 << queue))
        };
        Arbiter {
            burst: if queues.burst == 0 { u32::MAX } else { queues.burst },
            urgent: of(Class::Urgent),
            classes: [Class::High, Class::Medium, Class::Low].map(of),
            weights: queues.weights,
            turn: 2,
            left: 0,
        }
    }

    /// The queue from which one command is fetched now, of those that have some.
    pub fn next(&mut self, waiting: Set) -> Option<u32> {
        if let Some(queue) = self.urgent.next(waiting, self.burst) {
            return Some(queue);
        }
        if self.left == 0 || !self.classes[self.turn].has_some(waiting) {
            let mut others = (1..=3).map(|n| (self.turn + n) % 3);
            self.turn = others.find(|&class| self.classes[class].has_some(waiting))?;
            self.left = self.weights[self.turn];
        }
        self.left -= 1;
        self.classes[self.turn].next(waiting, self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn queues(count: u32, burst: u32, classes: &[Class], weights: [u32; 3]) -> Queues {
        let arbitration =
            if classes.is_empty() { Arbitration::RoundRobin } else { Arbitration::Weighted };
        Queues { count, depth: 0, arbitration, burst, classes: classes.to_vec(), weights }
    }

    fn picks(arbiter: &mut Arbiter, waiting: Set, n: usize) -> Vec<u32> {
        (0..n).map(|_| arbiter.next(waiting).unwrap()).collect()
    }

    #[test]
    fn queues_take_turns_a_burst_each() {
        let mut arbiter = Arbiter::new(&queues(3, 1, &[], [9; 3]));
        assert_eq!(picks(&mut arbiter, 0b111, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(arbiter.next(0), None);
        assert_eq!(picks(&mut arbiter, 0b101, 3), [2, 0, 2], "one has nothing");
        let mut arbiter = Arbiter::new(&queues(64, 2, &[], [1; 3]));
        let ends = 1 << 63 | 0b10;
        assert_eq!(picks(&mut arbiter, ends, 5), [1, 1, 63, 63, 1]);
        let mut arbiter = Arbiter::new(&queues(2, 0, &[], [1; 3]));
        assert_eq!(picks(&mut arbiter, 0b11, 4), [0; 4], "without a limit");
        assert_eq!(picks(&mut arbiter, 0b10, 1), [1]);
    }

    #[test]
    fn classes_take_turns_as_long_as_their_weights() {
        use Class::*;
        let classes = [Low, High, Medium, High, Urgent];
        let mut arbiter = Arbiter::new(&queues(5, 1, &classes, [3, 2, 1]));
        let round = [1, 3, 1, 2, 2, 0, 3, 1, 3, 2, 2, 0];
        assert_eq!(picks(&mut arbiter, 0b1111, 12), round);
        assert_eq!(picks(&mut arbiter, 0b11111, 3), [4; 3], "urgent ones before all");
        assert_eq!(picks(&mut arbiter, 0b0101, 4), [2, 2, 0, 2], "a class has nothing");
        // A burst that the turn of another class cut short goes on.
        let mut arbiter = Arbiter::new(&queues(3, 4, &[High, High, Low], [3, 1, 2]));
        assert_eq!(picks(&mut arbiter, 0b111, 10), [0, 0, 0, 2, 2, 0, 1, 1, 2, 2]);
    }

    /// The rule as it is told: lists that are turned round.
    struct Model {
        /// Urgent, high, medium, low; the first of each is the one whose turn it is.
        lists: [VecDeque<u32>; 4],
        /// Fetched in the turn of the first of each.
        bursts: [u32; 4],
        burst: u32,
        /// Classes and their weights, the first of which has its turn.
        turns: VecDeque<(usize, u32)>,
        fetched: u32,
    }

    impl Model {
        fn new(queues: &Queues) -> Model {
            let mut lists: [VecDeque<u32>; 4] = Default::default();
            for queue in 0..queues.count {
                let weighted = queues.arbitration == Arbitration::Weighted;
                let list = if weighted { queues.class(queue) as usize } else { 1 };
                lists[list].push_back(queue);
            }
            let turns = (1..4).map(|list| (list, queues.weights[list - 1])).collect();
            let burst = if queues.burst == 0 { u32::MAX } else { queues.burst };
            Model { lists, bursts: [0; 4], burst, turns, fetched: 0 }
        }

        fn of_list(&mut self, list: usize, waiting: Set) -> u32 {
            let (queues, taken) = (&mut self.lists[list], &mut self.bursts[list]);
            while *taken == self.burst || waiting >> queues[0] & 1 == 0 {
                queues.rotate_left(1);
                *taken = 0;
            }
            *taken += 1;
            queues[0]
        }

        fn next(&mut self, waiting: Set) -> Option<u32> {
            let some = |list: &VecDeque<u32>| list.iter().any(|queue| waiting >> queue & 1 == 1);
            if some(&self.lists[0]) {
                return Some(self.of_list(0, waiting));
            }
            if !self.turns.iter().any(|&(list, _)| some(&self.lists[list])) {
                return None;
            }
            while self.fetched == self.turns[0].1 || !some(&self.lists[self.turns[0].0]) {
                self.turns.rotate_left(1);
                self.fetched = 0;
            }
            self.fetched += 1;
            Some(self.of_list(self.turns[0].0, waiting))
        }
    }

    proptest! {
        #[test]
        fn it_is_as_the_rule_is_told(
            count in 1u32..7,
            burst in 0u32..4,
            classes in prop::collection::vec(0usize..4, 0..7),
            weights in prop::array::uniform3(1u32..5),
            waiting in prop::collection::vec(any::<u8>(), 1..200),
        ) {
            let classes: Vec<Class> = classes.into_iter().map(|n| Class::ALL[n]).collect();
            let queues = queues(count, burst, &classes, weights);
            let (mut arbiter, mut model) = (Arbiter::new(&queues), Model::new(&queues));
            for some in waiting {
                let some = Set::from(some) & ((1 << count) - 1);
                let picked = arbiter.next(some);
                prop_assert_eq!(picked, model.next(some));
                prop_assert_eq!(picked.is_some(), some != 0);
            }
        }
    }
}
