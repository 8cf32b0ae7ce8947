//! Whatever bytes are on a disk: it is an error, or it mounts and fits together.

use files::{BLOCK, Disk, Files, Inode, Journal, Kind, Memory, Operation, Options};
use port::random::Random;

fn image(seed: u64, journal: Journal) -> Memory {
    let mut random = Random::new(seed, 1);
    let options = Options { journal, journal_blocks: Some(64), ..Options::default() };
    let mut files = Files::format(Memory::new(400), options).unwrap();
    for n in 0..40 {
        let parent = if n > 4 && n % 3 == 0 { Inode(5) } else { Inode::ROOT };
        let kind = match n {
            3 => Kind::Folder,
            7 => Kind::Link(vec![b'p'; 1000]),
            _ => Kind::File,
        };
        let (name, inode) =
            (format!("{}{n}", "name".repeat(n % 40)).into_bytes(), Inode(2 + n as u64));
        files.apply(&Operation::Create { parent, name, inode, kind, mode: 0o644 }).unwrap();
    }
    for _ in 0..60 {
        let (inode, offset) = (Inode(10 + random.below(4)), random.below(90) * 8192);
        files.apply(&Operation::Write { inode, offset, data: vec![1; 5000] }).unwrap();
        if random.below(3) == 0 {
            files.apply(&Operation::Sync { inode, data: false }).unwrap();
        }
    }
    files.apply(&Operation::SyncAll).unwrap();
    files.into_disk()
}

/// Mounts, looks, and uses what is there.
fn use_it(disk: Memory) -> bool {
    let Ok(mut files) = Files::mount(disk) else { return false };
    assert_eq!(files.check(), Vec::<String>::new());
    let names: Vec<(Vec<u8>, Inode)> =
        files.list(Inode::ROOT).unwrap().map(|(name, inode)| (name.to_vec(), inode)).collect();
    let mut bytes = vec![0; 1 << 16];
    for (name, inode) in names {
        let _ = files.read(inode, 0, &mut bytes);
        let _ = files.apply(&Operation::Write { inode, offset: 5000, data: vec![2; 5000] });
        let _ = files.apply(&Operation::Truncate { inode, size: 700 });
        let _ = files.apply(&Operation::Remove { parent: Inode::ROOT, name });
        let _ = files.apply(&Operation::Forget { inode });
    }
    let _ = files.apply(&Operation::SyncAll);
    assert_eq!(files.check(), Vec::<String>::new());
    let files = Files::mount(files.into_disk()).expect("what was written mounts");
    assert_eq!(files.check(), Vec::<String>::new());
    true
}

#[test]
fn a_damaged_disk_is_an_error_or_fits_together() {
    let (mut mounted, mut random) = ([0; 4], Random::new(3, 3));
    let all = [Journal::Ordered, Journal::Writeback, Journal::None, Journal::Data];
    for (n, journal) in all.into_iter().enumerate() {
        let images: Vec<Memory> = (0..4).map(|seed| image(seed, journal)).collect();
        for round in 0..2000 {
            let mut disk = images[round % 4].clone();
            for _ in 0..1 + random.below(6) {
                // Mostly where metadata are.
                let at = if random.below(4) == 0 { random.below(400) } else { random.below(120) };
                let mut block = [0; BLOCK];
                disk.read(at, &mut block).unwrap();
                damage(&mut block, &images[(round + 1) % 4], &mut random);
                disk.write(at, &block).unwrap();
            }
            mounted[n] += usize::from(use_it(disk));
        }
    }
    println!("of 2000 each mounted: {mounted:?}");
    assert!(mounted.iter().all(|&mounted| (100..2000).contains(&mounted)), "{mounted:?}");
}

fn damage(block: &mut [u8; BLOCK], other: &Memory, random: &mut Random) {
    let at = random.below(BLOCK as u64) as usize;
    match random.below(5) {
        0 => block[at] ^= 1 << random.below(8),
        1 => block.fill(0),
        2 => block[at / 512 * 512..][..512].fill(random.bits() as u8),
        3 => other.clone().read(random.below(400), block).unwrap(),
        _ => block[at / 512 * 512 + at % 48] = random.bits() as u8,
    }
}

#[test]
fn sealed_nonsense_is_an_error_or_fits_together() {
    // Checksums are right, so that what stands behind them is reached.
    let mut random = Random::new(4, 4);
    for journal in [Journal::Ordered, Journal::None, Journal::Data] {
        let original = image(1, journal);
        for _ in 0..3000 {
            let mut disk = original.clone();
            for _ in 0..1 + random.below(4) {
                files::sealed_damage(&mut disk, random.below(120), &mut |n| random.below(n));
            }
            use_it(disk);
        }
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random::new(5, 5);
    for _ in 0..200 {
        let mut disk = Memory::new(300);
        for at in 0..300 {
            let block: Vec<u8> = (0..BLOCK).map(|_| random.bits() as u8).collect();
            disk.write(at, &block).unwrap();
        }
        assert!(Files::mount(disk).is_err());
    }
}
