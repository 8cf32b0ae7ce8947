//! What the caches of a drive's controller did, as reports tell it.

use std::fmt;

use device::CacheCounters;
use ftl::MapCacheCounters;
use measure::units;
use serde_json::{Value, json};

use crate::whole::Drive;

/// What the caches of reads and of the map did, as far as a drive has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caches {
    /// The read cache, where there is one.
    pub read: Option<CacheCounters>,
    /// The map cache, where not all of the map is in memory.
    pub map: Option<MapCacheCounters>,
}

impl Caches {
    /// What those of a drive did since it was made or opened.
    pub fn of(drive: &dyn Drive) -> Caches {
        Caches { read: drive.read_cache(), map: drive.map_cache() }
    }

    /// What they did since they were `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Caches) -> Caches {
        Caches {
            read: self.read.map(|now| now.since(&earlier.read.unwrap_or_default())),
            map: self.map.map(|now| now.since(&earlier.map.unwrap_or_default())),
        }
    }

    /// As JSON, for each cache that there is.
    pub fn add_to(&self, json: &mut Value) {
        if let Some(c) = self.read {
            json["read_cache"] =
                json!({ "hits": c.hits, "misses": c.misses, "blocks_ahead": c.ahead });
        }
        if let Some(c) = self.map {
            json["map_cache"] = json!({ "hits": c.hits, "misses": c.misses, "pages_read": c.read });
        }
    }

    /// The same in words: a label and a text for each.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, String)> {
        let read = self.read.map(|c| {
            let ahead = units::count(c.ahead as f64);
            ("read cache", format!("{}; {ahead} blocks read ahead", Hits(c.hits, c.misses)))
        });
        let map = self.map.map(|c| {
            let read = units::count(c.read as f64);
            ("map cache", format!("{}; {read} pages of the map read", Hits(c.hits, c.misses)))
        });
        read.into_iter().chain(map)
    }
}

/// Hits and misses in words.
struct Hits(u64, u64);

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hits(hits, misses) = *self;
        let count = |n: u64| units::count(n as f64);
        match hits + misses {
            0 => write!(f, "not asked"),
            all => {
                let share = 100.0 * hits as f64 / all as f64;
                write!(f, "{share:.1} % hits; {} hits, {} misses", count(hits), count(misses))
            }
        }
    }
}
