//! What a decision takes, with so many rules installed.
//!
//!     cargo run --profile dist -p ssdkit-rules --example decide -- RULES REQUESTS [decide|find|interpret|nothing]
//!
//! Rules in tens, each ten of an application with a quarter of a drive's units: writes of three
//! sizes or address ranges that are placed, reads by a map, trims, limits, collection
//! when idle. Requests are drawn before anything is timed. Prints ns a request, and a sum by
//! which two builds can be compared.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use port::random::Random;
use rules::{Budget, Compiled, Interpreter, Op, Request, State, View, check, parse};

/// Blocks of an application.
const BLOCKS: u64 = 4096;
/// Requests that are drawn, and asked again and again.
const DRAWN: usize = 1 << 14;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize| args.get(n).and_then(|text| text.parse::<u64>().ok());
    let (Some(rules), Some(requests)) = (number(0), number(1)) else {
        eprintln!("usage: decide RULES REQUESTS [decide|find|interpret|nothing]");
        std::process::exit(2);
    };
    let applications = rules.div_ceil(10).clamp(1, 256);
    let set = parse(&text(applications)).expect("it parses");
    let checked = check(set, &Budget::default()).expect("it is right");
    let compiled = Compiled::new(&checked);
    let mut state = State::new(checked.set());
    let mut slow = Interpreter::new(checked.set());
    let how = args.get(2).map_or("decide", String::as_str);
    let drawn = draw(applications);
    let mut sum = 0u64;
    let start = Instant::now();
    for n in 0..requests {
        let request = black_box(&drawn[n as usize % DRAWN]);
        let view = View { now: n * 100, idle: 50_000_000, temperature: 40, free: 12 };
        let rule = match how {
            "nothing" => Some(request.application),
            "find" => compiled.rule(&state, request, &view),
            "interpret" => slow.decide(request, &view).expect("it was checked").rule,
            _ => compiled.decide(&mut state, request, &view).rule,
        };
        sum = sum.wrapping_mul(31).wrapping_add(u64::from(rule.unwrap_or(u16::MAX)));
    }
    let ns = start.elapsed().as_nanos() as f64 / requests as f64;
    let count = checked.set().rules.len();
    let kib = compiled.bytes() / 1024;
    println!("{count} rules, {kib} KiB: {ns:.1} ns a request; sum {sum:016x}");
}

/// Ten rules for each application.
fn text(applications: u64) -> String {
    let mut out = String::from("set speed\ntimer rest\n");
    for a in 0..applications {
        let (lba, unit) = (a * BLOCKS, a % 4 * 8);
        let (middle, late) = (lba + BLOCKS / 2, lba + BLOCKS / 4 * 3);
        let _ = write!(
            out,
            "application {a} lba {lba}..{} units {unit}..{} streams 0..4 channels 0..4
             map l2p{a}[{BLOCKS}] of address in {unit}..{}
             counter turn{a} {unit}..{}
             rule write{a}_small priority 5 when application == {a} and op == write
               and size <= 4K and lba < {middle}
               do turn{a} = (turn{a} + 1) % 8 + {unit}
               then place unit turn{a} stream 1 into l2p{a}[lba % {BLOCKS}]
             rule write{a}_large priority 5 when application == {a} and op == write
               and size > 4K and lba < {middle}
               then place unit {unit} stream 2
             rule write{a}_log priority 5 when application == {a} and op == write
               and lba in {middle}..{late}
               then place unit {unit} + lba % 8 stream 3
             rule write{a}_rest priority 5 when application == {a} and op == write
               and lba >= {late}
               then place
             rule read{a}_none priority 5 when application == {a} and op == read
               and l2p{a}[lba % {BLOCKS}] == none
               then drop
             rule read{a} priority 4 when application == {a} and op == read
               then serve l2p{a}[lba % {BLOCKS}]
             rule trim{a} priority 5 when application == {a} and op == trim
               do l2p{a}[lba % {BLOCKS}] = none
               then drop
             rule flush{a} priority 5 when application == {a} and op == flush then pass
             rule zero{a} priority 5 when application == {a} and op == zero then refuse
             rule idle{a} priority 5 when application == {a} and op == idle
               and idle_time > 1ms and free < 20 and since(rest) > 1s
               do start rest
               then collect greedy\n",
            lba + BLOCKS,
            unit + 8,
            unit + 8,
            unit + 8,
        );
    }
    out
}

fn draw(applications: u64) -> Vec<Request> {
    let mut random = Random::new(1, 1);
    let ops = [Op::Read, Op::Read, Op::Read, Op::Write, Op::Write, Op::Write, Op::Trim, Op::Flush];
    (0..DRAWN)
        .map(|_| {
            let application = random.below(applications);
            let size = 4096 << random.below(2);
            let lba = application * BLOCKS + random.below(BLOCKS - 2);
            let op = ops[random.below(8) as usize];
            let channel = random.below(4) as u16;
            Request { op, application: application as u16, channel, lba, size, placement: 0 }
        })
        .collect()
}
