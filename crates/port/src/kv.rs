//! The key-value request: what a drive with a key-value interface takes.
//!
//! After the NVM Express Key Value Command Set: Store, Retrieve, Delete, Exist and
//! List, with its two options of a store, and its status codes. Keys may be longer
//! here (there up to 16 bytes).
//!
//! A listing is a sequence of keys, each behind a byte with its length, in the
//! buffer of the request.

use crate::{BLOCK_BYTES, Buffer, Status, Time};

/// The longest key, in bytes. The shortest has one.
pub const MAX_KEY_BYTES: usize = 255;

/// The longest value of any drive, in bytes: 64 MiB.
pub const MAX_VALUE_BYTES: u64 = 64 << 20;

/// What a key-value request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvOp {
    /// Store the value for the key (Store).
    Put(PutIf),
    /// Fill the buffer with the value (Retrieve).
    Get,
    /// Forget the key (Delete).
    Delete,
    /// Say whether the key is there, and how long its value is (Exist).
    Exists,
    /// Fill the buffer with keys (List), from this one on, which need not be there;
    /// from the first on where it is empty. The order is the drive's: it is the same
    /// in each listing.
    List,
    /// Make all puts and deletes that completed before durable. No key, no buffer.
    Flush,
}

/// On what condition a put stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PutIf {
    /// On none.
    #[default]
    Any,
    /// The key is there.
    Exists,
    /// The key is not there.
    Absent,
}

/// A request to a drive with a key-value interface.
#[derive(Debug)]
pub struct KvReq {
    /// The caller's own number; comes back in the completion.
    pub id: u64,
    /// What to do.
    pub op: KvOp,
    /// Complete a put or delete only when it is durable.
    pub durable: bool,
    /// The key: 1 to [`MAX_KEY_BYTES`] bytes; of a listing also none.
    pub key: Buffer,
    /// Bytes of the value of a put, at most [`KvShape::max_value`]. 0 for others.
    pub len: u64,
    /// Of a put the value, [`KvShape::stored`] bytes. Of a get or listing room for what
    /// is asked for: what does not fit is left out. Empty for others.
    pub value: Buffer,
}

/// A completed key-value request.
#[derive(Debug)]
pub struct KvDone {
    /// The request's number.
    pub id: u64,
    /// What was asked.
    pub op: KvOp,
    /// How it ended.
    pub status: Status,
    /// Of a get or `Exists` the bytes of the whole value, of a listing those that it
    /// filled, of a put 1 where there was a value before; else 0.
    pub len: u64,
    /// When the drive completed it, in drive time.
    pub at: Time,
    /// The request's key.
    pub key: Buffer,
    /// The request's buffer.
    pub value: Buffer,
}

/// The outside of a drive with a key-value interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// The longest value, in bytes.
    pub max_value: u64,
    /// Bytes of key and value together up to which all of them are kept on every
    /// medium. Longer ones are kept as blocks.
    pub small: u64,
    /// How many bytes the medium keeps of each block of a longer one, as
    /// [`crate::Shape::kept`].
    pub kept: u32,
    /// How many requests may be inside at once.
    pub depth: usize,
}

impl KvShape {
    /// Whether a value of so many bytes, with a key of so many, is kept as blocks.
    #[inline]
    pub fn is_large(&self, key: usize, len: u64) -> bool {
        key as u64 + len > self.small
    }

    /// Bytes in the buffer of a value of `len` bytes.
    #[inline]
    pub fn stored(&self, key: usize, len: u64) -> usize {
        if u64::from(self.kept) == BLOCK_BYTES || !self.is_large(key, len) {
            len as usize
        } else {
            len.div_ceil(BLOCK_BYTES) as usize * self.kept as usize
        }
    }

    /// Whether a request can be served at all: its key, length and buffers.
    pub fn check(&self, req: &KvReq) -> Status {
        let (key, is_put) = (req.key.len(), matches!(req.op, KvOp::Put(_)));
        let least = usize::from(!matches!(req.op, KvOp::List | KvOp::Flush));
        let most = if req.op == KvOp::Flush { 0 } else { MAX_KEY_BYTES };
        if key < least || key > most {
            return Status::INVALID_KEY_SIZE;
        }
        if req.len > if is_put { self.max_value } else { 0 } {
            return Status::INVALID_VALUE_SIZE;
        }
        let fits = match req.op {
            KvOp::Put(_) => req.value.len() == self.stored(key, req.len),
            KvOp::Get | KvOp::List => true,
            KvOp::Delete | KvOp::Exists | KvOp::Flush => req.value.is_empty(),
        };
        if fits { Status::SUCCESS } else { Status::INVALID_FIELD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_checked() {
        let shape = KvShape { max_value: 1 << 20, small: 1000, kept: 8, depth: 4 };
        let ask = |op, key, len, value| {
            let (key, value) = (Buffer::zeroed(key).unwrap(), Buffer::zeroed(value).unwrap());
            shape.check(&KvReq { id: 0, op, durable: false, key, len, value })
        };
        let put = KvOp::Put(PutIf::Any);
        assert_eq!(ask(put, 1, 999, 999), Status::SUCCESS);
        assert_eq!(ask(put, 2, 999, 999), Status::INVALID_FIELD);
        assert_eq!(ask(put, 2, 999, 8), Status::SUCCESS);
        assert_eq!(ask(put, 255, 1 << 20, 256 * 8), Status::SUCCESS);
        assert_eq!(ask(put, 0, 9, 9), Status::INVALID_KEY_SIZE);
        assert_eq!(ask(put, 256, 9, 9), Status::INVALID_KEY_SIZE);
        assert_eq!(ask(put, 1, (1 << 20) + 1, 9), Status::INVALID_VALUE_SIZE);
        assert_eq!(ask(KvOp::Get, 1, 1, 9), Status::INVALID_VALUE_SIZE);
        assert_eq!(ask(KvOp::Get, 1, 0, 9), Status::SUCCESS);
        assert_eq!(ask(KvOp::List, 0, 0, 9), Status::SUCCESS);
        assert_eq!(ask(KvOp::Exists, 1, 0, 9), Status::INVALID_FIELD);
        assert_eq!(ask(KvOp::Flush, 1, 0, 0), Status::INVALID_KEY_SIZE);
        assert_eq!(ask(KvOp::Flush, 0, 0, 0), Status::SUCCESS);
    }
}
