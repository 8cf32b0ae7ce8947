//! Rule sets from a seed: most of them right, many at the edge, some wrong.

use std::fmt::Write;

use port::random::Random;
use rules::request::{Op, Request, View};

/// A source of texts and requests.
pub struct Generator {
    pub random: Random,
    maps: Vec<(u64, bool)>,
    counters: u64,
    timers: u64,
    limits: u64,
    applications: Vec<(u64, u64, u64)>,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator {
            random: Random::new(seed, 7),
            maps: vec![],
            counters: 0,
            timers: 0,
            limits: 0,
            applications: vec![],
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn pick<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.random.below(of.len() as u64) as usize]
    }

    /// The text of a set.
    pub fn set(&mut self) -> String {
        let mut out = String::from("set generated\n");
        self.maps.clear();
        self.applications.clear();
        for n in 0..1 + self.below(3) {
            let (first, units) = (self.below(3) * 10, 2 + self.below(8) / 6);
            self.applications.push((first, first + 20, units));
            let _ = writeln!(
                out,
                "application {n} lba {first}..{} units 0..{units} streams 0..3 channels 0..4 remotes 1..2",
                first + 20
            );
        }
        for n in 0..1 + self.below(3) {
            let (entries, is_address) = (1 + self.below(50), self.below(2) == 0);
            let units = 2 + u64::from(self.below(4) == 0);
            let of =
                if is_address { format!("address in 0..{units}") } else { format!("{n}..100") };
            let _ = writeln!(out, "map m{n}[{entries}] of {of}");
            self.maps.push((entries, is_address));
        }
        self.counters = 1 + self.below(3);
        for n in 0..self.counters {
            let _ = writeln!(out, "counter c{n} 0..{}", 2 + self.below(40));
        }
        self.timers = self.below(2);
        for n in 0..self.timers {
            let _ = writeln!(out, "timer t{n}");
        }
        self.limits = self.below(3);
        for n in 0..self.limits {
            let kind = self.pick(&["rate 1000 burst 2", "depth 4", "share 3"]);
            let _ = writeln!(out, "limit l{n} {kind}");
        }
        let rules = if self.below(20) == 0 { 40 } else { 1 + self.below(7) };
        for n in 0..rules {
            self.rule(n, &mut out);
        }
        out
    }

    fn rule(&mut self, n: u64, out: &mut String) {
        // Mostly each has a priority of its own.
        let priority = if self.below(12) == 0 { self.below(3) } else { (n + 3) * 5 % 211 };
        let op = self.pick(&["read", "write", "write", "trim", "idle", "flush"]);
        let mut when = match self.below(8) {
            0 => self.condition(2),
            _ => format!("op == {op}"),
        };
        for _ in 0..self.below(3) {
            let more = self.condition(2);
            let word = if self.below(5) == 0 { "or" } else { "and" };
            when = format!("{when} {word} {more}");
        }
        let _ = writeln!(out, "rule r{n} priority {priority} when {when}");
        let changes: Vec<String> = (0..self.below(3)).map(|_| self.change()).collect();
        if !changes.is_empty() {
            let _ = writeln!(out, "  do {}", changes.join("; "));
        }
        let mut actions = Vec::new();
        for _ in 0..self.below(2) {
            actions.push(self.beside(op));
        }
        if self.below(4) > 0 {
            actions.push(self.verdict(op));
        }
        if !actions.is_empty() {
            let _ = writeln!(out, "  then {}", actions.join(", "));
        } else if changes.is_empty() {
            let _ = writeln!(out, "  then drop");
        }
    }

    /// A unit that each application has, mostly.
    fn unit(&mut self) -> u64 {
        let units = 2 + u64::from(self.below(9) == 0);
        self.below(units)
    }

    /// A map of one kind, if there is one, and a key of it.
    fn slot(&mut self, is_address: bool) -> Option<String> {
        let start = self.below(self.maps.len() as u64) as usize;
        let of = (0..self.maps.len()).map(|n| (start + n) % self.maps.len());
        let map = { of }.find(|&n| self.maps[n].1 == is_address)?;
        let entries = self.maps[map].0;
        let key = self.number(1);
        let key = match self.below(12) {
            0 if self.below(3) == 0 => key,
            1 => format!("{}", self.random.below(entries)),
            2 => format!("min({key}, {})", entries - 1),
            _ => format!("({key}) % {entries}"),
        };
        Some(format!("m{map}[{key}]"))
    }

    fn number(&mut self, depth: u64) -> String {
        if depth == 0 || self.below(3) == 0 {
            return match self.below(9) {
                0 => "lba".into(),
                1 => "channel".into(),
                2 => "free".into(),
                3 => "placement".into(),
                4 => "application".into(),
                5 => format!("c{}", self.random.below(self.counters)),
                6 => "size / 4K".into(),
                _ => self.below(30).to_string(),
            };
        }
        let (a, b) = (self.number(depth - 1), self.number(depth - 1));
        match self.below(10) {
            0 => format!("({a} + {b})"),
            1 => format!("({a} - {b})"),
            2 => format!("{a} % {}", 1 + self.random.below(40)),
            3 => format!("({a}) / max(1, {b})"),
            4 => format!("min({a}, {b})"),
            5 => format!("({a}) * ({b})"),
            6 => format!("max({a}, {b})"),
            7 if self.below(9) == 0 => format!("({a}) % {b}"),
            _ => self.slot(false).unwrap_or(a),
        }
    }

    fn condition(&mut self, depth: u64) -> String {
        if depth > 0 && self.below(3) == 0 {
            let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
            return match self.below(3) {
                0 => format!("({a} and {b})"),
                1 => format!("({a} or {b})"),
                _ => format!("not ({a})"),
            };
        }
        let relation = self.pick(&["==", "!=", "<", "<=", ">", ">="]);
        match self.below(10) {
            0 => format!("op != {}", self.pick(&["read", "write", "idle"])),
            1 => format!("application == {}", self.below(3)),
            2 => format!("channel in {}..4", self.below(3)),
            3 => format!("lba in {}..{}", self.random.below(15), 15 + self.random.below(30)),
            4 => format!("idle_time {relation} {}us", self.below(20)),
            5 if self.timers > 0 => format!("since(t0) {relation} {}us", self.below(20)),
            6 => match self.slot(true) {
                Some(slot) => format!("{slot} {} none", self.pick(&["==", "!="])),
                None => "always".into(),
            },
            7 => format!("temperature {relation} {}", self.below(60)),
            _ => format!("{} {relation} {}", self.number(1), self.number(1)),
        }
    }

    fn change(&mut self) -> String {
        let value = self.number(2);
        match self.below(7) {
            0 if self.timers > 0 => "start t0".into(),
            1 => format!("c{} = min(1, {value})", self.random.below(self.counters)),
            2 => match self.slot(true) {
                Some(slot) if self.below(9) > 0 => format!("{slot} = none"),
                Some(slot) => format!("{slot} = {value}"),
                None => "c0 -= 1".into(),
            },
            3 | 4 => match self.slot(false) {
                Some(slot) => {
                    let assign = self.pick(&["+=", "-=", "+=", "="]);
                    format!("{slot} {assign} {value}")
                }
                None => "c0 += 1".into(),
            },
            _ => format!("c0 {} {value}", self.pick(&["+=", "-="])),
        }
    }

    fn beside(&mut self, op: &str) -> String {
        match self.below(5) {
            4 if op == "read" => match self.slot(true) {
                Some(slot) => format!("fill unit {} into {slot}", self.unit()),
                None => "collect random".into(),
            },
            0 => format!("delay {}us", self.below(9)),
            1 if self.limits > 0 => format!("limit l{}", self.below(self.limits)),
            2 => match self.slot(true) {
                Some(slot) => {
                    format!("migrate {slot} to {}", self.unit())
                }
                None => "collect fifo".into(),
            },
            _ => format!("collect greedy unit {}", self.unit()),
        }
    }

    fn verdict(&mut self, op: &str) -> String {
        match self.below(9) {
            0 => format!("redirect {}", self.below(4)),
            1 => "remote 1".into(),
            2 => "refuse".into(),
            3 => "ask".into(),
            4 => "pass".into(),
            _ if op == "write" => {
                let unit = match self.below(4) {
                    0 => String::new(),
                    1 => format!(" unit {}", self.below(3)),
                    _ => format!(" unit ({}) % 2", self.number(1)),
                };
                let into = match self.slot(true) {
                    Some(slot) if self.below(3) > 0 => format!(" into {slot}"),
                    _ => String::new(),
                };
                format!("place{unit}{into}")
            }
            _ if op == "read" => match self.slot(true) {
                Some(slot) => format!("serve {slot}"),
                None => "drop".into(),
            },
            _ => "drop".into(),
        }
    }

    /// A request, most of them inside what its application has.
    pub fn request(&mut self) -> Request {
        let op = Op::ALL[self.below(6) as usize];
        let others = self.applications.len() as u64 + u64::from(self.below(9) == 0);
        let application = self.below(others) as usize;
        let (first, end, _) = self.applications.get(application).copied().unwrap_or((0, 20, 1));
        let lba =
            if self.below(20) == 0 { self.below(60) } else { first + self.below(end - first) };
        Request {
            op,
            application: application as u16,
            channel: self.below(5) as u16,
            lba,
            size: (1 + self.random.below(24)) * 512,
            placement: self.below(4) as u8,
        }
    }

    /// How the drive is.
    pub fn view(&mut self, now: u64) -> View {
        View {
            now,
            idle: self.below(20_000),
            temperature: self.below(90) as u8,
            free: self.below(101) as u8,
        }
    }

    /// A unit where a block may be placed that names none.
    pub fn any_unit(&mut self, application: u16) -> u16 {
        let (_, _, units) = self.applications[usize::from(application)];
        self.random.below(units) as u16
    }
}
