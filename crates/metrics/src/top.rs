//! `ssdkit top`: a served drive on a terminal, from its page of metrics.
//!
//! Restores the terminal however it ends: by a key, a signal, or a fault of its own. A
//! server that is gone is told of and tried again. May fail: the output is no terminal,
//! or with `--once` the page cannot be had.

mod figures;
mod screen;
mod view;
mod why;

use std::io::Write;
use std::time::Duration;

use clap::Args;
use drive::error::Error;
use drive::say::is_hidden;
use measure::options;

use crate::address::Address;
use crate::client;
use figures::Figures;

/// `ssdkit top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    /// Where `ssdkit serve --metrics` has its figures.
    #[arg(value_name = "[HOST:]PORT")]
    pub address: Address,
    /// How often to look, 100ms to 1h.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: u64,
    /// Look twice, an interval apart, print that, and end.
    #[arg(long)]
    pub once: bool,
    /// With --once: print one JSON object.
    #[arg(long, requires = "once")]
    pub json: bool,
}

/// An interval in ns.
fn interval(text: &str) -> Result<u64, String> {
    let ns = options::duration(text)?;
    let is_possible = (100_000_000..=3_600_000_000_000).contains(&ns);
    is_possible.then_some(ns).ok_or_else(|| format!("`{text}` is not from 100ms to 1h"))
}

/// A text of JSON, which a server may have had a part in, without characters that steer a
/// terminal: they only stand in its strings, where they are written as their numbers.
pub fn escaped(json: &str) -> String {
    let mut all = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) {
            let mut units = [0; 2];
            let units = c.encode_utf16(&mut units).iter();
            units.for_each(|unit| all.push_str(&format!("\\u{unit:04x}")));
        } else {
            all.push(c);
        }
    }
    all
}

/// Shows a drive until somebody ends it, or once.
pub fn top(args: &TopArgs, out: &mut dyn Write) -> Result<(), Error> {
    if !args.once {
        return screen::show(args);
    }
    let look = || client::look(&args.address).map_err(Error::Failed);
    let before = look()?;
    std::thread::sleep(Duration::from_nanos(args.interval));
    let figures = Figures::between(Some(&before), &look()?);
    if args.json {
        writeln!(out, "{}", escaped(&figures.to_json().to_string()))?;
    } else {
        for line in view::plain(&figures) {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_steers_no_terminal() {
        let json = serde_json::json!({ "drive": "a\u{9b}2J\u{202e}\u{1b}é" });
        let text = escaped(&json.to_string());
        assert_eq!(text, r#"{"drive":"a\u009b2J\u202e\u001bé"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), json);
    }
}
