//! What a row and a block cost in a drive file, through the page cache.
//!
//! Rows of 32 KiB are programmed and described as a drive does, over and over
//! in 64 MiB of the file; blocks of 4 KiB are read from there at random. The
//! file lies in the folder for temporary files.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drivefile::{CacheMode, DriveFile, Header};
use flash::{Chunk, ChunkState, Dimensions, Geometry, Medium, Moved, Ppa, TAG_BYTES};

/// Blocks of a row.
const ROW: u32 = 8;

fn drive(kept: u32, folder: &tempfile::TempDir) -> DriveFile {
    let dim = Dimensions {
        groups: 4,
        pus: 4,
        chunks: 4,
        pages: 64,
        planes: 2,
        page_bytes: 4 << 12,
        pages_at_once: 1,
    };
    let geometry = Geometry::new(dim).expect("a geometry");
    let (profile, drive) = (String::new(), String::new());
    let header = Header { geometry, kept, cache: CacheMode::Volatile, profile, drive };
    let path = folder.path().join(format!("drive{kept}"));
    DriveFile::create(&path, &header).expect("a file")
}

/// Programs a row of the chunk `index` and says so.
fn row(drive: &mut DriveFile, index: usize, block: u32, data: &[u8], tags: &[u8]) {
    let at = Ppa(drive.header().geometry.chunk_start(index).0 + u64::from(block));
    assert_eq!(drive.program(at, ROW, data, tags), Moved::Done);
    let wp = block + ROW;
    let state = ChunkState::Open;
    drive.describe(index, &Chunk { state, wp, programmed: wp, ..Chunk::default() });
}

fn rows(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    for kept in [4096u32, 8, 0] {
        let mut drive = drive(kept, &folder);
        let chunk = drive.header().geometry.chunk_blocks();
        let rows = chunk / ROW;
        let (data, tags) = (vec![7; (ROW * kept) as usize], [1; ROW as usize * TAG_BYTES]);
        let chunks = drive.header().geometry.chunk_slots() as u32;
        for n in 0..chunks * rows {
            row(&mut drive, (n / rows) as usize, n % rows * ROW, &data, &tags);
        }
        let mut group = c.benchmark_group(format!("kept {kept}"));
        group.throughput(Throughput::Elements(1));
        let mut n = 0;
        group.bench_function("program a row of 8", |b| {
            b.iter(|| {
                n = (n + 1) % (chunks * rows);
                row(&mut drive, (n / rows) as usize, n % rows * ROW, &data, &tags);
            });
        });
        let (mut block, mut tag) = (vec![0; kept as usize], [0; TAG_BYTES]);
        let mut n = 0u64;
        group.bench_function("read a block and its tag", |b| {
            b.iter(|| {
                n = (n * 25 + 13) % u64::from(chunks * chunk);
                let moved = drive.read(Ppa(n), 1, &mut block, &mut tag);
                assert_eq!(black_box(moved), Moved::Done);
            });
        });
    }
}

criterion_group!(benches, rows);
criterion_main!(benches);
