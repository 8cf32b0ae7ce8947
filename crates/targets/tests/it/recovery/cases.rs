//! Single cuts, each at the moment that it is about.

use super::*;

/// A small drive on which nothing is random.
fn plain(kept: u32) -> Bench {
    let dim = Dimensions {
        groups: 2,
        chunks: DATA_CHUNKS,
        pages: 4,
        planes: 2,
        page_bytes: 8192,
        ..Dimensions::LEAST
    };
    let setup = Setup {
        dim,
        kept,
        fill: 80,
        victim: Victim::Greedy,
        partial: false,
        trims: 0,
        link: false,
        instant: false,
        idle: 0,
        unreadable: 0,
        open: None,
        seed: 5,
    };
    Bench::new(setup)
}

/// Does one request on block `block` and waits for its end.
fn one(bench: &mut Bench, run: &mut Run, op: BlockOp, block: u64, value: u64) {
    let data = op == BlockOp::Write;
    let mut buffer = Buffer::zeroed(if data { bench.setup.kept as usize } else { 0 }).unwrap();
    buffer.bytes_mut().chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    let (offset, len) = if op == BlockOp::Flush { (0, 0) } else { (block * BLOCK, BLOCK) };
    run.open[0] = Some((BlockOp::Read, false, 0, 0, 0));
    run.queue.push(BlockReq::new(0, op, offset, len, buffer)).unwrap();
    run.drive.submit(run.now, &mut run.queue);
    while run.open[0].is_some() {
        run.now = run.now.max(run.drive.next_event().expect("it ends"));
        run.drive.advance(run.now, &mut run.done);
        if let Some(done) = run.done.pop() {
            assert_eq!(done.status, Status::SUCCESS);
            run.open[0] = None;
        }
    }
}

/// Written, given up and written again, all in one row: of the two copies with
/// one sequence number the second is the block.
#[test]
fn a_block_written_twice_in_a_row_keeps_the_second() {
    let mut bench = plain(4096);
    let mut run = bench.recover(u64::MAX).unwrap();
    one(&mut bench, &mut run, BlockOp::Write, 1, 11);
    one(&mut bench, &mut run, BlockOp::Trim, 1, 0);
    one(&mut bench, &mut run, BlockOp::Write, 1, 22);
    one(&mut bench, &mut run, BlockOp::Flush, 0, 0);
    // Until its chunk is full.
    for block in 2..2 + 2 * u64::from(bench.geometry.chunk_blocks()) {
        one(&mut bench, &mut run, BlockOp::Write, block, 33);
    }
    one(&mut bench, &mut run, BlockOp::Flush, 0, 0);
    bench.cut(run);
    let mut run = bench.recover(u64::MAX).unwrap();
    bench.read_all(&mut run, |_, sector, value| {
        if sector / SECTORS == 1 {
            assert_eq!(value, 22);
        }
    });
}

/// What was programmed behind the last root is counted by its tags: of the user's
/// blocks all but some of a row that was being gathered; where most of it was
/// erased since, nearly.
#[test]
fn a_cut_keeps_the_counters() {
    let mut bench = plain(8);
    let row = u64::from(bench.geometry.row_blocks());
    let mut run = bench.recover(u64::MAX).unwrap();
    let blocks = run.drive.shape().bytes / BLOCK;
    for block in 0..blocks {
        one(&mut bench, &mut run, BlockOp::Write, block, block);
    }
    one(&mut bench, &mut run, BlockOp::Flush, 0, 0);
    let filled = run.drive.counters();
    bench.cut(run);
    let mut run = bench.recover(u64::MAX).unwrap();
    let found = run.drive.counters();
    assert!(filled.user - found.user < row && found.user <= filled.user, "{filled:?} {found:?}");
    assert_eq!((found.gc, found.erases), (filled.gc, filled.erases));

    for i in 0..blocks * 8 {
        let block = bench.below(blocks);
        one(&mut bench, &mut run, BlockOp::Write, block, i);
    }
    one(&mut bench, &mut run, BlockOp::Flush, 0, 0);
    let worked = run.drive.counters();
    assert!(worked.collections > 10, "{worked:?}");
    bench.cut(run);
    let run = bench.recover(u64::MAX).unwrap();
    let again = run.drive.counters();
    let near = |found: u64, of: u64| found.abs_diff(of) <= of / 20;
    assert!(near(again.user, worked.user) && near(again.gc, worked.gc), "{worked:?} {again:?}");
    assert!(near(again.erases, worked.erases) && again.metadata <= worked.metadata);
    bench.cut(run);
    let run = bench.recover(u64::MAX).unwrap();
    assert_eq!(run.drive.counters().user, again.user, "what was counted is not counted again");
}

/// The map, and what was collected, do not depend on what the medium keeps;
/// after a clean end recovery finds every block as it was.
#[test]
fn a_clean_end_loses_nothing_on_any_medium() {
    let mut states = Vec::new();
    for kept in [4096, 8, 0] {
        let mut bench = plain(kept);
        let mut run = bench.recover(u64::MAX).unwrap();
        let blocks = run.drive.shape().bytes / BLOCK;
        let mut last = vec![0; blocks as usize];
        for i in 1..blocks * 8 {
            let block = bench.below(blocks);
            one(&mut bench, &mut run, BlockOp::Write, block, i);
            last[block as usize] = i;
        }
        one(&mut bench, &mut run, BlockOp::Flush, 0, 0);
        assert!(run.drive.counters().collections > 10);
        bench.cut(run);
        let mut run = bench.recover(u64::MAX).unwrap();
        states.push(run.drive.state_hash());
        bench.read_all(&mut run, |_, sector, value| {
            // Of a digest the reader makes a value for each sector.
            let within = if kept == 8 && value > 0 { sector % SECTORS } else { 0 };
            assert_eq!(value - within as u64, last[sector / SECTORS]);
        });
    }
    assert!(states.iter().all(|&state| state == states[0]), "{states:x?}");
}

/// Programs a chunk row by row: the tags of its blocks, whose content is the
/// address.
fn program(device: &mut Device<ScriptedMedium>, chunk: u32, tags: &[Tag]) {
    let geometry = *device.geometry();
    let row = geometry.row_blocks() as usize;
    let (mut cmds, mut done) = (Ring::new(1), Ring::new(1));
    for (i, tags) in tags.chunks_exact(row).enumerate() {
        let mut buffer = Buffer::zeroed(row * (8 + TAG_BYTES)).unwrap();
        for (j, tag) in tags.iter().enumerate() {
            buffer.bytes_mut()[j * 8..][..8].copy_from_slice(&tag.id.to_le_bytes());
            tag.store(&mut buffer.bytes_mut()[row * 8 + j * TAG_BYTES..]);
        }
        let ppa = geometry.ppa(0, 0, chunk, (i * row) as u32);
        let (op, count) = (VectorOp::Write, row as u8);
        cmds.push(VectorCmd::new(0, op, Content::Tagged, (ppa, count), buffer)).unwrap();
        device.submit(Time::ZERO, &mut cmds);
        device.advance(Time::ZERO, &mut done);
        assert_eq!(done.pop().expect("no time passes").status, Status::SUCCESS);
    }
}

/// The tightest cut: no chunk is free, collection's has one row left, and the
/// victim's last survivors just fit in it. Recovery must see that the others
/// were moved, and must take that victim, whatever the policy.
fn tightest(victim: Victim) {
    let dim = Dimensions { chunks: DATA_CHUNKS, pages: 4, page_bytes: 16384, ..Dimensions::LEAST };
    let geometry = Geometry::new(with_reserve(dim)).unwrap();
    let medium = ScriptedMedium::ram(&geometry, 8, ());
    let mut device = Device::new(&geometry, &Timing::default(), medium).unwrap();
    let pad = Tag { id: u64::MAX, seq: 1 };
    let mut next = 0;
    let mut fresh = |count: u64| -> Vec<Tag> {
        next += count;
        (next - count..next).map(|id| Tag { id, seq: 10 + id }).collect()
    };
    // Behind the chunks for roots.
    for chunk in 3..11 {
        program(&mut device, chunk, &[vec![pad; 7], fresh(9)].concat());
    }
    let (earlier, moved, left) = (fresh(4), fresh(8), fresh(4));
    program(&mut device, 11, &[vec![pad; 4], moved.clone(), left].concat());
    program(&mut device, 12, &[earlier, moved].concat());
    let blocks = 92;
    let config = PblkConfig { victim, ..PblkConfig::new(blocks * BLOCK, 6, 1) };
    let below: Box<dyn OpenChannel> = Box::new(device);
    let (mut drive, _) = Pblk::recover(below, config, Time::ZERO).unwrap();
    // Only what is kept back for the target's own blocks is left.
    let own = u64::from(geometry.chunks() - 3 - 10);
    assert!(drive.free_chunks() <= own);
    let (mut queue, mut done) = (Ring::new(1), Ring::new(1));
    let mut one = |op, block: u64, value: u64| -> u64 {
        let mut buffer = Buffer::zeroed(8).unwrap();
        buffer.bytes_mut().copy_from_slice(&value.to_le_bytes());
        let offset = block * BLOCK;
        queue.push(BlockReq::new(0, op, offset, BLOCK, buffer)).unwrap();
        drive.submit(Time::ZERO, &mut queue);
        while done.is_empty() {
            let at = drive.next_event().unwrap_or_else(|| panic!("{victim:?} hangs"));
            drive.advance(at, &mut done);
        }
        let done = done.pop().expect("it is not empty");
        assert_eq!(done.status, Status::SUCCESS);
        u64::from_le_bytes(done.buffer.bytes().try_into().unwrap())
    };
    for block in 0..88 {
        assert_eq!(one(BlockOp::Read, block, 99), block);
    }
    for i in 0..blocks * 10 {
        one(BlockOp::Write, i * 7 % blocks, i * 7 % blocks + 1000);
    }
    for block in 0..blocks {
        assert_eq!(one(BlockOp::Read, block, 99), block + 1000);
    }
}

#[test]
fn collection_goes_on_after_the_tightest_cut() {
    for victim in
        [Victim::Greedy, Victim::Fifo, Victim::Random, Victim::DChoices(2), Victim::CostBenefit]
    {
        tightest(victim);
    }
}

/// A drive that stops answering is an error, and recovers when it is back.
#[test]
fn a_drive_that_stops_is_an_error() {
    let mut bench = plain(8);
    let mut run = bench.recover(u64::MAX).unwrap();
    one(&mut bench, &mut run, BlockOp::Write, 0, 1);
    one(&mut bench, &mut run, BlockOp::Flush, 0, 0);
    bench.cut(run);
    assert!(bench.recover(1).is_none());
    assert_eq!(bench.seen.cut_recoveries, 1);
    assert!(bench.recover(u64::MAX).is_some());
}

/// The cuts of the property fall where they should.
#[test]
fn cuts_meet_collection_and_recovery() {
    let mut seen = Seen::default();
    for seed in 0..40 {
        let mut bench = Bench::new(Setup { fill: 85, seed, ..plain(8).setup });
        bench.live(3, 1500);
        seen.cuts += bench.seen.cuts;
        seen.cut_recoveries += bench.seen.cut_recoveries;
        seen.collections += bench.seen.collections;
    }
    assert!(seen.cuts >= 120 && seen.cut_recoveries > 20 && seen.collections > 500, "{seen:?}");
}
