//! Policies for all: what is added to the sets of tenants, and how these become one
//! (thesis, chapter 7: global policies such as wear leveling and garbage collection).
//!
//! Guarantees: in the set that several become each rule is asked about the requests of its own
//! tenant's applications only, and its names are its own; each then does what it did alone, but
//! for what the policy changes. Fails where the checker does not take what comes of it: an
//! application of two tenants, more maps or rules than a set may have.

use rules::bounds::Bounds;
use rules::parse;
use rules::request::Field;
use rules::syntax::{
    Action, ActionKind, Application, Change, Content, Expr, Kind, Name, Place, Relation, Rule, Set,
    Slot, Sum,
};

/// What holds for all tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A write finds a chunk of its tenant's units collected where fewer chunks are free, in
    /// percent, 1 to 100; 0 for never.
    pub collect: u64,
    /// After so long, ns, all placements move on by a unit, among the units of the tenant, so
    /// that none of them is worn for what one set always puts there; 0 for never.
    pub rotate: u64,
}

impl Default for Policy {
    /// Collection below 10 %, and another unit each minute.
    fn default() -> Policy {
        Policy { collect: 10, rotate: 60_000_000_000 }
    }
}

/// By how much placements have moved on.
const TURN: &str = "policy_turn";
/// The longest time that can be written, ns.
const MOST_TIME: u64 = i64::MAX as u64;
/// It begins anew after so many.
const TURNS: u64 = 1 << 20;

/// The sets of several tenants as one, with the policy. `idle` are applications that have no
/// rules yet: all that they ask is a miss.
pub fn merge(name: &str, tenants: &[&Set], idle: &[Application], policy: &Policy) -> Set {
    let mut all = policy.set();
    all.name.text = name.into();
    for tenant in tenants {
        let of = Tenant::new(tenant, policy);
        all.applications.extend(tenant.applications.iter().cloned());
        all.maps.extend(tenant.maps.iter().cloned().map(|mut map| {
            of.name(&mut map.name);
            map
        }));
        all.counters.extend(tenant.counters.iter().cloned().map(|mut counter| {
            of.name(&mut counter.name);
            counter
        }));
        all.timers.extend(tenant.timers.iter().cloned().map(|mut timer| {
            of.name(&mut timer);
            timer
        }));
        all.limits.extend(tenant.limits.iter().cloned().map(|mut limit| {
            of.name(&mut limit.name);
            limit
        }));
        all.rules.extend(tenant.rules.iter().cloned().map(|rule| of.rule(rule)));
    }
    all.applications.extend(idle.iter().cloned());
    all
}

impl Policy {
    /// The rules that are asked before any tenant's.
    fn set(&self) -> Set {
        let most = u32::MAX;
        let mut text = String::from("set policy\n");
        if self.rotate > 0 {
            text += &format!("counter {TURN} 0..{TURNS}\ntimer policy_since\n");
        }
        if self.collect > 0 {
            text += &format!(
                "rule policy_collect priority {most} when op == write and free < {} \
                 then collect greedy\n",
                self.collect.min(101)
            );
        }
        if self.rotate > 0 {
            text += &format!(
                "rule policy_rotate priority {most}
                   when op == write and since(policy_since) > {}ns
                   do {TURN} = ({TURN} + 1) % {TURNS}; start policy_since\n",
                self.rotate.min(MOST_TIME)
            );
        }
        parse(&text).expect("it is written here")
    }
}

/// A tenant's set among others.
struct Tenant<'s> {
    set: &'s Set,
    /// What its names begin with: no other tenant has its first application.
    prefix: String,
    /// The units among which its placements move on.
    rotates: Option<Bounds>,
}

impl Tenant<'_> {
    fn new<'s>(set: &'s Set, policy: &Policy) -> Tenant<'s> {
        let mut units = set.applications.iter().map(|application| application.units);
        let first = units.next().flatten();
        // Where its applications differ no unit is among those of all.
        let is_one = units.all(|others| others == first);
        let rotates = first.filter(|units| policy.rotate > 0 && is_one && units.count() > 1);
        let first = set.applications.first().map_or(0, |application| application.number);
        Tenant { set, prefix: format!("a{first}_"), rotates }
    }

    fn name(&self, name: &mut Name) {
        name.text.insert_str(0, &self.prefix);
    }

    fn text(&self, text: &mut String) {
        text.insert_str(0, &self.prefix);
    }

    /// A rule, asked about its tenant's requests only.
    fn rule(&self, mut rule: Rule) -> Rule {
        self.name(&mut rule.name);
        self.expr(&mut rule.when);
        let own = self.set.applications.iter().map(|application| {
            let number = number(application.number.into());
            let field = expr(Kind::Field(Field::Application));
            expr(Kind::Compare(Relation::Equal, Box::new(field), Box::new(number)))
        });
        let own = own.reduce(|a, b| expr(Kind::Or(Box::new(a), Box::new(b))));
        if let Some(own) = own {
            let when = std::mem::replace(&mut rule.when, expr(Kind::Always));
            rule.when = match when.kind {
                Kind::Always => own,
                _ => Expr { at: when.at, kind: Kind::And(Box::new(own), Box::new(when)) },
            };
        }
        for change in &mut rule.changes {
            match change {
                Change::Counter(name, _, value) => {
                    self.name(name);
                    self.expr(value);
                }
                Change::Entry(name, key, _, value) => {
                    self.name(name);
                    self.expr(key);
                    self.expr(value);
                }
                Change::Start(name) => self.name(name),
            }
        }
        rule.actions.iter_mut().for_each(|action| self.action(action));
        rule
    }

    fn action(&self, action: &mut Action) {
        match &mut action.kind {
            ActionKind::Place(unit, stream, slot) => {
                let is_held = slot.as_ref().is_none_or(|slot| self.holds(slot));
                if let Some(unit) = unit {
                    self.expr(unit);
                    if let Some(units) = self.rotates.filter(|_| is_held) {
                        rotate(unit, units);
                    }
                }
                stream.iter_mut().for_each(|stream| self.expr(stream));
                slot.iter_mut().for_each(|slot| self.slot(slot));
            }
            ActionKind::Serve(slot) => self.slot(slot),
            ActionKind::Redirect(value) | ActionKind::Remote(value) | ActionKind::Delay(value) => {
                self.expr(value);
            }
            ActionKind::Limit(name) => self.name(name),
            // Where it writes it also collects.
            ActionKind::Collect(_, unit) => unit.iter_mut().for_each(|unit| {
                self.expr(unit);
                self.rotates.into_iter().for_each(|units| rotate(unit, units));
            }),
            ActionKind::Migrate(slot, unit) => {
                let is_held = self.holds(slot);
                self.slot(slot);
                self.expr(unit);
                if let Some(units) = self.rotates.filter(|_| is_held) {
                    rotate(unit, units);
                }
            }
            ActionKind::Fill(unit, slot) => {
                unit.iter_mut().for_each(|unit| self.expr(unit));
                self.slot(slot);
            }
            ActionKind::Drop | ActionKind::Refuse | ActionKind::Ask | ActionKind::Pass => {}
        }
    }

    /// Whether a map may have addresses of all units among which placements move on.
    fn holds(&self, slot: &Slot) -> bool {
        let map = self.set.maps.iter().find(|map| map.name.text == slot.map.text);
        map.is_some_and(|map| match (map.content, self.rotates) {
            (Content::Address(units), Some(all)) => units.hold(all),
            _ => false,
        })
    }

    fn slot(&self, slot: &mut Slot) {
        self.name(&mut slot.map);
        self.expr(&mut slot.key);
    }

    fn expr(&self, expr: &mut Expr) {
        match &mut expr.kind {
            Kind::Counter(name) | Kind::Since(name) => self.text(name),
            Kind::Entry(name, key) => {
                self.text(name);
                self.expr(key);
            }
            Kind::Sum(_, a, b) | Kind::Compare(_, a, b) | Kind::And(a, b) | Kind::Or(a, b) => {
                self.expr(a);
                self.expr(b);
            }
            Kind::In(a, from, to) => [a, from, to].into_iter().for_each(|part| self.expr(part)),
            Kind::Not(a) => self.expr(a),
            Kind::Always
            | Kind::Number(_)
            | Kind::Time(_)
            | Kind::None
            | Kind::Op(_)
            | Kind::Field(_) => {}
        }
    }
}

/// `unit` becomes the one that is so many units further on, around the end.
fn rotate(unit: &mut Expr, units: Bounds) {
    let sum = |sum, a, b| expr(Kind::Sum(sum, Box::new(a), Box::new(b)));
    let was = std::mem::replace(unit, number(0));
    let turned = sum(Sum::Subtract, was, number(units.lo));
    let turned = sum(Sum::Add, turned, expr(Kind::Counter(TURN.into())));
    let turned = sum(Sum::Remainder, turned, number(units.count()));
    *unit = sum(Sum::Add, number(units.lo), turned);
}

fn expr(kind: Kind) -> Expr {
    Expr { kind, at: Place::default() }
}

fn number(number: u64) -> Expr {
    expr(Kind::Number(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rules::{Budget, Interpreter, Op, Request, Verdict, View, check};

    const NO_POLICY: Policy = Policy { collect: 0, rotate: 0 };

    /// A tenant that uses all that has a name.
    fn tenant(number: u64) -> Set {
        let (lba, unit) = (number * 100, number * 4);
        let text = format!(
            "set t application {number} lba {lba}..{} units {unit}..{} channels 0..5
             map heat[100] of 0..10 counter n 0..5 timer t limit l rate 100 burst 3
             rule fast priority 7 when op == write and heat[lba % 100] > 2 and since(t) > 5us
               do n = (n + 1) % 5; heat[lba % 100] = 0; start t
               then place unit {unit} + n % 4, limit l
             rule slow priority 6 when op == write do heat[lba % 100] += 1
               then place unit {unit} + lba % 4
             rule read priority 5 when op == read then redirect n
             rule rest priority 0 when always then pass",
            lba + 100,
            unit + 4
        );
        parse(&text).unwrap()
    }

    fn request(op: Op, application: u16, lba: u64) -> Request {
        Request { op, application, channel: 0, lba, size: 4096, placement: 0 }
    }

    /// Whatever it is called and told, a set comes of it.
    #[test]
    fn any_name_and_policy_make_a_set() {
        let policy = Policy { collect: u64::MAX, rotate: u64::MAX };
        assert_eq!(merge("not a word", &[], &[], &policy).rules.len(), 2);
    }

    /// What moves blocks, and what collects where they are, moves on as placements do.
    #[test]
    fn migrations_and_collections_move_on() {
        let text = "set t application 1 lba 0..9 units 2..6 map m[9] of address in 2..6
             rule move priority 2 when op == read then migrate m[lba] to 3, collect greedy unit 2
             rule write priority 1 when op == write then place unit 2 into m[lba]";
        let tenant = parse(text).unwrap();
        let merged = merge("all", &[&tenant], &[], &Policy { collect: 0, rotate: 1 });
        check(merged.clone(), &Budget::default()).unwrap();
        let told = merged.to_string();
        assert_eq!(told.matches(TURN).count(), 1 + 2 + 3, "{told}");
    }

    proptest! {
        /// Merged, each tenant's requests are decided as by its own set alone.
        #[test]
        fn together_each_does_what_it_does_alone(
            asked in prop::collection::vec((0u16..3, 0u64..100, any::<bool>(), 0u64..9_000), 1..200)
        ) {
            let sets: Vec<Set> = (0..3).map(tenant).collect();
            let merged = merge("all", &sets.iter().collect::<Vec<_>>(), &[], &NO_POLICY);
            check(merged.clone(), &Budget::default()).unwrap();
            // It can be written down.
            prop_assert_eq!(&parse(&merged.to_string()).unwrap(), &merged);
            let mut alone: Vec<_> = sets.iter().map(Interpreter::new).collect();
            let mut together = Interpreter::new(&merged);
            let mut now = 0;
            for (number, lba, is_read, passes) in asked {
                now += passes;
                let view = View { now, free: 50, ..View::default() };
                let lba = u64::from(number) * 100 + lba;
                let op = if is_read { Op::Read } else { Op::Write };
                let asked = request(op, number, lba);
                let n = usize::from(number);
                let own = alone[n].decide(&asked, &view).unwrap();
                let all = together.decide(&asked, &view).unwrap();
                prop_assert_eq!(own.verdict, all.verdict);
                prop_assert_eq!(own.delay, all.delay);
            }
        }
    }

    /// Placements go round the units of their tenant as time passes, and a write finds
    /// a collection where little is free.
    #[test]
    fn the_policy_holds_for_all() {
        let sets: Vec<Set> = (0..2).map(tenant).collect();
        let policy = Policy { collect: 20, rotate: 1000 };
        let merged = merge("all", &sets.iter().collect::<Vec<_>>(), &[], &policy);
        let checked = check(merged.clone(), &Budget::default()).unwrap();
        let mut state = Interpreter::new(checked.set());
        for number in 0..2u16 {
            let mut units = Vec::new();
            for turn in 0..4 {
                let now = (u64::from(number) * 4 + turn + 1) * 1001;
                let view = View { now, free: 19, ..View::default() };
                let lba = u64::from(number) * 100 + turn * 4;
                let asked = request(Op::Write, number, lba);
                let decided = state.decide(&asked, &view).unwrap();
                assert!(decided.collect.is_some());
                let Verdict::Place { unit: Some(unit), .. } = decided.verdict else {
                    panic!("{decided:?}")
                };
                units.push(unit);
            }
            units.sort_unstable();
            let first = number * 4;
            assert_eq!(units, [first, first + 1, first + 2, first + 3]);
        }
        let view = View { now: 0, free: 20, ..View::default() };
        let decided = state.decide(&request(Op::Write, 0, 0), &view).unwrap();
        assert!(decided.collect.is_none());
    }

    /// A map that has no room for the other units keeps its placements.
    #[test]
    fn what_cannot_move_stays() {
        let text = "set t application 0 lba 0..9 units 0..4 map m[9] of address in 2..3
             rule w priority 1 when op == write then place unit 2 into m[lba]";
        let own = parse(text).unwrap();
        let policy = Policy { collect: 0, rotate: 1 };
        let merged = merge("all", &[&own], &[], &policy);
        check(merged.clone(), &Budget::default()).unwrap();
        assert!(merged.to_string().contains("place unit 2 into a0_m[lba]"), "{merged}");
    }

    /// Two tenants that both ask for an application are told so.
    #[test]
    fn an_application_is_one_tenants() {
        let own = tenant(1);
        let merged = merge("all", &[&own, &own], &[], &NO_POLICY);
        let all = check(merged, &Budget::default()).unwrap_err();
        assert!(all.iter().any(|e| e.to_string().contains("second application 1")), "{all:?}");
    }
}
