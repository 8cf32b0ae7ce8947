//! Tests of drive names and of what is derived from them.

use super::*;
use drivefile::CacheMode;
use media::Placement;
use port::BLOCK_BYTES;
use proptest::prelude::*;
use targets::Victim;

fn mem(text: &str) -> Result<DriveConfig, DriveError> {
    match text.parse()? {
        DriveSpec::Memory(spec) => spec.resolve(),
        _ => panic!("{text} is in memory"),
    }
}

fn error(text: &str) -> String {
    mem(text).unwrap_err().to_string()
}

#[test]
fn capacity_follows_from_geometry_and_spare() {
    let c = mem("mem:ref").unwrap();
    assert_eq!(c.data_blocks(), 8 << 20);
    assert_eq!(c.logical_blocks(), (8 << 20) * 8 / 10);
    let reserve = targets::reserve_chunks(&c.profile.dimensions, 1);
    assert_eq!((c.data_chunks(), c.total_chunks()), (256, 256 + reserve));
    assert!((c.spare() - 0.2).abs() < 1e-6);
}

#[test]
fn chunks_follow_from_the_capacity() {
    // 8 GiB / 0.8 = 10 GiB; a chunk on each of 64 units is 128 MiB.
    let c = mem("mem:ref,size=8G").unwrap();
    assert_eq!((c.size, c.data_chunks(), c.spare()), (8 << 30, 80, 0.2));
    // One block more needs one chunk more, of which the rest is idle.
    let c = mem(&format!("mem:ref,size={}", (8u64 << 30) + 4096)).unwrap();
    assert_eq!((c.data_chunks(), c.idle), (81, 511));
    assert!((c.spare() - 0.2).abs() < 1e-4);
    // Decimal, as drives are sold.
    assert_eq!(mem("mem:ref,size=8GB").unwrap().size, 8_000_000_000);
}

#[test]
fn a_spare_that_cannot_be_kept_is_refused_with_the_nearest() {
    // 1 GiB on 64 units: 8.6 chunks a unit, of which two are open.
    let c = mem("mem:ref,size=1G,spare=0.07").unwrap();
    assert!((c.spare() / 0.07 - 1.0).abs() < 0.01, "{}", c.spare());
    let text = error("mem:ref,size=256M,spare=0.07");
    assert!(text.contains("take spare=0.5 or more, size=715M or more"), "{text}");
    assert!(mem("mem:ref,size=256M,spare=0.5").is_ok());
    assert!(mem("mem:ref,size=715M,spare=0.07").is_ok());
    // What nobody asked for is raised.
    let c = mem("mem:ref,size=256M").unwrap();
    assert_eq!(c.spare(), 0.5);
    // With parity superblocks are open, of groups of units.
    let text = error("mem:tlc,size=64M,spare=0.2,parity=4,groups=1,pus=4");
    assert!(text.contains("on the one group of 4 units of superblocks of 18M, with two"), "{text}");
    let text = error("mem:tlc,size=128M,spare=0.2,parity=4,groups=2,pus=4");
    assert!(text.contains("on 2 groups of 4 units of superblocks of 18M, each with"), "{text}");
}

/// A raised spare is told exactly where it could not have been asked for, however little it is.
#[test]
fn a_spare_is_told_as_raised_where_it_would_be_refused() {
    let mut told = 0;
    for mib in [64, 256, 800, 912, 921, 922, 1024, 4096] {
        for parity in ["", ",parity=4"] {
            let name = format!("mem:tlc,size={mib}M{parity}");
            let raised = mem(&name).unwrap().raised_spare();
            let asked = mem(&format!("{name},spare=0.2"));
            assert_eq!(raised.is_some(), asked.is_err(), "{name}: {raised:?} {asked:?}");
            assert_eq!(asked.ok().and_then(|it| it.raised_spare()), None);
            told += usize::from(raised.is_some());
        }
    }
    assert!(told > 4, "{told}");
    let raised = |name: &str| mem(name).unwrap().raised_spare().unwrap();
    let little = raised("mem:tlc,size=912M");
    assert!(little.starts_with("0.2083, not the profile's 0.2: "), "{little}");
    assert!(little.contains("each of 32 parallel units holds 4.8 chunks"), "{little}");
    let of_one = raised("mem:tlc,size=64M,parity=4,groups=1,pus=4");
    assert!(of_one.contains("drive the one group of 4 units holds 3.6 superblocks"), "{of_one}");
}

#[test]
fn parity_takes_flash_or_capacity() {
    // Sized, the drive stays as large; not sized, the flash stays.
    let sized = mem("mem:tlc,size=1G,parity=8").unwrap();
    assert_eq!(sized.size, 1 << 30);
    assert!(sized.spare() >= sized.profile.spare - 1e-9, "{}", sized.spare());
    assert_eq!(sized.parity_bytes() * 8, sized.geometry.blocks() * BLOCK_BYTES);
    let (plain, with) = (mem("mem:tlc").unwrap(), mem("mem:tlc,parity=8").unwrap());
    assert_eq!(with.data_chunks(), plain.data_chunks());
    assert_eq!(with.data_blocks() * 8, plain.data_blocks() * 7);
    assert_eq!((plain.above, plain.parity_bytes()), (plain.geometry, 0));
}

/// A chunk of each unit has 192 MiB; the drive of 1 GiB, with its spare, more than that.
#[test]
fn an_slc_cache_in_bytes_is_held_against_all_of_the_drive() {
    assert!(mem("mem:tlc,size=1G,slc_cache=200m").is_ok());
    let text = error("mem:tlc,size=1G,slc_cache=20G");
    assert!(text.contains("at most the flash that holds data"), "{text}");
}

#[test]
fn a_small_drive_can_be_made() {
    let c = mem("mem:null,groups=1,pus=1,planes=1,chunks=10,pages=1,spare=0.7").unwrap();
    assert_eq!((c.data_blocks(), c.logical_blocks()), (10, 3));
    let c = mem("mem:null,groups=1,pus=1,planes=1,chunks=10,pages=1,spare=0.9").unwrap();
    assert_eq!(c.logical_blocks(), 1);
    let err = error("mem:null,groups=1,pus=1,planes=1,chunks=5,pages=1,spare=0.9");
    assert!(err.contains("leaves no logical block"), "{err}");
}

#[test]
fn keys_that_contradict_are_refused() {
    let err = error("mem:ref,size=8G,chunks=256");
    assert!(
        err.contains("size=8G with spare=0.2 needs 80 chunks") && err.contains("chunks=256"),
        "{err}"
    );
    assert!(mem("mem:ref,size=8G,chunks=80").is_ok());
    assert!(mem("mem:ref,size=8G,chunks=80,spare=0.2").is_ok());
    assert!(mem("mem:ref,size=8G,chunks=80,spare=0.1").is_err());
}

#[test]
fn wrong_names_are_told_apart() {
    for (text, says) in [
        ("ref", "write mem:PROFILE, nbd:ADDRESS, channel:PATH, null:, or of a file"),
        ("mem:", "write mem:PROFILE, nbd:ADDRESS, channel:PATH, null:, or of a file"),
        ("disk:ref", "write mem:PROFILE, nbd:ADDRESS, channel:PATH, null:, or of a file"),
        (
            "mem:reff",
            "there is no profile `reff`: the built-in ones are datacenter-tlc, client-tlc, ",
        ),
        ("mem:/no/such/file.toml", "cannot read the profile /no/such/file.toml"),
        ("mem:ref,size", "`size` in the drive's name is not key=value"),
        ("mem:ref,", "is not key=value"),
        ("mem:ref,size=8Q", "\"8Q\" is not a size"),
        ("mem:ref,size=1000", "a multiple of 4 KiB"),
        ("mem:ref,size=0", "a multiple of 4 KiB"),
        ("mem:ref,size=8G,size=8G", "`size` is given twice"),
        ("mem:ref,read=1us,read=1us", "`read` is given twice"),
        ("mem:ref,shop=1", "`shop` is no key of a drive; the keys are: size, store"),
        ("mem:ref,siz=1G", "`siz` is no key of a drive; did you mean `size`? The keys are: size"),
        ("mem:ref,shard=2", "did you mean `shards`?"),
        // As others call it; of a drive that has no such key, nothing.
        ("mem:ref,op=0.25", "did you mean `spare`?"),
        ("mem:ref,Over-Provisioning=0.28", "did you mean `spare`?"),
        ("mem:ref,gc=fifo", "did you mean `victim`?"),
        ("null:op=1", "`op` is no key of a drive; the keys are"),
        ("mem:ref,shards=3", "a divisor of its groups, 1, 2, 4, 8, of size 64K"),
        ("null:submit_queue=1", "did you mean `submit_queues`?"),
        ("notes.txt", "for example mem:ref,size=8G or ./notes.txt"),
        ("mem:ref,store=disk", "memory, checksum or none"),
        ("mem:ref,target=ftl", "it takes pblk"),
        ("mem:ref,victim=d-choices", "d-choices:N"),
        ("mem:ref,victim=d-choices:0", "d-choices:N"),
        ("mem:ref,streams=0", "`streams` cannot be `0`"),
        ("mem:ref,streams=5", "it takes 1 to 4"),
        ("mem:ref,target=batch,victim=fifo", "greedy with target=batch, kv or rules"),
        ("mem:ref,target=batch,streams=2", "1 with target=batch"),
        ("mem:ref,cache=none", "volatile or protected"),
        ("mem:ref,spare=0.95", "0.01 to 0.9"),
        ("mem:ref,read=75", "`read` cannot be `75`"),
        ("mem:ref,planes=9", "planes = 9 is out of range"),
        ("mem:ref,size=16777215T", "too large"),
        ("mem:ref,pages=65536,planes=8,page=32k,groups=256,pus=256", "blocks in all"),
    ] {
        let err = error(text);
        assert!(err.contains(says), "{text}: {err}");
    }
}

#[test]
fn a_profile_may_be_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let mut profile = Profile::builtin("ref").unwrap();
    profile.set("groups", "2").unwrap();
    std::fs::write(&path, profile.to_toml()).unwrap();
    let c = mem(&format!("mem:{},pus=1", path.display())).unwrap();
    assert_eq!(c.geometry.total_pus(), 2);
    std::fs::write(&path, "[geometry]\ngrops = 1\n").unwrap();
    let err = error(&format!("mem:{}", path.display()));
    assert!(err.contains("mine.toml: unknown key `geometry.grops`"), "{err}");
    std::fs::write(&path, "base = \"ref\"\n[ftl]\nvictim = \"fifo\"\n").unwrap();
    let err = error(&format!("mem:{}", path.display()));
    assert!(err.contains("`ftl.victim` is no key of a profile"), "{err}");
    assert!(err.contains("mine.toml,victim="), "{err}");
}

#[test]
fn nbd_addresses() {
    for (text, address) in [
        ("/run/a.sock", NbdAddress::Unix("/run/a.sock".into())),
        ("a.sock", NbdAddress::Unix("a.sock".into())),
        ("./odd:name/a", NbdAddress::Unix("./odd:name/a".into())),
        ("127.0.0.1:10809", NbdAddress::Tcp("127.0.0.1".into(), 10809)),
        ("[::1]:10809", NbdAddress::Tcp("[::1]".into(), 10809)),
    ] {
        assert_eq!(text.parse::<NbdAddress>().unwrap(), address);
        assert_eq!(address.to_string(), text);
    }
    for bad in ["", ":10809", "host:", "host:99999", "::1:10809"] {
        assert!(bad.parse::<NbdAddress>().is_err(), "{bad}");
    }
}

/// A path of a socket that the system does not take is refused by its length.
#[test]
fn paths_of_sockets_are_as_long_as_the_system_takes() {
    for (bytes, fits) in [(107, true), (108, false)] {
        let path = format!("/{}", "x".repeat(bytes - 1));
        let bound = std::os::unix::net::SocketAddr::from_pathname(&path);
        assert_eq!(bound.is_ok(), fits, "{bound:?}");
        for name in ["nbd:", "nbd+unix:///?socket=", "channel:"] {
            let parsed = format!("{name}{path}").parse::<DriveSpec>().map_err(|e| e.to_string());
            assert_eq!(parsed.is_ok(), fits, "{parsed:?}");
            let says = "has 107 bytes at most, and this one has 108";
            assert!(parsed.err().is_none_or(|e| e.contains(says)));
        }
    }
}

#[test]
fn served_drives_are_named_by_uri_too() {
    for (uri, name) in [
        ("nbd+unix:///?socket=/tmp/a.sock", "nbd:/tmp/a.sock"),
        ("nbd+unix:///?socket=a.sock", "nbd:a.sock"),
        ("nbd://localhost", "nbd:localhost:10809"),
        ("nbd://127.0.0.1:7/", "nbd:127.0.0.1:7"),
        ("nbd://[::1]", "nbd:[::1]:10809"),
        ("nbd+unix:///target1?socket=a.sock", "nbd+unix:///target1?socket=a.sock"),
        ("nbd://host/target1", "nbd://host:10809/target1"),
    ] {
        assert_eq!(uri.parse::<DriveSpec>().unwrap().to_string(), name);
    }
    for bad in [
        "nbd://",
        "nbd:///export",
        "nbd://host:port",
        "nbd://host/a/b",
        "nbd+unix:///a%20?socket=a",
        "nbd+unix:///a",
    ] {
        assert!(error(bad).contains("HOST:PORT"), "{bad}");
    }
}

#[test]
fn the_effective_configuration_hides_nothing() {
    let v = mem("mem:ref,size=8G,store=none,victim=fifo,read=50us").unwrap().effective();
    assert_eq!(v["name"], "mem:ref,size=8G,store=none,victim=fifo,read=50us");
    assert_eq!(v["size_bytes"], 8u64 << 30);
    assert_eq!(v["profile"]["timing"]["read"], "50us");
    assert_eq!(v["profile"]["geometry"]["chunks"], 80);
    let reserve = v["reserve_chunks_per_pu"].as_u64().unwrap();
    assert!(reserve > 3 && v["total_chunks_per_pu"] == 80 + reserve);
    assert_eq!((v["store"].as_str(), v["victim"].as_str()), (Some("none"), Some("fifo")));
    assert_eq!(v["cache"], "volatile");
    let size = mem("mem:ref,size=1G,cache=protected").unwrap();
    assert_eq!(size.effective()["cache"], "protected");
    assert_eq!(size.cache_mode(), CacheMode::Protected { journal: 32 << 20 });
}

fn null(text: &str) -> NullSpec {
    match text.parse() {
        Ok(DriveSpec::Null(spec)) => spec,
        other => panic!("{text}: {other:?}"),
    }
}

fn file(text: &str) -> StorageSpec {
    match text.parse() {
        Ok(DriveSpec::Storage(spec)) => spec,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn null_drives_have_the_keys_of_null_blk() {
    let plain = null("null:");
    assert!(!plain.is_timed());
    assert_eq!(plain.untimed(), blkmq::driver::null::NullOptions::default());
    let text = "null:submit_queues=2,poll_queues=1,hw_queue_depth=32,gb=8,shared_tags=yes,\
                completion_nsec=10us,mbps=100,servers=4,shared_servers=yes,slow=1ms:50,\
                lost_every=7,gone_after=9";
    let timed = null(text);
    assert_eq!(timed.to_string(), text);
    assert_eq!(timed.options.completion_nsec, 10_000);
    let slow = timed.options.slow.unwrap();
    assert_eq!((slow.completion_nsec, slow.in_65536), (1_000_000, 1 << 15));
    assert_eq!(null("null:completion_nsec=5").options.completion_nsec, 5, "as null_blk has it");
    for percent in ["1", "0.01", "33.3", "100", "0"] {
        let text = format!("null:completion_nsec=1us,slow=1ms:{percent}");
        assert_eq!(null(&text).to_string(), text);
    }
    for (text, says) in [
        ("null:slow=1ms:1", "add completion_nsec"),
        ("null:completion_nsec=1us,slow=1ms", "TIME:PERCENT"),
        ("null:completion_nsec=1us,slow=1ms:101", "TIME:PERCENT"),
        ("null:completion_nsec=fast", "a time"),
        ("null:servers=4", "add completion_nsec"),
        ("null:home=1", "the keys are: submit_queues"),
        ("null:gb=1,gb=1", "given twice"),
        ("null:gb=-1", "a number"),
        ("null:shared_tags=1", "yes or no"),
        ("null:gb", "not key=value"),
    ] {
        let error = text.parse::<DriveSpec>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn what_has_a_slash_is_a_path() {
    for (text, path) in [
        ("/dev/sda", "/dev/sda"),
        ("./a", "./a"),
        ("/dev/disk/by-path/pci-0000:00", "/dev/disk/by-path/pci-0000:00"),
        ("file:a", "a"),
        ("file:a:b,direct=no", "a:b"),
    ] {
        assert_eq!(file(text).path, path);
    }
    let text = "file:a/b,size=1G,engine=libaio,direct=no,poll=hybrid,queues=3,depth=64,read_only=yes,\
                sqpoll=2ms";
    let spec = file(text);
    assert_eq!(spec.to_string(), text);
    let options = spec.options(4, true);
    assert_eq!((options.queues, options.poll_queues, options.depth), (3, 3, 64));
    assert!(options.shared && options.read_only && !options.direct);
    let lone = file("./a,engine=psync").options(1, true);
    assert_eq!((lone.engine.name(), lone.depth), ("psync", 1));
    let options = file("./a").options(4, false);
    assert_eq!((options.queues, options.poll_queues), (4, 0));
    assert!(!options.shared && options.read_only, "what is not written is not opened for it");
    for (text, says) in [
        ("file:", "a path with a `/`"),
        ("a", "a path with a `/`"),
        ("./a,", "not key=value"),
        ("./a,poll=often", "no, auto, iopoll or hybrid"),
        ("./a,sqpoll=10us", "1ms or more"),
        ("./a,engine=mmap", "io_uring, libaio, psync or pvsync2"),
        ("./a,size=1000", "a multiple of 4 KiB"),
        ("./a,spare=1", "the keys are: size, engine, direct"),
    ] {
        let error = text.parse::<DriveSpec>().unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

/// A file that the system lets be no larger is not left behind, empty.
#[test]
fn a_file_that_cannot_be_made_is_not_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.img");
    let spec = file(path.to_str().unwrap());
    assert!(spec.create(u64::MAX).is_err());
    assert!(!path.exists());
    spec.create(1 << 20).unwrap();
    assert!(spec.create(1 << 21).is_err(), "it is there already");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
}

fn specs() -> impl Strategy<Value = MemorySpec> {
    let victims = prop_oneof![
        Just(Victim::Greedy),
        Just(Victim::Fifo),
        Just(Victim::Random),
        Just(Victim::CostBenefit),
        (1u32..=1000).prop_map(Victim::DChoices)
    ];
    let stores = prop_oneof![Just(Store::Memory), Just(Store::Checksum), Just(Store::None)];
    let widths = prop_oneof![Just(0u32), 3u32..=64];
    let caches = prop_oneof![Just(Cache::Volatile), Just(Cache::Protected)];
    let overrides = prop::sample::subsequence(
        vec![
            ("groups", "3"),
            ("spare", "0.125"),
            ("read", "1us/2us/3us"),
            ("channel_rate", "none"),
            ("suspend", "true"),
            ("endurance", "none"),
            ("side", "host"),
            ("pages", "7"),
        ],
        0..8,
    );
    let profiles = prop_oneof![Just("ref"), Just("tlc"), Just("./a file=1.toml")];
    let sizes = prop::option::of(1u64..1 << 40);
    let places = prop_oneof![Just(Placement::Isolate), Just(Placement::Stripe)];
    let units = prop::collection::vec(1u32..=64, 1..5);
    let counts = (1u32..5, 1u32..5, units, places);
    (profiles, sizes, stores, victims, (widths, caches, counts), overrides.prop_shuffle()).prop_map(
        |(profile, blocks, store, victim, (parity, cache, counts), overrides)| {
            let (shards, streams, units, placement) = counts;
            let targets = if units.len() == 1 { units[0] } else { units.len() as u32 };
            let units = if units.len() == 1 { Vec::new() } else { units };
            MemorySpec {
                profile: profile.into(),
                size: blocks.map(|b| b * BLOCK_BYTES),
                store,
                target: TargetKind::Pblk,
                keys: 0,
                kinds: Vec::new(),
                rules: String::new(),
                remote: None,
                victim,
                streams,
                parity,
                cache,
                shards,
                targets,
                placement,
                units,
                overrides: overrides.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            }
        },
    )
}

/// Of the 32 units of `tlc`.
const UNEQUAL: &str = "units=1/7/24";

#[test]
fn targets_are_all_of_the_drive() {
    for name in [
        "mem:ref,size=1G",
        "mem:tlc",
        "mem:tlc,size=3G,spare=0.2",
        "mem:tlc,size=1G,slc_cache=512M",
        "mem:tlc,size=1G,factory_bad=0.002",
    ] {
        for more in ["targets=2", "targets=4", "targets=3,placement=stripe", UNEQUAL] {
            let full = format!("{name},{more}");
            let config = match mem(&full) {
                Ok(config) => config,
                // Thirds of a GiB, and of the chunks of a profile.
                Err(e) => {
                    assert!(matches!(e, DriveError::Targets { .. }), "{full}: {e}");
                    assert!(full.contains("targets=3") || full.contains("mem:ref"), "{full}: {e}");
                    continue;
                }
            };
            if config.free_units() > 0 {
                assert!(full.contains("mem:ref") && more == UNEQUAL, "{full}");
                continue;
            }
            let all: Vec<_> = (0..config.targets()).map(|n| config.target(n)).collect();
            let sum = |of: fn(&DriveConfig) -> u64| all.iter().map(of).sum::<u64>();
            assert_eq!(sum(|one| one.size), config.size, "{full}");
            assert_eq!(sum(|one| one.geometry.blocks()), config.geometry.blocks(), "{full}");
            let idle = |one: &DriveConfig| u64::from(one.above.total_pus()) * u64::from(one.idle);
            let idle: u64 = all.iter().map(idle).sum();
            let chunks = u64::from(config.above.total_pus()) * u64::from(config.data_chunks());
            let data = chunks * u64::from(config.above.chunk_blocks()) - idle;
            assert_eq!(sum(DriveConfig::data_blocks), data, "{full}");
            assert_eq!(config.data_blocks(), data, "{full}");
            for one in &all {
                assert!(one.spare() > 0.0 && one.size.is_multiple_of(1 << 20), "{full}");
            }
        }
    }
    for (name, why) in [
        ("mem:ref,size=1G,targets=2,shards=2", "shards is for a drive of one target"),
        ("mem:tlc,size=1G,units=99", "`units` cannot be `99` in the drive's name"),
        ("mem:tlc,size=1G,units=8/8,shards=2", "`units` cannot be `8/8` in the drive's name"),
        ("mem:tlc,size=1G,target=kv/kv", "`target` cannot be `kv/kv` in the drive's name"),
        ("mem:tlc,size=1G,targets=2,parity=4", "`targets` cannot be `2` in the drive's name"),
        ("mem:tlc,size=1G,targets=2,parity=4", "parity is for a drive of one target"),
        ("mem:tlc,size=1G,targets=2,target=batch", "target=batch is for a drive of one target"),
        ("mem:tlc,size=100M,targets=8", "whole MiB"),
        ("mem:tlc,size=63M,targets=63", "take a divisor"),
        ("mem:tlc,targets=65", "1 to 64"),
        ("mem:tlc,units=1/32", "32 parallel units: take units= that are as many"),
        ("mem:tlc,units=0/32", "units"),
        ("mem:tlc,units=", "units"),
        ("mem:tlc,units=16/16,placement=stripe", "placement=isolate"),
        ("mem:tlc,targets=0", "1 to 64"),
        ("mem:tlc,targets=2,placement=near", "isolate or stripe"),
    ] {
        let text = mem(name).unwrap_err().to_string();
        assert!(text.contains(why), "{name}: {text}");
    }
}

/// Targets come where there are units, and go; what the drive is stays, and each has what one
/// of as many units has had from the beginning.
#[test]
fn targets_come_and_go() {
    let config = mem("mem:tlc,size=1G,units=4/2/8").unwrap();
    assert_eq!((config.free_units(), config.size), (18, 1 << 30));
    let firsts: Vec<u64> = (0..3).map(|n| config.first_byte(n)).collect();
    assert_eq!(firsts, [0, 128 << 20, 192 << 20]);
    let (more, at) = config.with_target(Some("mine"), Some(16), NewTarget::Pblk).unwrap();
    assert_eq!((at, more.free_units(), more.first_byte(3)), (3, 2, 448 << 20));
    assert_eq!(more.target(3).size, 512 << 20);
    // A hole is filled by what fits there, under a name that is free.
    let less = more.without_target("target1").unwrap();
    assert_eq!((less.targets(), less.free_units()), (3, 4));
    let (again, at) = less.with_target(None, Some(2), NewTarget::Pblk).unwrap();
    assert_eq!((at, again.parts == more.parts), (1, true));
    for (name, units, why) in [
        (Some("mine"), Some(1), "already"),
        (Some("ssdkit"), Some(1), "is no name"),
        (Some("a/b"), Some(1), "is no name"),
        (Some(""), Some(1), "is no name"),
        (None, Some(3), "no 3 parallel units beside each other"),
        (None, Some(0), "a parallel unit at least"),
        (None, None, "--units"),
    ] {
        let e = less.with_target(name, units, NewTarget::Pblk).err().unwrap_or_default();
        assert!(e.contains(why), "{name:?}: {e}");
    }
    assert!(less.without_target("target1").err().unwrap().contains("there is no target"));
    let one = mem("mem:tlc,size=1G,units=8").unwrap();
    assert!(one.without_target("target0").err().unwrap().contains("one at least"));
    let odd = mem("mem:tlc,size=48M,units=2/2").unwrap();
    let e = odd.with_target(None, Some(1), NewTarget::Pblk).err().unwrap();
    assert!(e.contains("take a multiple of 2 units"), "{e}");
    // Slices of all units are alike.
    let striped = mem("mem:tlc,size=1G,targets=4,placement=stripe").unwrap();
    assert!(
        striped
            .with_target(None, None, NewTarget::Pblk)
            .err()
            .unwrap()
            .contains("remove one first")
    );
    let less = striped.without_target("target2").unwrap();
    assert!(
        less.with_target(None, Some(1), NewTarget::Pblk)
            .err()
            .unwrap()
            .contains("leave --units out")
    );
    let (again, at) = less.with_target(None, None, NewTarget::Pblk).unwrap();
    assert_eq!((at, again.parts == striped.parts, again.first_byte(2)), (2, true, 512 << 20));
}

#[test]
fn shards_are_all_of_the_drive() {
    for name in ["mem:ref,size=1G", "mem:ref,size=1000004K", "mem:tlc", "mem:tlc,parity=4,size=2G"]
    {
        let whole = mem(name).unwrap();
        for shards in [2, 4] {
            let config = mem(&format!("{name},shards={shards}")).unwrap();
            let parts: Vec<_> = (0..shards).map(|shard| config.shard(shard)).collect();
            let sum = |of: fn(&DriveConfig) -> u64| parts.iter().map(of).sum::<u64>();
            assert_eq!(sum(|part| part.size), config.size, "{name}");
            assert_eq!(sum(DriveConfig::data_blocks), config.data_blocks(), "{name}");
            assert_eq!(sum(|part| part.geometry.blocks()), config.geometry.blocks(), "{name}");
            assert!(parts.iter().all(|part| part.spare() > config.spare() - 1e-3), "{name}");
            assert!(whole.size - config.size < 64 << 12, "{name}");
            assert!((whole.spare() - config.spare()).abs() < 1e-3, "{name}");
        }
    }
    for wrong in ["ref,shards=3", "ref,shards=0", "ref,shards=16", "ref,size=64K,shards=2"] {
        let e = error(&format!("mem:{wrong}"));
        assert!(e.contains("`shards` cannot be `"), "{wrong}: {e}");
    }
}

proptest! {
    #[test]
    fn a_printed_name_reads_back(spec in specs()) {
        let text = spec.to_string();
        prop_assert_eq!(text.parse::<DriveSpec>().unwrap(), DriveSpec::Memory(spec));
    }

    #[test]
    fn the_spare_is_kept_exactly_or_refused(
        blocks in 1u64..1 << 24,
        spare in 1u32..=90,
        groups in 1u32..9,
        pages in 1u32..300,
    ) {
        let size = blocks * BLOCK_BYTES;
        let spare = f64::from(spare) / 100.0;
        let keys = format!("size={size},spare={spare},groups={groups},pages={pages}");
        let pus = u64::from(groups) * 8;
        match mem(&format!("mem:ref,{keys}")) {
            Ok(c) => {
                prop_assert_eq!(c.size, size);
                prop_assert!(c.spare() >= spare - 1e-12);
                let fewer = c.data_blocks() - pus;
                prop_assert!((fewer as f64) * (1.0 - spare) < blocks as f64 + 1e-6);
            }
            Err(DriveError::Spare { nearest, nearest_size, .. }) => {
                prop_assert!(nearest > spare && nearest_size > size);
                let more = format!("mem:ref,size={nearest_size},spare={spare}");
                let more = mem(&format!("{more},groups={groups},pages={pages}"));
                prop_assert!(more.is_ok(), "{:?}", more.err());
                if nearest <= 0.9 {
                    let keys = format!("size={size},spare={nearest}");
                    let less = mem(&format!("mem:ref,{keys},groups={groups},pages={pages}"));
                    prop_assert!(less.is_ok(), "{:?}", less.err());
                }
            }
            Err(e) => prop_assert!(false, "{e}"),
        }
    }

    #[test]
    fn without_a_size_none_is_left_over(spare in 1u32..=90, chunks in 1u32..300) {
        let spare = f64::from(spare) / 100.0;
        let c = mem(&format!("mem:ref,chunks={chunks},spare={spare}")).unwrap();
        let exact = c.data_blocks() as f64 * (1.0 - spare);
        prop_assert!((exact - c.logical_blocks() as f64) < 1.0 + 1e-6);
        prop_assert!(c.logical_blocks() as f64 <= exact + 1e-6);
    }

    #[test]
    fn no_text_panics(rest in "\\PC{0,60}") {
        let _ = rest.parse::<DriveSpec>();
        for scheme in ["nbd:", "channel:", "channel:a,", "null:", "file:", "/"] {
            if let Ok(spec) = format!("{scheme}{rest}").parse::<DriveSpec>() {
                prop_assert_eq!(spec.to_string().parse::<DriveSpec>().unwrap(), spec);
            }
        }
        if let Ok(DriveSpec::Memory(spec)) = format!("mem:ref,{rest}").parse::<DriveSpec>() {
            let _ = spec.resolve();
        }
    }
}
