//! How a command ended: the NVMe status of the field.

use std::fmt;

/// An NVMe status: code type in bits 8 to 10, code in bits 0 to 7 (NVM Express
/// base specification, "Completion Queue Entry: Status Field"). Zero is
/// success. Media codes C0 to F2 are the Open-Channel SSD 2.0 specification's.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(pub u16);

impl Status {
    /// All went well.
    pub const SUCCESS: Status = Status(0x000);
    /// The operation is not known here.
    pub const INVALID_OPCODE: Status = Status(0x001);
    /// A field of the command is wrong: length, count, alignment.
    pub const INVALID_FIELD: Status = Status(0x002);
    /// Something failed inside.
    pub const INTERNAL: Status = Status(0x006);
    /// The command was given up because the drive went away.
    pub const ABORTED: Status = Status(0x007);
    /// An address past the end of the drive.
    pub const LBA_OUT_OF_RANGE: Status = Status(0x080);
    /// No room is left to write.
    pub const CAPACITY_EXCEEDED: Status = Status(0x081);
    /// A value is too long (this and the next four: Key Value command set).
    pub const INVALID_VALUE_SIZE: Status = Status(0x085);
    /// A key is too long, or has no bytes.
    pub const INVALID_KEY_SIZE: Status = Status(0x086);
    /// There is no such key.
    pub const KEY_NOT_FOUND: Status = Status(0x087);
    /// What there is for the key cannot be read.
    pub const KEY_UNRECOVERED: Status = Status(0x088);
    /// The key is there, and was not to be.
    pub const KEY_EXISTS: Status = Status(0x089);
    /// The drive takes no writes.
    pub const READ_ONLY: Status = Status(0x182);
    /// One more chunk would be open than the drive allows: "Too Many Open Zones"
    /// of the Zoned Namespace command set. Open-Channel SSD 2.0 names none.
    pub const TOO_MANY_OPEN_CHUNKS: Status = Status(0x1BE);
    /// The medium could not store the data.
    pub const WRITE_FAULT: Status = Status(0x280);
    /// The medium could not give the data back.
    pub const UNRECOVERED_READ: Status = Status(0x281);
    /// It is not permitted: rules refuse it, or none decides.
    pub const ACCESS_DENIED: Status = Status(0x286);
    /// The block was never written, or was given up.
    pub const UNWRITTEN: Status = Status(0x287);
    /// The chunk is offline.
    pub const OFFLINE_CHUNK: Status = Status(0x2C0);
    /// The chunk cannot be reset in its present state.
    pub const INVALID_RESET: Status = Status(0x2C1);
    /// Read, but at the limit of what can be corrected.
    pub const HIGH_ECC: Status = Status(0x2D0);
    /// This write failed; the chunk stays open and takes the next unit.
    pub const WRITE_FAILED_WRITE_NEXT_UNIT: Status = Status(0x2F0);
    /// This write failed and the chunk was closed; it is readable up to its
    /// write pointer.
    pub const CHUNK_EARLY_CLOSE: Status = Status(0x2F1);
    /// The write is not at the chunk's write pointer.
    pub const OUT_OF_ORDER_WRITE: Status = Status(0x2F2);

    /// The host gave the command up: it took too long.
    pub const ABORTED_BY_HOST: Status = Status(0x371);

    /// The disk on which a drive file lies is full: it takes no writes until it is opened again.
    /// A code of our own, of type 7, which is the vendor's.
    pub const DISK_FULL: Status = Status(0x7C0);

    /// True when the command did what it was asked.
    #[inline]
    pub fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// Whether it is of type 2, media and data integrity errors, and no refusal.
    #[inline]
    pub fn is_of_media(self) -> bool {
        self.0 >> 8 & 7 == 2 && self != Status::ACCESS_DENIED
    }

    /// The first of two that is not success. What was read at the limit of what
    /// can be corrected hides no failure.
    #[inline]
    #[must_use]
    pub fn and(self, other: Status) -> Status {
        let gives_way = self.is_ok() || (self == Status::HIGH_ECC && !other.is_ok());
        if gives_way { other } else { self }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match *self {
            Status::SUCCESS => "success",
            Status::INVALID_OPCODE => "invalid operation",
            Status::INVALID_FIELD => "invalid field in command",
            Status::INTERNAL => "internal error",
            Status::ABORTED => "aborted",
            Status::LBA_OUT_OF_RANGE => "address out of range",
            Status::CAPACITY_EXCEEDED => "capacity exceeded",
            Status::INVALID_VALUE_SIZE => "invalid value size",
            Status::INVALID_KEY_SIZE => "invalid key size",
            Status::KEY_NOT_FOUND => "key does not exist",
            Status::KEY_UNRECOVERED => "unrecovered key",
            Status::KEY_EXISTS => "key exists",
            Status::READ_ONLY => "write to a read-only drive",
            Status::TOO_MANY_OPEN_CHUNKS => "too many open chunks",
            Status::WRITE_FAULT => "write fault",
            Status::UNRECOVERED_READ => "unrecovered read error",
            Status::ACCESS_DENIED => "access denied",
            Status::UNWRITTEN => "unwritten block",
            Status::OFFLINE_CHUNK => "offline chunk",
            Status::INVALID_RESET => "invalid reset",
            Status::HIGH_ECC => "high error rate",
            Status::WRITE_FAILED_WRITE_NEXT_UNIT => "write failed, write next unit",
            Status::CHUNK_EARLY_CLOSE => "chunk closed early",
            Status::OUT_OF_ORDER_WRITE => "out-of-order write",
            Status::ABORTED_BY_HOST => "aborted by the host",
            Status::DISK_FULL => "disk full below a drive file",
            _ => "unknown status",
        };
        write!(f, "{words} (type {}, code {:#04x})", self.0 >> 8, self.0 & 0xff)
    }
}

/// In the same words, for they say more than a number.
impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_in_words() {
        let told = |status: Status| format!("{status:?}");
        assert_eq!(told(Status::SUCCESS), "Status(success (type 0, code 0x00))");
        assert_eq!(
            told(Status::UNRECOVERED_READ),
            "Status(unrecovered read error (type 2, code 0x81))"
        );
        assert_eq!(told(Status(0x123)), "Status(unknown status (type 1, code 0x23))");
    }

    #[test]
    fn of_two_the_failure_counts() {
        let (ok, weak, lost) = (Status::SUCCESS, Status::HIGH_ECC, Status::UNRECOVERED_READ);
        assert_eq!((ok.and(ok), ok.and(weak), weak.and(ok)), (ok, weak, weak));
        assert_eq!((weak.and(lost), lost.and(weak), lost.and(Status::ABORTED)), (lost, lost, lost));
    }
}
