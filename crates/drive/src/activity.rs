//! What the parts of a drive did between two times, beside the requests that it took, as
//! reports tell it.

use device::{PowerHealth, SlcHealth};
use flash::{Energy, Geometry};
use port::Time;
use serde_json::Value;

use crate::array::ArrayReport;
use crate::caches::Caches;
use crate::energy::EnergyReport;
use crate::flash_errors::FlashErrors;
use crate::power::PowerReport;
use crate::slc::SlcReport;
use crate::whole::{Boxed, Drive, Observed, READ_ONLY};

/// What the parts of a drive have done until some time.
pub struct Activity {
    slc: SlcHealth,
    caches: Caches,
    errors: FlashErrors,
    array: ArrayReport,
    power: Option<PowerHealth>,
    energy: Energy,
    read_only: bool,
}

impl Activity {
    /// What those of a drive have done until `now`.
    pub fn of(drive: &Boxed, now: Time) -> Activity {
        Activity {
            slc: drive.slc(),
            caches: Caches::of(&**drive),
            errors: FlashErrors::of(&**drive),
            array: ArrayReport::of(&**drive),
            power: drive.power(now),
            energy: drive.energy(now),
            read_only: drive.is_read_only(),
        }
    }

    /// What it did since then, as JSON.
    pub fn add_to(&self, before: &Activity, geometry: &Geometry, json: &mut Value) {
        if let Some(slc) = SlcReport::new(geometry, &before.slc, &self.slc) {
            json["slc_cache"] = slc.to_json();
        }
        if let Some(errors) = self.errors.since(&before.errors) {
            json["flash_errors"] = errors.to_json();
        }
        if let Some(array) = self.array.since(&before.array) {
            json["array"] = array.to_json();
        }
        self.caches.since(&before.caches).add_to(json);
        if let Some(power) = PowerReport::new(before.power, self.power) {
            json["power"] = power.to_json();
        }
        if let Some(energy) = EnergyReport::new(&before.energy, &self.energy, 0) {
            json["energy"] = energy.to_json();
        }
        if self.read_only {
            json["read_only"] = true.into();
        }
    }

    /// The same in words, of what no other line of the end tells.
    pub fn lines(&self, before: &Activity) -> Vec<(&'static str, String)> {
        let errors = self.errors.since(&before.errors).map(|it| ("flash", it.to_string()));
        let array = self.array.since(&before.array).map(|it| ("array", it.to_string()));
        let power = PowerReport::new(before.power, self.power).map(|it| ("power", it.to_string()));
        let energy = EnergyReport::new(&before.energy, &self.energy, 0);
        let energy = energy.map(|it| ("energy", it.to_string()));
        let read_only = self.read_only.then(|| ("read-only", READ_ONLY.to_string()));
        [errors, array, power, energy, read_only].into_iter().flatten().collect()
    }
}
