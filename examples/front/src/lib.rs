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
//! nobody else: a line has an end, and what is no request is answered with words.
//!
//! Fails where the client goes, or the drive is lost.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use exports::drive::SharedDrive;
use port::{BLOCK_BYTES, BlockDone, BlockOp, BlockReq, Buffer, Port, Shape};

/// The longest line: a block's bytes, and the words before them.
const LINE: u64 = BLOCK_BYTES + 64;

/// Serves a client of a drive of this shape, until it goes.
pub fn serve<P>(drive: &SharedDrive<P>, shape: &Shape, client: &UnixStream) -> io::Result<()>
where
    P: Port<Cmd = BlockReq, Done = BlockDone>,
{
    let Some(seat) = drive.sit(1).map_err(io::Error::other)? else {
        return writeln!(&*client, "error: all seats are taken");
    };
    let mut lines = BufReader::new(client);
    let mut line = String::new();
    loop {
        line.clear();
        if (&mut lines).take(LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match request(line.trim_end_matches('\n'), shape) {
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
        return Ok(BlockReq { id: 0, op, fua: false, placement: 0, offset: 0, len: 0, buffer });
    }
    let blocks = shape.bytes / BLOCK_BYTES;
    let block = block.and_then(|word| word.parse().ok()).filter(|&block: &u64| block < blocks);
    let block = block.ok_or_else(|| format!("a block is a number below {blocks}"))?;
    let mut buffer = Buffer::zeroed(BLOCK_BYTES as usize).map_err(|e| e.to_string())?;
    let place = buffer.bytes_mut().get_mut(..text.len());
    place.ok_or("a block has 4096 bytes")?.copy_from_slice(text.as_bytes());
    Ok(BlockReq {
        id: 0,
        op,
        fua: false,
        placement: 0,
        offset: block * BLOCK_BYTES,
        len: BLOCK_BYTES,
        buffer,
    })
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
    use drive::whole::Drive;
    use drive::{DriveSpec, stack};

    /// Says lines, one behind the other, and gives what was answered.
    fn talk(client: UnixStream, lines: &[&str]) -> Vec<String> {
        let mut answers = BufReader::new(client.try_clone().unwrap()).lines();
        let mut all = Vec::new();
        for line in lines {
            writeln!(&client, "{line}").unwrap();
            all.push(answers.next().unwrap().unwrap());
        }
        all
    }

    #[test]
    fn two_clients_share_a_drive() {
        let Ok(DriveSpec::Memory(spec)) = "mem:znand,size=16M".parse() else { panic!("a drive") };
        let drive = stack::build(&spec.resolve().unwrap(), 1).unwrap();
        let shape = drive.shape();
        let drive = SharedDrive::new(drive);
        std::thread::scope(|scope| {
            let connect = || {
                let (ours, theirs) = UnixStream::pair().unwrap();
                let (drive, shape) = (&drive, &shape);
                scope.spawn(move || serve(drive, shape, &theirs).unwrap());
                ours
            };
            let wrote = talk(connect(), &["write 7 seven", "write 8 eight and more", "flush"]);
            assert_eq!(wrote, ["ok", "ok", "ok"]);
            let read = talk(connect(), &["read 7", "read 8", "read 9"]);
            assert_eq!(read, ["ok seven", "ok eight and more", "ok "]);
            for wrong in ["", "erase 7", "read", "read x", "read 4096", "write 4096 x"] {
                let answers = talk(connect(), &[wrong]);
                assert!(answers[0].starts_with("error: "), "{wrong}: {answers:?}");
            }
        });
    }
}
