//! A batched target at its limits: bad requests, damaged checkpoint records, full
//! drives, and how long a batch takes at best.

use crate::batch_world::{BLOCK, Random, Run, Setup, World, batch_buffer, faulty, ram, unreadable};
use device::{Device, OpenChannel};
use faults::{Access, MediumFault, MediumRule, ScriptedMedium, Span, Trigger};
use flash::{Chunk, ChunkState, Dimensions, Geometry, Medium, Moved, Ppa, Profile, Tag, Timing};
use port::{BatchOp, BatchReq, Buffer, Desc, Port, Ring, Status, Time};
use targets::batch::BatchError;
use targets::{Batch, BatchConfig};

const LONG: u64 = u64::MAX / 2;

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let mut world = World::new(Setup::small(1), ram);
    let mut run = world.power_on(LONG).unwrap();
    run.write(&mut world, &[3, 4]);
    run.drain(&mut world);
    let (pages, most) = (world.setup.config.pages, world.setup.config.max_pages as usize);
    let mut ask = |buffer: Buffer| run.ask(BatchOp::WriteBatch, 0, buffer).status;
    let empty = |bytes| Buffer::zeroed(bytes).unwrap();
    assert_eq!(ask(batch_buffer(&[3, pages], &[1, 2], 8)), Status::LBA_OUT_OF_RANGE);
    assert_eq!(ask(empty(BLOCK + 16)), Status::INVALID_FIELD, "no DESC");
    assert_eq!(ask(empty(17)), Status::INVALID_FIELD, "less than a DESC");
    let many: Vec<u64> = (0..=most as u64).collect();
    assert_eq!(ask(batch_buffer(&many, &many, 8)), Status::INVALID_FIELD, "too many");
    let mut long = empty(BLOCK + 3 * 8);
    Desc::write(&[3, 4], &[], long.bytes_mut());
    assert_eq!(ask(long), Status::INVALID_FIELD, "another count than the buffer's");
    let mut other = batch_buffer(&[3, 4], &[7, 8], 8);
    other.bytes_mut()[4] = 9;
    assert_eq!(ask(other), Status::INVALID_FIELD, "another version");
    let read = |run: &mut Run, lpid, bytes| run.ask(BatchOp::Read, lpid, empty(bytes));
    assert_eq!(read(&mut run, pages, 8).status, Status::LBA_OUT_OF_RANGE);
    assert_eq!(read(&mut run, 3, 9).status, Status::INVALID_FIELD);
    let before = run.target.counters();
    assert_eq!(read(&mut run, 5, 8).status, Status::UNWRITTEN);
    let after = run.target.counters();
    assert_eq!(after.empty_reads, before.empty_reads + 1, "that is an answer");
    assert_eq!(after.failed_reads, before.failed_reads, "and no failure");
    assert_eq!(run.ask(BatchOp::Flush, 0, empty(8)).status, Status::INVALID_FIELD);
    assert_eq!((run.value(&mut world, 3), run.value(&mut world, 4)), (1, 2));
    world.power_off(run);
    let mut run = world.power_on(LONG).unwrap();
    world.check(&mut run);
    world.power_off(run);
}

#[test]
fn of_a_page_that_comes_twice_the_later_write_wins() {
    let mut world = World::new(Setup::small(1), ram);
    let mut run = world.power_on(LONG).unwrap();
    let done = run.ask(BatchOp::WriteBatch, 0, batch_buffer(&[5, 6, 5, 7, 5], &[1, 2, 3, 4, 5], 8));
    assert!(done.status.is_ok());
    let values: Vec<u64> = (5..8).map(|lpid| run.value(&mut world, lpid)).collect();
    assert_eq!((values, run.target.counters().superseded), (vec![5, 2, 4], 2));
    let c = run.target.counters();
    assert_eq!((c.user, c.placed), (3, 3), "what came again is in neither");
    assert!(c.in_log <= c.log_rows * u64::from(world.setup.geometry().row_blocks()), "{c:?}");
    world.power_off(run);
}

#[test]
fn impossible_configurations_are_named() {
    let setup = Setup::small(1);
    let open = |change: fn(&mut BatchConfig)| {
        let geometry = setup.geometry();
        let mut config = setup.config;
        change(&mut config);
        let medium = ScriptedMedium::ram(&geometry, 8, ());
        let device = Device::new(&geometry, &setup.timing, medium).unwrap();
        let device: Box<dyn OpenChannel> = Box::new(device);
        Batch::open(device, config, Time::ZERO).err().unwrap().to_string()
    };
    assert!(open(|c| c.pages = 1 << 40).contains("room for"));
    assert!(open(|c| c.max_pages = 512).contains("max_pages = 512"));
    assert!(open(|c| c.forward_links = 0).contains("forward_links"));
    assert!(open(|c| c.collectors = 17).contains("collectors"));
    assert!(open(|c| c.depth = 3).contains("depth"));
    assert!(open(|c| c.cache_bytes = 100).contains("cache_bytes"));
}

/// A drive that limits its open chunks, in all or of a unit, is refused by name.
#[test]
fn drives_that_limit_their_open_chunks_are_refused() {
    let setup = Setup::small(1);
    let geometry = setup.geometry();
    let none = u32::MAX;
    for (open_chunks, open_chunks_pu, is_refused) in
        [(none, none, false), (1000, none, true), (none, 1000, true)]
    {
        let timing = Timing { open_chunks, open_chunks_pu, ..setup.timing.clone() };
        let medium = ScriptedMedium::ram(&geometry, 8, ());
        let device: Box<dyn OpenChannel> =
            Box::new(Device::new(&geometry, &timing, medium).unwrap());
        let error = Batch::open(device, setup.config, Time::ZERO).err();
        assert_eq!(error, is_refused.then_some(BatchError::OpenChunks));
    }
}

/// A drive with several checkpoint records, power off.
fn with_checkpoints() -> World {
    let mut world = World::new(Setup::small(9).filled(60), faulty);
    let mut run = world.power_on(LONG).unwrap();
    while run.target.counters().checkpoints < 6 {
        world.work(&mut run, 10);
    }
    run.drain(&mut world);
    world.work(&mut run, 5);
    run.drain(&mut world);
    world.power_off(run);
    world
}

/// Makes chunks unreadable.
fn damage(world: &mut World, chunks: &[usize]) {
    let size = u64::from(world.geometry.chunk_blocks());
    let bad = |&chunk: &usize| {
        let start = world.geometry.chunk_start(chunk).0;
        unreadable(start..start + size)
    };
    let rules: Vec<_> = chunks.iter().map(bad).collect();
    world.set_rules(&rules);
}

/// The chunks of both slots, as docs/targets/batch.md says.
fn slots(geometry: &Geometry) -> [Vec<usize>; 2] {
    let units: Vec<usize> = geometry.pus_channels_first().collect();
    let of = |unit| (0..2).map(|number| geometry.chunk_of(unit, number)).collect();
    [of(units[0]), of(*units.last().unwrap())]
}

#[test]
fn with_one_slot_damaged_the_other_and_the_log_are_used() {
    for slot in 0..2 {
        let mut world = with_checkpoints();
        let chunks = slots(&world.geometry)[slot].clone();
        damage(&mut world, &chunks);
        let mut run = world.power_on(LONG).unwrap();
        assert!(run.target.recovery().checkpoint > 0);
        world.check(&mut run);
        world.work(&mut run, 30);
        run.drain(&mut world);
        world.power_off(run);
        world.set_rules(&[]);
        let mut run = world.power_on(LONG).unwrap();
        world.check(&mut run);
        world.power_off(run);
    }
}

#[test]
fn with_both_slots_damaged_it_is_an_error() {
    let mut world = with_checkpoints();
    let chunks = slots(&world.geometry).concat();
    damage(&mut world, &chunks);
    assert_eq!(world.try_power_on(LONG).err(), Some(BatchError::Checkpoint));
    // Nothing was changed.
    world.set_rules(&[]);
    let mut run = world.power_on(LONG).unwrap();
    world.check(&mut run);
    world.power_off(run);
}

/// A start could not write at any place that the log named, and a record named others.
/// When that is damaged, the record before it does not lead to what is there.
#[test]
fn the_end_of_the_log_is_not_where_a_damaged_record_led_on() {
    let mut refused = 0;
    for seed in 0..12 {
        let mut setup = Setup::small(seed).filled(50);
        setup.config.forward_links = 1;
        let mut world = World::new(setup, faulty);
        let mut run = world.power_on(LONG).unwrap();
        world.work(&mut run, 20 + seed);
        run.drain(&mut world);
        world.power_off(run);
        let next = next_of_log(&mut world);
        let trigger = Trigger { span: Some(Span::Ppa(next.0..next.0 + 1)), ..Trigger::default() };
        let fault = MediumFault::Fail { on: Access::Program, permanent: false };
        world.set_rules(&[MediumRule { fault, trigger }]);
        let mut run = world.power_on(LONG).unwrap();
        run.write(&mut world, &[1]);
        run.drain(&mut world);
        world.power_off(run);
        world.set_rules(&[]);
        let mut run = world.power_on(LONG).unwrap();
        run.write(&mut world, &[2]);
        let before = world.batches;
        while world.batches == before {
            assert!(run.step(&mut world), "{}", run.state());
        }
        world.power_off(run);
        let newest = newest_record(&mut world);
        world.set_rules(&[unreadable(newest.0..newest.0 + 1)]);
        match world.try_power_on(LONG) {
            Err(e) => {
                assert_eq!(e, BatchError::Checkpoint);
                refused += 1;
                world.set_rules(&[]);
            }
            Ok(run) => {
                let mut run = run.unwrap();
                world.check(&mut run);
                world.power_off(run);
            }
        }
    }
    assert!(refused > 0);
}

/// Where the block lies that has the highest number of those that `number` gives
/// one, by its bytes and TAG.
fn highest(world: &mut World, number: impl Fn(&[u8], Tag) -> Option<u64>) -> Ppa {
    let (geometry, chunks) = (world.geometry, world.chunks.clone());
    let mut best = (0, Ppa(0));
    for (index, chunk) in chunks.iter().enumerate() {
        let start = geometry.chunk_start(index).0;
        for at in (start..start + u64::from(chunk.programmed)).map(Ppa) {
            let (mut bytes, mut tag) = (vec![0; BLOCK], [0; 16]);
            let moved = world.medium().read(at, 1, &mut bytes, &mut tag);
            let found = number(&bytes, Tag::load(&tag)).filter(|_| moved == Moved::Done);
            best = best.max((found.unwrap_or(0), at));
        }
    }
    best.1
}

/// Where the row behind the last of the log will be, of a log with one lane.
fn next_of_log(world: &mut World) -> Ppa {
    let last = highest(world, |_, tag| (tag.id >> 56 == 6).then_some(tag.seq));
    let row = world.geometry.row_blocks();
    Ppa(last.0 - u64::from(world.geometry.block(last) % row) + u64::from(row))
}

/// Where the newest checkpoint record begins.
fn newest_record(world: &mut World) -> Ppa {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    highest(world, |bytes, _| (bytes[8..12] == *b"CKPT").then(|| number(bytes)))
}

/// An older record of this version is not the drive any more.
#[test]
fn one_record_of_another_version_refuses_the_drive() {
    for slot in 0..2 {
        let mut world = with_checkpoints();
        let (geometry, index) = (world.geometry, slots(&world.geometry)[slot][0]);
        let (start, count) = (geometry.chunk_start(index), world.chunks[index].programmed);
        assert!(count > 0, "it has a record");
        let mut data = vec![0; count as usize * BLOCK];
        let mut tags = vec![0; count as usize * 16];
        let medium = world.medium();
        assert_eq!(medium.read(start, count, &mut data, &mut tags), Moved::Done);
        let magic = data[8..12].to_vec();
        let newest = data.chunks_mut(BLOCK).rposition(|block| block[8..12] == magic).unwrap();
        let record = &mut data[newest * BLOCK..];
        record[12] += 1;
        let len = u64::from_le_bytes(record[16..24].try_into().unwrap()) as usize;
        let sum = xxhash_rust::xxh3::xxh3_64(&record[8..len]);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(medium.reset(start), Moved::Done);
        assert_eq!(medium.program(start, count, &data, &tags), Moved::Done);
        assert_eq!(world.try_power_on(LONG).err(), Some(BatchError::Version(3)), "slot {slot}");
    }
}

/// Where pages of the host's are, there was a target: none is made.
#[test]
fn nothing_is_made_new_over_what_was_written() {
    let mut world = with_checkpoints();
    let geometry = world.geometry;
    for index in slots(&geometry).concat() {
        world.medium().reset(geometry.chunk_start(index));
        world.chunks[index] = Chunk { state: ChunkState::Free, ..Chunk::default() };
    }
    let held = |chunks: &[Chunk]| {
        chunks.iter().map(|chunk| (chunk.state, chunk.programmed, chunk.wear)).collect::<Vec<_>>()
    };
    let before = held(&world.chunks);
    assert_eq!(world.try_power_on(LONG).err(), Some(BatchError::Checkpoint));
    assert_eq!(held(&world.chunks), before, "nothing was changed");
}

/// Making a target that is cut leaves nothing that is in the way of making it.
#[test]
fn a_target_that_was_cut_while_it_was_made_is_made_again() {
    for events in 1..40 {
        let mut world = World::new(Setup::small(events), ram);
        for _ in 0..3 {
            if let Some(run) = world.power_on(events) {
                world.power_off(run);
            }
        }
        let mut run = world.power_on(LONG).unwrap();
        run.write(&mut world, &[1, 2]);
        run.drain(&mut world);
        world.power_off(run);
    }
}

/// What finds a target makes none.
#[test]
fn only_who_asks_for_a_new_target_gets_one() {
    let setup = Setup::small(1);
    let geometry = setup.geometry();
    let device = Device::new(&geometry, &setup.timing, ram(&geometry)).unwrap();
    let found = Batch::find(device, setup.config, Time::ZERO);
    assert_eq!(found.err(), Some(BatchError::Nothing));
}

#[test]
fn another_number_of_pages_is_another_drive() {
    let mut world = with_checkpoints();
    let found = world.setup.config.pages;
    world.setup.config.pages -= 1;
    let asked = found - 1;
    assert_eq!(world.try_power_on(LONG).err(), Some(BatchError::Mismatch { found, asked }));
}

/// A drive that is full to its last page is written over again and again.
#[test]
fn a_full_drive_goes_on() {
    let mut world = World::new(Setup::small(2), ram);
    let mut run = world.power_on(LONG).unwrap();
    let pages = world.setup.config.pages;
    let most = u64::from(world.setup.config.max_pages);
    for round in 0..6 {
        for first in (0..pages).step_by(most as usize) {
            let lpids: Vec<u64> = (first..pages.min(first + most))
                .map(|lpid| if round % 2 == 0 { lpid } else { lpid * 7919 % pages })
                .collect();
            while !run.write(&mut world, &lpids) {
                assert!(run.step(&mut world), "it hangs");
            }
        }
    }
    run.drain(&mut world);
    assert_eq!((run.failed.as_slice(), run.target.fault()), ([].as_slice(), None));
    assert!(run.target.counters().collections > 50);
    world.power_off(run);
    let mut run = world.power_on(LONG).unwrap();
    world.check(&mut run);
    world.power_off(run);
}

/// Batches that fit into their rows of the log take no other room, and must not
/// take what collection and tables need.
#[test]
fn small_batches_leave_room_to_collection() {
    let dim =
        Dimensions { groups: 2, pus: 2, chunks: 24, pages: 8, planes: 2, ..Dimensions::LEAST };
    let mut setup = Setup::of(dim, 3);
    (setup.config.forward_links, setup.config.log_rows) = (1, 8);
    let mut world = World::new(setup.filled(90), ram);
    let mut random = Random(3);
    let pages = world.setup.config.pages;
    for _ in 0..6 {
        let mut run = world.power_on(LONG).unwrap();
        for _ in 0..400 {
            let lpid = random.below(pages);
            let done = run.ask(BatchOp::WriteBatch, 0, batch_buffer(&[lpid], &[lpid], 8));
            assert_eq!((done.status, run.target.fault()), (Status::SUCCESS, None));
        }
        world.power_off(run);
    }
}

/// What is said to be enough is.
#[test]
fn a_drive_that_is_too_small_is_told_what_would_do() {
    for (chunks, pages, log_rows) in [(24, 3, 4), (9, 64, 16), (5, 3, 8), (24, 2, 12), (2, 1, 4)] {
        let dim = Dimensions { pus: 2, chunks, pages, planes: 2, ..Dimensions::LEAST };
        let small = Setup::small(1).config;
        let config = BatchConfig { pages: 1, log_rows, ..small };
        let open = |dim| {
            let geometry = Geometry::new(dim).unwrap();
            let device = Device::new(&geometry, &Timing::default(), ram(&geometry)).unwrap();
            Batch::open(device, config, Time::ZERO).map(drop)
        };
        let Err(BatchError::Small { enough_chunks, enough_rows, .. }) = open(dim) else {
            panic!("it is not too small: {chunks} chunks of {pages} rows");
        };
        let chunks = chunks.max(enough_chunks.div_ceil(2) as u32);
        let dim = Dimensions { chunks, pages: pages.max(enough_rows), ..dim };
        assert_eq!(open(dim), Ok(()), "{dim:?}");
    }
}

/// A batch waits since the log is too long, and the checkpoint that will let it
/// go finds pages that were changed again while they were written.
#[test]
fn a_checkpoint_waits_for_no_batch_that_waits_for_it() {
    for seed in 0..40 {
        let mut world = World::new(Setup::small(seed).filled(95), ram);
        let mut run = world.power_on(LONG).unwrap();
        let pages: Vec<u64> = (0..world.setup.config.pages).collect();
        let mut write = |lpids: &[u64]| {
            let buffer = batch_buffer(lpids, lpids, 8);
            assert_eq!(run.ask(BatchOp::WriteBatch, 0, buffer).status, Status::SUCCESS);
        };
        pages.chunks(40).for_each(&mut write);
        let mut random = Random(seed);
        for _ in 0..600 {
            let lpids: Vec<u64> = (0..8).map(|_| random.below(pages.len() as u64)).collect();
            write(&lpids);
        }
        world.power_off(run);
    }
}

/// One batch on an idle drive of the profile `tlc`: no longer than 10 % more
/// than the log row, and behind it the rows of pages, all units at once.
#[test]
fn a_batch_takes_little_more_than_its_programs() {
    let profile = Profile::builtin("tlc").unwrap();
    let (geometry, timing) = (profile.check().unwrap(), &profile.timing);
    let device = Device::new(&geometry, timing, ram(&geometry)).unwrap();
    let config = BatchConfig::for_geometry(&geometry, 0.2);
    let mut target = Batch::open(device, config, Time::ZERO).unwrap();
    let (row, units) = (geometry.row_blocks(), geometry.total_pus());
    let lpids: Vec<u64> = (0..256).map(|i| i * 4_001).collect();
    let (mut queue, mut done) = (Ring::new(4), Ring::new(4));
    let came = target.now();
    let buffer = batch_buffer(&lpids, &lpids, 8);
    queue.push(BatchReq { id: 1, op: BatchOp::WriteBatch, lpid: 0, buffer }).unwrap();
    target.submit(came, &mut queue);
    while done.is_empty() {
        target.advance(target.next_event().unwrap(), &mut done);
    }
    let done = done.pop().unwrap();
    assert!(done.status.is_ok(), "{}", done.status);
    let took = done.at - came;
    // The log's second row is of the second lane: the first row of its chunk.
    let program =
        |log_row| timing.command + timing.transfer(row) + timing.program_of(log_row, false);
    let Dimensions { groups, .. } = geometry.dimensions();
    let rows = 256u32.div_ceil(row);
    assert!(rows <= units, "no unit has two");
    let transfers = u64::from(rows.div_ceil(groups)) * (timing.command + timing.transfer(row));
    let bound = program(0) + transfers + timing.program_of(0, false);
    assert!((bound..=bound + bound / 10).contains(&took), "{took} ns, bound {bound} ns");
    println!(
        "{took} ns; bound {bound} ns, {:.1} % over",
        (took as f64 / bound as f64 - 1.0) * 100.0
    );
}

/// The set-up that a geometry gives has no more pages than its own capacity.
#[test]
fn a_geometry_s_own_set_up_fits_it() {
    for (units, chunks, pages) in [(1, 20, 8), (2, 40, 8), (4, 60, 16), (16, 200, 8), (64, 500, 64)]
    {
        for spare in [0.0, 0.1, 0.3] {
            let (groups, pus, planes, page_bytes) = (units, 1, 2, 8192);
            let dim =
                Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once: 1 };
            let geometry = Geometry::new(dim).unwrap();
            let config = BatchConfig::for_geometry(&geometry, spare);
            assert!(config.pages <= config.capacity(&geometry), "{dim:?} {spare}: {config:?}");
            assert!(config.pages > 0 || units < 4, "{dim:?}");
        }
    }
}
