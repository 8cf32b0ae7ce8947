//! `ssdkit compare`: reports of benches, and fio's, side by side.
//!
//! Reads regular files only, of [`MOST_BYTES`] at most each. Fails where one is no
//! report, and where what was asked for cannot be written.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use measure::file::text_of;
use report::{Comparison, OutFile, Run, charts, page};

use drive::error::Error;
use load::watch::columns;

/// What `ssdkit compare --help` ends with.
pub const EXAMPLES: &str = "\
Examples:
  ssdkit bench mem:tlc,size=1G --rw randrw --qd 32 --precondition steady --time 20s --json > a.json
  ssdkit bench mem:tlc,size=1G,suspend=true --rw randrw --qd 32 --precondition steady --time 20s --json > b.json
  ssdkit compare a.json b.json
  ssdkit compare a.json b.json --html both.html
  ssdkit compare a.json --pictures .
  ssdkit compare fio.json a.json";

/// Bytes of a report that is read: a row a second of two days.
const MOST_BYTES: u64 = 64 << 20;

/// `ssdkit compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Reports, of `ssdkit bench --json` or fio's `--output-format=json+`: the others are held against
    /// the first.
    #[arg(value_name = "FILE.json", required = true, num_args = 1..=report::charts::RUNS)]
    pub files: Vec<PathBuf>,
    /// Write a page with pictures, too, for a browser.
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// Write the pictures alone, too, as DIR/NAME.svg, over those that are there.
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Prints how they differ to `out`.
pub fn run(args: &CompareArgs, out: &mut dyn Write) -> Result<(), Error> {
    let runs = args.files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let comparison = Comparison::new(&runs);
    if args.json {
        writeln!(out, "{:#}", comparison.to_json())?;
    } else {
        write!(out, "{}", comparison.to_text_in(columns()))?;
    }
    out.flush()?;
    if let Some(path) = &args.html {
        write("--html", OutFile::page(path), path, &page(&runs))?;
    }
    if let Some(dir) = &args.pictures {
        fs::create_dir_all(dir)
            .map_err(|e| Error::system(&format!("make {}", dir.display()), &e))?;
        for chart in charts::all(&runs) {
            let path = dir.join(format!("{}.svg", chart.name));
            write("--pictures", OutFile::picture(&path), &path, &chart.svg)?;
        }
    }
    Ok(())
}

/// Writes a text to a file that an option named.
fn write(option: &str, file: io::Result<OutFile>, path: &Path, text: &str) -> Result<(), Error> {
    let file = file.map_err(|e| Error::Usage(format!("{option} {}: {e}", path.display())))?;
    file.write(text).map_err(|e| Error::system(&format!("write {}", path.display()), &e))
}

/// Reads a report.
fn read(path: &Path) -> Result<Run, Error> {
    let name = path.display().to_string();
    let text = text_of(path, MOST_BYTES);
    let text = text.map_err(|e| Error::Usage(format!("{name}: {e}")))?;
    Run::from_text(&name, &text).map_err(|e| Error::Usage(e.to_string()))
}
