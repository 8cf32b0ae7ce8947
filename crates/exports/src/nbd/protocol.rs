//! One NBD message and its bytes (NetworkBlockDevice/nbd, `doc/proto.md`).
//!
//! Pure: no I/O, no state. Parsing any bytes gives a message or `None`; it
//! never panics. All numbers are big-endian on the wire.

use port::Status;

/// First word of the server's greeting, "NBDMAGIC".
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting and first of every option, "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of every simple reply.
pub const REPLY_MAGIC: u32 = 0x6744_6698;

/// Handshake flag of both sides: options are answered.
pub const FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag of both sides: no padding after `OPT_EXPORT_NAME`.
pub const NO_ZEROES: u16 = 1 << 1;

/// Enter transmission without any reply but the export's.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Give up.
pub const OPT_ABORT: u32 = 2;
/// Name the exports.
pub const OPT_LIST: u32 = 3;
/// Describe an export.
pub const OPT_INFO: u32 = 6;
/// Describe an export and enter transmission.
pub const OPT_GO: u32 = 7;

/// The option is done.
pub const REP_ACK: u32 = 1;
/// An export's name.
pub const REP_SERVER: u32 = 2;
/// A fact about an export.
pub const REP_INFO: u32 = 3;
/// The server does not know the option.
pub const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
/// The option's data is wrong.
pub const REP_ERR_INVALID: u32 = (1 << 31) + 3;
/// There is no such export.
pub const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
/// The option's data is too long.
pub const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

/// Size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// The export's own name.
pub const INFO_NAME: u16 = 1;
/// Words for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Smallest, preferred and largest request.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flag: the flags are valid.
pub const HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: the export takes no writes.
pub const READ_ONLY: u16 = 1 << 1;
/// Transmission flag: flush is known.
pub const SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: FUA is known.
pub const SEND_FUA: u16 = 1 << 3;
/// Transmission flag: trim is known.
pub const SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: zero writes are known.
pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: a flush covers the writes of every connection.
pub const CAN_MULTI_CONN: u16 = 1 << 8;

/// Read.
pub const CMD_READ: u16 = 0;
/// Write; the data follow the request.
pub const CMD_WRITE: u16 = 1;
/// Hang up once all is answered; has no reply.
pub const CMD_DISC: u16 = 2;
/// Make durable what was answered.
pub const CMD_FLUSH: u16 = 3;
/// Give a range up.
pub const CMD_TRIM: u16 = 4;
/// Make a range read as zeros.
pub const CMD_WRITE_ZEROES: u16 = 6;

/// Request flag: answer when durable.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// Request flag of zero writes: do not give the range up.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;

/// No error.
pub const OK: u32 = 0;
/// Not permitted: the drive takes no writes.
pub const EPERM: u32 = 1;
/// Input or output failed.
pub const EIO: u32 = 5;
/// The system has no memory for the request.
pub const ENOMEM: u32 = 12;
/// The request is wrong.
pub const EINVAL: u32 = 22;
/// Past the end, or no room.
pub const ENOSPC: u32 = 28;
/// Not supported.
pub const ENOTSUP: u32 = 95;
/// The server is going away.
pub const ESHUTDOWN: u32 = 108;

/// What an error of an answer means for a client.
pub fn status(error: u32) -> Status {
    match error {
        OK => Status::SUCCESS,
        EINVAL => Status::INVALID_FIELD,
        ENOSPC => Status::CAPACITY_EXCEEDED,
        EPERM => Status::READ_ONLY,
        _ => Status::INTERNAL,
    }
}

/// The largest request served, in bytes: what clients may take for granted.
pub const MAX_REQUEST: u32 = 32 << 20;
/// The longest name or description, in bytes.
pub const MAX_STRING: usize = 4096;

/// Reads big-endian numbers off the front of some bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `n` bytes, or `None` when fewer are left.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(front)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*front)
    }

    /// The next two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// The server's first words.
pub fn greeting(flags: u16) -> [u8; 18] {
    let mut out = [0; 18];
    out[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    out[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    out[16..].copy_from_slice(&flags.to_be_bytes());
    out
}

/// The flags of a greeting, or `None` when it is not a newstyle one.
pub fn parse_greeting(bytes: &[u8; 18]) -> Option<u16> {
    let mut r = Reader(bytes);
    (r.u64()? == GREETING_MAGIC && r.u64()? == OPTION_MAGIC).then_some(())?;
    r.u16()
}

/// An option, as the client sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option.
    pub option: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// The option, or `None` when the magic is wrong.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<OptionHeader> {
        let mut r = Reader(bytes);
        (r.u64()? == OPTION_MAGIC).then_some(())?;
        Some(OptionHeader { option: r.u32()?, len: r.u32()? })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        out[8..12].copy_from_slice(&self.option.to_be_bytes());
        out[12..].copy_from_slice(&self.len.to_be_bytes());
        out
    }
}

/// The head of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option that is answered.
    pub option: u32,
    /// What kind of answer.
    pub kind: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

impl OptionReply {
    /// Bytes on the wire.
    pub const LEN: usize = 20;

    /// The reply, or `None` when the magic is wrong.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<OptionReply> {
        let mut r = Reader(bytes);
        (r.u64()? == OPTION_REPLY_MAGIC).then_some(())?;
        Some(OptionReply { option: r.u32()?, kind: r.u32()?, len: r.u32()? })
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        out[8..12].copy_from_slice(&self.option.to_be_bytes());
        out[12..16].copy_from_slice(&self.kind.to_be_bytes());
        out[16..].copy_from_slice(&self.len.to_be_bytes());
        out
    }
}

/// The data of `OPT_INFO` and `OPT_GO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export's name; empty for the default one.
    pub name: &'a [u8],
    /// The facts asked for: big-endian numbers of two bytes.
    asked: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// The request, or `None` when the lengths do not add up.
    pub fn parse(data: &'a [u8]) -> Option<InfoRequest<'a>> {
        let mut r = Reader(data);
        let name_len = r.u32()? as usize;
        let name = r.bytes(name_len).filter(|_| name_len <= MAX_STRING)?;
        let count = usize::from(r.u16()?);
        let asked = r.bytes(count * 2)?;
        r.0.is_empty().then_some(InfoRequest { name, asked })
    }

    /// Whether `info` is asked for.
    pub fn asks(&self, info: u16) -> bool {
        self.asked.chunks_exact(2).any(|c| c == info.to_be_bytes())
    }

    /// Writes the data of a request for `name` and `infos`.
    pub fn write(name: &[u8], infos: &[u16], out: &mut Vec<u8>) {
        out.extend((name.len() as u32).to_be_bytes());
        out.extend(name);
        out.extend((infos.len() as u16).to_be_bytes());
        infos.iter().for_each(|i| out.extend(i.to_be_bytes()));
    }
}

/// A request of the transmission phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags of this command.
    pub flags: u16,
    /// Which command.
    pub command: u16,
    /// The client's number; comes back in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl Request {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// The request, or `None` when the magic is wrong.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<Request> {
        let mut r = Reader(bytes);
        (r.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Request {
            flags: r.u16()?,
            command: r.u16()?,
            cookie: r.u64()?,
            offset: r.u64()?,
            len: r.u32()?,
        })
    }

    /// Its bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&self.flags.to_be_bytes());
        out[6..8].copy_from_slice(&self.command.to_be_bytes());
        out[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        out[16..24].copy_from_slice(&self.offset.to_be_bytes());
        out[24..].copy_from_slice(&self.len.to_be_bytes());
        out
    }
}

/// A simple reply; the data of a read that went well follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// [`OK`] or an error.
    pub error: u32,
    /// The request's number.
    pub cookie: u64,
}

impl Reply {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// The reply, or `None` when the magic is wrong.
    #[inline]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<Reply> {
        let mut r = Reader(bytes);
        (r.u32()? == REPLY_MAGIC).then_some(())?;
        Some(Reply { error: r.u32()?, cookie: r.u64()? })
    }

    /// Its bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
        out[4..8].copy_from_slice(&self.error.to_be_bytes());
        out[8..].copy_from_slice(&self.cookie.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_as_the_protocol_says() {
        let r = Request { flags: 1, command: CMD_WRITE, cookie: 2, offset: 4096, len: 512 };
        assert_eq!(
            r.to_bytes(),
            [
                0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0x10,
                0, 0, 0, 2, 0
            ]
        );
        assert_eq!(&greeting(3), b"NBDMAGICIHAVEOPT\0\x03");
        let reply = Reply { error: EINVAL, cookie: 1 };
        assert_eq!(reply.to_bytes(), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn wrong_magic_is_refused() {
        assert_eq!(Request::parse(&[0; 28]), None);
        assert_eq!(Reply::parse(&[0; 16]), None);
        assert_eq!(OptionHeader::parse(&[0; 16]), None);
        assert_eq!(OptionReply::parse(&[0; 20]), None);
        assert_eq!(parse_greeting(&[0; 18]), None);
    }

    proptest! {
        #[test]
        fn messages_survive_the_wire(a in any::<u16>(), b in any::<u16>(), c in any::<u64>(), d in any::<u64>(), e in any::<u32>()) {
            let request = Request { flags: a, command: b, cookie: c, offset: d, len: e };
            prop_assert_eq!(Request::parse(&request.to_bytes()), Some(request));
            let reply = Reply { error: e, cookie: c };
            prop_assert_eq!(Reply::parse(&reply.to_bytes()), Some(reply));
            let option = OptionHeader { option: e, len: d as u32 };
            prop_assert_eq!(OptionHeader::parse(&option.to_bytes()), Some(option));
            let answer = OptionReply { option: e, kind: d as u32, len: c as u32 };
            prop_assert_eq!(OptionReply::parse(&answer.to_bytes()), Some(answer));
            prop_assert_eq!(parse_greeting(&greeting(a)), Some(a));
        }

        #[test]
        fn info_requests_survive_the_wire(name in prop::collection::vec(any::<u8>(), 0..64), infos in prop::collection::vec(any::<u16>(), 0..8)) {
            let mut bytes = Vec::new();
            InfoRequest::write(&name, &infos, &mut bytes);
            let parsed = InfoRequest::parse(&bytes).unwrap();
            prop_assert_eq!(parsed.name, &name[..]);
            prop_assert!(infos.iter().all(|&i| parsed.asks(i)));
            bytes.push(0);
            prop_assert_eq!(InfoRequest::parse(&bytes), None);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(request) = InfoRequest::parse(&bytes) {
                prop_assert!(request.name.len() + request.asked.len() + 6 == bytes.len());
            }
        }
    }
}
