//! How fast the NBD server and client are: random reads of 4 KiB over a Unix
//! socket, from a drive that takes no time and keeps no data.
//!
//! ```text
//! nbd_speed                     server and client in this process
//! nbd_speed serve SOCKET        the server alone, until it is killed
//! nbd_speed connect SOCKET      the client alone, against any server
//! ```
//!
//! Prints thousands of requests a second at depths 1, 8, 32 and 128, the
//! median of five runs each.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use device::realtime::process_cpu;
use exports::SharedDrive;
use exports::nbd::{Client, Export, Exports, ListenAddr, Server, StopHandle};
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Time};

const READ: u64 = 4096;
const RUN: Duration = Duration::from_millis(500);
const RUNS: usize = 5;

/// Completes everything at the time it arrives.
struct Instantly {
    shape: Shape,
    done: Ring<BlockDone>,
    now: Time,
}

impl Port for Instantly {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, now: Time, cmds: &mut Ring<BlockReq>) {
        self.now = now;
        while self.done.room() > 0 {
            let Some(cmd) = cmds.pop() else { return };
            let status = self.shape.check(&cmd);
            let done = BlockDone { id: cmd.id, op: cmd.op, status, at: now, buffer: cmd.buffer };
            let _ = self.done.push(done);
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.done.front().map(|_| self.now)
    }

    fn advance(&mut self, _to: Time, done: &mut Ring<BlockDone>) {
        self.done.pour(done);
    }
}

const SHAPE: Shape = Shape { bytes: 64 << 30, kept: 0, max_bytes: 1 << 20, depth: 1024 };

fn serve(server: Server, stop: &StopHandle) -> Result<(), Box<dyn Error + Send + Sync>> {
    let port = Instantly { shape: SHAPE, done: Ring::new(SHAPE.depth), now: Time::ZERO };
    let drive = SharedDrive::new(port);
    server.run(&Exports::new(Export::even_without_data(SHAPE)?), &drive, stop)?;
    Ok(())
}

/// One closed loop of `depth` requests; gives requests a second.
fn measure(client: &mut Client, depth: u64) -> Result<f64, Box<dyn Error>> {
    let blocks = client.size() / READ;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut offset = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % blocks * READ
    };
    for cookie in 0..depth {
        client.submit(BlockOp::Read, offset(), READ, false, cookie, &[])?;
    }
    let start = Instant::now();
    let cpu = process_cpu();
    let mut count = 0u64;
    let mut failed = None;
    loop {
        client.flush_sends()?;
        let n = client.recv(&mut |_, error, data| {
            if error != 0 || data.len() as u64 != READ {
                failed = Some(error);
            }
        })? as u64;
        if let Some(error) = failed {
            return Err(format!("a read failed with error {error}").into());
        }
        count += n;
        if start.elapsed() > RUN {
            let rate = count as f64 / start.elapsed().as_secs_f64();
            println!("  cpu {} ns/request", (process_cpu() - cpu) / count);
            while client.recv(&mut |_, _, _| {})? > 0 {}
            return Ok(rate);
        }
        for cookie in 0..n {
            client.submit(BlockOp::Read, offset(), READ, false, cookie, &[])?;
        }
    }
}

fn load(addr: &ListenAddr) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect(addr)?;
    for depth in [1, 8, 32, 128] {
        let mut rates = [0.0; RUNS];
        for rate in &mut rates {
            *rate = measure(&mut client, depth)?;
        }
        rates.sort_by(f64::total_cmp);
        let k = |r: f64| r / 1e3;
        println!(
            "depth {depth:>3}: {:>6.0} k/s ({:.0} to {:.0})",
            k(rates[RUNS / 2]),
            k(rates[0]),
            k(rates[RUNS - 1])
        );
    }
    Ok(client.close()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let unix = |path: &str| ListenAddr::Unix(PathBuf::from(path));
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let file = format!("nbd_speed-{}.sock", std::process::id());
            let addr = ListenAddr::Unix(std::env::temp_dir().join(file));
            let server = Server::bind(&addr)?;
            let stop = StopHandle::new()?;
            std::thread::scope(|scope| {
                let served = scope.spawn(|| serve(server, &stop));
                let loaded = load(&addr);
                stop.stop();
                served.join().expect("the server does not panic").map_err(|e| e.to_string())?;
                loaded
            })
        }
        ["serve", path] => {
            serve(Server::bind(&unix(path))?, &StopHandle::new()?).map_err(|e| e.to_string().into())
        }
        ["connect", path] => load(&unix(path)),
        _ => Err("use: nbd_speed [serve SOCKET | connect SOCKET]".into()),
    }
}
