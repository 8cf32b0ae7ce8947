//! The targets of a served drive: which there are, new ones, and some less, and the rules of
//! those that are made of some, asked for at its control socket.
//!
//! One that is created takes requests when the drive's file says that it is there; one that is
//! removed is there no more when the file says so, and what it had is erased after that. So a
//! cut at any moment gives the targets from before or after, and what is left of one that
//! went is erased by the next start.
//!
//! One that is damaged, so that the start did not find it, is listed, and only removed.
//!
//! Guarantees: what cannot be had changes nothing; one change at a time; whoever uses another
//! target goes on, and is as late as a few commands more on the device make him; what a
//! target's own rules delay does not hold up its end. Fails where the file cannot be written,
//! or the drive is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use drive::lent::Lent;
use drive::shared::{Damaged, Shared};
use drive::spec::{DriveConfig, NewTarget};
use drivefile::ChangingText;
use exports::SharedDrive;
use exports::nbd::{Export, Exports, StopHandle};
use port::{BLOCK_BYTES, Time};
use serde_json::{Value, json};

use crate::blocks::with_targets;
use crate::control::{Desk, refused};
use crate::rulebook::Rulebook;

/// How often what is waited for is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// How long connections to a target that goes may take for what they have begun.
const GRACE: Duration = Duration::from_secs(5);

/// The targets of a drive, and all that tells of them.
pub(crate) struct Tenants<'a> {
    drive: &'a SharedDrive<Lent>,
    /// Where they are exported, if they are.
    exports: Option<&'a Exports>,
    /// The one whose keys are served, if one's are.
    keys: Option<&'a str>,
    /// What its file says, where it has one. Held by who changes something.
    text: Mutex<Option<ChangingText>>,
    /// The rules of each target that is made of some, by the target's name.
    books: Mutex<BTreeMap<String, Arc<Rulebook>>>,
}

/// Why a change was not made.
type Refused = String;

impl<'a> Tenants<'a> {
    /// Of a drive that has several targets, which is there.
    pub fn new(
        drive: &'a SharedDrive<Lent>,
        (exports, keys): (Option<&'a Exports>, Option<&'a str>),
        text: Option<ChangingText>,
    ) -> Tenants<'a> {
        let tenants =
            Tenants { drive, exports, keys, text: Mutex::new(text), books: Mutex::default() };
        if let Ok(config) = tenants.config() {
            config.parts.iter().for_each(|part| tenants.open_book(&part.name));
        }
        tenants
    }

    /// Takes the rules of a target to its books, where it is made of some.
    fn open_book(&self, name: &str) {
        let rules = self.with(|shared, _| shared.rules_of(shared.number(name)?));
        if let Ok(Some(rules)) = rules {
            self.books().insert(name.into(), Arc::new(Rulebook::new(rules)));
        }
    }

    fn books(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Rulebook>>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules of the target that was named, or of the only one that has some.
    fn book(&self, name: Option<&str>) -> Result<Arc<Rulebook>, Refused> {
        let damage = |name| self.with(|shared, _| Some(shared.damage_of(name)?.to_string()));
        if let Some(name) = name
            && let Some(why) = damage(name)?
        {
            return Err(format!("target {name} is damaged: {why}"));
        }
        let books = self.books();
        let names = || books.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        match (name, books.len()) {
            (_, 0) => Err("none of its targets is made of rules".into()),
            (None, 1) => Ok(books.values().next().expect("there is one").clone()),
            (None, _) => Err(format!("say of which target: --target NAME, one of {}", names())),
            (Some(name), _) => books.get(name).cloned().ok_or_else(|| {
                format!("there is no target {name} that is made of rules: take one of {}", names())
            }),
        }
    }

    /// Does something to the drive's targets, as soon as that can be.
    fn with<R>(&self, mut work: impl FnMut(&mut Shared, Time) -> R) -> Result<R, Refused> {
        loop {
            let done = self.drive.change(|lent, now| {
                let (shared, now) = lent.shared(now)?;
                Some(work(shared, now))
            });
            match done.map_err(|e| e.to_string())? {
                Some(Some(done)) => return Ok(done),
                Some(None) => return Err("this drive has one target, which is all of it".into()),
                None => sleep(LOOK),
            }
        }
    }

    fn config(&self) -> Result<DriveConfig, Refused> {
        self.with(|shared, _| shared.config().clone())
    }

    fn list(&self) -> Result<Value, Refused> {
        let config = self.config()?;
        let damaged = self.with(|shared, _| {
            let tell = |one: &Damaged| (one.name.clone(), one.why.to_string());
            shared.damaged().iter().map(tell).collect::<BTreeMap<_, _>>()
        })?;
        let tell = |n| {
            let why = damaged.get(&config.parts[n as usize].name);
            let mut target = told(&config, n);
            target["damaged"] = why.map(String::as_str).into();
            target
        };
        let targets: Vec<Value> = (0..config.targets()).map(tell).collect();
        Ok(json!({
            "targets": targets,
            "parallel_units": config.geometry.total_pus(),
            "free": config.free_units(),
            "free_text": config.free_text(),
        }))
    }

    fn create(
        &self,
        file: &mut Option<ChangingText>,
        (name, units, kind): (Option<&str>, Option<u32>, NewTarget<'_>),
        wait: &mut dyn FnMut(&str),
        stop: &StopHandle,
    ) -> Result<Value, Refused> {
        let before = self.config()?;
        let (next, n) = before.with_target(name, units, kind)?;
        // Nothing new is to be had of a drive that can only be read, whatever comes first then.
        let fault = self.drive.look(|lent, _| lent.drive().fault()).map_err(|e| e.to_string())?;
        if let Some((why, _)) = fault {
            return Err(format!("{why}; the drive can only be read until it is opened again"));
        }
        // What the start found of targets that went may lie where it is to be.
        while let chunks @ 1.. = self.with(|shared, _| shared.left())? {
            if stop.is_stopped() {
                return Err("the drive is stopped".into());
            }
            wait(&format!("{chunks} chunks of targets that went to be erased"));
            sleep(LOOK);
        }
        let number = self.with(|shared, _| shared.create(next.clone(), n))?;
        let number = number.map_err(|e| e.to_string())?;
        let kept = self.keep(file, &next).and_then(|()| {
            let serves = self.with(|shared, _| shared.set_serving(number, true))?;
            serves.map_err(|e| e.to_string())
        });
        if let Err(why) = kept {
            // It has served nobody.
            let gone = self.with(|shared, now| shared.remove(before.clone(), number, now));
            return Err(gone.err().unwrap_or(why));
        }
        self.open_book(&next.parts[n as usize].name);
        self.export(|export| export)?;
        let mut target = told(&next, n);
        target["warning"] = drive::ruled::warning(&next.target(n)).into();
        Ok(target)
    }

    fn remove(
        &self,
        file: &mut Option<ChangingText>,
        (name, destroys): (&str, bool),
        wait: &mut dyn FnMut(&str),
        stop: &StopHandle,
    ) -> Result<Value, Refused> {
        if self.keys == Some(name) {
            return Err(format!(
                "the keys of {name} are served over Redis: serve the drive without --redis, or \
                 with the keys of another target, to remove it"
            ));
        }
        let before = self.config()?;
        let next = before.without_target(name)?;
        self.may_go(name, destroys)?;
        let number = self.with(|shared, _| shared.number(name))?;
        let number = number.ok_or_else(|| format!("target {name} is leaving already"))?;
        self.export(|export| export.without(name))?;
        let left = self.hurry(number, true).and_then(|()| self.see_off(name, wait, stop));
        if let Err(why) = left.and_then(|()| self.keep(file, &next)) {
            self.hurry(number, false).and_then(|()| self.export(|export| export))?;
            return Err(why);
        }
        // It is gone: whatever comes now, the next start finds the drive without it.
        let before = self.with(|shared, _| shared.unerased())?;
        let leaves = self.with(|shared, now| shared.remove(next.clone(), number, now))?;
        leaves.map_err(|e| e.to_string())?;
        self.books().remove(name);
        loop {
            let (is_gone, chunks) = self.with(|shared, _| shared.leaving(number))?;
            if is_gone && chunks == 0 {
                self.export(|export| export)?;
                let is_erased = self.with(|shared, _| shared.unerased())? == before;
                return Ok(json!({ "removed": name, "erased": is_erased }));
            }
            if stop.is_stopped() {
                return Ok(json!({ "removed": name, "erased": false }));
            }
            match is_gone {
                true => wait(&format!("{chunks} chunks of {name} to be erased")),
                false => wait(&format!("the last requests of {name}")),
            }
            sleep(LOOK);
        }
    }

    /// Refuses to remove what may be found again another time, unless it may be lost, and the
    /// last that is served.
    fn may_go(&self, name: &str, destroys: bool) -> Result<(), Refused> {
        let (damage, others) = self.with(|shared, _| {
            let damage = shared.damage_of(name).map(ToString::to_string);
            let parts = shared.config().parts.iter();
            let others = parts.filter(|part| part.keys == 0 && part.name != name);
            let others = others.filter(|part| shared.damage_of(&part.name).is_none());
            (damage, others.count())
        })?;
        match damage {
            Some(why) if !destroys => Err(format!(
                "{name} is damaged: {why}; another start may find what it holds, and --destroy \
                 says that it may be lost"
            )),
            None if others == 0 => Err(format!(
                "{name} is the only target that is not damaged and has blocks, and a drive has one \
                 at least"
            )),
            _ => Ok(()),
        }
    }

    /// Has a target delay nothing, as it is to go, or again what its rules say. One that is
    /// damaged does nothing.
    fn hurry(&self, number: usize, is_hurried: bool) -> Result<(), Refused> {
        let done = self.with(|shared, now| match shared.is_damaged(number) {
            true => Ok(()),
            false => shared.set_hurried(number, is_hurried, now),
        });
        done?.map_err(|e| e.to_string())
    }

    /// Waits until nobody is connected to a target that is exported no more.
    fn see_off(
        &self,
        name: &str,
        wait: &mut dyn FnMut(&str),
        stop: &StopHandle,
    ) -> Result<(), Refused> {
        let Some(exports) = self.exports else { return Ok(()) };
        let begun = Instant::now();
        loop {
            match exports.connections(name) {
                0 => return Ok(()),
                _ if stop.is_stopped() => {
                    return Err(format!("the drive is stopped: {name} stays"));
                }
                1 => wait(&format!("a connection to {name} to end")),
                count => wait(&format!("{count} connections to {name} to end")),
            }
            if begun.elapsed() > GRACE {
                exports.close(name);
            }
            // Those who wait for the drive may be asleep until later than what is due now.
            self.with(|_, _| ())?;
            sleep(LOOK);
        }
    }

    /// Writes down what the drive is from now on, where it has a file.
    fn keep(&self, file: &mut Option<ChangingText>, next: &DriveConfig) -> Result<(), Refused> {
        let Some(file) = file else { return Ok(()) };
        let text = self.with(|shared, _| shared.text(next))?.map_err(|e| e.to_string())?;
        file.change(&text).map_err(|e| e.to_string())
    }

    /// Exports what there is, as `but` has it.
    fn export(&self, but: impl Fn(Export) -> Export) -> Result<(), Refused> {
        let Some(exports) = self.exports else { return Ok(()) };
        let export = self.drive.look(|lent, _| with_targets(lent.drive()));
        let export = export.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        exports.replace(but(export));
        Ok(())
    }
}

/// What is told of a target.
fn told(config: &DriveConfig, n: u32) -> Value {
    let (part, one) = (&config.parts[n as usize], config.target(n));
    json!({
        "name": part.name,
        "target": part.kind().name(),
        "keys": (part.keys > 0).then_some(part.keys),
        "set": one.rules.as_ref().map(|rules| &rules.set().name.text),
        "size_bytes": one.size,
        "first_byte": config.first_byte(n),
        "first_unit": config.place(n).units.first(),
        "parallel_units": one.above.total_pus(),
        "flash_bytes": one.above.blocks() * BLOCK_BYTES,
        "damaged": null,
    })
}

/// The units that a new target is asked for with, and what it is to be.
fn new_target(asked: &Value) -> Result<(Option<u32>, NewTarget<'_>), Refused> {
    let number = |key: &str| match asked.get(key).map(Value::as_u64) {
        Some(None) => Err(format!("{key} are a number")),
        number => Ok(number.flatten()),
    };
    let units = number("units")?.map(u32::try_from).transpose();
    let units = units.map_err(|_| "so many units".to_string())?;
    let kind = match (number("keys")?, asked.get("rules").and_then(Value::as_str)) {
        (Some(_), Some(_)) => return Err("it has rules or keys, and not both".into()),
        (Some(keys), None) => NewTarget::Kv(keys),
        (None, Some(rules)) => NewTarget::Rules(rules),
        (None, None) => NewTarget::Pblk,
    };
    Ok((units, kind))
}

impl Desk for Tenants<'_> {
    fn answer(&self, asked: &Value, wait: &mut dyn FnMut(&str), stop: &StopHandle) -> Value {
        let text = |key: &str| asked.get(key).and_then(Value::as_str);
        if text("ask") == Some("targets") {
            return self.list().unwrap_or_else(|why| refused(&why));
        }
        if matches!(text("ask"), Some("rules" | "counters" | "install")) {
            let mut of_one = asked.clone();
            of_one.as_object_mut().and_then(|asked| asked.remove("target"));
            let book = self.book(text("target"));
            return book.map_or_else(|why| refused(&why), |book| book.answer(&of_one, wait, stop));
        }
        let mut file = match self.text.try_lock() {
            Ok(file) => file,
            // What is kept there is as it was.
            Err(TryLockError::Poisoned(held)) => PoisonError::into_inner(held),
            Err(TryLockError::WouldBlock) => {
                return refused("another target comes or goes just now: try again when it has");
            }
        };
        let is_text = |key: &&str| asked.get(*key).is_none_or(|it| it.is_string() || it.is_null());
        let done = match text("ask") {
            Some("create") if !["name", "rules"].iter().all(is_text) => {
                Err("a name and rules are texts".into())
            }
            Some("create") => new_target(asked).and_then(|(units, kind)| {
                self.create(&mut file, (text("name"), units, kind), wait, stop)
            }),
            Some("remove") => match text("name") {
                Some(name) => {
                    let destroys = asked.get("destroy") == Some(&true.into());
                    self.remove(&mut file, (name, destroys), wait, stop)
                }
                None => Err("remove needs a name".into()),
            },
            _ => Err("this drive has targets: it is asked for these by `ssdkit target`, and for \
                      rules by `ssdkit rules`"
                .into()),
        };
        done.unwrap_or_else(|why| refused(&why))
    }
}
