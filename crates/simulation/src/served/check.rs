//! What a server has is held against the model, after a cut or at rest.

use super::model::Value;
use super::reply::Reply;
use super::world::{Client, World, counter_bytes, key_bytes, number_of};
use crate::machine::{Violation, wrong};

impl World {
    /// Reads all, after a cut or at rest.
    pub(super) fn check_all(&mut self, at_rest: bool) -> Result<(), Violation> {
        let when = if at_rest { "at rest" } else { "after a cut" };
        let (keys, counters) = (self.check_keys(when)?, self.check_counters(when)?);
        let (Some(keys), Some(counters)) = (keys, counters) else { return Ok(()) };
        self.check_names(when, [keys, counters].concat())
    }

    /// Gives the names of the keys that are there, where all could be read.
    fn check_keys(&mut self, when: &str) -> Result<Option<Vec<Vec<u8>>>, Violation> {
        let mut all: Vec<Option<Value>> = Vec::new();
        for key in 0..self.served.keys {
            let found = match self.look_up(&[b"GET", &key_bytes(key)])? {
                Some(Reply::Bulk(bytes)) => bytes.map(|bytes| number_of(&bytes)).transpose(),
                Some(other) => Err(format!("{other:?}")),
                None => {
                    all.push(None);
                    continue;
                }
            };
            let found = found.map_err(|words| wrong(Some(key), format!("key {key}: {words}")))?;
            self.site.rig.see(found.unwrap_or(1));
            self.site.note(Some(key), || format!("{when} it has {found:?}"));
            all.push(Some(found));
        }
        let explained = self.model.found_whole(&all);
        let words =
            |(key, words): (u64, String)| wrong(Some(key), format!("{when}, key {key}: {words}"));
        explained.map_err(words)?;
        let mut names = Some(Vec::new());
        for (key, found) in (0..).zip(all) {
            match found {
                Some(value) => self.model.found(key, value).map_err(|why| words((key, why)))?,
                None => names = None,
            }
            if found.flatten().is_some() {
                names.iter_mut().for_each(|names| names.push(key_bytes(key)));
            }
        }
        Ok(names)
    }

    /// The same of counters.
    fn check_counters(&mut self, when: &str) -> Result<Option<Vec<Vec<u8>>>, Violation> {
        let mut names = Some(Vec::new());
        for counter in 0..self.served.counters {
            let found = match self.look_up(&[b"GET", &counter_bytes(counter)])? {
                Some(Reply::Bulk(None)) => 0,
                Some(Reply::Bulk(Some(text))) => {
                    let number = String::from_utf8_lossy(&text).parse::<u64>();
                    number.map_err(|_| wrong(None, format!("counter {counter}: {text:?}")))?
                }
                Some(other) => return Err(wrong(None, format!("counter {counter}: {other:?}"))),
                None => {
                    names = None;
                    continue;
                }
            };
            self.site.rig.see(found);
            let explained = self.model.found_counter(counter, found);
            explained
                .map_err(|words| wrong(None, format!("{when}, counter {counter}: {words}")))?;
            if found > 0 {
                names.iter_mut().for_each(|names| names.push(counter_bytes(counter)));
            }
        }
        Ok(names)
    }

    /// With nothing under way the server counts and names these, and no others.
    fn check_names(&mut self, when: &str, mut names: Vec<Vec<u8>>) -> Result<(), Violation> {
        let count = names.len() as u64;
        match self.look_up(&[b"DBSIZE"])? {
            Some(Reply::Int(n)) if n as u64 == count => {}
            None => {}
            other => return Err(wrong(None, format!("{when}: {count} keys, DBSIZE {other:?}"))),
        }
        if let Some(reply) = self.look_up(&[b"SCAN", b"0", b"COUNT", b"1000"])? {
            names.sort_unstable();
            let named = names_of(&reply).map(|mut named| {
                named.sort_unstable();
                named
            });
            if named.as_ref() != Some(&names) {
                let words = format!("{when}: there are {names:?}, and a scan says {reply:?}");
                return Err(wrong(None, words));
            }
        }
        let explained = self.model.found_size(count);
        explained.map_err(|words| wrong(None, format!("{when}: {words}")))
    }

    /// The first client that can asks for something, and waits. `None` where that cannot be
    /// read, as something failed.
    fn look_up(&mut self, words: &[&[u8]]) -> Result<Option<Reply>, Violation> {
        let can = |client: &Client| !client.is_closed && client.asked.is_empty();
        let Some(who) = self.clients.iter().position(can) else { return Ok(None) };
        let Some(local) = &mut self.local else { return Ok(None) };
        assert!(local.ask(who, words), "it executes nothing");
        loop {
            let Some(local) = &mut self.local else { return Ok(None) };
            let mut bytes = Vec::new();
            let ended = local.replies(who, &mut bytes);
            match Reply::parse(&bytes) {
                Some((Reply::Error(_), _)) if self.has_failed() => return Ok(None),
                Some((Reply::Error(words), _)) => return Err(wrong(None, words)),
                Some((reply, _)) => return Ok(Some(reply)),
                None if ended.is_err() && self.has_failed() => return Ok(None),
                None => {}
            }
            self.site.rig.flash.power().progress();
            if !self.poll_once()? {
                return Err(self.hangs());
            }
        }
    }
}

/// The keys that a whole scan names.
fn names_of(reply: &Reply) -> Option<Vec<Vec<u8>>> {
    let Reply::Array(parts) = reply else { return None };
    let [Reply::Bulk(Some(cursor)), Reply::Array(names)] = &parts[..] else { return None };
    let name = |name: &Reply| match name {
        Reply::Bulk(name) => name.clone(),
        _ => None,
    };
    if cursor == b"0" { names.iter().map(name).collect() } else { None }
}
