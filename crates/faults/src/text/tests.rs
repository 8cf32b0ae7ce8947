use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Rule {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn rules_read_as_they_are_meant() {
    let trigger = Trigger {
        span: Some(Span::Offset(1 << 30..2 << 30)),
        probability: 0.01,
        count: Some(3),
        ..Trigger::default()
    };
    let status = Some(Status::WRITE_FAULT);
    let operation = Operation::Write;
    let rule = FaultRule { operation, trigger, status, permanent: true, place: None };
    let text = "write,offset=1G-2G,probability=0.01,count=3,status=write-fault,permanent";
    assert_eq!(read(text), Rule::Fault(rule.clone()));
    assert_eq!(Rule::Fault(rule).to_string(), text);

    let trigger = Trigger { every: 1000, ..Trigger::default() };
    let delay = Delay { least: 5_000_000, most: 5_000_000 };
    let rule = DelayRule { operation: Operation::Read, trigger, delay };
    assert_eq!(read("read, every = 1000, delay = 5ms"), Rule::Delay(rule));

    let trigger = Trigger { probability: 1e-6, ..Trigger::default() };
    let rule = MediumRule { fault: MediumFault::BitRot, trigger };
    assert_eq!(read("medium:bitrot,probability=1e-6"), Rule::Medium(rule));

    for text in [
        "any",
        "flush,after",
        "write-zeroes,offset=0-4k,before",
        "reset,ppa=0x10-0x20,from=2,status=0x3ff",
        "read,delay=0ns",
        "copy,delay=1us-2us",
        "medium:slow,ppa=0x0-0x9,on=any,pending=3",
        "medium:fail,count=1,on=flush,permanent",
    ] {
        assert_eq!(read(text).to_string(), text);
    }
}

#[test]
fn errors_say_what_and_where() {
    for (text, at, word) in [
        ("", 1, "nothing to strike"),
        ("red", 1, "\"red\""),
        ("read=1", 1, "\"read\""),
        ("read,", 6, "no key"),
        ("read,, after", 6, "no key"),
        ("read,count=0", 6, "\"0\""),
        ("read,count", 6, "number from 1"),
        ("read, permanent=1", 7, "no value"),
        ("read,probability=0", 6, "above 0"),
        ("read,probability=NaN", 6, "above 0"),
        ("read,probability=1.01", 6, "above 0"),
        ("read,offset=2G-1G", 6, "1G-2G"),
        ("read,offset=4k", 6, "1G-2G"),
        ("read,ppa=0x-0x2", 6, "0x100"),
        ("read,ppa=+1-2", 6, "0x100"),
        ("read,ppa=1-2,offset=0-1", 14, "leave one"),
        ("read,before,after", 13, "leave one"),
        ("read,after=30s", 6, "from=N"),
        ("read,count=1,count=2", 14, "twice"),
        ("read,status=success", 6, "write-fault"),
        ("read,status=0x0", 6, "0x281"),
        ("read,status=0x800", 6, "0x281"),
        ("read,status=641", 6, "0x281"),
        ("read,delay=5", 6, "5ms"),
        ("read,delay=5ms-1ms", 6, "5ms"),
        ("read,delay=2h", 6, "an hour"),
        ("read,delay=1ms,permanent", 16, "delay"),
        ("flush,offset=0-4k", 7, "no address"),
        ("medium:torn,offset=0-4k", 13, "ppa"),
        ("medium:torn,on=read", 13, "ppa"),
        ("medium:fail,on=trim", 13, "program"),
        ("medium:slow,pending=4294967296", 13, "4294967295"),
        ("medium:fail,ppa=0-9,on=flush", 21, "no address"),
        ("µß,ä", 1, "nothing to strike"),
        ("read,ä=µ,x", 6, "no key"),
    ] {
        let error = text.parse::<Rule>().expect_err(text);
        let said = error.to_string();
        assert_eq!(error.at, at, "{said}");
        assert!(said.contains(word), "{said}");
    }
}

fn operations() -> impl Strategy<Value = Operation> {
    prop::sample::select(OPERATIONS.map(|(_, operation)| operation).to_vec())
}

fn triggers(spans: bool, offset: bool) -> impl Strategy<Value = Trigger> {
    let range = (any::<u64>(), any::<u64>(), 0u32..64).prop_map(|(a, b, shift)| {
        let (a, b) = (a >> shift << (shift / 2), b >> shift << (shift / 2));
        a.min(b)..a.max(b).max(a.min(b) + 1)
    });
    let span = prop::option::of((range, any::<bool>())).prop_map(move |span| {
        let (range, is_offset) = span.filter(|_| spans)?;
        Some(if offset && is_offset { Span::Offset(range) } else { Span::Ppa(range) })
    });
    let probability = prop_oneof![Just(1.0), 1e-300f64..1e-3, 1e-9f64..1.0];
    let number = || prop_oneof![Just(1), 1u64..=u64::MAX];
    (span, probability, number(), number(), prop::option::of(number())).prop_map(
        |(span, probability, from, every, count)| Trigger { span, probability, from, every, count },
    )
}

fn faults() -> impl Strategy<Value = Rule> {
    let status = prop::option::of((1u16..0x800).prop_map(Status));
    let place = prop_oneof![Just(None), Just(Some(Place::Before)), Just(Some(Place::After))];
    let rest = (status, any::<bool>(), place);
    operations()
        .prop_flat_map(|operation| (Just(operation), triggers(operation != Operation::Flush, true)))
        .prop_flat_map(move |both| (Just(both), rest.clone()))
        .prop_map(|((operation, trigger), (status, permanent, place))| {
            Rule::Fault(FaultRule { operation, trigger, status, permanent, place })
        })
}

fn delays() -> impl Strategy<Value = Rule> {
    let times = (0..=LONGEST_DELAY, 0..=LONGEST_DELAY, 0u32..9, any::<bool>());
    operations()
        .prop_flat_map(|operation| (Just(operation), triggers(operation != Operation::Flush, true)))
        .prop_flat_map(move |both| (Just(both), times.clone()))
        .prop_map(|((operation, trigger), (a, b, digits, fixed))| {
            let round = |t: u64| t - t % 10u64.pow(digits);
            let (a, b) = (round(a), round(b));
            let delay = Delay { least: a.min(b), most: if fixed { a.min(b) } else { a.max(b) } };
            Rule::Delay(DelayRule { operation, trigger, delay })
        })
}

fn media() -> impl Strategy<Value = Rule> {
    let access = prop::sample::select(ACCESSES.map(|(_, access)| access).to_vec());
    let fault = (0usize..6, access, any::<bool>(), 1u32..=u32::MAX).prop_map(
        |(kind, on, permanent, pending)| match MEDIUM_FAULTS[kind].1 {
            MediumFault::Fail { .. } => MediumFault::Fail { on, permanent },
            MediumFault::Slow { .. } => MediumFault::Slow { on, pending },
            other => other,
        },
    );
    fault
        .prop_flat_map(|fault| (Just(fault), triggers(fault.access() != Access::Flush, false)))
        .prop_map(|(fault, trigger)| Rule::Medium(MediumRule { fault, trigger }))
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(rule in prop_oneof![faults(), delays(), media()]) {
        let text = rule.to_string();
        prop_assert_eq!(text.parse::<Rule>().unwrap(), rule, "{}", text);
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = text.parse::<Rule>();
    }

    #[test]
    fn nothing_like_a_rule_panics(
        text in "(read|any|flush|medium:(fail|slow|torn)),?((offset|ppa|count|every|from|delay|\
                 probability|status|on|pending|permanent)=?[-0-9a-zGe.µ]{0,9},?){0,4}"
    ) {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
    }
}
