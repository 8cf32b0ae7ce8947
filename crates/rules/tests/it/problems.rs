//! What the checker refuses, where, and what it says.

use rules::error::What;
use rules::syntax::Set;
use rules::{Budget, Problem, check, parse};

/// What stands above the rules.
const HEAD: &str = "set a
application 1 lba 10..1000 units 0..4 streams 0..2
application 2 lba 0..100 units 2..8 channels 1..3
map l2p[1000] of address in 0..4
map heat[16] of 0..8
counter n 0..10
timer t
limit slow rate 100 burst 1
";

fn set(rules: &str) -> Result<Set, Problem> {
    parse(&format!("{HEAD}{rules}"))
}

/// The problems and warnings of rules, each as `WORDS @ MARKED`.
fn problems(rules: &str) -> Vec<String> {
    let text = format!("{HEAD}{rules}");
    let told = |p: &Problem| format!("{} @ {}", p.what, &text[p.at.start..p.at.end]);
    match set(rules) {
        Err(problem) => vec![told(&problem)],
        Ok(set) => match check(set, &Budget::default()) {
            // A rule alone leaves most operations to nobody.
            Ok(checked) => checked.warnings().iter().filter(|p| !is_of_set(p)).map(told).collect(),
            Err(problems) => problems.iter().map(told).collect(),
        },
    }
}

/// What is odd in a set and in no rule of it.
fn is_of_set(problem: &Problem) -> bool {
    matches!(problem.what, What::Undecided { .. } | What::Shared { .. })
}

#[test]
fn what_nobody_decides_and_blocks_of_two_are_told() {
    let told = |rules: &str| -> Vec<String> {
        let checked = check(set(rules).unwrap(), &Budget::default()).unwrap();
        checked.warnings().iter().filter(|p| is_of_set(p)).map(|p| p.what.to_string()).collect()
    };
    let both = "applications 1 and 2 both name the blocks 10..100";
    let all = "rule all priority 0 when op != idle then pass";
    assert_eq!(told(all), [both]);
    // A rule of one application, one that may match, and one that goes on to others.
    let some = "rule w priority 1 when application == 2 and op == write then pass
        rule f priority 1 when op == flush and free < 10 then pass
        rule go priority 2 when op == read do n = 0
        rule rt priority 1 when op == read or op == trim then pass";
    assert_eq!(
        told(some),
        [
            both,
            "no rule decides write, zero of application 1",
            "no rule decides zero of application 2"
        ]
    );
}

/// One rule.
fn rule(when: &str, rest: &str) -> Vec<String> {
    problems(&format!("rule r priority 0 when {when} {rest}"))
}

#[track_caller]
fn one(when: &str, rest: &str, expected: &str) {
    assert_eq!(rule(when, rest), [expected]);
}

#[track_caller]
fn none(when: &str, rest: &str) {
    assert_eq!(rule(when, rest), [""; 0]);
}

#[test]
fn keys_are_in_their_maps() {
    none("op == write", "then place unit 3 into l2p[lba]");
    one(
        "lba < 16",
        "do heat[lba + 1] += 1",
        "heat has the entries 0..16, and the key may be 1..17 @ lba + 1",
    );
    none("lba < 15", "do heat[lba + 1] += 1");
    none("lba % 3 == 0", "do heat[lba % 16] += 1");
    // What stands before an `and` holds behind it, and nowhere else.
    none("lba < 16 and heat[lba] > 2", "then drop");
    none("not (lba < 16 and heat[lba] > 2)", "then drop");
    one(
        "heat[lba] > 2 and lba < 16",
        "then drop",
        "heat has the entries 0..16, and the key may be 0..1000 @ lba",
    );
    one(
        "lba < 16 or heat[lba] > 2",
        "then drop",
        "heat has the entries 0..16, and the key may be 0..1000 @ lba",
    );
}

#[test]
fn values_are_in_their_ranges() {
    one("always", "do n = n + 1", "n holds 0..10, and the value may be 1..11 @ n + 1");
    none("always", "do n = (n + 1) % 10; n += lba; n -= 99");
    one("always", "do heat[0] = 8", "heat holds 0..8, and the value may be 8..9 @ 8");
    one("n / n == 1", "then drop", "the divisor may be 0 @ n");
    one(
        "always",
        "do n += lba * 9223372036854775807",
        "the result may be more than 2^63 - 1 @ lba * 9223372036854775807",
    );
    none("9999999 - lba - 99999999 == 0", "then drop");
}

#[test]
fn applications_have_what_they_were_given() {
    let granted = "application 2 has the units 2..8, and this may be 1..2 @ 1";
    one("op == write", "then place unit 1", granted);
    none("op == write and application == 1", "then place unit 1");
    none("op == write and application == 2", "then place unit 7 stream 0");
    one(
        "op == write and application == 2",
        "then place unit 7 stream 1",
        "application 2 has the streams 0..1, and this may be 1..2 @ 1",
    );
    one("application == 1", "then redirect 1", "application 1 has no channels @ 1");
    none("application == 2", "then redirect 1 + lba % 2");
    one(
        "op == read and application == 2",
        "then serve l2p[lba]",
        "application 2 has the units 2..8, and this may be 0..4 @ l2p",
    );
    one(
        "op == write and application == 2",
        "then place into l2p[lba]",
        "l2p holds addresses of the units 0..4, and these may be of 2..8 @ l2p",
    );
    one(
        "op == read and application == 1",
        "then place unit 0",
        "place is for a write, and the rule may match others @ place unit 0",
    );
    one(
        "application == 1",
        "then serve l2p[lba]",
        "serve is for a read, and the rule may match others @ serve l2p[lba]",
    );
}

#[test]
fn kinds_do_not_mix() {
    one("lba < 5ms", "then drop", "expected a number, and this is a time @ 5ms");
    one("op < read", "then drop", "expected a number or a time, and this is an operation @ op");
    one("lba", "then drop", "expected a condition, and this is a number @ lba");
    one("l2p[0] == 0", "then drop", "expected an address, and this is a number @ 0");
    one("always", "do l2p[0] = 7", "expected none, set by =, and this is a number @ 7");
    one("always", "then delay 10001ms", "the delay may be more than 10 s @ 10001ms");
    one("always", "then delay idle_time", "the delay may be more than 10 s @ idle_time");
    none("always", "then delay min(idle_time, 10s)");
    one("always", "then delay 5", "expected a time, and this is a number @ 5");
    one(
        "since(t) > 1s and idle_time / 2 >= 1ms * 3",
        "then serve heat[0]",
        "serve is for a read, and the rule may match others @ serve heat[0]",
    );
    one(
        "op == read",
        "then serve heat[0]",
        "expected a map of addresses, and this is one of numbers @ heat",
    );
    one(
        "lba in 0..n",
        "then drop",
        "expected a number that is written out, and this is a number @ n",
    );
    one("always", "do l2p[0] = l2p[1]", "expected none, set by =, and this is an address @ l2p[1]");
    // Also where no request comes.
    one("application == 9 and nn > 1", "then drop", "there is no counter nn @ nn");
}

/// What is said to do is of the kind that is wrong.
#[test]
fn what_to_do_about_a_kind_is_of_that_kind() {
    for (when, act, help) in [
        ("op < read", "then drop", "compare operations by == or !="),
        ("always", "do l2p[0] = l2p[1]", "and cleared by `= none`"),
        ("lba < 5ms", "then drop", "write times with a unit"),
    ] {
        let text = format!("{HEAD}rule r priority 0 when {when} {act}");
        let problem = &check(parse(&text).unwrap(), &Budget::default()).unwrap_err()[0];
        let told = problem.render("a.rules", &text);
        assert!(told.contains(help), "{told}");
    }
}

#[test]
fn names_are_there_once() {
    assert_eq!(problems("counter t 0..1"), ["there is a second table t @ t"]);
    let twice = "rule r priority 0 when lba < 1 then drop rule r priority 1 when always then ask";
    assert_eq!(problems(twice), ["there is a second rule r @ r"]);
    let text = format!("{HEAD}rule r priority 0 when heta[0] > 1 then drop");
    let problem = &check(parse(&text).unwrap(), &Budget::default()).unwrap_err()[0];
    assert_eq!(
        problem.render("a.rules", &text),
        "a.rules:9:24: error: there is no map heta\n\
         9 | rule r priority 0 when heta[0] > 1 then drop\n  \
         |                        ^^^^^^^\n  = do you mean heat?\n"
    );
}

#[test]
fn ties_are_refused() {
    let two = |a: &str, b: &str| {
        problems(&format!("rule a priority 3 when {a}\nrule b priority 3 when {b}"))
    };
    let tie = "a and b have the same priority and can match the same request @ b";
    assert_eq!(two("op == read then drop", "lba < 50 then ask"), [tie]);
    assert_eq!(two("op == read then drop", "op == write then ask"), [""; 0]);
    assert_eq!(
        two("op == read then drop", "op == read and lba == 12 then drop").len(),
        1,
        "a warning"
    );
    assert_eq!(two("lba < 50 then drop", "lba >= 50 then ask"), [""; 0]);
    assert_eq!(two("heat[0] < 3 then drop", "heat[0] >= 3 then ask"), [""; 0]);
    assert_eq!(two("heat[0] < n then drop", "n <= heat[0] then ask"), [""; 0]);
    assert_eq!(two("heat[0] < n then drop", "n > heat[0] then ask"), [tie]);
    assert_eq!(two("heat[0] < 3 then drop", "heat[1] >= 3 then ask"), [tie]);
    assert_eq!(two("l2p[lba] == none then drop", "l2p[lba] != none then ask"), [""; 0]);
    // One that goes on leaves nothing open; one that does not does.
    assert_eq!(two("always do n += 1", "op == read then drop"), [""; 0]);
    assert_eq!(two("op == read then drop", "always do n += 1"), [tie]);
    let shadow = "rule a priority 9 when op == read then drop
        rule b priority 3 when op == read and n > 2 then ask";
    assert_eq!(
        problems(shadow),
        ["no request comes to this rule: a decides all that it matches @ b"]
    );
    one("lba < 5 and lba > 7", "then drop", "the rule never matches @ r");
    one("op == read and application == 1 and lba < 5", "then drop", "the rule never matches @ r");
}

#[test]
fn few_rules_go_on() {
    let many = |n: usize, when: fn(usize) -> String| {
        let rule = |n| format!("rule r{n} priority {n} when {} do n += 1\n", when(n));
        problems(&(0..n).map(rule).collect::<String>())
    };
    assert_eq!(many(8, |_| "always".into()), [""; 0]);
    let refused = "more than 8 rules without a verdict can match one request @ r0";
    assert_eq!(many(9, |_| "always".into()), [refused]);
    assert_eq!(many(90, |n| format!("lba == {}", 10 + n)), [""; 0]);
}

#[test]
fn budgets_are_kept() {
    let text = "set a application 1 lba 0..100 units 0..2 map m[1M] of 0..2
        rule r priority 0 when always then drop";
    let set = parse(text).unwrap();
    let problems = |budget: Budget| -> Vec<String> {
        let problems = check(set.clone(), &budget).err().unwrap_or_default();
        problems.iter().map(|problem| problem.what.to_string()).collect()
    };
    assert!(problems(Budget::default()).is_empty());
    let few = Budget { entries: 1000, ..Budget::default() };
    assert_eq!(problems(few), ["the set asks for 1048576 map entries, and may have 1000"]);
    let few = Budget { steps: 9, ..Budget::default() };
    assert_eq!(problems(few), ["the set asks for 10 steps a request, and may have 9"]);
    let given = |text: &str| {
        let set = parse(&format!("set given {text}")).unwrap();
        Budget { applications: Some(set.applications), ..Budget::default() }
    };
    assert!(problems(given("application 1 lba 0..100 units 0..2")).is_empty());
    assert_eq!(
        problems(given("application 1 lba 0..99 units 0..2")),
        ["the set asks for the lba 0..100 for application 1, which has 0..99"]
    );
    assert_eq!(
        problems(given("application 2 lba 0..100 units 0..2")),
        ["the set asks for the lba 0..100 for application 1, which has none"]
    );
}

#[test]
fn conditions_have_few_cases() {
    let wide =
        (0..7).map(|n| format!("(n == {n} or lba == {n})")).collect::<Vec<_>>().join(" and ");
    let told = rule(&wide, "then drop");
    assert!(told.is_empty() || told[0].starts_with("the rule never matches"), "{told:?}");
    let wide = (0..7).map(|n| format!("(heat[{n}] == 1 or heat[{n}] == 5)"));
    let told = rule(&wide.collect::<Vec<_>>().join(" and "), "then drop");
    assert!(told[0].starts_with("the condition has more than 64 cases"), "{told:?}");
}

/// A condition of many levels of which few cases are left takes no longer than its length.
#[test]
fn nested_conditions_take_little_time() {
    let mut condition = String::from("lba < 5");
    for _ in 0..26 {
        condition = format!("not ({condition} and lba < 5)");
    }
    let text = format!("set a application 0 lba 0..9 rule r priority 0 when {condition} then drop");
    let set = rules::parse(&text).unwrap_or_else(|e| panic!("{}", e.render("text", &text)));
    let checked = rules::check(set, &rules::Budget::default()).unwrap();
    assert!(!checked.cases()[0].is_empty());
}

/// What a set is told of its only rule, an application of its own above it.
fn of_application(has: &str, rule: &str, budget: &Budget) -> Vec<String> {
    let text = format!("set a application 1 lba 0..10 {has} rule r priority 0 when {rule}");
    match check(parse(&text).unwrap(), budget) {
        Ok(_) => vec![],
        Err(problems) => problems.iter().map(|p| p.what.to_string()).collect(),
    }
}

#[test]
fn what_is_not_named_is_granted_or_not() {
    let any = Budget::default();
    let nothing = ["application 1 has no units"];
    assert_eq!(of_application("", "op == write then pass", &any), nothing);
    assert_eq!(of_application("", "op != idle then pass", &any), nothing);
    assert_eq!(of_application("", "op == read then pass", &any), [""; 0]);
    // The first stream is one as others are.
    let has = "units 0..4 streams 4..8";
    let first = "application 1 has the streams 4..8, and this may be 0..1";
    assert_eq!(of_application(has, "op == write then place unit 1", &any), [first]);
    assert_eq!(of_application(has, "op == write then place unit 1 stream 4", &any), [""; 0]);
    let text =
        format!("set b application 1 lba 0..10 {has} rule r priority 0 when always then drop");
    let given = parse(&text).unwrap().applications;
    let given = Budget { applications: Some(given), ..Budget::default() };
    let asks = "the set asks for the streams 0..1 for application 1, which has 4..8";
    assert_eq!(of_application("units 0..4", "op == write then place unit 1", &given), [asks]);
}

/// Sums that leave the numbers, where no request comes to them.
#[test]
fn sums_beyond_the_numbers_are_none() {
    let most = "9223372036854775807";
    let when = format!("lba < 0 and lba > {most} + {most} + 1");
    assert_eq!(rule(&when, "then drop").len(), 1);
    assert_eq!(rule(&format!("lba < 0 and lba in 0..{most} + {most} + 1"), "then drop").len(), 1);
}

/// However wrong a set is, what is told of it is short, and soon there.
#[test]
fn what_is_told_is_bounded() {
    let same: String = (0..4000).map(|_| "rule r priority 0 when always then pass\n").collect();
    assert_eq!(problems(&same).len(), 50);
    let unknown: String = (0..4000)
        .map(|n| format!("rule r{n} priority 0 when {}{n} > 1 then drop\n", "c".repeat(100)))
        .collect();
    assert_eq!(problems(&unknown).len(), 50);
    let long = "n".repeat(129);
    let [told] = &problems(&format!("rule {long} priority 0 when always then drop"))[..] else {
        panic!("one problem")
    };
    assert!(told.starts_with("the word has more than 128 characters"), "{told}");
}

/// 64 cases, 256 applications, and rules of many parts are too much to look at.
#[test]
fn rules_of_many_cases_for_many_applications_are_bounded() {
    let mut text = String::from("set a\n");
    for n in 0..256 {
        text += &format!("application {n} lba {}..{} units 0..4\n", n * 10, n * 10 + 10);
    }
    text += "counter n 0..1000000\n";
    let cases = "(placement != 1 and placement != 3) and (lba % 2 == 1 or lba % 3 == 1 or n < 9)";
    let sum = ["1"; 90].join(" + ");
    let change = vec![format!("n += {sum}"); 16].join("; ");
    for n in 0..40 {
        text += &format!("rule r{n} priority {n} when {cases} do {change}\n");
    }
    let told = check(parse(&text).unwrap(), &Budget::default()).expect_err("too much");
    let told: Vec<String> = told.iter().map(|p| p.what.to_string()).collect();
    assert!(told[0].contains("parts of rules, for each case and application"), "{told:?}");
}
