//! A drive that sleeps and throttles, and what reports tell of that.

use std::fmt;

use device::{Heats, PowerHealth, Slept};
use measure::units;
use port::Time;
use serde_json::{Value, json};

use crate::whole::{Boxed, Observed};

impl Heats for Boxed {
    fn spent(&self, now: Time) -> u64 {
        self.energy(now).total()
    }
}

/// How a drive slept and throttled in a run, and how warm it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PowerReport {
    /// Counts of the run; temperatures since the drive was made or opened.
    health: PowerHealth,
}

impl PowerReport {
    /// Of a drive that was so when the run began, and at its end. None where it has no
    /// power states and no temperature.
    pub fn new(before: Option<PowerHealth>, after: Option<PowerHealth>) -> Option<PowerReport> {
        let (before, after) = (before?, after?);
        let slept = std::array::from_fn(|n| Slept {
            exits: after.slept[n].exits - before.slept[n].exits,
            ns: after.slept[n].ns - before.slept[n].ns,
        });
        let health = PowerHealth { slept, throttled: after.throttled - before.throttled, ..after };
        Some(PowerReport { health })
    }

    /// How it slept in each state.
    fn states(&self) -> &[Slept] {
        &self.health.slept[..self.health.states]
    }

    /// As JSON: times in seconds, temperatures in degrees Celsius.
    pub fn to_json(&self) -> Value {
        let h = &self.health;
        let degrees = |mc: u64| (h.highest > 0).then_some(mc as f64 / 1e3);
        let state = |s: &Slept| json!({"exits": s.exits, "seconds": s.ns as f64 / 1e9});
        json!({
            "sleep_exits": h.exits(),
            "asleep_seconds": h.asleep() as f64 / 1e9,
            "sleep_states": self.states().iter().map(state).collect::<Vec<_>>(),
            "throttled_seconds": h.throttled as f64 / 1e9,
            "temperature": degrees(h.temperature),
            "highest_temperature": degrees(h.highest),
        })
    }
}

impl fmt::Display for PowerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let h = &self.health;
        let time = |ns: u64| units::time_ns(ns as f64);
        let (asleep, woken) = (time(h.asleep()), units::exactly(h.exits(), "time"));
        write!(f, "{asleep} asleep, woken {woken}")?;
        for (n, state) in self.states().iter().enumerate().filter(|_| h.states > 1) {
            let (asleep, woken) = (time(state.ns), units::exactly(state.exits, "time"));
            write!(f, "; in state {}: {asleep}, {woken}", n + 1)?;
        }
        if h.highest > 0 {
            let degrees = |mc: u64| mc as f64 / 1e3;
            let (now, highest) = (degrees(h.temperature), degrees(h.highest));
            let throttled = time(h.throttled);
            write!(f, "; {now:.1} C at the end, {highest:.1} C at most, {throttled} throttled")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{DriveConfig, DriveSpec};
    use crate::stack;
    use crate::whole::{Drive, Ended};
    use port::{BlockOp, BlockReq, Buffer, Part, Port, Ring};

    const PIECE: u64 = 128 << 10;

    fn config(name: &str) -> DriveConfig {
        let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
        spec.resolve().unwrap()
    }

    fn drive(name: &str) -> Boxed {
        stack::build(&config(name), 1).unwrap()
    }

    /// Requests of [`PIECE`] in order, round and round, so many inside, until that time.
    /// Gives how many, and the time.
    fn run(drive: &mut Boxed, mut now: Time, op: BlockOp, depth: u64, until: Time) -> (u64, Time) {
        let (mut cmds, mut done) = (Ring::new(64), Ring::new(64));
        let (bytes, mut sent, mut ended) = (drive.shape().bytes, 0, 0);
        while now < until || ended < sent {
            while sent < ended + depth && now < until {
                cmds.put(|| BlockReq::new(0, op, sent * PIECE % bytes, PIECE, Buffer::empty()));
                sent += 1;
            }
            drive.submit(now, &mut cmds);
            now = drive.next_event().expect("something is inside");
            drive.advance(now, &mut done);
            for done in done.drain() {
                assert!(done.status.is_ok(), "{:?}", done.status);
                ended += 1;
            }
        }
        (ended, now)
    }

    /// How long one request takes that comes then.
    fn one(drive: &mut Boxed, at: u64) -> u64 {
        run(drive, Time(at), BlockOp::Read, 1, Time(at + 1)).1 - Time(at)
    }

    #[test]
    fn the_first_command_after_idleness_takes_the_exit_more() {
        let name = "mem:tlc,size=64M,store=none,energy=true";
        let power = ",sleep_after=50ms,wake_time=2.5ms,sleep_power=5mW";
        let (mut plain, mut sleepy) = (drive(name), drive(&format!("{name}{power}")));
        sleepy.set_stories(true);
        let fill = |drive: &mut Boxed| {
            run(drive, Time::ZERO, BlockOp::Write, 4, Time(100_000_000));
        };
        fill(&mut plain);
        fill(&mut sleepy);
        // One after rest enough, one soon, one a ns too soon, and one just then.
        let (mut at, mut exits) = (1_000_000_000, sleepy.power(Time(999_999_999)).unwrap().exits());
        for (rest, more) in
            [(0, 2_500_000), (1_000_000, 0), (49_999_999, 0), (50_000_000, 2_500_000)]
        {
            at += rest;
            let took = (one(&mut plain, at), one(&mut sleepy, at));
            assert_eq!(took.1, took.0 + more, "after {rest} ns");
            exits += u64::from(more > 0);
            assert_eq!(sleepy.power(Time(at + took.1)).unwrap().exits(), exits);
            at += took.1;
        }
        // What it saved is what it slept.
        let end = Time(at + 1_000_000_000);
        let (power, energy) = (sleepy.power(end).unwrap(), (plain.energy(end), sleepy.energy(end)));
        assert_eq!(power.saved, power.asleep() * 495 / 1000);
        assert_eq!(energy.1.idle, energy.0.idle - power.saved);
        let report = PowerReport::new(Some(PowerHealth::default()), Some(power)).unwrap();
        assert_eq!(report.to_json()["temperature"], Value::Null);
    }

    /// One that comes in each state, at its first ns and its last, waits for that state's
    /// exit, and what was saved is what each state saves while it lasts.
    #[test]
    fn each_state_has_its_exit_and_its_power() {
        let name = "mem:tlc,size=64M,store=none,energy=true";
        let states = ",sleep_after=50ms/1s,wake_time=1.2ms/8ms,sleep_power=70mW/5mW";
        let (mut plain, mut sleepy) = (drive(name), drive(&format!("{name}{states}")));
        let mut at = 500_000_000;
        let took = one(&mut sleepy, at);
        assert_eq!(took, one(&mut plain, at) + 1_200_000);
        at += took;
        let start = sleepy.power(Time(at)).unwrap();
        for (rest, more) in [
            (49_999_999, 0),
            (50_000_000, 1_200_000),
            (999_999_999, 1_200_000),
            (1_000_000_000, 8_000_000),
            (3_000_000_000, 8_000_000),
        ] {
            at += rest;
            let took = (one(&mut plain, at), one(&mut sleepy, at));
            assert_eq!(took.1, took.0 + more, "after {rest} ns");
            at += took.1;
        }
        let end = Time(at + 2_000_000_000);
        let power = sleepy.power(end).unwrap();
        let light = 450_000_000 + 949_999_999 + 3 * 950_000_000;
        let deep = 2_000_000_000 + 1_000_000_000;
        let states = [(3, light), (2, deep)].map(|(exits, ns)| Slept { exits, ns });
        assert_eq!((power.states, &power.slept[..2]), (2, &states[..]));
        // A mW for a ns is a pJ.
        assert_eq!(power.saved, (light * 430 + deep * 495) / 1000);
        let energy = (plain.energy(end), sleepy.energy(end));
        assert_eq!(energy.1.idle, energy.0.idle - power.saved);
        // Of the run after the first, reports tell by state.
        let report = PowerReport::new(Some(start), Some(power)).unwrap();
        let (json, text) = (report.to_json(), report.to_string());
        assert_eq!(
            (&json["sleep_exits"], &json["sleep_states"][0]["exits"]),
            (&json!(4), &json!(2))
        );
        let deepest = json!({"exits": 2, "seconds": 3.0});
        assert_eq!((&json["sleep_states"][1], json["sleep_states"].get(2)), (&deepest, None));
        assert!(text.contains("woken 4 times; in state 1: "), "{text}");
        assert!(text.ends_with("; in state 2: 3.00 s, 2 times"), "{text}");
    }

    /// One that is opened is awake when it is ready, however long that took.
    #[test]
    fn the_first_command_after_recovery_wakes_nobody() {
        let opened = |keys: &str| {
            let config = config(&format!("mem:tlc,size=64M,store=none{keys}"));
            let mut drive = stack::build(&config, 1).unwrap();
            let (_, now) = run(&mut drive, Time::ZERO, BlockOp::Write, 4, Time(100_000_000));
            let Ended { shards, .. } = drive.end(now).unwrap();
            let (drive, ready, _) = stack::recover(&config, 1, shards, 0, None).unwrap();
            (drive, ready)
        };
        let (mut plain, ready) = opened("");
        let (mut sleepy, at) = opened(",sleep_after=1us,wake_time=2.5ms");
        assert!(at == ready && ready > Time(1_000), "{at} {ready}");
        assert_eq!(one(&mut sleepy, at.0), one(&mut plain, at.0));
        let power = sleepy.power(at).unwrap();
        assert_eq!((power.exits(), power.asleep()), (0, 0));
    }

    /// Commands that come while it wakes wait for that as long as they must.
    #[test]
    fn a_story_says_that_the_drive_slept() {
        let name = "mem:tlc,size=64M,store=none,sleep_after=1us,wake_time=70us";
        let mut drive = drive(name);
        drive.set_stories(true);
        let (mut cmds, mut done) = (Ring::new(2), Ring::new(2));
        for at in [5_000, 25_000] {
            cmds.put(|| BlockReq::new(at, BlockOp::Read, 0, 4096, Buffer::empty()));
            drive.submit(Time(at), &mut cmds);
        }
        while done.len() < 2 {
            let at = drive.next_event().unwrap();
            drive.advance(at, &mut done);
        }
        for (n, waited) in [(0, 70_000), (1, 50_000)] {
            let story = drive.story(n).unwrap();
            assert!(story.is_whole());
            assert_eq!(story.ns_of(Part::Waking), waited);
        }
    }

    /// A drive that is too warm goes at the rate at which as much heat comes as goes,
    /// also where it is cool again long before the next command had passed.
    #[test]
    fn the_throttled_rate_is_that_of_equilibrium() {
        for rate in ["100MB/s", "1MB/s"] {
            throttled_rate_is_that_of_equilibrium(rate);
        }
    }

    fn throttled_rate_is_that_of_equilibrium(rate: &str) {
        let mut drive = drive(&format!(
            "mem:tlc,size=64M,store=none,energy=true,thermal_resistance=40K/W,thermal_time=100ms,\
             throttle_from=60.2C,throttle_until=59.8C,throttle_rate={rate}",
        ));
        let (written, at) = run(&mut drive, Time::ZERO, BlockOp::Write, 4, Time(2_000_000_000));
        assert!(written * PIECE >= drive.shape().bytes, "{written}: what is read costs nothing");
        let (_, at) = run(&mut drive, at, BlockOp::Read, 32, Time(2_500_000_000));
        let before = drive.power(at).unwrap();
        let (requests, end) = run(&mut drive, at, BlockOp::Read, 32, Time(3_500_000_000));
        // Each page takes 3.2 uJ to be read, and each byte 40 pJ on the channel; the
        // drive 0.5 W at all times. Nothing else heats.
        let joules = |bytes: f64| bytes * (3.2e-6 / 16384.0 + 40e-12);
        let watts = (60.0 - 25.0) / 40.0 - 0.5;
        let rate = (requests * PIECE) as f64 / ((end - at) as f64 / 1e9);
        let after = drive.power(end).unwrap();
        assert!((joules(rate) / watts - 1.0).abs() < 0.02, "{rate} {after:?}");
        let throttled = after.throttled - before.throttled;
        assert!(throttled > (end - at) / 4 && throttled < (end - at) * 3 / 4, "{after:?}");
        assert!((59_000..61_000).contains(&after.temperature), "{after:?}");
        // At rest it cools, also where nobody looks.
        let rested = drive.power(Time(end.0 + 2_000_000_000)).unwrap();
        assert_eq!((rested.temperature, rested.highest), (45_000, after.highest));
    }
}
