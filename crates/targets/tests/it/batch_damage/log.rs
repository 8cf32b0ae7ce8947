//! Damaged rows of the log.

use super::*;

/// Rows of the log, from the newest back: what is behind the last checkpoint must
/// be there, and what is before it is not missed.
#[test]
fn a_row_of_the_log_that_cannot_be_read_is_an_error_at_the_start_or_not_needed() {
    let (mut world, values) = written(Setup::small(10).filled(60), 200);
    let rows = rows_of_log(&mut world);
    let (mut errors, mut old) = (0, 0);
    for &bad in rows.iter().rev() {
        damage(&mut world, [bad]);
        match world.try_power_on(LONG) {
            Err(BatchError::Log { at, why }) => {
                let unreadable = targets::batch::Damaged::Unreadable(Status::UNRECOVERED_READ);
                assert_eq!((at, why), (bad, unreadable));
                errors += 1;
            }
            Err(e) => panic!("{bad:?}: {e}"),
            Ok(run) => {
                let mut run = run.unwrap();
                assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new());
                world.power_off(run);
                old += 1;
            }
        }
        if old > 3 {
            break;
        }
    }
    assert!(errors > 3, "{errors} rows");
    is_whole(&mut world, &values);
}

/// The places of all rows of the log that are there, oldest first.
fn rows_of_log(world: &mut World) -> Vec<Ppa> {
    let row = world.geometry.row_blocks();
    let mut rows = of_table(world, LOG);
    rows.retain(|&(_, at)| world.geometry.block(at).is_multiple_of(row));
    rows.sort_unstable();
    rows.into_iter().map(|(_, at)| at).collect()
}

/// A row that can be read and is not as it was written is no end of the log: it was
/// acknowledged, the last one too, and over a cache as without.
#[test]
fn a_row_of_the_log_with_a_wrong_checksum_is_an_error() {
    for (seed, back) in (0..6).flat_map(|seed| (0..6).map(move |back| (seed, back))) {
        for cached in [false, true] {
            let mut setup = Setup::small(seed).filled(60);
            setup.config.forward_links = 1 + seed as u32 % 3;
            let (mut world, values) = written_over(cached, setup, 200);
            let rows = rows_of_log(&mut world);
            let bad = rows[rows.len() - 1 - back];
            rewrite(&mut world, bad, |bytes, _| bytes[100] ^= 1);
            match world.try_power_on(LONG) {
                Err(BatchError::Log { at, why }) => {
                    assert_eq!((at, why), (bad, targets::batch::Damaged::Foreign));
                }
                Err(e) => panic!("{seed}, {back}: {e}"),
                Ok(run) => {
                    // One that a checkpoint has made unneeded.
                    let mut run = run.unwrap();
                    run.target.verify(&world.void).unwrap();
                    assert!(unreadable_pages(&mut run, &values).is_empty());
                    assert!(back > 1, "{seed}, {back}: it is needed");
                    world.power_off(run);
                    continue;
                }
            }
            // Nothing was changed.
            rewrite(&mut world, bad, |bytes, _| bytes[100] ^= 1);
            is_whole(&mut world, &values);
        }
    }
}

/// The same of the records behind the first of a row.
#[test]
fn a_record_of_a_row_with_a_wrong_checksum_is_an_error() {
    let mut met = 0;
    for seed in 0..12 {
        let (mut world, _) = written(Setup::small(seed).filled(60), 30);
        let mut run = world.power_on(LONG).unwrap();
        for first in 0..8 {
            run.write(&mut world, &[first, first + 20, first + 40]);
        }
        run.drain(&mut world);
        for first in 0..4 {
            run.write(&mut world, &[first]);
            run.drain(&mut world);
        }
        world.power_off(run);
        let row = world.geometry.row_blocks();
        let mut records = of_table(&mut world, LOG);
        records.sort_unstable();
        let behind = |&&(_, at): &&(u64, Ppa)| world.geometry.block(at) % row > 0;
        let Some(&(number, bad)) = records.iter().rev().find(behind) else { continue };
        if number == records.last().unwrap().0 {
            continue;
        }
        rewrite(&mut world, bad, |bytes, _| bytes[100] ^= 1);
        match world.try_power_on(LONG) {
            Err(BatchError::Log { at, .. }) => {
                assert_eq!(world.geometry.block(at) / row, world.geometry.block(bad) / row);
                met += 1;
            }
            Err(e) => panic!("{seed}: {e}"),
            // It is behind a checkpoint.
            Ok(run) => {
                let mut run = run.unwrap();
                world.check(&mut run);
                world.power_off(run);
            }
        }
    }
    assert!(met > 2, "{met} rows");
}

/// What parity gives of a row that is not there, as a cut took it.
fn miss(world: &mut World, row: Ppa) {
    for block in 0..u64::from(world.geometry.row_blocks()) {
        rewrite(world, Ppa(row.0 + block), |bytes, id| {
            bytes.fill(0);
            *id = 0;
        });
    }
}

/// What can be read and is no row may be another thing, where it is last; an earlier
/// one is not, however far the rows behind it are from the places that the one
/// before it names.
#[test]
fn only_the_last_row_of_the_log_may_be_another_thing() {
    let (mut errors, mut ends) = (0, 0);
    for seed in 0..6 {
        let mut setup = Setup::small(seed).filled(60);
        setup.config.forward_links = 1 + seed as u32 % 2;
        for back in 0..6 {
            let (mut world, values) = written_over(true, setup.clone(), 200);
            let rows = rows_of_log(&mut world);
            let bad = rows[rows.len() - 1 - back];
            miss(&mut world, bad);
            match world.try_power_on(LONG) {
                Err(BatchError::Log { at, .. }) => errors += usize::from(at == bad && back > 0),
                Err(e) => panic!("{bad:?}: {e}"),
                Ok(run) => {
                    let mut run = run.unwrap();
                    if back > 0 {
                        assert_eq!(unreadable_pages(&mut run, &values), Vec::<u64>::new());
                    }
                    ends += usize::from(back == 0);
                    world.power_off(run);
                }
            }
        }
    }
    assert!(errors > 6 && ends == 6, "{errors} rows, {ends} ends");
}

/// Making a target that was cut leaves rows of the log. They are not behind the row
/// of the next log that a cut takes.
#[test]
fn rows_of_a_making_that_was_cut_are_not_behind_a_missing_row() {
    for seed in 0..4 {
        let mut world = world(Setup::small(seed).filled(60), true);
        let unit = world.geometry.pus_channels_first().nth(1).unwrap();
        let old = world.geometry.chunk_of(unit, 3);
        let (at, row) = (world.geometry.chunk_start(old), world.geometry.row_blocks());
        let mut tags = vec![0xff; row as usize * 16];
        Tag { id: LOG << 56 | 50, seq: 50 }.store(&mut tags);
        let data = vec![0; row as usize * 4096];
        assert_eq!(world.medium().program(at, row, &data, &tags), Moved::Done);
        (world.chunks[old].wp, world.chunks[old].programmed) = (row, row);
        world.chunks[old].state = ChunkState::Open;
        let mut run = world.power_on(LONG).unwrap();
        assert!(run.target.recovery().fresh);
        let mut values = vec![0; world.setup.config.pages as usize];
        churn(&mut run, &mut values, 3, |_| true);
        world.power_off(run);
        let rows = rows_of_log(&mut world);
        let missing = *rows.iter().rfind(|&&row| row != at).unwrap();
        miss(&mut world, missing);
        let mut run = world.try_power_on(LONG).expect("it is not the end").unwrap();
        run.target.verify(&world.void).unwrap();
        world.power_off(run);
    }
}
