//! Changes and actions of a rule: that they stay in their tables, and in what the
//! application was given.

use super::value::{Env, Value, kind};
use super::{fail, parts as of};
use crate::bounds::Bounds;
use crate::error::{Problem, What};
use crate::request::{Field, Op};
use crate::syntax::{ActionKind, Assign, Change, Content, Expr, Name, Place, Rule, Slot};

/// The longest delay, ns: who waits is inside the drive, and a drive that ends waits for all.
const MOST_DELAY: u64 = 10_000_000_000;

/// Checks them for a case and an application.
pub(super) fn check(rule: &Rule, env: &Env<'_>) -> Result<(), Problem> {
    for change in &rule.changes {
        env.change(change)?;
    }
    let mut verdicts = 0;
    for action in &rule.actions {
        verdicts += usize::from(action.kind.is_verdict());
        if verdicts > 1 {
            return fail(What::Verdicts, action.at);
        }
        env.action(&action.kind, action.at)?;
    }
    Ok(())
}

/// The parts of all expressions in them.
pub(super) fn parts(rule: &Rule) -> u64 {
    let optional = |expr: &Option<Expr>| expr.as_ref().map_or(0, of);
    let slot = |slot: &Slot| 1 + of(&slot.key);
    let changes = rule.changes.iter().map(|change| match change {
        Change::Counter(_, _, value) => 1 + of(value),
        Change::Entry(_, key, _, value) => 1 + of(key) + of(value),
        Change::Start(_) => 1,
    });
    let actions = rule.actions.iter().map(|action| match &action.kind {
        ActionKind::Place(unit, stream, into) => {
            1 + optional(unit) + optional(stream) + into.as_ref().map_or(0, slot)
        }
        ActionKind::Serve(at) => slot(at),
        ActionKind::Redirect(e) | ActionKind::Remote(e) | ActionKind::Delay(e) => 1 + of(e),
        ActionKind::Collect(_, unit) => 1 + optional(unit),
        ActionKind::Migrate(at, unit) => slot(at) + of(unit),
        ActionKind::Fill(unit, into) => optional(unit) + slot(into),
        _ => 1,
    });
    changes.sum::<u64>() + actions.sum::<u64>()
}

impl Env<'_> {
    fn change(&self, change: &Change) -> Result<(), Problem> {
        match change {
            Change::Start(name) => self.names.timer(&name.text, name.at),
            Change::Counter(name, assign, value) => {
                let counter = self.names.counter(&name.text, name.at)?;
                self.stored(name, counter.bounds, *assign, value)
            }
            Change::Entry(name, key, assign, value) => {
                let map = self.names.map(&name.text, name.at)?;
                self.key(&name.text, map.entries, key)?;
                match map.content {
                    Content::Number(bounds) => self.stored(name, bounds, *assign, value),
                    Content::Address(_) => self.address(*assign, value),
                }
            }
        }
    }

    fn stored(
        &self,
        name: &Name,
        has: Bounds,
        assign: Assign,
        value: &Expr,
    ) -> Result<(), Problem> {
        let bounds = self.number(value)?;
        if assign == Assign::Set && !has.hold(bounds) {
            let what = What::Value { name: name.text.clone(), has, value: bounds };
            self.outside(what, value.at)?;
        }
        Ok(())
    }

    /// An address is only given up: each block has one entry that leads to it.
    fn address(&self, assign: Assign, value: &Expr) -> Result<(), Problem> {
        match self.value(value)? {
            Value::Address(None) if assign == Assign::Set => Ok(()),
            other => kind("none, set by =", other, value),
        }
    }

    /// Checks that numbers are among those that the application was given.
    fn granted(
        &self,
        what: &'static str,
        has: Option<Bounds>,
        value: Bounds,
        at: Place,
    ) -> Result<(), Problem> {
        let application = self.application.number;
        match has {
            None => self.outside(What::Nothing { application, what }, at),
            Some(has) if !has.hold(value) => {
                self.outside(What::Granted { application, what, has, value }, at)
            }
            _ => Ok(()),
        }
    }

    fn unit(&self, unit: &Expr) -> Result<Bounds, Problem> {
        let units = self.number(unit)?;
        self.granted("units", self.application.units, units, unit.at)?;
        Ok(units)
    }

    /// Checks an entry of addresses, and gives their units.
    fn slot(&self, slot: &Slot) -> Result<Bounds, Problem> {
        let map = self.names.addresses(&slot.map.text, slot.map.at)?;
        self.key(&slot.map.text, map.0.entries, &slot.key)?;
        Ok(map.1)
    }

    fn may_be(&self, op: Op) -> bool {
        self.fields[Field::Op as usize].both(Bounds::one(op as u64)).is_some()
    }

    fn only(&self, action: &'static str, op: Op, at: Place) -> Result<(), Problem> {
        match self.fields[Field::Op as usize] == Bounds::one(op as u64) {
            true => Ok(()),
            false => self.outside(What::Op { action, op: op.word() }, at),
        }
    }

    fn action(&self, action: &ActionKind, at: Place) -> Result<(), Problem> {
        match action {
            ActionKind::Place(unit, stream, into) => {
                self.only("place", Op::Write, at)?;
                self.place(unit.as_ref(), stream.as_ref(), into.as_ref(), at)
            }
            ActionKind::Serve(slot) => {
                self.only("serve", Op::Read, at)?;
                let units = self.slot(slot)?;
                self.granted("units", self.application.units, units, slot.map.at)
            }
            ActionKind::Redirect(channel) => {
                let bounds = self.number(channel)?;
                self.granted("channels", self.application.channels, bounds, channel.at)
            }
            ActionKind::Remote(drive) => {
                let bounds = self.number(drive)?;
                self.granted("remotes", self.application.remotes, bounds, drive.at)
            }
            ActionKind::Delay(time) => match self.time(time)?.hi > MOST_DELAY {
                true => self.outside(What::Delay(MOST_DELAY / 1_000_000_000), time.at),
                false => Ok(()),
            },
            ActionKind::Limit(name) => self.names.limit(&name.text, name.at).map(|_| ()),
            ActionKind::Collect(_, Some(unit)) => self.unit(unit).map(|_| ()),
            ActionKind::Collect(_, None) => {
                let units = self.application.units;
                self.granted("units", units, units.unwrap_or(Bounds::one(0)), at)
            }
            ActionKind::Migrate(slot, unit) => {
                let from = self.slot(slot)?;
                self.granted("units", self.application.units, from, slot.map.at)?;
                let to = self.unit(unit)?;
                self.kept(slot, from, to, unit.at)
            }
            ActionKind::Fill(unit, slot) => {
                self.only("fill", Op::Read, at)?;
                self.place(unit.as_ref(), None, Some(slot), at)
            }
            // A write goes to any of the application's units.
            ActionKind::Pass if self.may_be(Op::Write) => {
                let units = self.application.units;
                self.granted("units", units, units.unwrap_or(Bounds::one(0)), at)
            }
            ActionKind::Drop | ActionKind::Refuse | ActionKind::Ask | ActionKind::Pass => Ok(()),
        }
    }

    fn place(
        &self,
        unit: Option<&Expr>,
        stream: Option<&Expr>,
        into: Option<&Slot>,
        at: Place,
    ) -> Result<(), Problem> {
        let own = self.application.units;
        let units = match unit {
            Some(unit) => self.unit(unit)?,
            // It may go to any that the application has.
            None => {
                self.granted("units", own, own.unwrap_or(Bounds::one(0)), at)?;
                own.unwrap_or(Bounds::one(0))
            }
        };
        let own = Some(self.application.streams.unwrap_or(Bounds::one(0)));
        match stream {
            Some(stream) => self.granted("streams", own, self.number(stream)?, stream.at)?,
            None => self.granted("streams", own, Bounds::one(0), at)?,
        }
        let Some(slot) = into else { return Ok(()) };
        let has = self.slot(slot)?;
        self.kept(slot, has, units, slot.map.at)
    }

    /// Checks that a map can keep addresses of units.
    fn kept(&self, slot: &Slot, has: Bounds, value: Bounds, at: Place) -> Result<(), Problem> {
        match has.hold(value) {
            true => Ok(()),
            false => self.outside(What::Units { name: slot.map.text.clone(), has, value }, at),
        }
    }
}
