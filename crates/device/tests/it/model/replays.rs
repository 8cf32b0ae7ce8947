//! The same commands again: by another medium, polled late, at once; and single cases.

use super::*;

/// A run that needs no model: commands in their submit times.
fn script(setup: &Setup, steps: &[(Act, u64)]) -> Vec<(u64, VectorCmd)> {
    let mut both = Both::new(setup.clone());
    let (mut now, mut commands) = (0, Vec::new());
    for (act, wait) in steps {
        now += wait;
        both.run_to(Time(now));
        let Some(command) = both.command(act) else { continue };
        let mut same = VectorCmd {
            cookie: both.next,
            list: command.list.clone(),
            buffer: Buffer::zeroed(command.buffer.len()).unwrap(),
            ..command
        };
        both.submit(now, command);
        same.buffer.bytes_mut().fill(same.cookie as u8);
        commands.push((now, same));
    }
    commands
}

/// Status, bits, time and bytes of each completion.
type End = (u64, Status, BlockBits, Time, Vec<u8>);

fn end(done: &VectorDone) -> End {
    (done.cookie, done.status, done.failed, done.at, done.buffer.bytes().to_vec())
}

fn play<M: Medium>(
    device: Device<M>,
    commands: Vec<(u64, VectorCmd)>,
) -> (Vec<End>, u64, Device<M>) {
    let mut rig = Rig::new(device, 64);
    for (at, command) in commands {
        rig.submit(at, command);
    }
    rig.drain();
    let ends = rig.all.iter().map(end).collect();
    let hash = rig.port.state_hash();
    (ends, hash, rig.port)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_same_commands_give_the_same_completions(setup in setups(), steps in steps()) {
        let g = setup.geometry();
        let once = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        let twice = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        prop_assert_eq!(once.0, twice.0);
        prop_assert_eq!(once.1, twice.1);
    }

    #[test]
    fn a_slow_medium_changes_no_time(setup in setups(), steps in steps(), seed in any::<u64>()) {
        let g = setup.geometry();
        let ram = RamMedium::new(&g, setup.kept).unwrap();
        let slow = Device::new(&g, &setup.timing, slow(ram, seed, 5)).unwrap();
        let mut fast = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        let mut slow = play(slow, script(&setup, &steps));
        // Of the same time, the order may differ.
        fast.0.sort_by_key(|e| (e.3, e.0));
        slow.0.sort_by_key(|e| (e.3, e.0));
        prop_assert_eq!(fast.0, slow.0);
        prop_assert_eq!(fast.1, slow.1);
    }

    /// Real time looks at the drive when it likes: each event still happens
    /// at its own time. The clock here is the test's.
    #[test]
    fn a_late_poll_changes_no_time(
        setup in setups(), steps in steps(), polls in prop::collection::vec(any::<bool>(), 16),
    ) {
        let g = setup.geometry();
        let eager = play(drive(&g, &setup.timing, setup.kept), script(&setup, &steps));
        let mut lazy = RealTime::new(drive(&g, &setup.timing, setup.kept));
        let (mut cmds, mut done, mut ends) = (Ring::new(1), Ring::new(3), Vec::new());
        for (i, (at, command)) in script(&setup, &steps).into_iter().enumerate() {
            if polls[i % polls.len()] {
                lazy.poll(Time(at), &mut done);
                ends.extend(done.drain().map(|d| end(&d)));
            }
            prop_assert!(cmds.push(command).is_ok());
            prop_assert_eq!(lazy.submit(Time(at), &mut cmds), Time(at));
            prop_assert!(cmds.is_empty());
        }
        while lazy.idle_for().is_some() {
            lazy.poll(Time(u64::MAX >> 2), &mut done);
            ends.extend(done.drain().map(|d| end(&d)));
        }
        prop_assert_eq!(&ends, &eager.0);
        prop_assert_eq!(lazy.port().state_hash(), eager.1);
    }

    #[test]
    fn a_failing_medium_is_reported_with_the_right_bits(seed in any::<u64>(), planes in 0u32..2) {
        let g = geometry(1, 2, 1 << planes);
        let t = Timing { read: vec![5], program: vec![9], erase: 20, ..Timing::default() };
        let mut rig = Rig::new(Device::new(&g, &t, flaky(&g, 8, seed)).unwrap(), 8);
        let start = g.ppa(0, 1, 2, 0);
        let (blocks, row) = (g.chunk_blocks(), g.row_blocks());
        let at = |block: u32| Ppa(start.0 + u64::from(block));
        let fails = |kind: u64, block| common::fails(seed, kind, at(block));
        let bits = |f: &dyn Fn(u32) -> bool| {
            (0..blocks).filter(|&b| f(b)).fold(0, |bits: BlockBits, b| bits | 1 << b)
        };
        // The third row that fails closes the chunk: it ends there.
        let rows: Vec<u32> = (0..blocks).step_by(row as usize).filter(|&r| fails(0, r)).collect();
        let end = rows.get(2).copied().unwrap_or(blocks);
        let lost = bits(&|b| fails(0, b - b % row) || b >= end);
        let unread = bits(&|b| b < end && (lost >> b & 1 == 1 || fails(1, b - b % row) && fails(1, b)));
        let status = |bits, error| if bits == 0 { Status::SUCCESS } else { error };
        for (kind, op, count, expected, error) in [
            (0, Write, blocks, lost, Status::WRITE_FAILED_WRITE_NEXT_UNIT),
            (1, Read, end, unread, Status::UNRECOVERED_READ),
        ] {
            let mut command = cmd(kind, op, start, count as u8);
            command.buffer = Buffer::zeroed(8 * count as usize).unwrap();
            rig.submit(rig.now.0, command);
            rig.drain();
            let done = rig.all.pop().unwrap();
            prop_assert_eq!(done.failed, expected);
            prop_assert_eq!(done.status, status(expected, error));
            prop_assert_eq!(done.buffer.len(), 8 * count as usize);
        }
        let chunk = rig.port.chunk(g.chunk_index(start));
        prop_assert_eq!((chunk.state, chunk.wp, chunk.programmed), (ChunkState::Closed, end, end));
        rig.submit(rig.now.0, cmd(2, Reset, start, 1));
        let mut behind = cmd(3, Write, start, 2);
        behind.buffer = Buffer::zeroed(16).unwrap();
        rig.submit(rig.now.0, behind);
        rig.drain();
        let broken = common::fails(seed, 2, start);
        let reset = &rig.all[0];
        prop_assert_eq!((reset.cookie, reset.failed), (2, BlockBits::from(broken)));
        prop_assert_eq!(reset.status, status(reset.failed, Status::OFFLINE_CHUNK));
        let offline = rig.port.chunk(g.chunk_index(start)).state == ChunkState::Offline;
        prop_assert_eq!(offline, broken);
        if broken {
            let ends: Vec<_> = rig.all.iter().map(|d| d.status).collect();
            prop_assert_eq!(ends, vec![Status::OFFLINE_CHUNK; 2], "a write behind it is not lost in silence");
        }
    }
}

/// Submits everything, as much as fits at a time; gives each completion.
fn push_through(rig: &mut Rig<Device<RamMedium>>, commands: Vec<VectorCmd>) -> Vec<VectorDone> {
    let mut ring = Ring::new(commands.len());
    for command in commands {
        ring.push(command).unwrap();
    }
    let mut refused = false;
    loop {
        let before = ring.len();
        rig.port.submit(rig.now, &mut ring);
        assert!(before - ring.len() <= MAX_DEPTH);
        refused |= !ring.is_empty();
        let Some(at) = rig.port.next_event() else { break };
        rig.run_to(at);
    }
    assert!(ring.is_empty() && refused, "it was too much at once, and all was taken in the end");
    std::mem::take(&mut rig.all)
}

#[test]
fn back_pressure_loses_nothing() {
    let g = geometry(2, 2, 1);
    let t = Timing { read: vec![10], ..Timing::default() };
    for (count, total) in [(1u8, 3000u64), (64, 400)] {
        let mut rig = common::written(&g, &t);
        let from: Vec<Ppa> =
            (0..64u32).map(|i| g.ppa(i % 2, i / 2 % 2, i / 4 % 3, i / 12)).collect();
        let command = |i| list_cmd(i, Read, &from[..usize::from(count)], &[]);
        let done = push_through(&mut rig, (0..total).map(command).collect());
        let mut seen: Vec<u64> = done.iter().map(|d| d.cookie).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..total).collect::<Vec<_>>());
        assert!(done.iter().all(|d| d.status.is_ok()));
        assert!(done.is_sorted_by_key(|d| d.at));
    }
}

#[test]
fn copies_find_room_among_other_commands() {
    // Copies of 8 rows to 64 single blocks, while lists of 64 take all the
    // room for operations that there is.
    let dim = Dimensions { pus: 8, chunks: 64, pages: 2, planes: 8, ..Dimensions::LEAST };
    let g = Geometry::new(dim).unwrap();
    let t = Timing { read: vec![10], program: vec![100], ..Timing::default() };
    let mut rig = Rig::new(drive(&g, &t, 0), 64);
    for pu in 0..8 {
        rig.one(cmd(pu.into(), Write, g.ppa(0, pu, 0, 0), 8));
        rig.one(cmd(pu.into(), Write, g.ppa(0, pu, 0, 8), 8));
    }
    let scattered: Vec<Ppa> = (0..64).map(|i| g.ppa(0, i % 8, 0, i / 8 * 2)).collect();
    let rows: Vec<Ppa> = (0..64).map(|i| g.ppa(0, i / 16, 0, i % 16)).collect();
    let command = |i: u32| {
        if !i.is_multiple_of(60) || i >= 480 {
            return list_cmd(i.into(), Read, &scattered, &[]);
        }
        // Each copy has seven chunks of each parallel unit for itself.
        let first = 1 + i / 60 * 7;
        let to: Vec<Ppa> = (0..64).map(|j| g.ppa(0, j % 8, first + j / 8 % 7, j / 56)).collect();
        list_cmd(i.into(), Copy, &rows, &to)
    };
    rig.all.clear();
    let done = push_through(&mut rig, (0..500).map(command).collect());
    assert_eq!(done.len(), 500);
    assert!(done.iter().all(|d| d.status.is_ok()));
}

#[test]
fn a_worn_chunk_goes_offline_and_takes_no_other_with_it() {
    let g = geometry(1, 1, 1);
    let t = Timing { endurance: 1, erase: 100, ..Timing::default() };
    let mut rig = Rig::new(drive(&g, &t, 0), 8);
    let (worn, fresh) = (g.ppa(0, 0, 0, 0), g.ppa(0, 0, 1, 0));
    rig.one(cmd(1, Write, worn, 2));
    rig.one(cmd(2, Reset, worn, 1));
    rig.one(cmd(3, Write, worn, 2));
    rig.one(cmd(4, Write, fresh, 2));
    rig.submit(rig.now.0, list_cmd(5, Reset, &[fresh, worn], &[]));
    rig.drain();
    let done = rig.all.last().unwrap();
    assert_eq!((done.status, done.failed), (Status::OFFLINE_CHUNK, 0b10));
    assert_eq!(rig.port.chunk(g.chunk_index(worn)).state, ChunkState::Offline);
    let kept = rig.port.chunk(g.chunk_index(fresh));
    assert_eq!((kept.state, kept.wp, kept.wear), (ChunkState::Open, 2, 0), "it was not erased");
    assert_eq!(rig.port.counters().erases, 1);
}

#[test]
fn a_late_command_does_not_start_before_it_came() {
    let g = geometry(1, 1, 1);
    let t = Timing { program: vec![100], ..Timing::default() };
    let mut rt = RealTime::new(drive(&g, &t, 0));
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(4));
    cmds.push(cmd(1, Write, g.ppa(0, 0, 0, 0), 2)).unwrap();
    rt.submit(Time(10), &mut cmds);
    cmds.push(cmd(2, Write, g.ppa(0, 0, 0, 2), 2)).unwrap();
    rt.submit(Time(500), &mut cmds);
    rt.poll(Time(5000), &mut done);
    let ends: Vec<_> = done.drain().map(|d| (d.cookie, d.at)).collect();
    assert_eq!(ends, [(1, Time(110)), (2, Time(600))]);
}

#[test]
fn a_medium_that_never_ends_does_not_hang_the_poll() {
    let g = geometry(1, 1, 1);
    let ram = RamMedium::new(&g, 0).unwrap();
    let slow = Device::new(&g, &Timing::default(), slow(ram, 0, u64::MAX - 1)).unwrap();
    let mut rt = RealTime::new(slow);
    let (mut cmds, mut done) = (Ring::new(2), Ring::new(4));
    cmds.push(cmd(1, Write, g.ppa(0, 0, 0, 0), 2)).unwrap();
    rt.submit(Time(10), &mut cmds);
    for now in 11..50 {
        rt.poll(Time(now), &mut done);
    }
    cmds.push(cmd(2, Write, g.ppa(0, 0, 0, 2), 2)).unwrap();
    rt.submit(Time(50), &mut cmds);
    assert_eq!((done.len(), cmds.len()), (0, 1), "time stands until the bytes are there");
}
