//! Tests of the command line.

use super::*;
use bench::{BenchArgs, End, Hot, Precondition, Range};
use blkmq::scheduler::{FairOptions, SchedulerKind};
use blkmq::{Merge, Plug, Spread};
use clap::CommandFactory;
use proptest::prelude::*;

use drive::spec::NbdAddress;
use load::driver::ClockKind;
use load::runner::Rounds;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn bench(rest: &str) -> BenchArgs {
    match parse(&format!("ssdkit bench {rest}")).unwrap().command {
        Some(Command::Bench(args)) => args.bench,
        other => panic!("{other:?}"),
    }
}

/// Why the options do not agree.
fn refused(rest: &str) -> String {
    let error = bench(rest).check().unwrap_err();
    assert_eq!(error.exit_code(), 2);
    error.to_string()
}

#[test]
fn clap_finds_no_fault() {
    Cli::command().debug_assert();
}

#[test]
fn nothing_is_the_main_job() {
    let cli = parse("ssdkit").unwrap();
    assert!(cli.command.is_none() && !cli.json);
    assert!(parse("ssdkit --json").unwrap().json);
}

#[test]
fn defaults_are_as_documented() {
    let args = bench("mem:ref --rw randread");
    assert_eq!((args.bs, args.qd, args.threads, args.seed), (4096, 1, 1, 1));
    assert_eq!(args.clock(), ClockKind::Virtual);
    assert_eq!(args.precondition(), Precondition::None);
    // A drive that is read has something on it first.
    for (rest, new, first) in [
        ("--rw randread", true, Precondition::Seq),
        ("--rw randrw", true, Precondition::Seq),
        ("--rw randread", false, Precondition::None),
        ("--rw randwrite", true, Precondition::None),
        ("--rw trim", true, Precondition::None),
        ("--rw randread --precondition none", true, Precondition::None),
        ("--rw randread --precondition steady", false, Precondition::Steady),
    ] {
        let settled = bench(&format!("mem:ref {rest}")).settled(new);
        assert_eq!(settled.precondition, Some(first), "{rest} {new}");
    }
    assert_eq!(args.end(), End::Ios(1_000_000));
    assert_eq!(args.reads(), 100);
    args.check().unwrap();
    for real in ["nbd:/tmp/a", "null:", "/tmp/a", "mem:ref --dispatch hosted"] {
        assert_eq!(bench(&format!("{real} --rw read")).clock(), ClockKind::Real, "{real}");
    }
    assert!(!args.blocks.are_given() && !args.destroy);
    assert_eq!(args.blocks.cores(), 1);
}

#[test]
fn what_is_no_number_is_told_what_is() {
    for (wrong, right) in [
        ("--seed abc", "from 0 to 18446744073709551615"),
        ("--qd 1k", "from 1 to 65536"),
        ("--qd 0", "from 1 to 65536"),
        ("--read-percent 70%", "from 0 to 100"),
        ("--fua-every 4294967296", "from 1 to 4294967295"),
    ] {
        let error = parse(&format!("ssdkit bench null: --rw read {wrong}")).unwrap_err();
        assert!(error.to_string().contains(&format!("write a whole number {right}")), "{error}");
    }
}

#[test]
fn times_without_a_unit_are_seconds() {
    let args = bench("null: --rw read --time 10 --ramp 0.5 --max-time 2min");
    assert_eq!((args.time, args.ramp), (Some(10_000_000_000), Some(500_000_000)));
    assert_eq!(args.max_time, Some(120_000_000_000));
    for wrong in ["--time 0", "--time x", "--time 1e3", "--time -1", "--time 5parsecs"] {
        let text = parse(&format!("ssdkit bench null: --rw read {wrong}")).unwrap_err().to_string();
        assert!(!text.contains("xs"), "{text}");
    }
}

#[test]
fn the_steady_state_has_knobs() {
    let rounds = |rest: &str| bench(&format!("mem:ref --rw randwrite {rest}")).rounds();
    assert_eq!(rounds(""), Rounds { window: 5, ns: 60_000_000_000 });
    let short = rounds("--precondition steady --steady-rounds 3 --steady-round 15s");
    assert_eq!(short, Rounds { window: 3, ns: 15_000_000_000 });
    assert!(refused("mem:ref --rw randwrite --steady-rounds 3").contains("--precondition steady"));
    assert!(parse("ssdkit bench mem:ref --rw read --steady-rounds 2").is_err());
}

#[test]
fn a_batch_has_no_arrivals() {
    let text = refused("null: --rw read --qd 4 --rate 1k --batch 2");
    assert!(text.contains("--batch is for a closed loop"), "{text}");
}

#[test]
fn what_is_served_is_not_written_over_unasked() {
    let text = refused("nbd:/tmp/a --rw randrw");
    assert!(text.contains("nbd:/tmp/a") && text.contains("--destroy"), "{text}");
    for rest in ["--rw randread", "--rw randrw --destroy", "--rw trim --destroy"] {
        bench(&format!("nbd:/tmp/a {rest}")).check().unwrap();
    }
    refused("nbd:/tmp/a --rw read --precondition seq");
}

#[test]
fn numbers_have_the_units_of_their_kind() {
    let args = bench(
        "mem:ref --rw randrw --read-percent 70 --bs 4k --qd 64 --threads 4 --ios 5M --rate 100k \
         --ramp 5s --range 512M+1G --hot 10:90 --fua-every 8 --flush-every 64 --arrivals poisson",
    );
    args.check().unwrap();
    assert_eq!(args.end(), End::Ios(5_000_000));
    assert_eq!((args.rate, args.ramp), (Some(100_000), Some(5_000_000_000)));
    assert_eq!(args.range, Some(Range { offset: 512 << 20, len: 1 << 30 }));
    assert_eq!(args.hot, Some(Hot { space: 10, accesses: 90 }));
    assert_eq!(args.reads(), 70);
    assert_eq!(bench("mem:ref --rw trim --time 250ms").end(), End::Time(250_000_000));
}

#[test]
fn wrong_values_are_usage_errors() {
    for (rest, says) in [
        ("mem:ref --rw sideways", "possible values"),
        ("mem:ref", "--rw"),
        ("mem:shop,x=1 --rw read", "no key of a drive"),
        ("what --rw read", "mem:PROFILE"),
        ("mem:ref --rw read --bs 1000", "multiples of 512"),
        ("mem:ref --rw read --bs 2M", "512 bytes to 1M"),
        ("mem:ref --rw read --qd 0", "65536"),
        ("mem:ref --rw read --ios 0", "more than zero"),
        ("mem:ref --rw read --ios many", "5M"),
        ("mem:ref --rw read --time 5x", "not a unit"),
        ("mem:ref --rw read --time 5s --ios 5", "cannot be used with"),
        ("mem:ref --rw randrw --read-percent 101", "101"),
        ("mem:ref --rw randread --zipf 0", "at most 5"),
        ("mem:ref --rw randread --zipf NaN", "at most 5"),
        ("mem:ref --rw randread --hot 0:90", "SPACE:ACCESSES"),
        ("mem:ref --rw randread --range 0", "of 0 bytes nothing is used: write LENGTH or"),
        ("mem:ref --rw randread --range 16777215T+1T", "ends beyond all addresses"),
        ("mem:ref --rw randread --arrivals poisson", "--rate"),
        ("mem:ref --rw read --cores 0", "1024"),
        ("mem:ref --rw read --staging two", "possible values"),
        ("mem:ref --rw read --dispatch hosted:0", "1 to 1024"),
        ("mem:ref --rw read --dispatch outside", "inline, hosted"),
        ("mem:ref --rw read --weights 0,1", "1000"),
        ("null:size=1G --rw read", "no key of a drive"),
        ("null:mbps=100 --rw read", "add completion_nsec"),
        ("file: --rw read", "a path with a `/`"),
        ("file:a,direct=perhaps --rw read", "yes or no"),
    ] {
        let error = parse(&format!("ssdkit bench {rest}")).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{rest}");
        assert!(error.to_string().contains(says), "{rest}: {error}");
    }
}

#[test]
fn options_that_contradict_are_refused() {
    for (rest, says) in [
        ("mem:ref --rw read --read-percent 70", "randrw only"),
        ("mem:ref --rw read --zipf 0.9", "random addresses"),
        ("mem:ref --rw randread --fua-every 2", "need writes"),
        ("mem:ref --rw randread --bs 8k --range 4k", "shorter than one request"),
        ("nbd:/tmp/a --rw read --clock virtual", "--clock real"),
        ("mem:ref,store=none --rw randread --bs 512", "multiples of 4k"),
        ("mem:ref,store=checksum --rw randread --range 512+8k", "multiples of 4k"),
        ("mem:ref,store=none --rw randwrite --verify", "store=checksum"),
        ("mem:ref --rw read --weights 1", "--scheduler fair only"),
        ("mem:ref --rw read --weights 1,2 --scheduler fair", "raise --cores"),
        ("mem:ref --rw read --sockets 2", "more than --cores"),
        ("mem:ref --rw read --batch 2", "more than --qd"),
        ("mem:ref --rw read --completion adaptive", "--dispatch hosted"),
        ("mem:ref --rw read --dispatch hosted --clock virtual", "--clock real"),
        ("mem:ref --rw read --pin", "--clock real"),
        ("mem:ref --rw read --rate 3 --cores 4", "lower --cores"),
        ("mem:ref --rw randrw --verify --clock real --cores 2", "--cores 1"),
        ("nbd:/tmp/a --rw read --cores 2", "no block layer here"),
        ("null: --rw read --clock virtual", "completion_nsec"),
        ("null: --rw randwrite --verify", "keeps nothing"),
        ("null: --rw randwrite --precondition seq", "keeps nothing"),
        ("null: --rw randread --bs 512", "multiples of 4k"),
        ("null: --rw randread --completion interrupt", "wakes nobody"),
        ("null: --rw randread --dispatch inline", "submit_queues="),
        ("./a --rw read --clock virtual", "mem: or null:"),
        ("./a,read_only=yes --rw write", "takes no writes"),
        ("./a,poll=auto,direct=no --rw read", "direct=yes"),
        ("./a --rw read --dispatch-depth 4", "queues= and depth="),
    ] {
        let error = refused(rest);
        assert!(error.contains(says), "{rest}: {error}");
    }
}

#[test]
fn options_of_the_block_layer_make_its_configuration() {
    let args = bench(
        "mem:ref --rw randread --qd 64 --cores 4 --sockets 2 --staging socket --dispatch-depth 8 \
         --scheduler fair --weights 1,4 --merge simple --plug=16 --timeout 1s --batch 8",
    );
    args.check().unwrap();
    let config = args.blocks.config().unwrap();
    assert_eq!((config.topology.cores(), config.topology.sockets()), (4, 2));
    assert_eq!((config.staging, config.timeout), (Spread::PerSocket, 1_000_000_000));
    assert_eq!((config.merge, config.merge_idle), (Merge::Simple, true));
    assert_eq!(config.plug.map(|p| p.requests), Some(16));
    let weights = vec![1, 4];
    assert_eq!(config.scheduler, SchedulerKind::Fair(FairOptions { weights }));
    let staging = |rest: &str| {
        bench(&format!("mem:ref --rw read --cores 2 {rest}")).blocks.config().unwrap().staging
    };
    assert_eq!(staging(""), Spread::PerCore);
    assert_eq!(staging("--scheduler fair"), Spread::One, "shares are of one queue");
    let plug = bench("mem:ref --rw read --plug").blocks;
    assert_eq!(plug.config().unwrap().plug, Some(Plug::default()));
    assert!(plug.are_given() && bench("mem:ref --rw read --pin").blocks.are_given());
}

#[test]
fn only_a_drive_with_data_is_served() {
    let serve = |rest: &str| match parse(&format!("ssdkit serve {rest}")).unwrap().command {
        Some(Command::Serve(args)) => args,
        other => panic!("{other:?}"),
    };
    let args = serve("mem:ref --nbd 127.0.0.1:10809");
    args.check().unwrap();
    serve("ssd:a --nbd b --client-memory 128M").check().unwrap();
    serve("ssd:a --nbd ./80").check().unwrap();
    assert_eq!(args.nbd, Some(NbdAddress::Tcp("127.0.0.1".into(), 10809)));
    serve("mem:ref --redis a --sync everysec --pages log --memory 8M").check().unwrap();
    serve("ssd:a --redis b --destroy --pages in-place").check().unwrap();
    serve("mem:ref,target=batch --redis b --pages batched").check().unwrap();
    for other in [
        "nbd:a --redis b",
        "mem:ref --redis a --memory 7M",
        "mem:ref --redis a --destroy",
        "mem:ref,target=batch --redis a --pages log",
        "mem:ref,target=pblk/kv,units=4/4,keys=9 --nbd a --redis 6379",
        "mem:ref --nbd 80",
        "mem:ref --redis 6379",
        "mem:ref --nbd a --client-memory 127M",
        "mem:ref",
    ] {
        assert!(serve(other).check().is_err(), "{other}");
    }
    for of_redis in ["--sync no", "--destroy", "--pages log", "--memory 8M"] {
        let refused = parse(&format!("ssdkit serve ssd:a --nbd a {of_redis}")).unwrap_err();
        assert_eq!(refused.exit_code(), 2, "{of_redis}");
    }
    assert!(serve("mem:ref --nbd a --redis b").serves_target_keys().is_err());
    assert!(serve("mem:ref,store=none --nbd a").check().is_err());
    for other in ["nbd:b", "null:", "/dev/sda"] {
        assert!(serve(&format!("{other} --nbd a")).check().is_err(), "{other}");
    }
    assert!(serve("mem:ref").check().is_err(), "it is served nowhere");
}

#[test]
fn a_drive_file_is_made_of_options_and_keys() {
    let Some(Command::Create(args)) = parse(
        "ssdkit create a.ssd --profile tlc --size 8G --spare 0.2 --cache volatile suspend=true",
    )
    .unwrap()
    .command
    else {
        panic!("it is a create");
    };
    assert_eq!((args.file.as_str(), args.cache.as_deref()), ("a.ssd", Some("volatile")));
    assert_eq!(args.keys, [("suspend".to_string(), "true".to_string())]);
    for line in
        ["create a", "create --profile ref", "create a --profile ref key", "info", "snapshot a"]
    {
        assert_eq!(parse(&format!("ssdkit {line}")).unwrap_err().exit_code(), 2, "{line}");
    }
    for (rest, clock) in
        [("ssd:a", ClockKind::Virtual), ("ssd:a --dispatch hosted", ClockKind::Real)]
    {
        assert_eq!(bench(&format!("{rest} --rw read")).clock(), clock);
    }
}

#[test]
fn help_shows_examples_everywhere() {
    for line in [
        "ssdkit --help",
        "ssdkit bench --help",
        "ssdkit serve --help",
        "ssdkit ycsb --help",
        "ssdkit create --help",
        "ssdkit info --help",
        "ssdkit snapshot --help",
        "ssdkit profiles --help",
        "ssdkit study --help",
        "ssdkit trace --help",
    ] {
        let help = parse(line).unwrap_err();
        assert_eq!(help.exit_code(), 0, "{line}");
        assert!(help.to_string().contains("Examples:"), "{line}");
    }
    assert!(parse("ssdkit --version").unwrap_err().to_string().starts_with("ssdkit "));
}

proptest! {
    #[test]
    fn no_argument_panics(drive in "\\PC{0,20}", bs in "\\PC{0,8}", hot in "\\PC{0,8}") {
        let line = ["ssdkit", "bench", &drive, "--rw", "randrw", "--bs", &bs, "--hot", &hot];
        if let Ok(Cli { command: Some(Command::Bench(args)), .. }) = Cli::try_parse_from(line) {
            let _ = args.bench.check();
        }
        let _ = hot.parse::<Range>();
    }
}
