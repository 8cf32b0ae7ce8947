//! The chunks of a drive, each in its place: how worn, what is valid in them, their
//! states.
//!
//! Guarantees: at most [`MOST_CELLS`] are told; where there are more chunks, neighbours
//! of a die are told as one. Of a drive with more dies than
//! [`MOST_UNITS`](crate::whole::MOST_UNITS) nothing is. Nothing here fails.

use device::OpenChannel;
use flash::{Chunk, ChunkState};
use serde_json::{Value, json};

use crate::whole::{Boxed, Drive, MOST_UNITS, devices};

/// Cells that are told of, at most.
const MOST_CELLS: usize = 16_384;

/// The states by their letters: `f`ree, `o`pen, `c`losed, offline (`x`).
const LETTERS: [char; 4] = ['f', 'o', 'c', 'x'];

/// Chunks of a die that are told as one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cell {
    chunks: u64,
    erases: u64,
    /// Blocks that are valid, of `blocks`.
    valid: u64,
    blocks: u64,
    /// How many are in each state.
    states: [u64; 4],
}

impl Cell {
    fn note(&mut self, chunk: &Chunk, valid: u32, blocks: u32) {
        let state = match chunk.state {
            ChunkState::Free => 0,
            ChunkState::Open => 1,
            ChunkState::Closed => 2,
            ChunkState::Offline => 3,
        };
        self.chunks += 1;
        self.erases += u64::from(chunk.wear);
        self.valid += u64::from(valid);
        self.blocks += u64::from(blocks);
        self.states[state] += 1;
    }

    /// The state of most of its chunks; of as many the last.
    fn letter(&self) -> char {
        let most = (0..LETTERS.len()).max_by_key(|&state| self.states[state]);
        most.map_or(LETTERS[0], |state| LETTERS[state])
    }

    fn erases(&self) -> String {
        let mean = self.erases as f64 / self.chunks.max(1) as f64;
        format!("{}", (mean * 10.0).round() / 10.0)
    }

    fn percent_valid(&self) -> String {
        format!("{:.0}", 100.0 * self.valid as f64 / self.blocks.max(1) as f64)
    }
}

/// All chunks of a drive at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkMap {
    /// Chunks of a cell.
    each: u32,
    /// Whether it is known what is valid.
    tells_valid: bool,
    /// The cells of each die, by group and unit.
    dies: Vec<Vec<Cell>>,
}

impl ChunkMap {
    /// How they are now; none of a drive with very many dies.
    pub fn of(drive: &Boxed) -> Option<ChunkMap> {
        let dies: u32 = devices(drive).map(|device| device.geometry().total_pus()).sum();
        if dies as usize > MOST_UNITS {
            return None;
        }
        let chunks = drive.lower(0).device().geometry().chunks();
        let each = chunks.div_ceil((MOST_CELLS as u32 / dies.max(1)).max(1)).max(1);
        // Those of parity are other chunks than its device has.
        let tells_valid = drive.parity().is_none();
        let mut all = Vec::new();
        for (shard, device) in devices(drive).enumerate() {
            let g = device.geometry();
            let (groups, pus) = (g.dimensions().groups, g.dimensions().pus);
            for pu in (0..groups).flat_map(|group| (0..pus).map(move |pu| (group, pu))) {
                let pu = g.pu_index(g.ppa(pu.0, pu.1, 0, 0));
                let mut cells = vec![Cell::default(); chunks.div_ceil(each) as usize];
                for number in 0..g.chunks() {
                    let index = g.chunk_of(pu, number);
                    let valid = if tells_valid { drive.valid_blocks(shard, index) } else { 0 };
                    let cell = &mut cells[(number / each) as usize];
                    cell.note(&device.chunks()[index], valid, g.chunk_blocks());
                }
                all.push(cells);
            }
        }
        Some(ChunkMap { each, tells_valid, dies: all })
    }

    /// As JSON: of each die a line.
    pub fn to_json(&self) -> Value {
        let lines = |of: fn(&Cell) -> String, between: &str| -> Vec<String> {
            let line = |cells: &Vec<Cell>| cells.iter().map(of).collect::<Vec<_>>().join(between);
            self.dies.iter().map(line).collect()
        };
        json!({
            "each": self.each,
            "states": lines(|cell| cell.letter().to_string(), ""),
            "erases": lines(Cell::erases, " "),
            "valid": self.tells_valid.then(|| lines(Cell::percent_valid, " ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::DriveSpec;
    use crate::stack::build;
    use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};

    /// A drive of which so much was written, in order, and then its beginning again.
    fn written(name: &str, bytes: u64, again: u64) -> Boxed {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        let mut drive = build(&spec.resolve().unwrap(), 1).unwrap();
        let (mut queue, mut done, mut now) = (Ring::new(1), Ring::new(1), Time::ZERO);
        let len = 65_536;
        let offsets = (0..bytes).step_by(len).chain((0..again).step_by(len));
        for offset in offsets {
            let (buffer, len) = (Buffer::zeroed(len).unwrap(), len as u64);
            queue.put(|| BlockReq::new(0, BlockOp::Write, offset, len, buffer));
            drive.submit(now, &mut queue);
            while done.is_empty() {
                now = drive.next_event().unwrap();
                drive.advance(now, &mut done);
            }
            done.drain().for_each(drop);
        }
        while let Some(at) = drive.next_event() {
            drive.advance(at, &mut done);
        }
        drive
    }

    fn numbers(lines: &Value) -> Vec<Vec<f64>> {
        let number = |n: &str| n.parse().unwrap();
        let line = |line: &Value| line.as_str().unwrap().split(' ').map(number).collect();
        lines.as_array().unwrap().iter().map(line).collect()
    }

    #[test]
    fn each_chunk_is_in_its_place() {
        let name = "mem:ref,size=16M,groups=2,pus=2,pages=32";
        let drive = written(name, 16 << 20, 4 << 20);
        let json = ChunkMap::of(&drive).unwrap().to_json();
        let device = drive.lower(0).device();
        let g = device.geometry();
        let (valid, erases) = (numbers(&json["valid"]), numbers(&json["erases"]));
        assert_eq!((json["each"].as_u64(), valid.len(), erases.len()), (Some(1), 4, 4));
        let mut blocks = 0.0;
        for die in 0..4 {
            let pu = g.pu_index(g.ppa(die / 2, die % 2, 0, 0));
            let states: Vec<char> =
                json["states"][die as usize].as_str().unwrap().chars().collect();
            assert_eq!(states.len(), g.chunks() as usize);
            for n in 0..g.chunks() {
                let chunk = &device.chunks()[g.chunk_of(pu, n)];
                let (at, n) = (die as usize, n as usize);
                assert_eq!(erases[at][n], f64::from(chunk.wear));
                assert_eq!(states[n] == 'c', chunk.state == ChunkState::Closed);
                assert!(states[n] != 'f' || valid[at][n] == 0.0);
                blocks += valid[at][n] / 100.0 * f64::from(g.chunk_blocks());
            }
        }
        // All that was written, once, but for rounding.
        assert!((blocks / 4096.0 - 1.0).abs() < 0.02, "{blocks}");
        assert!(valid.iter().flatten().any(|&part| part > 0.0 && part < 100.0), "{valid:?}");
    }

    #[test]
    fn many_chunks_are_told_by_few_and_parity_hides_what_is_valid() {
        let name = "mem:ref,groups=16,pus=64,chunks=100,pages=12,store=none";
        let json = ChunkMap::of(&written(name, 1 << 20, 0)).unwrap().to_json();
        assert_eq!(json["each"], 7, "16 cells of each die");
        assert_eq!(numbers(&json["erases"]).len(), 1024);
        assert!(json["states"][0].as_str().unwrap().len() <= 16);
        let name = "mem:ref,size=16M,groups=2,pus=4,pages=32,parity=4";
        let json = ChunkMap::of(&written(name, 1 << 20, 0)).unwrap().to_json();
        assert!(json["valid"].is_null() && json["states"][7].is_string(), "{json}");
        let name = "mem:ref,groups=33,pus=32,chunks=20,pages=12,store=none";
        assert!(ChunkMap::of(&written(name, 0, 0)).is_none(), "too many dies");
    }

    #[test]
    fn shards_are_told_one_after_the_other() {
        let one = ChunkMap::of(&written("mem:ref,size=16M,groups=4,pus=2,pages=32", 0, 0));
        let name = "mem:ref,size=16M,groups=4,pus=2,pages=32,shards=2";
        let two = ChunkMap::of(&written(name, 1 << 20, 0)).unwrap();
        assert_eq!(two.dies.len(), one.unwrap().dies.len());
        let used = |die: &Vec<Cell>| die.iter().any(|cell| cell.valid > 0);
        assert!(two.dies.iter().filter(|die| used(die)).count() > 4, "of both");
    }
}
