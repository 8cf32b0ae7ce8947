//! A job as its keys come: each is looked up in its class and, where it runs, followed.
//!
//! Guarantees: a later key wins over an earlier one; what is inconsistent is found when
//! all are there. Nothing panics. Fails with the key's line.

use workload::{Sizes, Split, Varied};

use super::{Access, Company, Does, Extent, Job, Lasts, Pace, Skew};
use crate::error::{At, JobError};
use crate::file::{Key, Section};
use crate::keys::{self, Class};
use crate::value::{Amount, Base, flag, sides, time};

const SECOND: u64 = 1_000_000_000;
const MICRO: u64 = 1_000;
/// fio's list of percentiles.
pub(crate) const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
/// Percentiles in a list, at most: as many as fio takes.
const MOST_PERCENTILES: usize = 20;
/// Engines that have one request at a time, whatever `iodepth` says.
const SYNCHRONOUS: [&str; 7] = ["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap", "sg"];
/// Engines that keep as many out as `iodepth` says.
const ASYNCHRONOUS: [&str; 7] =
    ["libaio", "io_uring", "io_uring_cmd", "posixaio", "nbd", "windowsaio", "solarisaio"];

fn wrong(key: &Key, takes: &str) -> JobError {
    let value = key.value.clone().unwrap_or_default();
    JobError::Value { at: key.at.clone(), key: key.name.clone(), value, takes: takes.into() }
}

fn refused(key: &Key, instead: &str) -> JobError {
    let value = key.value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
    let name = format!("{}{value}", key.name);
    JobError::Refused { at: key.at.clone(), key: name, instead: instead.into() }
}

/// Keys that have a value, by their plain names: so fio prints them.
pub(crate) fn valued(keys: &[Key]) -> Vec<(String, String)> {
    let of = |key: &Key| Some((keys::plain(&key.name).to_string(), key.value.clone()?));
    keys.iter().filter_map(of).collect()
}

/// Sizes of one kind of request. A split or a range stays what it is when a `bs` follows
/// it, and a range fills in where a split is: as in fio.
#[derive(Clone, Copy, Default)]
struct Kind {
    bs: Option<u32>,
    range: Option<(u32, u32)>,
    split: Option<Split>,
}

/// A job, key by key.
#[derive(Clone, Default)]
pub(super) struct Draft {
    base: Base,
    /// Where its rate is.
    rate_at: Option<At>,
    name: Option<String>,
    description: Option<String>,
    filename: Option<String>,
    directory: Option<String>,
    rw: Option<(Does, bool)>,
    read_percent: Option<u8>,
    kinds: [Kind; 3],
    engine: Option<String>,
    is_direct: bool,
    flags: Flags,
    skew: Option<Skew>,
    amounts: Amounts,
    numbers: Numbers,
    percentiles: Option<Vec<f64>>,
    notes: Vec<String>,
}

#[derive(Clone, Default)]
struct Flags {
    norandommap: bool,
    time_based: bool,
    stonewall: bool,
    new_group: bool,
    group_reporting: bool,
    poisson: bool,
    verify: bool,
}

#[derive(Clone, Default)]
struct Amounts {
    offset: Option<Amount>,
    size: Option<Amount>,
    io_size: Option<Amount>,
}

/// Numbers that were given.
#[derive(Clone, Default)]
struct Numbers {
    iodepth: Option<u32>,
    numjobs: Option<u32>,
    loops: Option<u64>,
    number_ios: Option<u64>,
    increment: Option<u64>,
    fsync: Option<u32>,
    fdatasync: Option<u32>,
    runtime: Option<u64>,
    ramp: Option<u64>,
    rate: Option<u64>,
    rate_bytes: Option<u64>,
    think: Option<u64>,
    think_blocks: Option<u64>,
    seed: Option<u64>,
}

impl Draft {
    /// What k stands for in all of it.
    pub fn set_base(&mut self, key: &Key) -> Result<(), JobError> {
        self.base = match key.value.as_deref() {
            Some("1024") => Base::Old,
            Some("1000") => Base::Si,
            _ => return Err(wrong(key, "1024 or 1000")),
        };
        Ok(())
    }

    /// Takes a key that follows those before it.
    pub fn take(&mut self, key: &Key) -> Result<(), JobError> {
        let plain = keys::plain(&key.name);
        let value = key.value.as_deref();
        match keys::class(plain) {
            Some(Class::Runs) => self.set(plain, key),
            Some(Class::Told(_)) if keys::is_so(plain, value) => Ok(()),
            Some(Class::Told(why)) => {
                self.note(format!("{} is not done: {why}", key.name));
                Ok(())
            }
            Some(Class::Refused { default, .. }) if value.is_some_and(|v| default.contains(&v)) => {
                Ok(())
            }
            Some(Class::Refused { instead, .. }) => Err(refused(key, instead)),
            None => Err(JobError::Unknown { at: key.at.clone(), key: key.name.clone() }),
        }
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// A number, at least `least`.
    fn number<T: TryFrom<u64>>(&self, key: &Key, least: u64) -> Result<T, JobError> {
        let number = key.value.as_deref().and_then(|value| self.base.number(value));
        let number = number.filter(|&number| number >= least).and_then(|n| T::try_from(n).ok());
        let what = if least == 0 { "write a number" } else { "write a number from 1 on" };
        number.ok_or_else(|| wrong(key, &format!("{what}, as in {}=16", key.name)))
    }

    fn amount(&self, key: &Key) -> Result<Amount, JobError> {
        let amount = key.value.as_deref().and_then(|value| self.base.amount(value));
        amount.ok_or_else(|| wrong(key, "write a size or a percentage, as in 64m, 10g or 50%"))
    }

    fn text(key: &Key) -> Result<String, JobError> {
        let text = key.value.clone().filter(|text| !text.is_empty());
        text.ok_or_else(|| wrong(key, "it has no value: write one"))
    }

    /// Follows a key.
    fn set(&mut self, plain: &str, key: &Key) -> Result<(), JobError> {
        let is = || flag(key.value.as_deref()).ok_or_else(|| wrong(key, "write 0 or 1"));
        let span = |unit| {
            let time = key.value.as_deref().and_then(|value| time(value, unit));
            time.ok_or_else(|| wrong(key, "write a time, as in 10s, 500ms or 2m"))
        };
        let numbers = &mut self.numbers;
        match plain {
            "kb_base" => {}
            "name" => self.name = Some(Self::text(key)?),
            "description" => self.description = Some(Self::text(key)?),
            "filename" | "uri" => self.filename = Some(Self::text(key)?),
            "directory" => self.directory = Some(Self::text(key)?),
            "ioengine" => self.set_engine(key)?,
            "direct" => self.is_direct = is()?,
            "buffered" => self.is_direct = !is()?,
            "norandommap" => self.flags.norandommap = is()?,
            "time_based" => self.flags.time_based = is()?,
            "stonewall" => self.flags.stonewall = is()?,
            "new_group" => self.flags.new_group = is()?,
            "group_reporting" => self.flags.group_reporting = is()?,
            "runtime" => numbers.runtime = Some(span(SECOND)?).filter(|&ns| ns > 0),
            "ramp_time" => numbers.ramp = Some(span(SECOND)?),
            "thinktime" => numbers.think = Some(span(MICRO)?).filter(|&ns| ns > 0),
            "thinktime_blocks" => self.numbers.think_blocks = Some(self.number(key, 1)?),
            "iodepth" => self.numbers.iodepth = Some(self.number(key, 1)?),
            "numjobs" => self.numbers.numjobs = Some(self.number(key, 1)?),
            "loops" => self.numbers.loops = Some(self.number(key, 1)?),
            "number_ios" => self.numbers.number_ios = Some(self.number(key, 1)?),
            "offset_increment" => self.numbers.increment = Some(self.number(key, 0)?),
            "fsync" => self.numbers.fsync = Some(self.number(key, 0)?),
            "fdatasync" => self.numbers.fdatasync = Some(self.number(key, 0)?),
            "randseed" => self.numbers.seed = Some(self.number(key, 0)?),
            "offset" => self.amounts.offset = Some(self.amount(key)?),
            "size" => self.amounts.size = Some(self.amount(key)?),
            "io_size" => self.amounts.io_size = Some(self.amount(key)?),
            "rate" | "rate_iops" => self.set_rate(plain, key)?,
            "rate_process" => {
                self.flags.poisson = match key.value.as_deref() {
                    Some("linear") => false,
                    Some("poisson") => true,
                    _ => return Err(wrong(key, "linear or poisson")),
                }
            }
            "rw" => self.set_rw(key)?,
            "rwmixread" | "rwmixwrite" => {
                let percent: u8 = self.number(key, 0)?;
                let percent = Some(percent).filter(|&percent| percent <= 100);
                let percent = percent.ok_or_else(|| wrong(key, "write 0 to 100 percent"))?;
                let is_read = plain == "rwmixread";
                self.read_percent = Some(if is_read { percent } else { 100 - percent });
            }
            "bs" | "bsrange" | "bssplit" => self.set_sizes(plain, key)?,
            "random_distribution" => self.set_distribution(key)?,
            "verify" => self.set_verify(key)?,
            "percentile_list" => self.set_percentiles(key)?,
            _ => return Err(refused(key, "it is not followed")),
        }
        Ok(())
    }

    fn set_engine(&mut self, key: &Key) -> Result<(), JobError> {
        let engine = Self::text(key)?;
        if !SYNCHRONOUS.contains(&&*engine) && !ASYNCHRONOUS.contains(&&*engine) {
            let known = [SYNCHRONOUS, ASYNCHRONOUS].concat().join(", ");
            return Err(refused(key, &format!("engines that mean something here are {known}")));
        }
        self.engine = Some(engine);
        Ok(())
    }

    fn set_rate(&mut self, plain: &str, key: &Key) -> Result<(), JobError> {
        let text = key.value.as_deref().unwrap_or_default();
        let all = sides(text).ok_or_else(|| wrong(key, "write a rate, as in 1000"))?;
        let rates: Vec<u64> = all.iter().flatten().filter_map(|t| self.base.number(t)).collect();
        let is_one = rates.len() == 3 && rates[1..].iter().all(|&rate| rate == rates[0]);
        if !is_one || rates[0] == 0 {
            return Err(wrong(key, "write one rate a second, from 1 on, as in 1000 or 10m"));
        }
        let rate =
            if plain == "rate" { &mut self.numbers.rate_bytes } else { &mut self.numbers.rate };
        *rate = Some(rates[0]);
        self.rate_at = Some(key.at.clone());
        Ok(())
    }

    fn set_rw(&mut self, key: &Key) -> Result<(), JobError> {
        let text = Self::text(key)?;
        self.rw = Some(match &*text {
            "read" => (Does::Reads, false),
            "write" => (Does::Writes, false),
            "trim" => (Does::Trims, false),
            "randread" => (Does::Reads, true),
            "randwrite" => (Does::Writes, true),
            "randtrim" => (Does::Trims, true),
            "rw" | "readwrite" => (Does::Both, false),
            "randrw" => (Does::Both, true),
            "trimwrite" | "randtrimwrite" => {
                return Err(refused(key, "trims are not mixed with writes: `rw=randtrim`"));
            }
            _ if text.contains(':') => {
                return Err(refused(key, "what is behind the `:` is not followed: leave it out"));
            }
            _ => {
                let takes = "read, write, trim, randread, randwrite, randtrim, rw or randrw";
                return Err(wrong(key, takes));
            }
        });
        Ok(())
    }

    fn set_sizes(&mut self, plain: &str, key: &Key) -> Result<(), JobError> {
        let text = Self::text(key)?;
        let all = sides(&text).ok_or_else(|| wrong(key, "write one value, or two or three"))?;
        let base = self.base;
        let size = |text: &str| base.number(text).and_then(|bytes| u32::try_from(bytes).ok());
        let is_kept = |kind: &Kind| kind.split.is_some() || kind.range.is_some();
        if plain == "bs" && self.kinds.iter().any(is_kept) {
            self.note("bs after bssplit or bsrange changes nothing of it, as in fio".into());
        }
        for (kind, text) in self.kinds.iter_mut().zip(all) {
            let Some(text) = text else { continue };
            *kind = match plain {
                "bs" => {
                    let bs = size(text).ok_or_else(|| wrong(key, "write a size, as in 4k"))?;
                    Kind { bs: Some(bs), ..*kind }
                }
                "bsrange" => {
                    let both = text.split_once('-').and_then(|(a, b)| Some((size(a)?, size(b)?)));
                    let both = both.ok_or_else(|| wrong(key, "write a range, as in 4k-64k"))?;
                    Kind {
                        range: Some(both),
                        split: kind.split.filter(|_| both.0 != both.1),
                        ..*kind
                    }
                }
                _ => {
                    let split = Split::read(text, |text| base.number(text));
                    let split = split.map_err(|e| wrong(key, &e.to_string()))?;
                    Kind { split: Some(split), range: None, ..*kind }
                }
            };
            kind.check().map_err(|e| wrong(key, &e))?;
        }
        Ok(())
    }

    fn set_distribution(&mut self, key: &Key) -> Result<(), JobError> {
        let text = Self::text(key)?;
        let number = |text: &str, default: f64| match text {
            "" => Some(default),
            text => text.parse::<f64>().ok(),
        };
        self.skew = match text.split_once(':').unwrap_or((&text, "")) {
            ("random", "") => None,
            ("zipf", theta) => {
                let theta = number(theta, 1.1).filter(|theta| *theta > 0.0 && *theta <= 5.0);
                let takes = "write zipf:THETA, above 0 and at most 5";
                Some(Skew::Zipf(theta.ok_or_else(|| wrong(key, takes))?))
            }
            ("pareto", h) => {
                let h = number(h, 0.2).filter(|h| *h > 0.0 && *h < 1.0);
                let takes = "write pareto:H, above 0 and below 1";
                Some(Skew::Pareto(h.ok_or_else(|| wrong(key, takes))?))
            }
            _ => {
                let instead = "random, zipf:THETA and pareto:H are; `ssdkit bench --hot 20:80` has parts \
                               that are used more than others";
                return Err(refused(key, instead));
            }
        };
        Ok(())
    }

    fn set_verify(&mut self, key: &Key) -> Result<(), JobError> {
        let text = Self::text(key)?;
        self.flags.verify = match &*text {
            "0" => false,
            "null" | "pattern" => {
                return Err(refused(key, "verify=crc32c and the like check what was written"));
            }
            "md5" | "crc64" | "crc32" | "crc32c" | "crc32c-intel" | "crc16" | "crc7" | "sha1"
            | "sha256" | "sha512" | "sha3-224" | "sha3-256" | "sha3-384" | "sha3-512"
            | "xxhash" | "meta" => {
                self.note(format!(
                    "verify={text} is the program's own check, which knows what each block may \
                     hold; what is read back at the end is in no figure"
                ));
                true
            }
            _ => return Err(wrong(key, "a method of fio's, as in crc32c")),
        };
        Ok(())
    }

    fn set_percentiles(&mut self, key: &Key) -> Result<(), JobError> {
        let text = Self::text(key)?;
        let of = |text: &str| text.trim().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
        let list: Option<Vec<f64>> = text.split(':').map(of).collect();
        let list = list.filter(|list| list.len() <= MOST_PERCENTILES);
        let takes = "write up to 20 numbers from 0 to 100, as in 50:99:99.9";
        let mut list = list.ok_or_else(|| wrong(key, takes))?;
        list.sort_by(f64::total_cmp);
        self.percentiles = Some(list);
        Ok(())
    }
}

impl Kind {
    fn sizes(&self) -> Sizes {
        match (self.split, self.range, self.bs) {
            (Some(split), ..) => Sizes::Split(split),
            (None, Some((least, most)), _) if least != most => Sizes::Range { least, most },
            (None, Some((least, _)), _) => Sizes::One(least),
            (None, None, bs) => Sizes::One(bs.unwrap_or(4096)),
        }
    }

    fn check(&self) -> Result<(), String> {
        self.sizes().check().map_err(|e| e.to_string())
    }
}

impl Draft {
    /// The job, when all keys were taken.
    pub fn finish(mut self, section: &Section) -> Result<Job, JobError> {
        let at = section.at.clone();
        let (does, is_random) = self.rw.unwrap_or((Does::Reads, false));
        let depth = self.depth();
        let access = self.access(does, is_random, &at)?;
        let (rate, think) = self.pace(&access, &at)?;
        let Numbers { numjobs, loops, number_ios, increment, runtime, ramp, seed, .. } =
            self.numbers;
        let lasts =
            Lasts { runtime, is_timed: self.flags.time_based, ramp: ramp.unwrap_or_default() };
        if lasts.is_timed && runtime.is_none() {
            let what = "time_based lasts as long as runtime= says: add it".into();
            return Err(JobError::Line { at, what });
        }
        let Amounts { offset, size, io_size } = self.amounts;
        let extent = Extent {
            offset: offset.unwrap_or(Amount::Bytes(0)),
            increment: increment.unwrap_or(0),
            size: size.filter(|&size| size != Amount::Bytes(0)),
            io_size: io_size.filter(|&size| size != Amount::Bytes(0)),
            loops: loops.unwrap_or(1),
            requests: number_ios,
        };
        let company = Company {
            clones: numjobs.unwrap_or(1),
            waits: self.flags.stonewall,
            is_new_group: self.flags.new_group,
            is_together: self.flags.group_reporting,
        };
        let filename = match (self.filename, self.directory) {
            (Some(name), Some(folder)) => Some(format!("{folder}/{name}")),
            (name, _) => name,
        };
        Ok(Job {
            name: self.name.unwrap_or_else(|| section.name.clone()),
            description: self.description,
            at,
            own: valued(&section.keys),
            filename,
            engine: self.engine,
            is_direct: self.is_direct,
            access,
            extent,
            lasts,
            pace: Pace { depth, rate, is_poisson: self.flags.poisson, think },
            company,
            is_checked: self.flags.verify,
            seed: seed.unwrap_or(1),
            percentiles: self.percentiles.unwrap_or_else(|| PERCENTILES.to_vec()),
            notes: self.notes,
        })
    }

    /// Requests out: fio's engines that wait for each have one.
    fn depth(&mut self) -> u32 {
        let engine = self.engine.clone().unwrap_or_else(|| "psync".into());
        let asked = self.numbers.iodepth.unwrap_or(1);
        if SYNCHRONOUS.contains(&&*engine) && asked > 1 {
            self.note(format!("ioengine={engine} has one request at a time, so iodepth is 1"));
            return 1;
        }
        asked
    }

    fn access(&mut self, does: Does, is_random: bool, at: &At) -> Result<Access, JobError> {
        let reads = match does {
            Does::Reads => 100,
            Does::Writes | Does::Trims => 0,
            Does::Both => self.read_percent.unwrap_or(50),
        };
        let [read, write, trim] = self.kinds.map(|kind| kind.sizes());
        let sizes = match does {
            Does::Reads => Varied { reads: read, others: read },
            Does::Writes => Varied { reads: write, others: write },
            Does::Trims => Varied { reads: trim, others: trim },
            Does::Both => Varied { reads: read, others: write },
        };
        let is_one =
            matches!(sizes, Varied { reads: Sizes::One(a), others: Sizes::One(b) } if a == b);
        let wants_map = is_random && self.skew.is_none() && !self.flags.norandommap;
        if wants_map && !is_one {
            self.note(
                "with several sizes random addresses may repeat before all were used, as with \
                 norandommap"
                    .into(),
            );
        }
        if self.skew.is_some() && !is_random {
            self.note("random_distribution has no meaning in order".into());
        }
        let flushes = [self.numbers.fsync, self.numbers.fdatasync].map(Option::unwrap_or_default);
        if flushes.iter().all(|&every| every > 0) {
            let what = "fsync= and fdatasync= are both a flush here: leave one of them out".into();
            return Err(JobError::Line { at: at.clone(), what });
        }
        let flush_every =
            if matches!(does, Does::Writes | Does::Both) { flushes[0].max(flushes[1]) } else { 0 };
        Ok(Access {
            does,
            is_random,
            reads,
            sizes,
            has_map: wants_map && is_one,
            skew: self.skew.filter(|_| is_random),
            flush_every,
        })
    }

    /// Requests a second, and a pause after so many.
    #[expect(clippy::type_complexity, reason = "two options, said above")]
    fn pace(
        &mut self,
        access: &Access,
        at: &At,
    ) -> Result<(Option<u64>, Option<(u64, u64)>), JobError> {
        let Numbers { rate, rate_bytes, think, think_blocks, .. } = self.numbers;
        let at = self.rate_at.as_ref().unwrap_or(at);
        let refuse = |what: &str| Err(JobError::Line { at: at.clone(), what: what.into() });
        if rate.is_some() && rate_bytes.is_some() {
            return refuse("rate= and rate_iops= are not taken together: leave one of them out");
        }
        if rate.or(rate_bytes).is_some()
            && access.does == Does::Both
            && (1..100).contains(&access.reads)
        {
            return refuse(
                "fio's rates are of reads and of writes each: write a job for the reads and one \
                 for the writes",
            );
        }
        let Varied { reads, others } = access.sizes;
        let one = match if access.reads == 100 { reads } else { others } {
            Sizes::One(bytes) => Some(u64::from(bytes)),
            _ => None,
        };
        let rate = match (rate, rate_bytes, one) {
            (None, Some(bytes), Some(bs)) if bytes >= bs => Some(bytes / bs),
            (None, Some(_), Some(_)) => {
                return refuse("rate= is less than a request a second: raise it");
            }
            (None, Some(_), None) => {
                return refuse("rate= in bytes is of one size: take rate_iops=");
            }
            (rate, ..) => rate,
        };
        let think = think.map(|ns| (ns, think_blocks.unwrap_or(1)));
        if rate.is_some() && think.is_some() {
            return refuse("a rate and thinktime= are not taken together: leave one of them out");
        }
        // With several sizes a run counts bytes, and a pause comes after requests.
        if think.is_some() && (one.is_none() || reads != others) {
            return refuse("thinktime= is of one size: take a bs= of one");
        }
        Ok((rate, think))
    }
}
