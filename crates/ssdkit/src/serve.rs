//! `ssdkit serve`: a drive in memory, in real time, over NBD.
//!
//! Serves until Ctrl-C or SIGTERM; then finishes what was received, flushes,
//! and removes the socket. May fail: the address cannot be listened on, or
//! the drive does not take the last flush.

use std::io::Write;

use exports::SharedDrive;
use exports::nbd::{Export, Server, StopHandle};
use measure::units;
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use targets::RESERVE_CHUNKS;

use crate::cli::ServeArgs;
use crate::error::Error;
use crate::nbd::resolve;
use crate::stack::{Drive, Stack, Visitor};

/// Seed of the drive's policies: nothing else of a served drive repeats.
const SEED: u64 = 1;

/// Serves, and tells `out` where.
pub fn run(args: &ServeArgs, out: &mut dyn Write) -> Result<(), Error> {
    let config = args.check()?.resolve(RESERVE_CHUNKS)?;
    let server = Server::bind(&resolve(&args.nbd)?).map_err(|e| Error::Failed(e.to_string()))?;
    let stack = Stack::build(&config, SEED)?;
    let name = args.drive.to_string();
    stack.visit(Serving { args, server, name: &name, out })
}

struct Serving<'a> {
    args: &'a ServeArgs,
    server: Server,
    name: &'a str,
    out: &'a mut dyn Write,
}

impl Visitor for Serving<'_> {
    type Out = Result<(), Error>;

    fn visit<D: Drive>(self, drive: D) -> Self::Out {
        let Serving { args, server, name, out } = self;
        let failed = |e: &dyn std::fmt::Display| Error::Failed(e.to_string());
        let export = Export::new(drive.shape()).map_err(|e| Error::Usage(e.to_string()))?;
        let bytes = drive.shape().bytes;
        let shared = SharedDrive::new(drive)?;
        let stop = StopHandle::new()?;
        watch_signals(stop.clone())?;
        let at = server.addr()?.to_string();
        if args.json {
            writeln!(out, "{}", json!({ "serving": at, "drive": name, "size_bytes": bytes }))?;
        } else {
            let size = units::size_binary(bytes);
            writeln!(out, "serving {name} ({size}) at {at}\nCtrl-C stops it")?;
        }
        out.flush()?;
        let report = server.run(&export, &shared, &stop).map_err(|e| failed(&e))?;
        let counters = shared.into_port().map_err(|e| failed(&e))?.counters();
        if args.json {
            let json = json!({
                "connections": report.connections,
                "refused": report.refused,
                "faults": report.faults,
                "user_blocks": counters.user,
                "gc_blocks": counters.gc,
                "padding_blocks": counters.padding,
                "metadata_blocks": counters.metadata,
                "erases": counters.erases,
            });
            writeln!(out, "{json}")?;
        } else {
            writeln!(
                out,
                "stopped after {} connections ({} refused, {} faulty); the drive is flushed",
                report.connections, report.refused, report.faults
            )?;
        }
        Ok(())
    }
}

/// Stops the server when a signal comes; a second one ends the process.
fn watch_signals(stop: StopHandle) -> Result<(), Error> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        for signal in signals.forever() {
            if stop.is_stopped() {
                std::process::exit(128 + signal);
            }
            stop.stop();
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}
