//! How the files of a state differ from what the program had written by then.

use std::collections::BTreeMap;

use crash::{Explorer, Variant};
use drive::error::Error;
use drive::say::harmless;
use files::{Files, FilesError, Inode, Memory, Type};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::failed;

/// Bytes that are read at once.
const AT_ONCE: usize = 64 << 10;

/// By path: size, a number of what it holds, and which file it is.
type Listing = BTreeMap<String, (u64, u64, Inode)>;

/// What differs.
#[derive(Default)]
pub struct Difference {
    /// A line for each file.
    pub lines: Vec<String>,
    /// Those of them that the program had when power went.
    pub files: Vec<Inode>,
}

/// The files of a state that are not as they would be if all had survived the cut.
pub fn of(explorer: &Explorer, cut: usize, variant: u64) -> Result<Difference, Error> {
    let all = (0..).find(|&n| Variant::of(n) == Variant::All).unwrap_or(1);
    let files = |variant| {
        let mut state = explorer.state(cut, variant).map_err(failed)?;
        let mut files = Listing::new();
        list(&mut state.files, Inode::ROOT, "", &mut files).map_err(|e| failed(e.into()))?;
        Ok::<_, Error>(files)
    };
    let (is, was) = (files(variant)?, files(all)?);
    let names = is.keys().chain(was.keys().filter(|name| !is.contains_key(*name)));
    let mut difference = Difference::default();
    for name in names {
        let shown = harmless(name);
        difference.lines.push(match (is.get(name), was.get(name)) {
            (Some((size, sum, _)), Some((then, had, _))) if size == then => {
                if sum == had {
                    continue;
                }
                format!("{shown}: other bytes than were written")
            }
            (Some((size, ..)), Some((then, ..))) => {
                format!("{shown}: {size} B, and it had {then} B")
            }
            (Some(_), _) => format!("{shown}: there again"),
            (None, _) => format!("{shown}: not there"),
        });
        difference.files.extend(was.get(name).map(|&(.., inode)| inode));
    }
    Ok(difference)
}

fn list(
    files: &mut Files<Memory>,
    folder: Inode,
    path: &str,
    all: &mut Listing,
) -> Result<(), FilesError> {
    let names: Vec<(String, Inode)> = files
        .list(folder)?
        .map(|(name, inode)| (format!("{path}{}", String::from_utf8_lossy(name)), inode))
        .collect();
    for (name, inode) in names {
        let stat = files.stat(inode)?;
        if stat.kind == Type::Folder {
            let below = format!("{name}/");
            list(files, inode, &below, all)?;
            all.insert(below, (0, 0, inode));
            continue;
        }
        let sum = match stat.kind {
            Type::File => sum(files, inode)?,
            _ => 0,
        };
        all.insert(name, (stat.size, sum ^ u64::from(stat.mode), inode));
    }
    Ok(())
}

/// A number of what a file holds.
fn sum(files: &mut Files<Memory>, inode: Inode) -> Result<u64, FilesError> {
    let (mut at, mut bytes, mut sum) = (0, vec![0; AT_ONCE], 0);
    // Zeros are left out, whether they were written or not.
    while let Some(next) = files.next_written(inode, at)? {
        at = next / AT_ONCE as u64 * AT_ONCE as u64;
        let len = files.read(inode, at, &mut bytes)?;
        if bytes[..len].iter().any(|&byte| byte != 0) {
            sum = xxh3_64_with_seed(&bytes[..len], sum ^ at);
        }
        at += len as u64;
    }
    Ok(sum)
}
