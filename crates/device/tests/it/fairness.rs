//! Reads go first, and nothing waits for ever because of them: what passes
//! before a program or an erase is counted, and reads are late by no more.

use std::collections::VecDeque;

use crate::common::{Rig, cmd, geometry, written};
use device::{Device, VectorOp};
use flash::profile::Profile;
use flash::{RamMedium, SlcCache, SlcSize, Timing};
use port::{Port, Time};

use VectorOp::{Read, Reset, Write};

/// Reads outstanding at each die that is read.
const DEPTH: usize = 8;

/// Cookies from here on are of programs and erases; below, of a die's reads.
const OTHERS: u64 = 100;

/// Reads at a die after which something that waits is given up.
const MOST_READS: u64 = 2000;

/// What a stream of reads did, and what waited in it.
struct Stream {
    rig: Rig<Device<RamMedium>>,
    /// By die, when the reads that are inside came, oldest first.
    inside: Vec<VecDeque<Time>>,
    /// By die, reads that completed.
    reads: Vec<u64>,
    /// The longest that a read took.
    longest: u64,
    /// By die, the reads that had completed there when each of the others did.
    ended: Vec<Vec<u64>>,
}

impl Stream {
    /// Dies of one channel, of which the first `read` always have reads.
    fn new(timing: &Timing, dies: u32, read: u32) -> Stream {
        let rig = written(&geometry(1, dies, 1), timing);
        let all = dies as usize;
        let inside = vec![VecDeque::new(); all];
        let mut stream =
            Stream { rig, inside, reads: vec![0; all], longest: 0, ended: vec![Vec::new(); all] };
        for die in (0..read as usize).flat_map(|die| [die; DEPTH]) {
            stream.read(die);
        }
        stream
    }

    fn read(&mut self, die: usize) {
        let (now, g) = (self.rig.now, *device::OpenChannel::geometry(&self.rig.port));
        self.inside[die].push_back(now);
        let block = (self.reads[die] % 8) as u32;
        self.rig.submit(now.0, cmd(die as u64, Read, g.ppa(0, die as u32, 0, block), 1));
    }

    /// Every row of a free chunk, and an erase behind them.
    fn write(&mut self, die: u32) -> u64 {
        let g = *device::OpenChannel::geometry(&self.rig.port);
        let cookie = OTHERS + u64::from(die);
        for row in 0..g.dimensions().pages {
            let at = g.ppa(0, die, 3, row * g.row_blocks());
            self.rig.submit(self.rig.now.0, cmd(cookie, Write, at, g.row_blocks() as u8));
        }
        self.rig.submit(self.rig.now.0, cmd(cookie, Reset, g.ppa(0, die, 2, 0), 1));
        u64::from(g.dimensions().pages) + 1
    }

    /// Until so many of the others have ended. False where one never does.
    fn run(&mut self, others: u64) -> bool {
        let mut ended = 0;
        while ended < others {
            let at = self.rig.port.next_event().expect("reads are inside");
            self.rig.run_to(at);
            for done in std::mem::take(&mut self.rig.all) {
                assert!(done.status.is_ok());
                if done.cookie >= OTHERS {
                    let die = (done.cookie - OTHERS) as usize;
                    self.ended[die].push(self.reads[die]);
                    ended += 1;
                    continue;
                }
                let die = done.cookie as usize;
                let came = self.inside[die].pop_front().expect("it was inside");
                self.longest = self.longest.max(done.at - came);
                self.reads[die] += 1;
                self.read(die);
            }
            if self.reads.iter().any(|&reads| reads > MOST_READS) {
                return false;
            }
        }
        true
    }
}

/// The longest that a lone operation takes: a read of a block, and the longest
/// of the others.
fn longest(t: &Timing) -> (u64, u64) {
    let most = |times: &[u64]| *times.iter().max().expect("there is one");
    let program = t.transfer(2) + most(&t.program) + t.opening;
    (t.command + most(&t.read) + t.transfer(1), t.command + program.max(t.erase))
}

#[test]
fn in_every_profile_writes_go_on_in_a_stream_of_reads() {
    for name in Profile::names() {
        let timing = Profile::builtin(name).unwrap().timing;
        assert!(timing.reads_first, "{name}");
        let mut stream = Stream::new(&timing, 4, 4);
        let others = (0..4).map(|die| stream.write(die)).sum();
        assert!(stream.run(others), "{name}: something waits for ever");
        for ended in &stream.ended {
            // One more is at work when the first of them comes.
            let mut before = 0;
            for &reads in ended {
                let passed = reads - before;
                assert!(passed <= u64::from(timing.read_burst) + 1, "{name}: {passed} went before");
                before = reads;
            }
        }
    }
}

#[test]
fn in_every_profile_reads_are_late_by_what_the_bound_says() {
    for name in Profile::names() {
        let timing = Profile::builtin(name).unwrap().timing;
        let (read, other) = longest(&timing);
        let mut stream = Stream::new(&timing, 1, 1);
        let others = stream.write(0);
        assert!(stream.run(others), "{name}");
        // Of so few reads in a row at most one waits for one of the others.
        let suspensions = timing.suspend_time + timing.resume_time;
        let bound = DEPTH as u64 * (read + suspensions) + other;
        assert!(stream.longest <= bound, "{name}: {} of {bound} ns", stream.longest);
        let all = stream.reads[0] * (read + suspensions) + others * other + read;
        assert!(stream.rig.now.0 <= all, "{name}: {} of {all} ns", stream.rig.now.0);
    }
}

/// A transfer takes 100 us a block; the array next to nothing.
fn bound_by_the_channel() -> Timing {
    const US: u64 = 1000;
    let (read, program) = (vec![US], vec![900 * US]);
    Timing { read, program, erase: 3000 * US, channel_rate: 40_960_000, ..Timing::default() }
}

#[test]
fn on_a_channel_full_of_reads_a_writes_transfer_has_its_turn() {
    for (reads_first, suspend_transfer) in [(true, false), (true, true), (false, true)] {
        for read_burst in [0, 3, 64] {
            let t = bound_by_the_channel();
            let timing = Timing { read_burst, reads_first, suspend_transfer, ..t };
            let mut stream = Stream::new(&timing, 5, 4);
            let others = stream.write(4);
            assert!(stream.run(others), "{read_burst} {suspend_transfer}");
            // A turn of 100 us for each that goes before, and for the one that
            // has the channel; the others' own, with one read at each die that
            // waits where they do.
            let turns = u64::from(read_burst.max(1)) + 1 + 4;
            let (_, own) = longest(&timing);
            let all = others * (turns * timing.transfer(1) + own);
            assert!(stream.rig.now.0 <= all, "{read_burst}: {} of {all} ns", stream.rig.now.0);
        }
    }
}

#[test]
fn without_a_bound_reads_keep_all_else_waiting() {
    let timing = Timing { read_burst: u32::MAX, ..bound_by_the_channel() };
    let mut die = Stream::new(&timing, 1, 1);
    let others = die.write(0);
    assert!(!die.run(others), "the stream is one that starves");
    let mut channel = Stream::new(&timing, 5, 4);
    let others = channel.write(4);
    assert!(!channel.run(others), "the stream is one that starves");
}

#[test]
fn among_writes_reads_have_their_turn_with_any_bound() {
    for read_burst in [0, 1, 3] {
        for suspend in [false, true] {
            let timing = Timing { read_burst, suspend, ..bound_by_the_channel() };
            let mut stream = Stream::new(&timing, 1, 1);
            let others = stream.write(0);
            assert!(stream.run(others));
            let ended = &stream.ended[0];
            let turns = ended.windows(2).all(|two| two[1] > two[0]);
            assert!(turns, "{read_burst}: reads done when each of the others was: {ended:?}");
        }
    }
}

/// What waits behind a fold has its turn when the fold has had its own: reads
/// that went before the one went before the other.
#[test]
fn reads_that_went_before_a_fold_went_before_what_waited_behind_it() {
    const US: u64 = 1000;
    for read_burst in [1, 3, 8] {
        let size = SlcSize::Bytes(4 * 8192);
        let (read, program, idle) = (20 * US, 200 * US, 5000 * US);
        let slc = SlcCache { size, read, program, idle, ..SlcCache::default() };
        let (suspend, erase) = (true, 3000 * US);
        let t = Timing { read: vec![50 * US], program: vec![900 * US], erase, ..Timing::default() };
        let timing = Timing { read_burst, suspend, slc, ..t };
        let mut stream = Stream::new(&timing, 1, 0);
        let g = *device::OpenChannel::geometry(&stream.rig.port);
        stream.rig.submit(0, cmd(OTHERS, Write, g.ppa(0, 0, 3, 0), 2));
        // In the fold of that row.
        stream.rig.run_to(Time((200 + 5000 + 100) * US));
        stream.rig.all.clear();
        (0..DEPTH).for_each(|_| stream.read(0));
        let now = stream.rig.now.0;
        stream.rig.submit(now, cmd(OTHERS, Write, g.ppa(0, 0, 3, 2), 2));
        assert!(stream.run(1), "{read_burst}: the write waits for ever");
        assert_eq!(stream.rig.port.slc_health().folded, 1);
        let reads = stream.ended[0][0];
        assert!(reads <= u64::from(read_burst), "{read_burst}: {reads} went before the write");
    }
}
