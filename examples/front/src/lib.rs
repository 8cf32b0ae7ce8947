//! A front in one file: blocks of 4 KiB, asked for in lines of text.
//!
//! ```text
//! write BLOCK TEXT    ok
//! read BLOCK          ok TEXT
//! flush               ok
//! anything else       error: why
//! ```
//!
//! A front is a codec: it reads requests from somewhere and writes completions
//! back. All else, whose turn it is, what others found, how to wait, is the shared
//! drive's. Any number of clients have a seat each; what a client sends harms
//! nobody else: a line has an end, silence has a limit, and what is no request is
//! answered with words. Behind a line that is too long, or that has no end, nobody
//! knows where the next begins: its client is not heard further.
//!
//! Fails where the client goes, or the drive is lost.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use exports::drive::SharedDrive;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Shape};

/// The longest line with its end: a block's bytes, and the words before them.
const LINE: u64 = BLOCK_BYTES + 64;

/// Serves a client of a drive of this shape, until it goes, or is silent for so
/// long, or takes no answer.
pub fn serve<P>(
    drive: &SharedDrive<P>,
    shape: &Shape,
    client: &UnixStream,
    silence: Duration,
) -> io::Result<()>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    client.set_read_timeout(Some(silence))?;
    client.set_write_timeout(Some(silence))?;
    let Some(seat) = drive.sit(1).map_err(io::Error::other)? else {
        return writeln!(&*client, "error: all seats are taken");
    };
    let mut lines = BufReader::new(client);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut lines).take(LINE).read_until(b'\n', &mut line) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return writeln!(&*client, "error: nothing was said for {silence:?}");
            }
            read => read?,
        };
        let said = match line.strip_suffix(b"\n") {
            Some(said) => said,
            None if line.is_empty() => return Ok(()),
            None => return writeln!(&*client, "error: a line ends within {LINE} bytes"),
        };
        let said = str::from_utf8(said).map_err(|_| "a line is text in UTF-8".into());
        let answer = match said.and_then(|said| request(said, shape)) {
            Ok(req) => answer(&seat.ask(req).map_err(io::Error::other)?),
            Err(why) => format!("error: {why}"),
        };
        writeln!(&*client, "{answer}")?;
    }
}

/// The request that a line asks for.
fn request(line: &str, shape: &Shape) -> Result<BlockReq, String> {
    let mut words = line.splitn(3, ' ');
    let (name, block, text) = (words.next(), words.next(), words.next().unwrap_or_default());
    let op = match name {
        Some("read") => BlockOp::Read,
        Some("write") => BlockOp::Write,
        Some("flush") => BlockOp::Flush,
        _ => return Err("write one of: read BLOCK, write BLOCK TEXT, flush".into()),
    };
    if op == BlockOp::Flush {
        let buffer = Buffer::empty();
        return Ok(BlockReq::new(0, op, 0, 0, buffer));
    }
    let blocks = shape.bytes / BLOCK_BYTES;
    let block = block.and_then(|word| word.parse().ok()).filter(|&block: &u64| block < blocks);
    let block = block.ok_or_else(|| format!("a block is a number below {blocks}"))?;
    let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize).map_err(|e| e.to_string())?;
    let place = buffer.bytes_mut().get_mut(..text.len());
    place.ok_or("a block has 4096 bytes")?.copy_from_slice(text.as_bytes());
    Ok(BlockReq::new(0, op, block * BLOCK_BYTES, BLOCK_BYTES, buffer))
}

/// What the client gets for a completion.
fn answer(done: &BlockDone) -> String {
    match done.op {
        _ if !done.status.is_ok() => format!("error: {}", done.status),
        BlockOp::Read => {
            let text = String::from_utf8_lossy(done.buffer.bytes());
            format!("ok {}", text.trim_end_matches('\0'))
        }
        _ => "ok".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drive::whole::{Boxed, Drive};
    use drive::{DriveSpec, stack};

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(600);

    /// A drive of 4096 blocks.
    fn shared() -> (SharedDrive<Boxed>, Shape) {
        let Ok(DriveSpec::Memory(spec)) = "mem:znand,size=16M".parse() else { panic!("a drive") };
        let drive = stack::build(&spec.resolve().unwrap(), 1).unwrap();
        let shape = drive.shape();
        (SharedDrive::new(drive), shape)
    }

    /// Sends bytes, and gives what is answered until the client is no more heard, or
    /// has said all.
    fn talk(drive: &(SharedDrive<Boxed>, Shape), bytes: &[u8]) -> Vec<String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || serve(&drive.0, &drive.1, &theirs, LONG).unwrap());
            // Whoever is no more heard may have closed.
            let _ = (&ours).write_all(bytes);
            let _ = ours.shutdown(std::net::Shutdown::Write);
            BufReader::new(&ours).lines().map_while(Result::ok).collect()
        })
    }

    #[test]
    fn two_clients_share_a_drive() {
        let drive = shared();
        let wrote = talk(&drive, b"write 7 seven\nwrite 8 eight and more\nflush\n");
        assert_eq!(wrote, ["ok", "ok", "ok"]);
        let read = talk(&drive, b"read 7\nread 8\nread 9\n");
        assert_eq!(read, ["ok seven", "ok eight and more", "ok "]);
    }

    #[test]
    fn what_is_no_request_is_answered_with_words() {
        let drive = shared();
        let wrong = ["", "erase 7", "read", "read x", "read 4096", "write 4096 x"];
        let lines = wrong.iter().map(|line| line.as_bytes());
        for line in lines.chain([&b"write 7 \xff"[..], b"\xc3(", b"read \0"]) {
            let answers = talk(&drive, &[line, b"\nread 7\n"].concat());
            assert!(answers[0].starts_with("error: "), "{line:?}: {answers:?}");
            assert_eq!(answers[1..], ["ok "], "{line:?}: the next line is heard");
        }
        let write = |text: &[u8]| [&b"write 7 "[..], text, b"\n"].concat();
        assert_eq!(talk(&drive, &write(&[b'a'; 4096])), ["ok"]);
        let longer = talk(&drive, &write(&[b'b'; 4097]));
        assert_eq!(longer, ["error: a block has 4096 bytes"]);
    }

    /// The rest of a long line is no request, and half of one is none.
    #[test]
    fn a_line_without_an_end_is_the_last() {
        let drive = shared();
        let injected = format!("write 7 {}write 8 injected\n", "a".repeat(4152));
        for line in [injected.as_str(), &"x".repeat(1 << 20), "write 8 hal"] {
            let answers = talk(&drive, line.as_bytes());
            assert!(
                answers.iter().all(|answer| answer.starts_with("error: a line")),
                "{answers:?}"
            );
        }
        assert_eq!(talk(&drive, b"read 7\nread 8\n"), ["ok ", "ok "]);
    }

    #[test]
    fn who_is_silent_is_told_and_goes() {
        let (drive, shape) = shared();
        let (ours, theirs) = UnixStream::pair().unwrap();
        serve(&drive, &shape, &theirs, Duration::from_millis(1)).unwrap();
        let mut said = String::new();
        BufReader::new(&ours).read_line(&mut said).unwrap();
        assert_eq!(said, "error: nothing was said for 1ms\n");
    }
}
