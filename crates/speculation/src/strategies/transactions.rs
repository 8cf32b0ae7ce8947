//! Transactional memory of the processor (Intel's TSX; section 4.3 of the paper), where there is
//! some: what it takes to enter and to leave one that does nothing, and how many are aborted.
//!
//! Nothing here fails: what is not there is told, and why.
#![allow(unsafe_code)]

use std::fmt;
use std::time::Instant;

use measure::units;
use serde_json::{Value, json};

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Transactions {
    /// None, and why.
    Absent(String),
    /// Some.
    Present {
        /// To enter one and to leave it, or to be aborted, ns.
        enter: f64,
        /// Share of those that were aborted.
        aborted: f64,
    },
}

/// Transactions that are measured.
const COUNT: u32 = 100_000;

impl Transactions {
    /// Looks, and measures.
    #[cfg(target_arch = "x86_64")]
    pub fn find() -> Transactions {
        match absent() {
            Some(why) => Transactions::Absent(why),
            None => measured(),
        }
    }

    /// Looks: what other processors have is not asked.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn find() -> Transactions {
        Transactions::Absent(format!("{} has no TSX", std::env::consts::ARCH))
    }

    /// By names; nothing where there is none.
    pub fn to_json(&self) -> Value {
        match self {
            Transactions::Absent(_) => Value::Null,
            Transactions::Present { enter, aborted } => {
                json!({ "enter_ns": enter, "aborted": aborted })
            }
        }
    }
}

impl fmt::Display for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transactions::Absent(why) => write!(f, "absent: {why}"),
            Transactions::Present { enter, aborted } => {
                let (enter, aborted) = (units::time_ns(*enter), 100.0 * aborted);
                write!(f, "present: {enter} to enter and leave, {aborted:.0} % aborted")
            }
        }
    }
}

/// Why there is none, if there is none.
#[cfg(target_arch = "x86_64")]
fn absent() -> Option<String> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const RTM: u32 = 1 << 11;
    let first = __cpuid(0);
    let vendor = [first.ebx, first.edx, first.ecx].map(u32::to_le_bytes).concat();
    let vendor = String::from_utf8_lossy(&vendor).into_owned();
    if first.eax < 7 {
        return Some(format!("CPUID of this {vendor} has no leaf 7"));
    }
    let about = __cpuid_count(7, 0);
    if about.ebx & RTM == 0 {
        return Some(format!("CPUID of this {vendor} says so (leaf 7, EBX, bit 11)"));
    }
    // Microcode may have taken it away.
    (about.edx & RTM != 0)
        .then(|| format!("CPUID of this {vendor} says that each is aborted (leaf 7, EDX, bit 11)"))
}

#[cfg(target_arch = "x86_64")]
fn measured() -> Transactions {
    let began = Instant::now();
    let aborted = (0..COUNT).filter(|_| !transaction()).count();
    let enter = began.elapsed().as_nanos() as f64 / f64::from(COUNT);
    Transactions::Present { enter, aborted: aborted as f64 / f64::from(COUNT) }
}

/// One that does nothing; whether it came to its end. The processor must have them.
#[cfg(target_arch = "x86_64")]
fn transaction() -> bool {
    const BEGAN: u32 = u32::MAX;
    let mut status = BEGAN;
    // SAFETY: it touches no memory. One that is aborted goes on behind its end, and says why in
    // a register that is told here; no reason has all bits.
    unsafe {
        std::arch::asm!("xbegin 2f", "xend", "2:", inout("eax") status, options(nomem, nostack));
    }
    status == BEGAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_says_why() {
        match Transactions::find() {
            Transactions::Absent(why) => assert!(why.contains("CPUID") || why.contains("TSX")),
            Transactions::Present { enter, aborted } => {
                assert!(enter > 0.0 && (0.0..=1.0).contains(&aborted));
            }
        }
        let present = Transactions::Present { enter: 18.0, aborted: 0.25 };
        assert_eq!(present.to_string(), "present: 18 ns to enter and leave, 25 % aborted");
    }
}
