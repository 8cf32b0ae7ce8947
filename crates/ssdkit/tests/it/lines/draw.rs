//! Draws command lines: what somebody could type, right and wrong.
//!
//! Most lines are nearly right, so that they get far: options agree with each
//! other, and drives are tiny. In the others some values are what nobody
//! should write, or options contradict each other. The same seed and number
//! give the same line.

use workload::Rng;

/// Values that no option should choke on.
const JUNK: [&str; 22] = [
    "",
    "0",
    "1",
    "-1",
    "none",
    "yes",
    "1e9",
    "nan",
    "inf",
    "4k",
    "1s",
    "100%",
    "0.5",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "16E",
    "1000T",
    "\u{1d7d9}",
    "a,b",
    "=",
    "/",
];

/// What a key of a drive's name takes: some that are right, and some at the
/// ends of what can be or past them.
type Key = (&'static str, &'static [&'static str], &'static [&'static str]);

const GEOMETRY: &[Key] = &[
    ("groups", &["1", "2", "3", "4", "8"], &["0", "256", "257"]),
    ("pus", &["1", "2", "3", "4"], &["0", "64", "256", "300"]),
    ("planes", &["1", "2", "4", "8"], &["0", "3", "16"]),
    ("pages", &["6", "16", "48", "64", "100", "192"], &["0", "1", "2", "65536", "65537"]),
    ("page", &["4k", "8k", "16k"], &["64k", "2k", "128k", "5k"]),
    ("chunks", &["8", "16", "20", "40"], &["0", "1", "2", "5", "16000000", "16777216", "16777217"]),
];

const OTHERS: &[Key] = &[
    ("spare", &["0.07", "0.1", "0.2", "0.28", "0.5", "0.9"], &["0.01", "0.001", "0.95", "-1"]),
    (
        "victim",
        &["greedy", "fifo", "random", "cost-benefit", "d-choices:3", "d-choices:10"],
        &["d-choices:0"],
    ),
    ("side", &["host", "device"], &["both"]),
    ("parity", &["2", "3", "4"], &["1", "8", "64", "65"]),
    ("cache", &["volatile", "protected"], &["none"]),
    ("store", &["memory", "checksum", "none"], &["disk"]),
    ("target", &["pblk"], &["batch"]),
    ("read", &["0ns", "1us", "60us/75us/110us"], &["1000s", "1ns/0ns", "2000s"]),
    ("program", &["0ns", "10us", "800us/2ms/5ms"], &["1000s", "0ns/1s"]),
    ("erase", &["0ns", "1ms"], &["1000s"]),
    ("command", &["0ns", "200ns"], &["1s"]),
    ("channel_rate", &["none", "100MB/s", "800MB/s"], &["1B/s", "18446744073GB/s"]),
    ("channel_split", &["1", "2"], &["8", "3"]),
    ("tags_on_channel", &["true", "false"], &["maybe"]),
    ("reads_first", &["true", "false"], &["1"]),
    ("read_burst", &["0", "1", "64", "none"], &["4294967295"]),
    ("suspend", &["true", "false"], &["2"]),
    ("suspend_time", &["0ns", "1us", "20us"], &["1000s"]),
    ("suspend_limit", &["0", "1", "16", "none"], &["4294967294"]),
    ("suspend_transfer", &["true", "false"], &["x"]),
    ("shared_reads", &["true", "false"], &["1"]),
    ("multi_plane_reads", &["none", "page", "type"], &["plane"]),
    ("copyback", &["0", "1", "3"], &["101", "none"]),
    ("unreadable", &["0", "1", "8"], &["64", "100000"]),
    ("open_chunks", &["none", "100000"], &["0", "1", "many"]),
    ("open_chunks_pu", &["none", "99"], &["0", "1", "-1"]),
    ("endurance", &["100", "5000", "none"], &["0", "1", "3"]),
    ("slc_cache", &["none", "1m", "4%", "50%"], &["100%", "0%", "64g", "1"]),
    ("slc_idle", &["0ns", "1ms"], &["1000s"]),
    ("idle_collection", &["none", "1ms"], &["0ns", "1000s"]),
    ("map_unit", &["4k", "8k", "16k", "256k"], &["2k", "5k", "512k"]),
    ("slc_program", &["100us"], &["0ns"]),
    ("slc_mark", &["0%", "50%", "100%"], &["101%"]),
    ("controller", &["0ns", "5us"], &["1s", "1000s"]),
    ("cores", &["none", "1", "4"], &["0", "65"]),
    ("core_read", &["0ns", "2us"], &["2s"]),
    ("queues", &["1", "2", "8"], &["0", "65"]),
    ("write_buffer", &["auto", "4m", "16m"], &["4k", "2g"]),
    ("buffer_rate", &["none", "2GB/s"], &["1B/s"]),
    ("link_latency", &["0ns", "500ns"], &["1s"]),
    ("link_rate", &["none", "3GB/s"], &["1B/s"]),
    ("errors", &["true"], &["2"]),
    ("rber_base", &["1e-4", "1e-3"], &["0.5", "0.6"]),
    ("factory_bad", &["0.01"], &["0.3", "0.5"]),
    ("program_failure", &["1e-3"], &["0.1", "1"]),
    ("erase_failure", &["1e-2"], &["1"]),
];

const PROFILES: [&str; 9] =
    ["ref", "znand", "bics", "vnand", "tlc", "qlc", "pcm", "openssd", "null"];

const RULES: [&str; 14] = [
    "above:read,every=7",
    "above:write,probability=0.05",
    "above:any,every=10,delay=1ms",
    "above:flush,count=1",
    "above:trim,every=2,status=aborted",
    "below:write,probability=0.01",
    "below:read,probability=0.01",
    "below:any,every=20,delay=100us",
    "below:reset,every=3",
    "below:write,offset=0-1M,permanent",
    "medium:bitrot,probability=1e-4",
    "medium:fail,probability=1e-3",
    "medium:lost,every=50",
    "medium:slow,every=9",
];

/// Draws lines.
pub struct Draw {
    rng: Rng,
    /// Out of 100, how likely a value is not what it should be.
    wild: u64,
}

impl Draw {
    /// Line `number` of `seed`: its words, without the program.
    pub fn line(seed: u64, number: u64) -> Vec<String> {
        let mut rng = Rng::new(seed, number);
        let wild = [0, 0, 0, 0, 0, 0, 2, 4, 10, 30][rng.below(10) as usize];
        let mut draw = Draw { rng, wild };
        match draw.rng.below(100) {
            0..65 => draw.bench(),
            65..67 => draw.test(),
            67..74 => draw.key_value(),
            74..82 => draw.create(),
            82..88 => draw.info(),
            88..91 => draw.copy(),
            91..95 => draw.serve(),
            95..97 => draw.profiles(),
            97 => draw.trace(),
            98 => draw.rules(),
            _ => draw.nothing(),
        }
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    fn is_wild(&mut self) -> bool {
        let wild = self.wild;
        self.chance(wild)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.rng.below(of.len() as u64) as usize]
    }

    /// One of `right`; sometimes one of `extreme`, or anything.
    fn value(&mut self, right: &[&str], extreme: &[&str]) -> String {
        let text = match self.is_wild() {
            false => self.one(right),
            true if extreme.is_empty() || self.chance(30) => self.one(&JUNK),
            true => self.one(extreme),
        };
        text.into()
    }

    /// Adds an option with a value, in so many percent of the lines.
    fn option(
        &mut self,
        line: &mut Vec<String>,
        percent: u64,
        name: &str,
        right: &[&str],
        extreme: &[&str],
    ) {
        if self.chance(percent) || self.is_wild() {
            line.push(name.into());
            line.push(self.value(right, extreme));
        }
    }

    fn flag(&mut self, line: &mut Vec<String>, percent: u64, name: &str) {
        if self.chance(percent) || self.is_wild() {
            line.push(name.into());
        }
    }

    /// The keys of a drive in memory; without `store` all of it is kept.
    fn keys(&mut self, sized: bool, store: bool) -> Vec<String> {
        let mut keys = Vec::new();
        if sized {
            let sizes = ["4M", "8M", "16M", "16M", "32M", "64M"];
            keys.push(format!("size={}", self.value(&sizes, &["4k", "12k", "1G", "64G", "100T"])));
        }
        let small = self.chance(60);
        for (name, right, extreme) in GEOMETRY.iter().copied() {
            // Without a size the geometry says how large it is.
            let needed = !sized || (small && name != "chunks");
            if (name != "chunks" || !sized || self.is_wild()) && (needed || self.is_wild()) {
                let right = if sized { right } else { &right[..3] };
                keys.push(format!("{name}={}", self.value(right, extreme)));
            }
        }
        for (name, right, extreme) in OTHERS.iter().copied() {
            let percent = match name {
                "spare" | "victim" | "side" => 25,
                "store" if store => 30,
                "store" => 0,
                "parity" | "cache" | "slc_cache" | "suspend" => 10,
                _ => 3,
            };
            if self.chance(percent) || self.is_wild() {
                keys.push(format!("{name}={}", self.value(right, extreme)));
            }
        }
        keys
    }

    /// A drive in memory.
    fn memory(&mut self, store: bool) -> String {
        let profile = self.value(&PROFILES, &["nope", "./p.toml", "./nope.toml", "./faults.txt"]);
        let sized = self.chance(80);
        let keys = self.keys(sized, store);
        format!("mem:{profile},{}", keys.join(","))
    }

    fn null(&mut self) -> String {
        let mut keys = Vec::new();
        let all: [Key; 11] = [
            ("submit_queues", &["1", "2", "3"], &["0", "1024", "70000"]),
            ("poll_queues", &["0", "1"], &["1024"]),
            ("hw_queue_depth", &["1", "8", "64"], &["0", "65535", "65536", "4294967296"]),
            ("gb", &["1", "250"], &["0", "1000000000", "18446744073709551615"]),
            ("shared_tags", &["yes", "no"], &["2"]),
            ("servers", &["1", "4"], &["0", "70000"]),
            ("shared_servers", &["yes"], &["x"]),
            ("mbps", &["0", "1000"], &["18446744073709551615"]),
            ("slow", &["1ms:1", "1us:50"], &["1000s:100", "1:101"]),
            ("lost_every", &["100"], &["0", "1"]),
            ("gone_after", &["100"], &["0", "1"]),
        ];
        let timed = self.chance(60);
        if timed {
            let time = self.value(&["1us", "10us", "100us"], &["0", "1ns", "1000s"]);
            keys.push(format!("completion_nsec={time}"));
        }
        for (i, (name, right, extreme)) in all.into_iter().enumerate() {
            let percent = if i < 5 || (timed && i < 9) { 20 } else { 0 };
            if self.chance(percent) || self.is_wild() {
                keys.push(format!("{name}={}", self.value(right, extreme)));
            }
        }
        format!("null:{}", keys.join(","))
    }

    fn file(&mut self) -> String {
        let mut name = String::from("./disk.img");
        let all: [Key; 7] = [
            ("engine", &["io_uring", "libaio", "psync", "pvsync2"], &["mmap"]),
            ("direct", &["yes", "no"], &["2"]),
            ("poll", &["no", "auto", "hybrid"], &["iopoll", "2"]),
            ("queues", &["1", "2"], &["0", "1000"]),
            ("depth", &["1", "8", "128"], &["0", "70000", "4294967295"]),
            ("read_only", &["no"], &["yes"]),
            ("sqpoll", &["10ms"], &["0", "1000s"]),
        ];
        for (key, right, extreme) in all {
            let percent = if key == "sqpoll" { 2 } else { 10 };
            if self.chance(percent) || self.is_wild() {
                name += &format!(",{key}={}", self.value(right, extreme));
            }
        }
        name
    }

    /// `ssdkit test`.
    fn test(&mut self) -> Vec<String> {
        let names = [
            "iops",
            "throughput",
            "latency",
            "write-saturation",
            "recovery",
            "cross-stimulus",
            "pessimistic",
            "interference",
            "open-loop",
        ];
        let mut line = vec!["test".to_string(), self.value(&names, &["none"])];
        line.push(match self.rng.below(4) {
            0 => self.value(&["ssd:a.ssd,copy=yes", "./b.ssd", "./disk.img"], &["null:", "/"]),
            _ => self.memory(true),
        });
        line.extend(["--max-time".into(), self.value(&["1s", "2s"], &["1ns", "1ms"])]);
        self.flag(&mut line, 80, "--quick");
        self.flag(&mut line, 50, "--destroy");
        self.flag(&mut line, 10, "--as-is");
        self.option(&mut line, 10, "--qd", &["1", "7", "256"], &["0", "1024", "1025"]);
        self.option(
            &mut line,
            10,
            "--period",
            &["1ms", "20ms", "50ms"],
            &["1d", "1us", "0", "1000d"],
        );
        self.option(&mut line, 3, "--read-percent", &["0", "50", "100"], &["101"]);
        self.option(&mut line, 5, "--clock", &["virtual", "real"], &[]);
        self.flag(&mut line, 50, "--json");
        line
    }

    /// `ssdkit bench`.
    fn bench(&mut self) -> Vec<String> {
        let mut line = vec!["bench".to_string()];
        let kind = self.rng.below(100);
        line.push(match kind {
            0..72 => self.memory(true),
            72..83 => self.null(),
            83..88 => self.file(),
            88..98 => self.value(
                &["ssd:a.ssd,copy=yes", "ssd:b.ssd,copy=yes", "./a.ssd", "ssd:b.ssd"],
                &["ssd:nope.ssd", "ssd:disk.img", "./faults.txt", "/dev/null", "/", "ssd:"],
            ),
            _ => self.value(&["nbd:./nope.sock"], &["nbd:", "nbd:127.0.0.1:1", "ftp:x", ""]),
        });
        let ours = kind < 72 || (88..98).contains(&kind);
        let null = (72..83).contains(&kind);
        let rw = self.value(
            &["randread", "randwrite", "randrw", "write", "read", "trim", "randwrite", "randrw"],
            &["randtrim"],
        );
        let (random, writes) = (rw.starts_with("rand"), rw.contains('w'));
        line.extend(["--rw".into(), rw.clone()]);
        if rw == "randrw" || self.is_wild() {
            self.option(&mut line, 50, "--read-percent", &["0", "1", "70", "100"], &["101"]);
        }
        let parts = line[1].starts_with("mem:") && !line[1].contains("store=");
        let sizes: &[&str] = &["4k", "4k", "8k", "16k", "64k", "128k", "1M"];
        let bs = match parts && self.chance(30) {
            true => self.value(&["512", "1k", "3k", "5632"], &["511", "0"]),
            false => self.value(sizes, &["512", "2M", "0", "1000"]),
        };
        line.extend(["--bs".into(), bs]);
        let rate = self.chance(10);
        let depth = ["1", "2", "7", "32", "128", "512"][self.rng.below(6) as usize];
        if rate {
            self.option(&mut line, 100, "--rate", &["100", "10k", "1M"], &["1", "0", "100G"]);
            self.option(&mut line, 50, "--arrivals", &["poisson", "fixed"], &[]);
        } else {
            self.option(&mut line, 90, "--qd", &[depth], &["0", "65536", "65537"]);
        }
        self.option(&mut line, 25, "--threads", &["2", "3", "5", "16"], &["0", "1024", "1025"]);
        match self.rng.below(4) {
            0 => self.option(&mut line, 100, "--time", &["1us", "1ms", "20ms"], &["1d", "0"]),
            _ => self.option(&mut line, 100, "--ios", &["1", "30", "300", "2k"], &["1T", "0"]),
        }
        self.option(&mut line, 8, "--ramp", &["0s", "1us", "1ms"], &["1000s"]);
        let (ends, seed) = (["1s", "2s"], self.rng.below(1000).to_string());
        line.extend(["--max-time".into(), self.value(&ends, &["1ns", "1ms"])]);
        line.extend(["--seed".into(), seed]);
        if !null {
            self.option(&mut line, 25, "--precondition", &["seq", "seq", "none", "steady"], &[]);
        }
        if random {
            match self.rng.below(8) {
                0 => self.option(&mut line, 100, "--zipf", &["0.5", "0.99", "1.2", "5"], &["6"]),
                1 => self.option(&mut line, 100, "--hot", &["10:90", "50:50"], &["0:0", "99:1"]),
                _ => {}
            }
        }
        self.option(&mut line, 6, "--range", &["1M", "2M+2M", "1M+64k"], &["4k", "1G", "3k+5k"]);
        if writes {
            self.option(&mut line, 12, "--fua-every", &["1", "10", "100"], &["0"]);
            self.option(&mut line, 12, "--flush-every", &["1", "10", "100"], &["0"]);
        }
        let is_file = line[1].starts_with('.') || line[1] == "ssd:b.ssd";
        self.flag(&mut line, if is_file { 80 } else { 1 }, "--destroy");
        self.flag(&mut line, 50, "--json");
        let verify = !null && !line[1].contains("store=none") && self.chance(25);
        self.flag(&mut line, if verify { 100 } else { 0 }, "--verify");
        if ours {
            let plain = !line[1].contains("protected") && !line[1].contains("b.ssd");
            let percent = if plain { 10 } else { 1 };
            self.option(&mut line, percent, "--fault", &RULES, &["above:", "x", "medium:bitrot"]);
            self.option(&mut line, 1, "--faults", &["faults.txt"], &["nope", "/dev/null", "."]);
            self.option(&mut line, 3, "--snapshot", &["new.ssd"], &["a.ssd", "nope/x.ssd"]);
            self.option(&mut line, 2, "--seeds", &["5"], &["0", "4", "21"]);
        }
        self.layer(&mut line, ours, verify, if rate { "65536" } else { depth });
        line
    }

    /// The options of the block layer.
    fn layer(&mut self, line: &mut Vec<String>, ours: bool, verify: bool, depth: &str) {
        let mut hosted = false;
        if !self.chance(45) && !self.is_wild() {
            let clocks: &[&str] = if line[1].contains("null:") { &["real"] } else { &["virtual"] };
            self.option(line, 5, "--clock", clocks, &["real", "virtual"]);
            return;
        }
        if ours {
            hosted = self.chance(30);
            if hosted {
                self.option(
                    line,
                    100,
                    "--dispatch",
                    &["hosted", "hosted:2", "hosted:4"],
                    &["hosted:0", "hosted:1024", "hosted:1025", "inline"],
                );
                self.option(
                    line,
                    40,
                    "--completion",
                    &["poll", "interrupt", "hybrid", "adaptive"],
                    &[],
                );
            } else {
                self.option(line, 20, "--clock", &["real"], &["virtual"]);
            }
            self.option(line, 30, "--dispatch-depth", &["1", "2", "8", "1000"], &["0", "65535"]);
        }
        let real = hosted || line.iter().any(|word| word == "real") || !ours;
        let most = if verify && real { 1 } else { 4 };
        let cores = 1 + self.rng.below(most);
        let text = cores.to_string();
        self.option(line, 60, "--cores", &[&text], &["0", "64", "1024", "1025"]);
        let cores = if line.iter().any(|word| word == "--cores") { cores } else { 1 };
        let sockets = (1 + self.rng.below(cores)).to_string();
        self.option(line, 20, "--sockets", &[&sockets], &["0", "5", "1024"]);
        self.option(line, 30, "--staging", &["one", "socket", "core"], &["two"]);
        self.option(line, 40, "--scheduler", &["none", "deadline", "fair"], &["cfq"]);
        if line.iter().any(|word| word == "fair") {
            let weights = if cores > 1 { "1,4" } else { "7" };
            self.option(line, 40, "--weights", &[weights], &["0", "1,2,3,4,5,6,7", "1000,1"]);
        }
        self.option(line, 30, "--merge", &["off", "simple", "full"], &["all"]);
        if self.chance(25) {
            let plug = self.value(&["2", "32", "1000"], &["0", "65536"]);
            line.push(format!("--plug={plug}"));
        }
        self.option(line, 12, "--timeout", &["30s", "10ms", "100us"], &["1ns", "1us", "0"]);
        self.option(line, 15, "--batch", &["1", depth], &["65536", "65537"]);
        self.option(line, 8, "--trace", &["new.trace"], &["nope/x", "."]);
        if hosted || real {
            self.flag(line, 3, "--pin");
        }
    }

    /// `ssdkit ycsb`.
    fn key_value(&mut self) -> Vec<String> {
        let (a, b) = ("ycsb".to_string(), format!("mem:{}", self.value(&PROFILES, &["nope"])));
        let mut line = vec![a, b, "--workload".into()];
        line.push(self.value(&["A", "B", "c", "D", "E", "F", "paper"], &["G"]));
        if self.chance(30) {
            let keys = self.keys(false, false).join(",");
            line[1] += &format!(",{keys}");
        }
        self.option(&mut line, 100, "--records", &["1", "200", "1k"], &["3G", "0"]);
        self.option(&mut line, 100, "--ops", &["1", "300", "2k"], &["2T", "0"]);
        self.option(&mut line, 30, "--memory", &["25%", "1000%", "1M", "0.1%"], &["0%", "0", "1T"]);
        self.option(&mut line, 70, "--pages", &["batched", "log", "in-place"], &["x"]);
        self.flag(&mut line, 20, "--not-durable");
        self.option(&mut line, 50, "--clients", &["1", "7", "128"], &["0", "400", "401"]);
        self.option(&mut line, 10, "--controller-time", &["1us", "20us"], &["0", "1000s"]);
        self.option(&mut line, 20, "--clock", &["virtual", "real"], &[]);
        self.flag(&mut line, 30, "--verify");
        self.flag(&mut line, 50, "--json");
        line.extend(["--max-time".into(), "2s".into()]);
        line
    }

    /// `ssdkit create`.
    fn create(&mut self) -> Vec<String> {
        let mut line = vec!["create".to_string()];
        line.push(self.value(&["c.ssd"], &["a.ssd", "nope/c.ssd", ".", "/dev/null", "disk.img"]));
        self.option(&mut line, 100, "--profile", &PROFILES, &["./p.toml", "nope", "faults.txt"]);
        self.option(&mut line, 90, "--size", &["4M", "16M", "64M"], &["0", "4k", "5000", "100T"]);
        self.option(&mut line, 20, "--spare", &["0.07", "0.3"], &["0.001", "0.9", "1"]);
        self.option(&mut line, 20, "--store", &["memory", "checksum", "none"], &["x"]);
        self.option(
            &mut line,
            20,
            "--victim",
            &["fifo", "greedy", "d-choices:4"],
            &["d-choices:0"],
        );
        self.option(&mut line, 20, "--cache", &["volatile", "protected"], &["x"]);
        self.option(&mut line, 10, "--seed", &["7"], &["18446744073709551615"]);
        self.flag(&mut line, 10, "--force");
        self.flag(&mut line, 40, "--json");
        let keys = self.keys(false, false);
        let few = keys.into_iter().filter(|key| {
            let mut given = ["chunks", "spare", "victim", "cache"].into_iter();
            !given.any(|name| key.starts_with(name))
        });
        line.extend(few);
        line
    }

    fn info(&mut self) -> Vec<String> {
        let drive = match self.chance(40) {
            true => self.value(&["a.ssd", "./b.ssd"], &["disk.img", "x.ssd", ".", "nope", ""]),
            false => self.memory(true),
        };
        let mut line = vec!["info".to_string(), drive];
        self.flag(&mut line, 50, "--json");
        line
    }

    fn copy(&mut self) -> Vec<String> {
        let from = self.value(&["a.ssd", "b.ssd"], &["disk.img", "x.ssd", "nope", "."]);
        let to = self.value(&["d.ssd"], &["a.ssd", "nope/d.ssd", "/dev/null", ""]);
        let mut line = vec!["snapshot".to_string(), from, to];
        self.flag(&mut line, 50, "--json");
        line
    }

    fn serve(&mut self) -> Vec<String> {
        let drive = match self.chance(30) {
            true => self.value(&["a.ssd", "./b.ssd"], &["disk.img", "x.ssd", "null:", "nope"]),
            false => self.memory(false),
        };
        let mut line = vec!["serve".to_string(), drive];
        if self.chance(60) {
            self.option(&mut line, 100, "--nbd", &["./n.sock", "127.0.0.1:0"], &["", "a:b:c", "."]);
        } else {
            self.option(&mut line, 100, "--redis", &["./r.sock"], &["", "127.0.0.1:99999"]);
            self.option(&mut line, 40, "--pages", &["batched", "log", "in-place"], &["x"]);
            self.option(&mut line, 40, "--sync", &["always", "everysec", "no"], &["x"]);
            self.option(&mut line, 40, "--memory", &["8M", "16M"], &["0", "4k", "100T"]);
            self.flag(&mut line, 40, "--destroy");
        }
        self.option(&mut line, 10, "--fault", &RULES, &["x"]);
        self.flag(&mut line, 50, "--json");
        line
    }

    fn profiles(&mut self) -> Vec<String> {
        let mut line = vec!["profiles".to_string()];
        match self.rng.below(3) {
            0 => line.push(
                self.value(&PROFILES, &["nope", "./p.toml", "./x.ssd", ".", "/dev/zero", "./pipe"]),
            ),
            1 => line.push(self.memory(true)),
            _ => {}
        }
        self.flag(&mut line, 50, "--json");
        line
    }

    fn trace(&mut self) -> Vec<String> {
        let mut line = vec!["trace".to_string()];
        line.push(
            self.value(&["t.trace"], &["x.trace", "a.ssd", ".", "nope", "/dev/null", "pipe"]),
        );
        self.option(&mut line, 50, "--slowest", &["0", "1", "20"], &["100000", "100001"]);
        self.option(&mut line, 40, "--from", &["0s", "10us", "1ms"], &["1000s"]);
        self.option(&mut line, 40, "--to", &["2ms", "1s"], &["0s", "1ns"]);
        self.flag(&mut line, 50, "--json");
        line
    }

    fn rules(&mut self) -> Vec<String> {
        let what = self.one(&["check", "print", "explain", "explain"]).to_string();
        let mut line = vec!["rules".to_string(), what.clone()];
        line.push(
            self.value(&["r.rules"], &["x.trace", "a.ssd", ".", "nope", "/dev/zero", "pipe"]),
        );
        if what == "explain" {
            line.push("--op".into());
            line.push(self.value(&["read", "write", "idle"], &["x", ""]));
            self.option(&mut line, 50, "--lba", &["0", "4096", "1M"], &["16E", "-1"]);
            self.option(&mut line, 50, "--len", &["4k", "0", "512"], &["16E"]);
            self.option(&mut line, 30, "--application", &["0", "1"], &["65536"]);
            self.option(
                &mut line,
                30,
                "--set",
                &["n=1", "m[3]=1"],
                &["m[", "=", "n=99", "m[99]=1"],
            );
        }
        if what == "check" {
            self.option(&mut line, 30, "--within", &["r.rules"], &["nope", "a.ssd"]);
            self.option(&mut line, 30, "--entries", &["64", "1G"], &["0", "-1"]);
        }
        self.flag(&mut line, 50, "--json");
        line
    }

    fn nothing(&mut self) -> Vec<String> {
        let lines = [
            "study",
            "study nope",
            "study --json",
            "study --report x.html",
            "study all --report nowhere/x.html",
            "study nope --report x.html --pictures x",
            "target list nope",
            "target create a.ssd x --units 1 --json",
            "target create . --units 0",
            "target remove pipe",
            "target remove t.trace target0",
            "--version",
            "bench --help",
            "help",
            "x",
        ];
        self.one(&lines).split(' ').map(str::to_string).collect()
    }
}
