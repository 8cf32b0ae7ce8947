//! Chunk states and the rules of flash.
//!
//! The rules are those of the thesis, chapter 2.2 and 6: (C1) reads and writes
//! are whole units, (C2) a chunk is erased before it is written again, (C3)
//! writes go in order, (C4) erases wear it out. (C5) and (C6), what runs in
//! parallel and what does not, are the scheduler's.

use port::Status;

/// The state of a chunk, numbered as in the chunk descriptor of Open-Channel
/// SSD 2.0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkState {
    /// Erased, nothing written.
    #[default]
    Free = 1,
    /// Written to its end.
    Closed = 2,
    /// Written in part.
    Open = 4,
    /// Given up.
    Offline = 8,
}

/// What the drive knows of one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Its state.
    pub state: ChunkState,
    /// Write pointer: the next block that a write must begin at.
    pub wp: u32,
    /// Blocks that are programmed: at most `wp`, less by what is on its way.
    pub programmed: u32,
    /// Erases so far.
    pub wear: u32,
}

impl Chunk {
    /// Takes a write of `count` blocks at `block`, or says which rule it
    /// breaks. `unit` is the smallest write, `size` the chunk's blocks.
    #[inline]
    pub fn write(&mut self, block: u32, count: u32, unit: u32, size: u32) -> Result<(), Status> {
        match self.state {
            ChunkState::Offline => return Err(Status::OFFLINE_CHUNK),
            ChunkState::Closed => return Err(Status::OUT_OF_ORDER_WRITE),
            ChunkState::Free | ChunkState::Open => {}
        }
        if block != self.wp {
            return Err(Status::OUT_OF_ORDER_WRITE);
        }
        if count == 0 || !count.is_multiple_of(unit) || count > size - self.wp {
            return Err(Status::INVALID_FIELD);
        }
        self.wp += count;
        self.state = if self.wp == size { ChunkState::Closed } else { ChunkState::Open };
        Ok(())
    }

    /// Takes note that `count` more blocks are programmed.
    #[inline]
    pub fn program(&mut self, count: u32) {
        self.programmed += count;
        debug_assert!(self.programmed <= self.wp);
    }

    /// Whether `count` blocks at `block` can be read. Of an open chunk the
    /// last `window` programmed blocks cannot (mw_cunits).
    #[inline]
    pub fn read(&self, block: u32, count: u32, window: u32) -> Result<(), Status> {
        let limit = match self.state {
            ChunkState::Offline => return Err(Status::OFFLINE_CHUNK),
            ChunkState::Open => self.programmed.saturating_sub(window),
            ChunkState::Free | ChunkState::Closed => self.programmed,
        };
        if block + count > limit { Err(Status::UNWRITTEN) } else { Ok(()) }
    }

    /// Takes a reset. At the end of its `endurance` the chunk goes offline.
    pub fn reset(&mut self, endurance: u32) -> Result<(), Status> {
        match self.state {
            ChunkState::Offline => return Err(Status::OFFLINE_CHUNK),
            ChunkState::Free => return Err(Status::INVALID_RESET),
            ChunkState::Open | ChunkState::Closed => {}
        }
        if self.programmed != self.wp {
            return Err(Status::INVALID_RESET);
        }
        self.wear += 1;
        (self.wp, self.programmed) = (0, 0);
        if self.wear > endurance {
            self.state = ChunkState::Offline;
            return Err(Status::OFFLINE_CHUNK);
        }
        self.state = ChunkState::Free;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life() {
        let mut c = Chunk::default();
        assert_eq!(c.reset(9), Err(Status::INVALID_RESET));
        assert_eq!(c.write(0, 2, 2, 4), Ok(()));
        assert_eq!(c.state, ChunkState::Open);
        assert_eq!(c.read(0, 1, 0), Err(Status::UNWRITTEN), "on its way, not there");
        assert_eq!(c.reset(9), Err(Status::INVALID_RESET), "a write is on its way");
        c.program(2);
        assert_eq!(c.read(0, 2, 0), Ok(()));
        assert_eq!(c.read(1, 1, 1), Err(Status::UNWRITTEN), "in the unreadable window");
        assert_eq!(c.write(2, 2, 2, 4), Ok(()));
        c.program(2);
        assert_eq!(c.state, ChunkState::Closed);
        assert_eq!(c.read(3, 1, 1), Ok(()), "a closed chunk has no window");
        assert_eq!(c.write(0, 2, 2, 4), Err(Status::OUT_OF_ORDER_WRITE));
        assert_eq!(c.reset(1), Ok(()));
        assert_eq!((c.state, c.wear), (ChunkState::Free, 1));
        assert_eq!(c.read(0, 1, 0), Err(Status::UNWRITTEN));
    }

    #[test]
    fn writes_go_in_order_and_in_units() {
        let mut c = Chunk::default();
        assert_eq!(c.write(2, 2, 2, 4), Err(Status::OUT_OF_ORDER_WRITE));
        assert_eq!(c.write(0, 1, 2, 4), Err(Status::INVALID_FIELD));
        assert_eq!(c.write(0, 6, 2, 4), Err(Status::INVALID_FIELD));
        assert_eq!(c.write(0, 0, 2, 4), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn it_wears_out() {
        let mut c = Chunk::default();
        for _ in 0..2 {
            c.write(0, 4, 4, 4).unwrap();
            c.program(4);
            c.reset(2).unwrap();
        }
        c.write(0, 4, 4, 4).unwrap();
        c.program(4);
        assert_eq!(c.reset(2), Err(Status::OFFLINE_CHUNK));
        assert_eq!(c.write(0, 4, 4, 4), Err(Status::OFFLINE_CHUNK));
        assert_eq!(c.read(0, 1, 0), Err(Status::OFFLINE_CHUNK));
    }
}
