//! What a run took of energy, as reports tell it: see `docs/reliability.md`.

use std::fmt;

use flash::Energy;
use serde_json::{Value, json};

/// The energy of a run. Only a drive with `energy=true` has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnergyReport {
    energy: Energy,
    /// Reads, writes and trims that it was for.
    ios: u64,
}

impl EnergyReport {
    /// Of a drive that had taken `before` when the run of `ios` requests began,
    /// and `after` at its end. None where it does not count.
    pub fn new(before: &Energy, after: &Energy, ios: u64) -> Option<EnergyReport> {
        let energy = after.since(before);
        (*after != Energy::default()).then_some(EnergyReport { energy, ios })
    }

    fn parts(&self) -> [(&'static str, u64); 5] {
        let Energy { read, program, erase, channel, idle } = self.energy;
        [
            ("read", read),
            ("program", program),
            ("erase", erase),
            ("channel", channel),
            ("idle", idle),
        ]
    }

    /// In nJ.
    fn total(&self) -> f64 {
        self.parts().iter().map(|part| part.1 as f64).sum()
    }

    /// All of it, in J.
    pub fn joules(&self) -> f64 {
        self.total() / 1e9
    }

    /// In nJ; none where nothing was asked.
    fn each(&self) -> Option<f64> {
        (self.ios > 0).then(|| self.total() / self.ios as f64)
    }

    /// As JSON, in J.
    pub fn to_json(self) -> Value {
        let mut json = json!({
            "joules": self.joules(),
            "joules_per_io": self.each().map(|each| each / 1e9),
        });
        for (name, part) in self.parts() {
            json[name] = (part as f64 / 1e9).into();
        }
        json
    }
}

/// nJ with a unit.
fn joules(nj: f64) -> String {
    let units = [(1e9, "J"), (1e6, "mJ"), (1e3, "uJ"), (1.0, "nJ")];
    let (by, unit) = units.into_iter().find(|unit| nj >= unit.0).unwrap_or((1.0, "nJ"));
    format!("{:.2} {unit}", nj / by)
}

impl fmt::Display for EnergyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joules(self.total()))?;
        if let Some(each) = self.each() {
            write!(f, ", {} an I/O", joules(each))?;
        }
        let parts = self.parts().map(|(name, part)| format!("{name} {}", joules(part as f64)));
        write!(f, ": {}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_the_run_and_adds_up() {
        let before = Energy { read: 1_000, program: 5, erase: 0, channel: 0, idle: 1_000_000 };
        let after = Energy { read: 3_500, program: 5, erase: 500, channel: 0, idle: 3_000_000 };
        let report = EnergyReport::new(&before, &after, 100).unwrap();
        let text = "2.00 mJ, 20.03 uJ an I/O: read 2.50 uJ, program 0.00 nJ, erase 500.00 nJ, \
                    channel 0.00 nJ, idle 2.00 mJ";
        assert_eq!(report.to_string(), text);
        assert_eq!(report.to_json()["joules"], 0.002003);
        assert_eq!(report.to_json()["joules_per_io"], 2.003e-5);
        assert_eq!(EnergyReport::new(&Energy::default(), &Energy::default(), 9), None);
    }
}
