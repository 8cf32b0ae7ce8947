//! Where a command's time went, to the nanosecond: each part against arithmetic,
//! and of random commands the sum.

use crate::common::{cmd, drive, geometry, written};
use device::{BufferMemory, Buffered, Link, LinkTiming, VectorCmd, VectorDone, VectorOp};
use flash::{MultiPlane, Ppa, SlcCache, SlcSize, Timing};
use port::story::{Cause, Work};
use port::{Part, Port, Ring, Story, Time, Whose};
use proptest::prelude::*;

use VectorOp::{Read, Reset, Write};
use Whose::{Collection, Refresh, User};

fn timing() -> Timing {
    // A block takes 100 ns on the channel.
    Timing {
        read: vec![50],
        program: vec![1000],
        erase: 3000,
        command: 5,
        channel_rate: 40_960_000_000,
        reads_first: false,
        ..Timing::default()
    }
}

/// Submits commands at their times and gives the story of each, by cookie.
fn told<P>(mut port: P, cmds: Vec<(u64, VectorCmd)>) -> Vec<Story>
where
    P: Port<Cmd = VectorCmd, Done = VectorDone>,
{
    port.set_stories(true);
    let mut came = vec![Time::ZERO; cmds.len()];
    let (mut ring, mut done) = (Ring::new(1), Ring::new(3));
    let (mut stories, mut count) = (vec![None; cmds.len()], 0);
    let mut run = |port: &mut P, to: Time, came: &[Time]| {
        while let Some(at) = port.next_event().filter(|&at| at <= to) {
            port.advance(at, &mut done);
            for done in done.drain() {
                let story = port.story(count).unwrap();
                let number = done.cookie as usize;
                count += 1;
                assert!(story.is_whole(), "{story:?}");
                assert_eq!((story.start(), story.end()), (came[number], done.at));
                assert!(stories[number].replace(story).is_none());
            }
        }
    };
    for (number, (at, cmd)) in cmds.into_iter().enumerate() {
        run(&mut port, Time(at), &came);
        came[number] = Time(at);
        ring.put(|| VectorCmd { cookie: number as u64, ..cmd });
        port.submit(Time(at), &mut ring);
        assert!(ring.is_empty(), "the port took it");
    }
    run(&mut port, Time(u64::MAX), &came);
    assert_eq!(port.story(stories.len() as u64), None, "one for each");
    stories.into_iter().map(|story| story.expect("it completed")).collect()
}

fn of(whose: Whose, op: VectorOp, ppa: Ppa, count: u8) -> VectorCmd {
    VectorCmd { whose, ..cmd(0, op, ppa, count) }
}

fn behind(work: Work, whose: Whose, story: &Story) -> u64 {
    story.behind(Cause::new(work, whose))
}

#[test]
fn a_read_tells_what_it_waited_behind() {
    let g = geometry(1, 2, 1);
    let drive = written(&g, &timing()).port;
    let at = |pu, chunk, block| g.ppa(0, pu, chunk, block);
    let stories = told(
        drive,
        vec![
            (0, of(Collection, Write, at(0, 3, 0), 2)),
            (0, of(User, Read, at(1, 0, 0), 1)),
            (10, of(Refresh, Reset, at(0, 1, 0), 1)),
            (20, of(User, Read, at(0, 2, 0), 1)),
        ],
    );
    // The program has the channel until 205, and its array until 1205.
    let parts =
        |story: &Story| [Part::Channel, Part::Transfer, Part::Array].map(|part| story.ns_of(part));
    assert_eq!(parts(&stories[0]), [0, 205, 1000]);
    assert_eq!(parts(&stories[1]), [205, 105, 50]);
    // The erase waited for the program, the read for both.
    assert_eq!(behind(Work::Program, Collection, &stories[2]), 1195);
    assert_eq!(parts(&stories[2]), [0, 5, 3000]);
    assert_eq!(behind(Work::Program, Collection, &stories[3]), 1185);
    assert_eq!(behind(Work::Erase, Refresh, &stories[3]), 3005);
    assert_eq!(parts(&stories[3]), [0, 105, 50]);
    assert_eq!(stories[3].parts().count(), 4);
}

/// However long something waits, and whatever goes before it: more turns than are kept.
#[test]
fn all_of_a_long_wait_is_told() {
    let g = geometry(1, 1, 1);
    let drive = written(&g, &timing()).port;
    let whose = |n: u64| if n.is_multiple_of(2) { User } else { Collection };
    let read = |n| (10 * n, of(whose(n), Read, g.ppa(0, 0, 2, n as u32 % 2), 1));
    // One after the other each takes a command, the array and its transfer.
    let took = 5 + 50 + 100;
    for (n, story) in (0..300).zip(told(drive, (0..300).map(read).collect())) {
        for of in [User, Collection] {
            let before = (0..n).filter(|&k| whose(k) == of);
            let waited: u64 =
                before.map(|k| (took * (k + 1)).saturating_sub(10 * n).min(took)).sum();
            assert_eq!(behind(Work::Read, of, &story), waited, "{n}");
        }
        assert_eq!(story.ns_of(Part::Channel), 0);
    }
}

#[test]
fn a_program_that_is_suspended_waits_for_the_reads() {
    let g = geometry(1, 1, 1);
    let timing = Timing {
        read: vec![50],
        program: vec![1000],
        suspend: true,
        suspend_time: 20,
        resume_time: 10,
        ..Timing::default()
    };
    let drive = written(&g, &timing).port;
    let cmds = vec![
        (0, of(Collection, Write, g.ppa(0, 0, 3, 0), 2)),
        (100, of(User, Read, g.ppa(0, 0, 1, 0), 1)),
        (110, of(User, Read, g.ppa(0, 0, 1, 1), 1)),
    ];
    let stories = told(drive, cmds);
    assert_eq!(behind(Work::Read, User, &stories[0]), 100);
    assert_eq!(stories[0].ns_of(Part::Array), 1000 + 20 + 10);
    assert_eq!(behind(Work::Program, Collection, &stories[1]), 20);
    assert_eq!(behind(Work::Program, Collection, &stories[2]), 10);
    assert_eq!(behind(Work::Read, User, &stories[2]), 50);
}

/// A fold that goes on after a read is still the drive's program, and so is an erase of
/// the area its erase.
#[test]
fn what_keeps_the_cache_is_told_as_that_also_when_it_goes_on() {
    for cache_registers in [false, true] {
        let g = geometry(1, 1, 1);
        let slc = SlcCache {
            size: SlcSize::Bytes(8192),
            read: 20,
            program: 200,
            idle: 500,
            ..SlcCache::default()
        };
        let timing = Timing {
            read: vec![50],
            program: vec![1000],
            erase: 3000,
            suspend: true,
            suspend_time: 20,
            resume_time: 10,
            cache_registers,
            slc,
            ..Timing::default()
        };
        let read = |at| (at, of(User, Read, g.ppa(0, 0, 0, 0), 1));
        let mut cmds = Vec::new();
        for row in 0..6 {
            cmds.push((0, of(User, Write, g.ppa(0, 0, 0, 2 * row), 2)));
        }
        // From 5700 on it folds the rows that found room, then erases their blocks.
        let mut at = 5700;
        while at < 20_000 {
            cmds.extend([read(at), read(at + 300)]);
            at += 1000;
        }
        let stories = told(drive(&g, &timing, 0), cmds);
        let reads = &stories[6..];
        let told =
            |work| reads.iter().filter(|story| behind(work, Whose::Drive, story) > 0).count();
        assert!(told(Work::Program) > 2 && told(Work::Erase) > 2);
        for story in reads {
            assert_eq!(behind(Work::Read, User, story), 0, "no other read is there: {story:?}");
        }
    }
}

/// While a row comes in, what has the array is what others wait behind.
#[test]
fn a_program_that_loads_is_not_what_reads_wait_behind() {
    let g = geometry(1, 1, 1);
    let timing = Timing { cache_registers: true, reads_first: true, ..timing() };
    let stories = told(
        written(&g, &timing).port,
        vec![
            (0, of(Collection, Write, g.ppa(0, 0, 3, 0), 2)),
            // Its data are there at 410; it enters the array when the read has left it.
            (0, of(User, Write, g.ppa(0, 0, 3, 2), 2)),
            (500, of(Refresh, Read, g.ppa(0, 0, 0, 0), 1)),
            (500, of(User, Write, g.ppa(0, 0, 3, 4), 2)),
        ],
    );
    assert_eq!(behind(Work::Program, Collection, &stories[1]), 205 + 795);
    assert_eq!(behind(Work::Program, User, &stories[1]), 0);
    assert_eq!(behind(Work::Read, Refresh, &stories[1]), 55);
    assert_eq!(behind(Work::Program, Collection, &stories[2]), 705);
    assert_eq!(behind(Work::Program, User, &stories[2]), 0);
    assert_eq!(behind(Work::Program, Collection, &stories[3]), 705);
    assert_eq!(behind(Work::Read, Refresh, &stories[3]), 55);
}

/// Nothing but the row that comes in is in the way of the next one.
#[test]
fn a_program_that_loads_is_what_others_wait_behind_where_nothing_has_the_array() {
    let g = geometry(1, 1, 1);
    let timing = Timing { cache_registers: true, ..timing() };
    let stories = told(
        written(&g, &timing).port,
        vec![
            (0, of(User, Read, g.ppa(0, 0, 0, 0), 1)),
            (200, of(Collection, Write, g.ppa(0, 0, 3, 0), 2)),
            (200, of(User, Write, g.ppa(0, 0, 3, 2), 2)),
        ],
    );
    assert_eq!(behind(Work::Program, Collection, &stories[2]), 205 + 1000 - 205);
    assert_eq!(behind(Work::Read, User, &stories[2]), 0);
}

#[test]
fn a_read_of_a_plane_waits_behind_what_that_plane_reads() {
    let g = geometry(1, 1, 2);
    let timing = Timing { read: vec![1000], plane_reads: true, reads_first: true, ..timing() };
    let stories = told(
        written(&g, &timing).port,
        vec![
            (0, of(Collection, Read, g.ppa(0, 0, 0, 0), 1)),
            (0, of(Refresh, Read, g.ppa(0, 0, 0, 2), 1)),
            (20, of(User, Read, g.ppa(0, 0, 0, 0), 1)),
            (20, of(User, Write, g.ppa(0, 0, 3, 0), 4)),
        ],
    );
    // The second has its command at 10, and its data after those of the first.
    assert_eq!(behind(Work::Read, Collection, &stories[2]), 1105 - 20);
    assert_eq!(behind(Work::Read, Refresh, &stories[2]), 0);
    assert_eq!(behind(Work::Read, Refresh, &stories[3]), 1105 - 20);
}

#[test]
fn a_link_adds_its_time_on_both_ways() {
    let g = geometry(1, 1, 1);
    let link =
        LinkTiming { latency: 3, controller: 4, rate: 4_096_000_000, ..LinkTiming::default() };
    let drive = Link::new(link, written(&g, &timing()).port);
    let cmds =
        vec![(0, of(User, Read, g.ppa(0, 0, 0, 0), 2)), (0, of(User, Write, g.ppa(0, 0, 3, 0), 2))];
    let stories = told(drive, cmds);
    assert_eq!(stories[0].ns_of(Part::Link), 3 + 2000 + 3);
    assert_eq!(stories[0].ns_of(Part::Controller), 4);
    assert_eq!(stories[0].ns_of(Part::Array), 50);
    assert_eq!(stories[1].ns_of(Part::Link), 2000 + 3 + 3);
    assert_eq!(stories[1].ns_of(Part::Controller), 4);
    assert_eq!(stories[1].ns_of(Part::Transfer), 205);
}

/// One core of 7 ns a read: the second read waits for it and has it.
#[test]
fn a_core_has_its_part() {
    let g = geometry(1, 2, 1);
    let link =
        LinkTiming { latency: 3, controller: 4, cores: 1, core_read: 7, ..LinkTiming::default() };
    let drive = Link::new(link, written(&g, &timing()).port);
    let cmds =
        vec![(0, of(User, Read, g.ppa(0, 0, 0, 0), 1)), (2, of(User, Read, g.ppa(0, 1, 0, 0), 1))];
    let stories = told(drive, cmds);
    assert_eq!((stories[0].ns_of(Part::Core), stories[0].ns_of(Part::Link)), (7, 3 + 3));
    assert_eq!((stories[1].ns_of(Part::Core), stories[1].ns_of(Part::Link)), (5 + 7, 3 + 3));
}

#[test]
fn what_is_inside_already_is_known_to_those_that_wait_behind_it() {
    let g = geometry(1, 1, 1);
    let mut rig = written(&g, &timing());
    rig.submit(0, of(Collection, Write, g.ppa(0, 0, 3, 0), 2));
    rig.submit(0, of(Refresh, Reset, g.ppa(0, 0, 1, 0), 1));
    rig.port.set_stories(true);
    rig.submit(100, of(User, Read, g.ppa(0, 0, 2, 0), 1));
    rig.drain();
    let number = rig.all.len() as u64 - 1;
    let story = rig.port.story(number).expect("one for each");
    assert_eq!(rig.port.story(number + 1), None);
    assert_eq!(behind(Work::Program, Collection, &story), 1105);
    assert_eq!(behind(Work::Erase, Refresh, &story), 3005);
    rig.port.set_stories(false);
    rig.submit(9000, of(User, Read, g.ppa(0, 0, 2, 0), 1));
    rig.drain();
    assert_eq!(rig.port.story(0), None);
}

fn timings() -> impl Strategy<Value = Timing> {
    let times = (0u64..300, 0u64..2000, 0u64..5000, 0u64..20);
    let channel = (prop_oneof![Just(0), 4_096_000_000u64..400_000_000_000], any::<bool>());
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let registers = (any::<bool>(), any::<bool>());
    let rules = [MultiPlane::None, MultiPlane::SamePage, MultiPlane::SameType];
    let sharing = (any::<bool>(), prop::sample::select(rules.to_vec()));
    let all = (times, channel, flags, registers, sharing);
    all.prop_map(|((read, program, erase, command), channel, flags, registers, sharing)| Timing {
        read: vec![read],
        program: vec![program],
        erase,
        command,
        channel_rate: channel.0,
        tags_on_channel: channel.1,
        reads_first: flags.0,
        suspend: flags.1,
        suspend_transfer: flags.2,
        suspend_time: 7,
        resume_time: 9,
        suspend_limit: 2,
        read_burst: 3,
        cache_registers: registers.0,
        plane_reads: registers.1,
        shared_reads: sharing.0,
        multi_plane_reads: sharing.1,
        slc: match flags.3 {
            true => SlcCache {
                size: SlcSize::Bytes(4 * 8192),
                read: 20,
                program: 200,
                idle: 500,
                dynamic: flags.2,
                ..SlcCache::default()
            },
            false => SlcCache::default(),
        },
        ..Timing::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Commands that are refused are among them, and have their stories.
    #[test]
    fn parts_sum_to_the_whole(
        timing in timings(),
        steps in prop::collection::vec((0u64..400, 0u8..9, any::<u32>(), 0u8..5), 1..120),
        before in 0..3,
        planes in 1u32..3,
    ) {
        let g = geometry(2, 2, planes);
        let drive = drive(&g, &timing, 0);
        let (mut now, mut next, mut cmds) = (0, [0u32; 4], Vec::new());
        for (wait, what, pick, whose) in steps {
            now += wait;
            let pu = (pick % 4) as usize;
            let whose = [User, Collection, Refresh, Whose::Metadata, Whose::Drive][whose as usize];
            let at = |chunk, block| g.ppa(pu as u32 / 2, pu as u32 % 2, chunk, block);
            let chunk = next[pu] / g.chunk_blocks();
            let (op, ppa, count) = match what {
                0..4 => {
                    let block = pick / 4 % next[pu].max(1);
                    (Read, at(block / g.chunk_blocks(), block % g.chunk_blocks()), 1)
                }
                4..8 if chunk < g.chunks() => {
                    let block = next[pu] % g.chunk_blocks();
                    next[pu] += g.row_blocks();
                    (Write, at(chunk, block), g.row_blocks() as u8)
                }
                4..8 => (VectorOp::Flush, Ppa(0), 0),
                _ => (Reset, at(pick / 4 % g.chunks(), 0), 1),
            };
            cmds.push((now, of(whose, op, ppa, count)));
        }
        if before == 1 {
            let link = LinkTiming { latency: 3, controller: 40, rate: 40_960_000_000, ..LinkTiming::default() };
            told(Link::new(link, drive), cmds);
        } else if before == 2 {
            told(Buffered::new(BufferMemory::new(40_960_000_000), drive), cmds);
        } else {
            told(drive, cmds);
        }
    }
}

/// Each unit says how long its array worked; of what is suspended, what it worked, and
/// what the suspension took.
#[test]
fn units_tell_how_long_their_arrays_worked() {
    let g = geometry(1, 2, 1);
    let mut rig = written(&g, &timing());
    assert_eq!(rig.port.worked().count(), 0, "nobody asked");
    rig.port.set_die_clocks(Some(rig.now));
    for pu in [0, 0, 1] {
        rig.one(of(User, Read, g.ppa(0, pu, 0, 0), 1));
    }
    rig.one(of(User, Reset, g.ppa(0, 1, 0, 0), 1));
    assert_eq!(rig.port.worked().collect::<Vec<_>>(), [100, 50 + 3000]);
    let suspends =
        Timing { suspend: true, suspend_time: 20, resume_time: 30, reads_first: true, ..timing() };
    let mut rig = written(&g, &suspends);
    rig.port.set_die_clocks(Some(rig.now));
    let start = rig.now.0;
    rig.submit(start, of(User, Reset, g.ppa(0, 0, 0, 0), 1));
    rig.submit(start + 500, of(User, Read, g.ppa(0, 0, 1, 0), 1));
    rig.drain();
    assert_eq!(rig.port.worked().next(), Some(3000 + 20 + 30 + 50));
}

/// Until some time: of what a unit is at so much as is over, and all of what ended.
#[test]
fn units_tell_how_long_their_arrays_worked_until_now() {
    let g = geometry(1, 2, 1);
    let mut rig = written(&g, &timing());
    rig.port.set_die_clocks(Some(rig.now));
    let start = rig.now.0;
    rig.submit(start, of(User, Reset, g.ppa(0, 1, 0, 0), 1));
    rig.submit(start + 1500, of(User, Read, g.ppa(0, 0, 0, 0), 1));
    assert_eq!(rig.port.worked().nth(1), Some(3000), "as if it were over");
    // It begins when its command is there.
    let half = rig.port.worked_until(Time(start + 1500)).nth(1).unwrap();
    assert!((1000..=1500).contains(&half), "{half}");
    assert_eq!(rig.port.worked_until(Time(start + 1600)).nth(1), Some(half + 100));
    rig.drain();
    assert!(rig.port.worked_until(rig.now).eq([50, 3000]));
}

/// What is in the array when somebody asks counts from then on, and no more than that.
#[test]
fn what_units_are_at_counts_from_when_they_are_asked() {
    let g = geometry(1, 2, 1);
    let mut rig = written(&g, &timing());
    let start = rig.now.0;
    rig.submit(start, of(User, Reset, g.ppa(0, 1, 0, 0), 1));
    rig.submit(start + 1500, of(User, Read, g.ppa(0, 0, 0, 0), 1));
    rig.port.set_die_clocks(Some(Time(start + 1500)));
    assert!(rig.port.worked_until(Time(start + 1500)).eq([0, 0]));
    assert_eq!(rig.port.worked_until(Time(start + 1700)).nth(1), Some(200));
    rig.drain();
    let worked: Vec<u64> = rig.port.worked().collect();
    assert!(worked[0] == 50 && (1500..=2000).contains(&worked[1]), "{worked:?}");
    rig.port.set_die_clocks(None);
    assert_eq!(rig.port.worked().count(), 0);
}
