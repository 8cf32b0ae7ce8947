//! The sets of the lives, and a control plane that changes them meanwhile.

use rules::syntax::Set;
use rules::{Answer, Checked, Control, Miss, View};

use super::checked;
use crate::ControlPlane;

/// A block drive by a map of the set's, as examples/rules/minimal.rules, for so many blocks and
/// units; or one that leaves it to the target where blocks are.
pub(super) fn block_drive(blocks: u64, units: u32, with_map: bool) -> Checked {
    checked(&match with_map {
        true => format!(
            "set minimal
             application 0 lba 0..{blocks} units 0..{units}
             map l2p[{blocks}] of address in 0..{units}
             counter next 0..{units}
             rule collect priority 2 when op == write and free < 10 then collect greedy
             rule write priority 1 when op == write
               do next = (next + 1) % {units} then place unit next into l2p[lba]
             rule read priority 1 when op == read then serve l2p[lba]
             rule trim priority 1 when op == trim or op == zero do l2p[lba] = none then drop
             rule flush priority 1 when op == flush then pass
             rule idle priority 1 when op == idle and idle_time > 1ms and free < 20
               then collect greedy"
        ),
        false => format!(
            "set plain
             application 3 lba 0..{blocks} units 0..{units}
             rule write priority 1 when op == write and lba % 2 == 0 then place
             rule rest priority 0 when op != idle then pass"
        ),
    })
}

/// Two tenants with limits, of whom the first one's blocks move when they are read, and the
/// second one gives up what it reads now and then. One of two sets, which ask for the other.
fn tenants(blocks: u64, units: u32, is_first: bool) -> Checked {
    let half = blocks / 2;
    let (name, place, depth) = match is_first {
        true => ("first", "place unit next into a[lba]", 3),
        false => ("second", "place into a[lba]", 2),
    };
    checked(&format!(
        "set {name}
         application 1 lba 0..{half} units 0..{units}
         application 2 lba {half}..{blocks} units 0..{units}
         map a[{half}] of address in 0..{units}
         map b[{}] of address in 0..{units}
         counter next 0..{units}
         counter only_{name} 0..10
         limit few depth {depth}
         limit same depth 4
         limit pace rate 2M burst 4
         limit gold share 3
         limit silver share 1
         rule few1 priority 9 when application == 1 and op != flush and op != idle
           do only_{name} += 1 then limit few, limit gold
         rule same2 priority 9 when application == 2 and op != flush and op != idle
           then limit same, limit pace, limit silver
         rule move1 priority 8 when application == 1 and op == read and lba % 3 == 0
           then migrate a[lba] to lba % {units}
         rule ask1 priority 7 when application == 1 and op == write and only_{name} == 9 then ask
         rule write1 priority 1 when application == 1 and op == write
           do next = (next + 1) % {units} then {place}
         rule write2 priority 1 when application == 2 and op == write
           then place into b[lba - {half}]
         rule read1 priority 1 when application == 1 and op == read then serve a[lba]
         rule read2 priority 1 when application == 2 and op == read
           then delay 3us, serve b[lba - {half}]
         rule trim1 priority 1 when application == 1 and (op == trim or op == zero)
           do a[lba] = none then drop
         rule trim2 priority 1 when application == 2 and (op == trim or op == zero)
           do b[lba - {half}] = none then drop
         rule flush priority 1 when op == flush then pass
         rule idle priority 1 when op == idle and free < 20 then collect greedy",
        blocks - half,
    ))
}

/// Installs the other of two sets whenever it is asked.
struct Changes([Checked; 2]);

impl Control for Changes {
    fn miss(&mut self, _: &Miss, set: &Set, _: &View) -> Answer {
        let other = usize::from(set.name.text == "first");
        Answer::Install(Box::new(self.0[other].clone()))
    }
}

/// Two tenants' set, and who changes it, of whom each answer takes so many ns.
pub(super) fn changing(blocks: u64, units: u32, answer: u64) -> (Checked, ControlPlane) {
    let both = [true, false].map(|is_first| tenants(blocks, units, is_first));
    let first = both[0].clone();
    (first, ControlPlane::new(answer, move || Box::new(Changes(both.clone()))))
}
