//! Tests of parameters.

use proptest::prelude::*;

use super::*;

fn tlc() -> Profile {
    Profile::builtin("tlc").unwrap()
}

fn parse(text: &str) -> Parameter {
    Parameter::parse(text, &tlc()).unwrap()
}

fn refused(text: &str) -> String {
    Parameter::parse(text, &tlc()).unwrap_err().to_string()
}

#[test]
fn ranges_have_ends_and_a_scale() {
    let read = parse("read=10us..1ms");
    assert_eq!([0.0, 0.5, 1.0].map(|at| read.value(at)), ["10000ns", "100000ns", "1000000ns"]);
    let linear = parse("erase=0us..10ms:linear");
    assert_eq!(linear.value(0.25), "2500000ns");
    assert_eq!(parse("erase=1ms..9ms:linear").value(0.5), "5000000ns");
    assert_eq!(parse("groups=4..64").value(0.5), "16");
    assert_eq!(parse("link_rate=1GB/s..4GB/s").value(0.5), "2000000000B/s");
    assert_eq!(parse("spare=0.1..0.4:linear").value(0.5), "0.25");
    assert_eq!(parse("rber_base=1e-6..1e-4").value(0.5), "0.00001");
    assert_eq!(parse("slc_mark=10%..90%:linear").value(0.5), "50%");
}

#[test]
fn factors_keep_what_the_family_has() {
    let read = parse("read=x0.5..x2");
    assert_eq!(read.value(0.0), "28250ns/38750ns/53000ns");
    assert_eq!(read.value(0.5), "56500ns/77500ns/106000ns");
    assert!((read.start() - 0.5).abs() < 1e-9);
    assert_eq!(parse("groups=x0.5..x2").value(0.0), "4");
    assert_eq!(parse("channel_rate=x1..x2").value(1.0), "1600000000B/s");
}

#[test]
fn choices_are_taken_in_equal_parts() {
    let page = parse("page=4k|8k|16k");
    assert_eq!(
        [0.0, 0.3, 0.34, 0.99, 1.0].map(|at| page.value(at)),
        ["4k", "4k", "8k", "16k", "16k"]
    );
    assert_eq!((page.value(page.start()), page.choices()), ("16k".into(), Some(3)));
    assert_eq!(parse("suspend=false|true").value(0.7), "true");
}

#[test]
fn the_search_begins_where_the_family_is() {
    assert_eq!(parse("erase=1ms..9ms").value(parse("erase=1ms..9ms").start()), "3000000ns");
    assert_eq!(parse("link_rate=1GB/s..9GB/s").start.map(|x| (x * 1e3).round()), Some(529.0));
    assert_eq!(parse("erase=10ms..90ms").start(), 0.5, "it lies outside");
}

#[test]
fn a_path_adds_time() {
    let host = parse("host_kernel=0us..20us");
    assert_eq!((host.path(), host.value(0.5)), (Some("kernel"), "10000ns".into()));
    assert_eq!(nanoseconds("10000ns"), Some(10_000));
    assert_eq!(parse("read=10us..1ms").path(), None);
}

#[test]
fn wrong_parameters_say_what_is_wrong() {
    for (text, says) in [
        ("read", "write NAME=LOW..HIGH"),
        ("raed=1us..2us", "`raed` is no key of a profile"),
        ("host_=1us..2us", "is no key"),
        ("host_x=1..2", "a path adds a time"),
        ("host_x=x1..x2", "has no value of the family"),
        ("read=1us", "write LOW..HIGH"),
        ("read=2us..1us", "is not below"),
        ("read=1us..2", "different units"),
        ("read=a..b", "no numbers"),
        ("read=1..2", "`read` cannot be"),
        ("read=0us..2us:log", "begins above zero"),
        ("read=1us..2us:cubic", "no scale"),
        ("suspend=maybe|true", "`suspend` cannot be `maybe`"),
        ("suspend=x1..x2", "cannot be multiplied"),
        ("chunks=1..9", "chunks follow"),
    ] {
        let error = refused(text);
        assert!(error.contains(says) && error.contains(text), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(name in "[a-z_]{0,12}", range in "[0-9a-z.:|/%-]{0,16}") {
        let _ = Parameter::parse(&format!("{name}={range}"), &tlc());
        let _ = Parameter::parse(&format!("read={range}"), &tlc());
    }

    #[test]
    fn every_place_is_a_value(at in -1.0f64..2.0, which in 0usize..6) {
        let text = [
            "read=x0.2..x5", "groups=1..64", "link_rate=1GB/s..8GB/s", "erase=0us..9ms",
            "slc_mark=1%..99%", "rber_base=1e-7..1e-3",
        ][which];
        let parameter = parse(text);
        prop_assert!(tlc().set(&parameter.name, &parameter.value(at)).is_ok());
    }
}
