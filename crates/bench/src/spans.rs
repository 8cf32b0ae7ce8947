//! Which addresses of a drive of several targets a bench uses.
//!
//! Where targets keep values by key, or are gone, there are no blocks: then a bench is of
//! the targets that its ranges name, and writes no others before. Fails where a range is
//! not within the blocks that there are.

use std::ops::Range;

use drive::error::Error;
use drive::spec::DriveConfig;

use crate::args::BenchArgs;

/// What is written before a bench, of a drive that ends at this byte.
pub(crate) fn of(
    args: &BenchArgs,
    config: &DriveConfig,
    end: u64,
) -> Result<Vec<Range<u64>>, Error> {
    let whole = 0..end;
    if !config.spec.is_shared() {
        return Ok(vec![whole]);
    }
    let all = config.spans();
    if all == [whole.clone()] || args.replay.is_some() {
        return Ok(all);
    }
    let loads = args.all_jobs();
    let range = |load: &BenchArgs| load.range.map_or(whole.clone(), |r| r.offset..r.offset + r.len);
    let loads: Vec<Range<u64>> = loads.iter().map(range).collect();
    let has = |load: &&Range<u64>| {
        load.end > end || all.iter().any(|span| span.start <= load.start && load.end <= span.end)
    };
    if let Some(load) = loads.iter().find(|load| !has(load)) {
        let ranges: Vec<String> = all.iter().map(text).collect();
        return Err(Error::Usage(format!(
            "of the addresses {} some have no blocks, but keys, or nobody has them: take --range \
             {}, or a part of that",
            text(load),
            ranges.join(" or "),
        )));
    }
    let meets = |span: &Range<u64>| loads.iter().any(|l| l.start < span.end && span.start < l.end);
    Ok(all.into_iter().filter(meets).collect())
}

/// As `--range` has it.
fn text(range: &Range<u64>) -> String {
    let size = |bytes: u64| match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    };
    format!("{}+{}", size(range.start), size(range.end - range.start))
}
