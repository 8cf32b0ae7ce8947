//! Single cases of a drive that errs: what is counted, how long it takes, what is told, each
//! held against arithmetic.

use super::*;

/// Remembers what it was told of its chunks.
struct Told(Vec<Chunk>);

impl Script for Told {
    fn describe(&mut self, _below: Below, index: usize, chunk: &Chunk) {
        self.0[index] = *chunk;
    }
}

#[test]
fn the_medium_is_told_all_but_the_last_reads() {
    let g = geometry(1, 2, 1);
    let r = Reliability { factory_bad: 0.2, wear_notice: 1, ..model() };
    let told = Told(vec![Chunk::default(); g.chunk_slots()]);
    let medium = ScriptedMedium::ram(&g, KEPT as u32, told);
    let mut rig = Rig::new(Device::with(&g, &timing(), &r, 12, medium).unwrap(), 8);
    for number in 0..20_000u64 {
        let x = mix(number);
        let (chunk, block) = ((x % 8) as usize, (x >> 8) as u32 % 12);
        let act = match x >> 16 & 31 {
            0 => Act::Reset { chunk },
            1..6 => Act::Append { chunk, count: 4 },
            _ => Act::Read { chunk, block, count: 2 },
        };
        if let Some(cmd) = command(&rig.port, &act, number << 20) {
            run(&mut rig, cmd);
        }
    }
    let errors = rig.port.errors();
    assert!(errors.failed_programs > 0 && errors.failed_erases > 0 && errors.failed_reads > 0);
    let (health, chunks) = (rig.port.health(), rig.port.chunks().to_vec());
    assert!(health.factory_bad > 0 && health.grown_bad > 0);
    for (told, chunk) in rig.port.cut().script::<Told>().0.iter().zip(&chunks) {
        assert!(told.reads <= chunk.reads && chunk.reads - told.reads < 1024);
        assert_eq!(*told, Chunk { reads: told.reads, ..*chunk });
    }
}

/// A chunk is bad where its part on either channel of a super-channel is; with the
/// remap checker a parallel unit has as many bad ones as parts are bad on its worse
/// channel, so that good parts of bad chunks stand for the others.
#[test]
fn what_is_bad_on_one_channel_is_made_up_for_by_the_other() {
    let (groups, pus, chunks, planes) = (2, 2, 100, 1);
    let (pages, page_bytes, pages_at_once) = (4, 8192, 1);
    let dim = Dimensions { groups, pus, chunks, pages, planes, page_bytes, pages_at_once };
    let (g, t) = (Geometry::new(dim).unwrap(), Timing { channel_split: 2, ..timing() });
    let plain = Reliability { factory_bad: 0.1, ..model() };
    let remapped = Reliability { remap: true, ..plain.clone() };
    let bad_of = |r: &Reliability, pu: usize| {
        let drive = device(&g, &t, r, 12);
        let chunks = (0..chunks).map(|n| g.chunk_of(pu, n));
        chunks.filter(|&i| drive.chunks()[i].state == ChunkState::Offline).count()
    };
    for pu in g.pus_channels_first() {
        let is_bad = |n: u32, channel: u32| {
            plain.is_factory_bad(12, g.chunk_start(g.chunk_of(pu, n)), channel)
        };
        let count = |bad: &dyn Fn(u32) -> bool| (0..chunks).filter(|&n| bad(n)).count();
        let one = count(&|n| is_bad(n, 0));
        let other = count(&|n| is_bad(n, 1));
        let either = count(&|n| is_bad(n, 0) || is_bad(n, 1));
        assert_eq!((bad_of(&plain, pu), bad_of(&remapped, pu)), (either, one.max(other)));
        assert!(either > one.max(other) && one > 0 && other > 0, "{one}, {other}, {either}");
    }
    // One channel, which is nobody's pair: nothing to make up for.
    let (t, bad_of_all) =
        (timing(), |r: &Reliability, t: &Timing| device(&g, t, r, 12).health().factory_bad);
    assert_eq!(bad_of_all(&remapped, &t), bad_of_all(&plain, &t));
}

/// A drive of one parallel unit with a chunk full of data.
fn one_chunk(t: &Timing, r: &Reliability, seed: u64) -> (Rig<Device<RamMedium>>, Geometry) {
    let g = geometry(1, 1, 2);
    let mut rig = Rig::new(device(&g, t, r, seed), 8);
    let write = filled(cmd(0, Write, Ppa(0), g.chunk_blocks() as u8), 1);
    assert_eq!(run(&mut rig, write).status, Status::SUCCESS);
    (rig, g)
}

#[test]
fn repetitions_take_their_time_exactly() {
    for (decode, registers) in [(0, false), (0, true), (40, false), (40, true)] {
        repetitions_take(decode, registers);
    }
}

/// With a time to decode, each try's data go out to the controller.
fn repetitions_take(decode: u64, registers: bool) {
    let r = Reliability {
        decode,
        rber_base: 5.2e-3,
        read_retries: 5,
        program_failure: 0.0,
        endurance_cliff: true,
        ..model()
    };
    let t = Timing { cache_registers: registers, plane_reads: registers, ..timing() };
    let (mut rig, g) = one_chunk(&t, &r, 3);
    let mut seen = [0; 6];
    for i in 0..400u32 {
        let block = i * 7 % g.chunk_blocks();
        let (at, chunk) = (Ppa(block.into()), rig.port.chunk(0));
        let rate = r.rber(Reliability::wear_share(0, ENDURANCE), 0, chunk.reads);
        let sensed = r.sense(3, at, 1, &chunk, rate);
        let (start, tr) = (rig.now, t.read_of(g.row(at)));
        let done = run(&mut rig, filled(cmd(0, Read, at, 1), 0));
        let retries = u64::from(sensed.retries);
        let out = if decode == 0 { 0 } else { t.transfer(1) + decode };
        let expected = t.command + tr + retries * (t.command + tr + out) + t.transfer(1);
        assert_eq!(done.at - start, expected, "{retries} repetitions");
        assert_eq!(done.status.is_ok(), sensed.failed == 0);
        seen[sensed.retries as usize] += 1;
        assert_eq!(rig.port.chunk(0).reads, chunk.reads + 1 + sensed.retries);
    }
    assert!(seen[0] > 20 && seen[1] > 20 && seen[2] > 20, "all kinds occur: {seen:?}");
    let errors = rig.port.errors();
    let retries: u64 = (0..).zip(seen).map(|(n, times)| n * times).sum();
    assert_eq!((errors.retries, errors.retried_reads), (retries, 400 - seen[0]));
}

/// A read that shares another's sensing takes a command and its data, and is no array
/// read; one that is to be repeated is read by itself.
#[test]
fn repetitions_are_not_shared() {
    for decode in [0, 40] {
        let r = Reliability {
            decode,
            rber_base: 5.2e-3,
            read_retries: 5,
            program_failure: 0.0,
            endurance_cliff: true,
            ..model()
        };
        let t = Timing { shared_reads: true, ..timing() };
        let (mut rig, g) = one_chunk(&t, &r, 3);
        let costs = EnergyCosts { counted: true, read: 10, byte: 1000, ..EnergyCosts::default() };
        rig.port.set_energy(&costs);
        let (mut reads, mut alone, mut corrected) = (0, 0, 0);
        let (mut sensings, mut transfers) = (0, 0);
        for i in 0..200u32 {
            let at = Ppa((i * 2 % g.chunk_blocks()).into());
            let (start, tr) = (rig.now, t.read_of(g.row(at)));
            let mut expected = 0;
            let mut chunk = rig.port.chunk(0);
            for (number, at) in [at, Ppa(at.0 + 1)].into_iter().enumerate() {
                let rate = r.rber(Reliability::wear_share(0, ENDURANCE), 0, chunk.reads);
                let sensed = r.sense(3, at, 1, &chunk, rate);
                let retries = sensed.retries;
                let out = if decode == 0 { 0 } else { t.transfer(1) + decode };
                expected += t.command + u64::from(retries) * (t.command + tr + out) + t.transfer(1);
                let is_own = number == 0 || retries > 0;
                expected += if is_own { tr } else { 0 };
                chunk.reads += u32::from(is_own) + retries;
                reads += u64::from(is_own);
                corrected += u64::from(is_own && sensed.worst > 0 && sensed.failed == 0);
                sensings += u64::from(u32::from(is_own) + retries);
                transfers += u64::from(1 + if decode == 0 { 0 } else { retries });
                alone += u64::from(number == 1 && is_own);
            }
            for at in [at, Ppa(at.0 + 1)] {
                rig.submit(start.0, filled(cmd(u64::from(i), Read, at, 1), 0));
            }
            rig.drain();
            assert_eq!((rig.now - start, rig.port.chunk(0).reads), (expected, chunk.reads), "{i}");
        }
        let counters = rig.port.counters();
        assert_eq!((counters.reads, counters.shared), (reads, 400 - reads));
        assert!(alone > 20 && counters.shared > 20, "both occur: {alone}");
        assert_eq!(rig.port.errors().corrected_reads, corrected);
        let energy = rig.port.energy(rig.now);
        assert_eq!((energy.read, energy.channel), (10 * sensings, 4096 * transfers), "{decode}");
    }
}

/// Upper pages are repeated more often than lower ones, as often as the sums of the
/// binomial distribution say.
#[test]
fn page_types_are_repeated_as_often_as_their_rates_say() {
    let r = Reliability {
        rber_base: 5e-3,
        read_disturb: 0.0,
        read_retries: 5,
        program_failure: 0.0,
        page_rber: vec![0.8, 1.25],
        layer_rber: 0.1,
        ..model()
    };
    let (mut rig, g) = one_chunk(&timing(), &r, 3);
    let (pages, reads) = (g.dimensions().pages, 1500u32);
    let mut means = Vec::new();
    for page in 0..pages {
        let before = rig.port.errors().retries;
        for i in 0..reads {
            let block = page * g.wide_page_blocks() + i % g.wide_page_blocks();
            run(&mut rig, filled(cmd(0, Read, Ppa(block.into()), 1), 0));
        }
        let seen = (rig.port.errors().retries - before) as f64;
        // The pages of a cell are as many as there are page types: two.
        let rate =
            r.rber(Reliability::wear_share(0, ENDURANCE), 0, 0) * r.page_share(page, pages, 2);
        let again = |n: i32| 1.0 - r.correctable_share(rate * r.retry_gain.powi(n)).powi(4);
        let mean: f64 = (0..5).map(again).sum::<f64>() * f64::from(reads);
        // Of at most five repetitions each.
        let deviation = 5.0 * f64::from(reads).sqrt() / 2.0;
        assert!((seen - mean).abs() < 2.0 * deviation, "page {page}: {seen} for {mean}");
        means.push(seen);
    }
    assert!(means[0] * 2.0 < means[1] && means[0] < means[4] && means[1] < means[5], "{means:?}");
}

#[test]
fn errors_grow_with_wear_age_and_reads() {
    let base = Reliability {
        rber_base: 1e-3,
        rber_wear: 4e-3,
        retention_time: 3_600_000_000_000,
        read_disturb: 1e-6,
        program_failure: 0.0,
        erase_failure: 0.0,
        read_retries: 20,
        ..model()
    };
    // Repetitions that 200 row reads take.
    let retries = |wear: u32, wait: u64, reads: u32| {
        let g = geometry(1, 1, 2);
        let mut chunks = vec![Chunk::default(); g.chunk_slots()];
        chunks[0].wear = wear;
        let ram = RamMedium::new(&g, KEPT as u32).unwrap();
        let d = Device::restore_with(&g, &timing(), &base, 1, ram, &chunks).unwrap();
        let mut rig = Rig::new(d, 8);
        let size = g.chunk_blocks() as u8;
        assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), size), 1)).status.is_ok());
        rig.run_to(Time(rig.now.0 + wait));
        for _ in 0..reads / 6 {
            run(&mut rig, filled(cmd(0, Read, Ppa(0), size), 0));
        }
        let before = rig.port.errors().retries;
        for _ in 0..33 {
            assert!(run(&mut rig, filled(cmd(0, Read, Ppa(0), size), 0)).status.is_ok());
        }
        rig.port.errors().retries - before
    };
    assert_eq!(retries(0, 0, 0), 0, "new, fresh, hardly read");
    assert!(retries(19, 0, 0) > 100, "worn");
    assert!(retries(0, 4 * 3_600_000_000_000, 0) > 100, "old");
    assert!(retries(9, 0, 12_000) > retries(9, 0, 0) + 100, "read much");
}

#[test]
fn a_failed_program_is_never_read_until_its_chunk_is_erased() {
    // Whatever the medium holds there from earlier.
    let r = Reliability { program_failure: 1.0, rber_base: 0.0, rber_wear: 0.0, ..model() };
    let g = geometry(1, 1, 2);
    let row = g.row_blocks() as u8;
    let old = Reliability { program_failure: 0.0, ..r.clone() };
    let mut rig = Rig::new(device(&g, &timing(), &old, 1), 8);
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), row * 3), 9)).status.is_ok());
    assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    let mut chunks = rig.port.chunks().to_vec();
    // At the endurance every program fails.
    chunks[0].wear = ENDURANCE - 1;
    let medium = rig.port.cut();
    let again = Device::restore_with(&g, &timing(), &r, 1, medium, &chunks).unwrap();
    let mut rig = Rig::new(again, 8);
    let done = run(&mut rig, filled(cmd(0, Write, Ppa(0), row), 1));
    assert_eq!((done.status, done.failed), (Status::WRITE_FAILED_WRITE_NEXT_UNIT, (1 << row) - 1));
    let chunk = rig.port.chunk(0);
    assert_eq!((chunk.state, chunk.wp), (ChunkState::Open, row.into()), "it takes the next unit");
    for restarts in 0..3 {
        for content in [Content::Data, Content::Tagged, Content::Tags] {
            let read = VectorCmd { content, ..cmd(0, Read, Ppa(1), row - 1) };
            let buffer = Buffer::zeroed(read.buffer_bytes(KEPT as u32)).unwrap();
            let done = run(&mut rig, VectorCmd { buffer, ..read });
            assert_eq!(done.status, Status::UNRECOVERED_READ, "{content:?}, {restarts} restarts");
            assert_eq!(done.failed, (1 << (row - 1)) - 1);
            assert!(done.buffer.bytes().iter().all(|&b| b == 0), "nothing is given back");
        }
        let chunks = rig.port.chunks().to_vec();
        // Also without a model of errors.
        let medium = rig.port.cut();
        let again = Device::restore(&g, &timing(), medium, &chunks).unwrap();
        rig = Rig::new(again, 8);
    }
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(row.into()), row), 2)).status.is_ok());
    let done = run(&mut rig, filled(cmd(0, Read, Ppa(0), row * 2), 0));
    assert_eq!((done.status, done.failed), (Status::UNRECOVERED_READ, (1 << row) - 1));
    let timing = Timing { endurance: u32::MAX, ..timing() };
    let chunks = rig.port.chunks().to_vec();
    let again = Device::restore(&g, &timing, rig.port.cut(), &chunks).unwrap();
    let mut rig = Rig::new(again, 8);
    assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), row), 3)).status.is_ok());
    assert!(run(&mut rig, filled(cmd(0, Read, Ppa(0), row), 0)).status.is_ok());
}

#[test]
fn a_chunk_that_fails_too_often_is_closed_with_what_is_behind() {
    let r = Reliability { program_failure: 1.0, failure_power: 0.1, rber_base: 0.0, ..model() };
    let g = geometry(1, 1, 2);
    let mut chunks = vec![Chunk::default(); g.chunk_slots()];
    chunks[0].wear = ENDURANCE - 1;
    let ram = RamMedium::new(&g, KEPT as u32).unwrap();
    let d = Device::restore_with(&g, &timing(), &r, 1, ram, &chunks).unwrap();
    let mut rig = Rig::new(d, 8);
    let row = g.row_blocks() as u8;
    for i in 0..5u8 {
        rig.submit(0, filled(cmd(i.into(), Write, Ppa((i * row).into()), row), i.into()));
    }
    // The third closes it while the last two wait for the die.
    let each = timing().command + timing().transfer(row.into()) + 900;
    rig.run_to(Time(3 * each));
    assert_eq!(rig.port.chunk(0).state, ChunkState::Closed);
    let mut reset = Rig::new(rig.port, 8);
    reset.now = rig.now;
    let done = rig.all;
    reset.submit(reset.now.0, cmd(9, Reset, Ppa(0), 1));
    assert!(reset.port.next_event().is_some());
    reset.drain();
    let all: Vec<_> = done.iter().chain(&reset.all).map(|d| (d.cookie, d.status)).collect();
    let (next, early) = (Status::WRITE_FAILED_WRITE_NEXT_UNIT, Status::CHUNK_EARLY_CLOSE);
    let expected =
        [(0, next), (1, next), (2, early), (9, Status::INVALID_RESET), (3, early), (4, early)];
    assert_eq!(all, expected, "no reset while programs are on their way");
    let chunk = reset.port.chunk(0);
    assert_eq!((chunk.wp, chunk.programmed), (2 * u32::from(row), 2 * u32::from(row)));
    let errors = reset.port.errors();
    assert_eq!((errors.failed_programs, errors.early_closes), (3, 1));
    let refused = run(&mut reset, filled(cmd(1, Write, Ppa((2 * row).into()), row), 1));
    assert_eq!(refused.status, Status::OUT_OF_ORDER_WRITE);
    let chunks = reset.port.chunks().to_vec();
    let early_closed = chunks.iter().filter(|c| c.is_closed_early(g.chunk_blocks())).count();
    let again = Device::restore(&g, &timing(), reset.port.cut(), &chunks).unwrap();
    assert_eq!((again.chunk(0).state, early_closed), (ChunkState::Closed, 1), "it stays closed");
}

#[test]
fn a_whole_life_ends_as_the_probabilities_say() {
    let r = Reliability {
        erase_failure: 0.05,
        failure_power: 3.0,
        program_failure: 0.0,
        factory_bad: 0.1,
        wear_notice: 60,
        ..model()
    };
    let dim = flash::Dimensions { groups: 2, pus: 2, chunks: 100, ..flash::Dimensions::LEAST };
    let g = Geometry::new(dim).unwrap();
    let t = Timing { endurance: ENDURANCE, ..Timing::default() };
    let life = |r: &Reliability| {
        let mut rig = Rig::new(device(&g, &t, r, 5), 8);
        let mut lives = Vec::new();
        for pu in g.pus_channels_first() {
            for number in 0..g.chunks() {
                let at = g.chunk_start(g.chunk_of(pu, number));
                while rig.port.chunk(g.chunk_index(at)).state != ChunkState::Offline {
                    assert!(run(&mut rig, filled(cmd(0, Write, at, 1), 1)).status.is_ok());
                    run(&mut rig, cmd(0, Reset, at, 1));
                }
                lives.push(rig.port.chunk(g.chunk_index(at)).wear);
            }
        }
        let (health, errors) = (rig.port.health(), rig.port.errors());
        (lives, (health, errors), std::iter::from_fn(|| rig.port.take_notice()).collect())
    };
    let (lives, (health, errors), notices): (Vec<u32>, _, Vec<Notice>) = life(&r);
    let factory = lives.iter().filter(|&&wear| wear == 0).count() as u64;
    assert!((20..=64).contains(&factory), "10 % of 400, within four deviations: {factory}");
    assert_eq!((health.factory_bad, health.grown_bad), (factory, 400 - factory));
    assert_eq!((health.chunks, health.free, health.open, health.closed), (400, 0, 0, 0));
    assert_eq!(errors.failed_erases, 400 - factory);
    // The survival of an erase that brings the wear to w is 1 - 0.05 (w/20)^3.
    let (mut alive, mut mean) = (1.0, 0.0);
    for wear in 1..500u32 {
        let dies: f64 = (0.05 * (f64::from(wear) / 20.0).powi(3)).min(1.0);
        mean += f64::from(wear) * alive * dies;
        alive *= 1.0 - dies;
    }
    assert!((health.wear.mean - mean).abs() < 2.0, "{} for {mean}", health.wear.mean);
    assert!(notices.iter().all(|n| n.state == NoticeState::Worn && n.mask == NoticeMask::Chunk));
    let mut told: Vec<Ppa> = notices.iter().map(|n| n.ppa).collect();
    told.sort_unstable();
    told.dedup();
    assert!(!told.is_empty() && told.len() == notices.len(), "each chunk once");
    // With the cliff, nobody lives longer.
    let (lives, ..): (Vec<u32>, _, Vec<Notice>) =
        life(&Reliability { endurance_cliff: true, erase_failure: 0.0, ..r });
    assert!(lives.iter().all(|&wear| wear == 0 || wear == ENDURANCE + 1));
}

#[test]
fn levels_are_told_once_a_life_and_through_the_link() {
    let r = Reliability { rber_base: 0.0, rber_wear: 0.0, read_disturb: 8e-5, ..model() };
    let r = Reliability { program_failure: 0.0, erase_failure: 0.0, read_retries: 0, ..r };
    let g = geometry(1, 1, 2);
    let link = LinkTiming { controller: 5, latency: 3, rate: 0, ..LinkTiming::default() };
    let mut rig = Rig::new(Link::new(link, device(&g, &timing(), &r, 2)), 8);
    let mut number = 0;
    for life in 0..2 {
        let size = g.chunk_blocks() as u8;
        assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), size), 1)).status.is_ok());
        let (mut states, mut failed) = (Vec::new(), false);
        for _ in 0..4000 {
            let done = run(&mut rig, filled(cmd(0, Read, Ppa(0), size), 0));
            while let Some(notice) = rig.port.take_notice() {
                number += 1;
                assert_eq!(notice.number, number);
                if notice.state == NoticeState::Unrecoverable {
                    assert_eq!(notice.mask, NoticeMask::Block);
                    assert_ne!(done.failed >> notice.ppa.0 & 1, 0, "it is one of the failed");
                    assert!(!failed);
                    failed = true;
                } else {
                    assert_eq!((notice.mask, notice.ppa), (NoticeMask::Chunk, Ppa(0)));
                    assert!(done.status.is_ok(), "corrected");
                }
                states.push(notice.state);
            }
        }
        use NoticeState::{RateHigh, RateLow, RateMedium, Unrecoverable};
        assert_eq!(states, [RateLow, RateMedium, RateHigh, Unrecoverable], "life {life}");
        assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    }
}

/// Age is told of chunks, full or not, that nobody reads; each round once more.
#[test]
fn the_patrol_tells_of_what_has_grown_old() {
    let clean = Reliability { program_failure: 0.0, rber_wear: 0.0, rber_base: 1e-3, ..model() };
    let model = Reliability { retention_time: 1 << 30, ..clean };
    let g = geometry(1, 1, 2);
    let row = g.row_blocks() as u8;
    let mut rig = Rig::new(device(&g, &timing(), &model, 2), 8);
    let (full, part) = (g.chunk_start(0), g.chunk_start(1));
    for i in 0..g.chunk_blocks() / u32::from(row) {
        let at = Ppa(full.0 + u64::from(i) * u64::from(row));
        assert!(run(&mut rig, filled(cmd(0, Write, at, row), 1)).status.is_ok());
    }
    assert!(run(&mut rig, filled(cmd(0, Write, part, row), 1)).status.is_ok());
    rig.port.patrol(Time(1 << 27));
    assert_eq!(rig.port.take_notice(), None, "they are young");
    for round in 1..3 {
        rig.port.patrol(Time(round << 33));
        let told = std::iter::from_fn(|| rig.port.take_notice());
        let mut told: Vec<_> = told.map(|n| (n.ppa, n.state, n.mask)).collect();
        told.sort_by_key(|told| told.0);
        let each = |at| (at, NoticeState::RateHigh, NoticeMask::Chunk);
        assert_eq!(told, [each(full), each(part)]);
    }
}

#[test]
fn notices_without_room_are_counted_and_told_later() {
    let dim = flash::Dimensions { chunks: 300, ..flash::Dimensions::LEAST };
    let g = Geometry::new(dim).unwrap();
    let r = Reliability { rber_base: 0.1, program_failure: 0.0, ..model() };
    let mut rig = Rig::new(device(&g, &timing(), &r, 2), 8);
    let read_all = |rig: &mut Rig<Device<RamMedium>>| {
        for chunk in 0..300 {
            let done = run(rig, filled(cmd(0, Read, g.chunk_start(chunk), 1), 0));
            assert_eq!((done.status, done.failed), (Status::UNRECOVERED_READ, 1));
        }
    };
    for chunk in 0..300 {
        assert!(run(&mut rig, filled(cmd(0, Write, g.chunk_start(chunk), 1), 1)).status.is_ok());
    }
    read_all(&mut rig);
    assert_eq!(rig.port.errors().lost_notices, 44);
    let mut told = Vec::new();
    for _ in 0..2 {
        told.extend(std::iter::from_fn(|| rig.port.take_notice()).map(|n| n.ppa));
        read_all(&mut rig);
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 300, "all are told in the end");
}

#[test]
fn energy_is_the_sum_of_what_was_done() {
    let g = geometry(1, 1, 2);
    let costs = EnergyCosts {
        counted: true,
        read: 10,
        program: 100,
        erase: 1000,
        byte: 50,
        idle: 3,
        ..EnergyCosts::default()
    };
    let mut d = drive(&g, &timing(), KEPT as u32);
    d.set_energy(&costs);
    let mut rig = Rig::new(d, 8);
    // Pages of 2 blocks on 2 planes: 6 rows of 2 pages.
    assert!(run(&mut rig, filled(cmd(0, Write, Ppa(0), 24), 1)).status.is_ok());
    let e = rig.port.energy(rig.now);
    assert_eq!((e.program, e.channel), (12 * 100, 24 * 4096 * 50 / 1000));
    assert_eq!(e.idle, rig.now.0 * 3 / 1000);
    for (at, count, pages) in [(0u64, 1u8, 1u64), (1, 2, 2), (0, 4, 2), (2, 4, 3)] {
        let before = rig.port.energy(rig.now).read;
        run(&mut rig, filled(cmd(0, Read, Ppa(at), count), 0));
        // The last is of two rows, with a page of the first and one of the second.
        let pages = if at == 2 { 2 } else { pages };
        assert_eq!(rig.port.energy(rig.now).read - before, pages * 10, "{at} {count}");
    }
    let before = rig.port.energy(rig.now).channel;
    let tags = VectorCmd { content: Content::Tags, ..cmd(0, Read, Ppa(0), 4) };
    let buffer = Buffer::zeroed(tags.buffer_bytes(KEPT as u32)).unwrap();
    run(&mut rig, VectorCmd { buffer, ..tags });
    let bytes = (24 + 1 + 2 + 4 + 4) * 4096 + 4 * TAG_BYTES as u64;
    assert_eq!(rig.port.energy(rig.now).channel, bytes * 50 / 1000);
    assert!(rig.port.energy(rig.now).channel >= before);
    assert!(run(&mut rig, cmd(0, Reset, Ppa(0), 1)).status.is_ok());
    assert_eq!(rig.port.energy(rig.now).erase, 2 * 1000);
}

/// Counting energy, or a model that never errs, changes no time and no state.
#[test]
fn a_model_without_errors_changes_nothing() {
    let g = geometry(2, 1, 2);
    let none = Reliability { errors: true, ..Reliability::default() };
    let acts: Vec<(Act, u64)> = (0..400u64)
        .map(|i| {
            let (chunk, x) = ((mix(i) % 8) as usize, mix(i ^ 77));
            let (block, count) = ((x % 24) as u32, 1 + (x >> 8) as u8 % 20);
            let act = match x >> 16 & 7 {
                0 => Act::Reset { chunk },
                1..4 => Act::Read { chunk, block, count },
                _ => Act::Append { chunk, count },
            };
            (act, x >> 24 & 1023)
        })
        .collect();
    for t in [timing(), Timing { suspend: true, ..timing() }] {
        let (plain, hash, _) = crowd(drive(&g, &t, KEPT as u32), &acts);
        let (modelled, ..) = crowd(device(&g, &t, &none, 9), &acts);
        assert_eq!(modelled, plain);
        let off = Reliability { errors: false, ..model() };
        let (off, off_hash, errors) = crowd(device(&g, &t, &off, 9), &acts);
        assert_eq!((&off, off_hash, errors), (&plain, hash, ErrorCounters::default()));
        let mut counted = drive(&g, &t, KEPT as u32);
        counted.set_energy(&EnergyCosts { counted: true, read: 1, ..EnergyCosts::default() });
        assert_eq!(crowd(counted, &acts).0, plain);
    }
}
