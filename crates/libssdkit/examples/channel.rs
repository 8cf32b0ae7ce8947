//! Writes a block to a served drive, makes it durable, and reads it back.
//!
//!     ssdkit serve mem:znand,size=1G --channel /tmp/ssd.channel &
//!     cargo run -p libssdkit --example channel /tmp/ssd.channel

use std::path::Path;

use channels::{Client, ClientError, Options, Request};
use port::{BlockOp, Status};

/// Does one thing and waits for it.
fn ask(client: &mut Client, op: BlockOp, len: u32) -> Result<Status, ClientError> {
    let request = Request { id: 1, op, fua: false, placement: 0, offset: 8192, len, buffer: 0 };
    assert!(client.submit(&request), "nothing else is out");
    client.kick();
    loop {
        client.wait(None)?;
        if let Some(completion) = client.take()? {
            return Ok(completion.status);
        }
    }
}

/// The example. Gives what was read.
pub fn run(path: &Path) -> Result<String, ClientError> {
    let options = Options { depth: 1, most: 4096, ..Options::default() };
    let mut client = Client::open(path, &options)?;
    client.write_buffer(0, b"hello, drive");
    for (op, len) in [(BlockOp::Write, 4096), (BlockOp::Flush, 0), (BlockOp::Read, 4096)] {
        let status = ask(&mut client, op, len)?;
        println!("{op:?}: {status}");
        client.write_buffer(0, &[b'.'; 12][..if op == BlockOp::Flush { 12 } else { 0 }]);
    }
    let mut read = [0; 12];
    client.read_buffer(0, &mut read);
    Ok(String::from_utf8_lossy(&read).into_owned())
}

#[allow(dead_code)]
fn main() -> Result<(), ClientError> {
    let path = std::env::args().nth(1).expect("usage: channel PATH");
    println!("read: {}", run(Path::new(&path))?);
    Ok(())
}
