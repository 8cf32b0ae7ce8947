//! Every script, on every drive, cut at every event.

use simulation::script::{SCRIPTS, Script, drives};

#[test]
fn what_was_promised_survives_a_cut_at_every_event() {
    let (mut runs, mut cut_recoveries, mut collections) = (0, 0, 0);
    for (name, text) in SCRIPTS {
        let script = Script::parse(name, text).unwrap();
        for (drive, setup) in &drives() {
            let explored = script.explore(setup);
            let explored = explored.unwrap_or_else(|found| panic!("on {drive}: {found}"));
            assert!(explored.runs > explored.cut, "{name} on {drive}: one run is not cut");
            runs += explored.runs;
            cut_recoveries += explored.cut_recoveries;
            collections += explored.collections;
        }
    }
    let tried = (runs, cut_recoveries, collections);
    assert!(runs > 600 && cut_recoveries > 200 && collections > 5000, "{tried:?}");
}
