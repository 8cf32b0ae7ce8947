//! The options of `ssdkit serve`, parsed and checked.

use std::fs;
use std::path::{Path, PathBuf};

use btree::StoreKind;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use drive::error::Error;
use drive::fault_rules::FaultArgs;
use drive::spec::file::file_error;
use drive::spec::{DriveConfig, DriveError, DriveSpec, Found, NbdAddress, StorageSpec, Store};
use drivefile::FileError;
use measure::options::{time, whole};
use measure::units;

/// The least memory for clients, in bytes: some of the longest requests.
const CLIENT_MEMORY: u64 = 128 << 20;

/// The longest that a channel's thread may look for requests, in ns.
const LONGEST_LINGER: u64 = 1_000_000_000;

/// `ssdkit serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// The drive, for example mem:ref,size=8G.
    #[arg(value_name = "DRIVE")]
    pub drive: DriveSpec,
    /// Where to listen for NBD clients: a socket's path or HOST:PORT.
    #[arg(long, value_name = "ADDRESS", value_parser = to_listen)]
    pub nbd: Option<NbdAddress>,
    /// Where to hand out application channels: a socket's path. May stand beside --nbd.
    #[arg(long, value_name = "PATH", value_parser = socket_path)]
    pub channel: Option<PathBuf>,
    /// Channels: how long a channel's thread looks for requests before it sleeps, 0 to 1s
    /// [default: 200us].
    #[arg(long, value_name = "TIME", value_parser = time, requires = "channel")]
    pub linger: Option<u64>,
    /// Where to listen for Redis clients: a socket's path or HOST:PORT. The drive then holds a
    /// key-value store, or a target of it does, beside others with blocks.
    #[arg(long, value_name = "ADDRESS", value_parser = to_listen)]
    pub redis: Option<NbdAddress>,
    /// Redis: whose keys, of several targets that keep values by key [default: the only one].
    #[arg(long, value_name = "NAME", requires = "redis")]
    pub target: Option<String>,
    /// Where figures are to be had over HTTP while it runs, as Prometheus reads them and `ssdkit
    /// top` shows them: [HOST:]PORT, without a host of this machine alone.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<metrics::Address>,
    /// Where the rules of a drive with target=rules are asked for and installed while it is
    /// served, by `ssdkit rules`, and where targets of one with several come and go, by `ssdkit
    /// target`: a socket's path, for its owner alone.
    #[arg(long, value_name = "PATH", value_parser = socket_path)]
    pub control: Option<PathBuf>,
    /// Redis: when writes are durable, as appendfsync [default: always].
    #[arg(long, value_enum, requires = "redis")]
    pub sync: Option<SyncWhen>,
    /// Redis: what keeps the pages [default: batched for mem: drives and with target=batch; else
    /// what is on the drive, or log].
    #[arg(long, value_parser = store_kind(), requires = "redis")]
    pub pages: Option<StoreKind>,
    /// Redis: memory for pages, 8M or more [default: 64M; with target=kv 256M].
    #[arg(long, value_name = "SIZE", value_parser = units::size, requires = "redis")]
    pub memory: Option<u64>,
    /// Memory for what all clients have sent and are to get, 128M or more [default: 1G].
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    pub client_memory: Option<u64>,
    /// Redis: make a new store, whatever is on the drive file.
    #[arg(long, requires = "redis")]
    pub destroy: bool,
    /// What the random numbers of a mem: drive's policies and of faults come from.
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// What goes wrong on purpose.
    #[command(flatten)]
    pub faults: FaultArgs,
    /// Print one JSON object when ready and one at the end.
    #[arg(long)]
    pub json: bool,
}

/// When writes of Redis clients are durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SyncWhen {
    /// When they are answered.
    #[default]
    Always,
    /// At most about a second later.
    Everysec,
    /// When the server has stopped, or earlier.
    No,
}

/// Where to listen: a path, or host and port.
fn to_listen(text: &str) -> Result<NbdAddress, String> {
    text.parse().map_err(|e| match e {
        DriveError::Address { .. } => {
            "it is no address to listen at: write a socket's path or HOST:PORT, as 127.0.0.1:6379 \
             or [::1]:6379"
                .to_owned()
        }
        e => e.to_string(),
    })
}

/// A path, and nothing that looks as if it were a port.
fn socket_path(text: &str) -> Result<PathBuf, String> {
    match text.parse() {
        Ok(NbdAddress::Unix(path)) if !text.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(path.into())
        }
        Err(e @ DriveError::Socket { .. }) => Err(e.to_string()),
        _ => Err(format!("it is the path of a socket, and no port: write ./{text} for a file")),
    }
}

impl ServeArgs {
    /// Whether Redis clients get the keys of one of several targets, beside what others get of
    /// the drive. Refuses what is only there then.
    pub fn serves_target_keys(&self) -> Result<bool, Error> {
        if self.redis.is_none() {
            return Ok(false);
        }
        let config = match &self.drive {
            DriveSpec::Memory(spec) if spec.has_keyed_parts() => Some(spec.resolve()?),
            DriveSpec::File(spec) => Some(spec.config()?),
            _ => None,
        };
        if let Some(config) = config.filter(DriveConfig::has_keyed_parts) {
            crate::keys::choose(&config, self.target.as_deref())?;
            crate::redis::check_keyed(self)?;
            return Ok(true);
        }
        let beside = [
            (self.nbd.is_some(), "--nbd"),
            (self.channel.is_some(), "--channel"),
            (self.control.is_some(), "--control"),
            (self.target.is_some(), "--target"),
        ];
        match beside.into_iter().find(|(is_there, _)| *is_there) {
            Some((_, option)) => Err(Error::Usage(format!(
                "--redis and {option} together are for a drive of several targets, of which one \
                 keeps values by key: leave one of them out, or take such a drive, as with \
                 target=pblk/kv"
            ))),
            None => Ok(false),
        }
    }

    /// Whether the drive can be served, as far as its name tells.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |text: String| Err(Error::Usage(text));
        let mut addresses = self.nbd.iter().chain(&self.redis).peekable();
        if addresses.peek().is_none() && self.channel.is_none() {
            let text = "nowhere to listen: take --nbd ADDRESS or --channel PATH to serve blocks, \
                        or --redis ADDRESS to serve keys";
            return refuse(text.into());
        }
        let is_number = |path: &str| path.bytes().all(|b| b.is_ascii_digit());
        for address in addresses {
            if let NbdAddress::Unix(path) = address
                && is_number(path)
            {
                return refuse(format!(
                    "`{path}` would be a socket file of that name: take HOST:PORT, as in \
                     127.0.0.1:{path}, or ./{path} if a file is meant"
                ));
            }
        }
        if self.linger.is_some_and(|ns| ns > LONGEST_LINGER) {
            return refuse("--linger is more than 1s: lower it".into());
        }
        if self.client_memory.is_some_and(|bytes| bytes < CLIENT_MEMORY) {
            return refuse("--client-memory is less than 128M: raise it".into());
        }
        self.has_no_address_twice()?;
        drive::memory::ask_clients(self.client_memory.unwrap_or(0))?;
        if self.redis.is_some() {
            crate::redis::check(self)?;
        }
        match &self.drive {
            DriveSpec::Memory(spec) => self.check_kept(spec.store),
            DriveSpec::File(_) => Ok(()),
            DriveSpec::Nbd(_) | DriveSpec::Channel(_) => Err(Error::Usage(format!(
                "{} drives are served already: take a mem: drive",
                self.drive.served_by().unwrap_or_default()
            ))),
            DriveSpec::Storage(spec) => Err(no_drive_file(spec)),
            DriveSpec::Null(_) => Err(Error::Usage(
                "only mem: drives and drive files are served: take one, or make one with \
                 `ssdkit create`"
                    .into(),
            )),
        }
    }

    /// Refuses one address for two: the second would find the first one there.
    fn has_no_address_twice(&self) -> Result<(), Error> {
        let at = |address: &NbdAddress| match address {
            NbdAddress::Unix(path) => Some(Place::Path(whole_path(Path::new(path)))),
            // The system chooses a port of its own for each.
            NbdAddress::Tcp(_, 0) => None,
            NbdAddress::Tcp(host, port) => Some(Place::Port(format!("{host}:{port}"))),
        };
        let path = |path: &PathBuf| Some(Place::Path(whole_path(path)));
        let port = |address: &metrics::Address| {
            Some(address.to_string()).filter(|text| !text.ends_with(":0")).map(Place::Port)
        };
        let all = [
            ("--nbd", self.nbd.as_ref().and_then(at)),
            ("--redis", self.redis.as_ref().and_then(at)),
            ("--channel", self.channel.as_ref().and_then(path)),
            ("--control", self.control.as_ref().and_then(path)),
            ("--metrics", self.metrics.as_ref().and_then(port)),
        ];
        for (i, (second, place)) in all.iter().enumerate().filter(|(_, (_, it))| it.is_some()) {
            if let Some((first, _)) = all[..i].iter().find(|(_, other)| other == place) {
                return Err(Error::Usage(format!(
                    "{first} and {second} name one address: give each one of its own"
                )));
            }
        }
        Ok(())
    }

    /// Whether a drive that keeps so much can be served. By a channel alone any can: its
    /// clients are told what it keeps.
    pub fn check_kept(&self, store: Store) -> Result<(), Error> {
        match store {
            Store::Memory => Ok(()),
            _ if self.nbd.is_none() && self.redis.is_none() => Ok(()),
            store => Err(Error::Usage(format!(
                "store={} keeps no data to serve: take store=memory",
                store.name()
            ))),
        }
    }
}

/// Where something listens.
#[derive(PartialEq)]
enum Place {
    Path(PathBuf),
    Port(String),
}

/// A path as it is in whole, by whichever way it was named: the socket need not be there.
fn whole_path(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")));
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.into(),
    }
}

/// A store of pages by its name.
fn store_kind() -> impl TypedValueParser<Value = StoreKind> {
    PossibleValuesParser::new(StoreKind::ALL.map(StoreKind::name))
        .map(|name| name.parse().expect("it is one of them"))
}

/// What is said of a file that is to be served as a drive and is none.
fn no_drive_file(spec: &StorageSpec) -> Error {
    let what = match spec.find() {
        Ok(Found::Nothing) => "there is no such file",
        Ok(Found::File(0)) => return file_error(&spec.path, FileError::Empty),
        Ok(Found::File(_) | Found::Hollow(_)) => {
            "this is no drive file: it does not begin with `ssdkitDF`"
        }
        Ok(Found::Device | Found::Other) => "this is no regular file, as a drive file is",
        Err(e) => return e,
    };
    Error::Usage(format!(
        "{}: {what}; make one with `ssdkit create`, or take a drive in memory (mem:tlc)",
        spec.path
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ServeArgs,
    }

    #[test]
    fn a_time_to_linger_is_up_to_a_second() {
        let told = |linger: &str| {
            let line = ["serve", "mem:null", "--channel", "/c", "--linger", linger];
            Line::try_parse_from(line).ok().filter(|line| line.args.check().is_ok())
        };
        for (text, ns) in [("0", 0), ("1", 1_000_000_000), ("50us", 50_000)] {
            assert_eq!(told(text).and_then(|line| line.args.linger), Some(ns), "{text}");
        }
        assert!(told("2").is_none() && "channel:/c,linger=2s".parse::<DriveSpec>().is_err());
        assert!("channel:/c,linger=1s".parse::<DriveSpec>().is_ok());
    }

    #[test]
    fn one_address_is_not_for_two() {
        let place = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(place.path(), place.path().join("link")).unwrap();
        let [a, b] = ["x.s", "link/x.s"].map(|name| place.path().join(name).display().to_string());
        let told = |options: &[&str]| {
            let line = [&["serve", "mem:tlc,size=64M"], options].concat();
            let checked = Line::try_parse_from(line).unwrap().args.check();
            checked.err().map(|e| (matches!(e, Error::Usage(_)), e.to_string()))
        };
        for options in [
            ["--nbd", "x.s", "--channel", "x.s"],
            ["--nbd", "x.s", "--channel", "./x.s"],
            ["--nbd", &a, "--channel", &b],
            ["--nbd", "x.s", "--control", "x.s"],
            ["--channel", "x.s", "--control", "x.s"],
            ["--nbd", "x.s", "--redis", "x.s"],
            ["--nbd", "127.0.0.1:7001", "--redis", "127.0.0.1:7001"],
            ["--nbd", "127.0.0.1:7001", "--metrics", "7001"],
        ] {
            let (is_usage, text) = told(&options).expect("it is refused");
            let both = format!("{} and {} name one address", options[0], options[2]);
            assert!(is_usage && text.contains(&both), "{options:?}: {text}");
        }
        for options in [
            ["--nbd", "x.s", "--channel", "y.s"],
            ["--nbd", &a, "--channel", "x.s"],
            ["--nbd", "127.0.0.1:0", "--metrics", "0"],
            ["--nbd", "127.0.0.1:7001", "--metrics", "7002"],
        ] {
            assert_eq!(told(&options), None, "{options:?}");
        }
    }

    #[test]
    fn what_a_file_is_that_is_no_drive_is_told() {
        let place = tempfile::tempdir().unwrap();
        let told = |name: &str, bytes: Option<&[u8]>| {
            let path = place.path().join(name);
            if let Some(bytes) = bytes {
                fs::write(&path, bytes).unwrap();
            }
            let path = path.display().to_string();
            let line = ["serve", &path, "--nbd", "/none"];
            let text = Line::try_parse_from(line).unwrap().args.check().unwrap_err().to_string();
            assert!(text.contains(&path) && text.contains("`ssdkit create`"), "{text}");
            text
        };
        assert!(told("none", None).contains("no such file"));
        assert!(told("empty", Some(b"")).contains("the file is empty"));
        assert!(told("other", Some(b"PK something else")).contains("does not begin with"));
        assert!(told("", None).contains("no regular file"));
    }
}
