//! Points from CSV: columns by their names in the first line.
//!
//! `rw`, `bs`, `qd` and `iops` or `mean_us` must be there; `drive`, `path`,
//! `read_percent`, `direction`, `p50_us`, `p99_us` and `requests` may be. `bs` is in
//! bytes, or as in `4k`. An empty field is not known. Other columns are ignored, and named.

use std::str::FromStr;

use super::{Asked, Direction, Figures, Point, Points, Run, size, stem};
use crate::error::TwinError;

const COLUMNS: [&str; 12] = [
    "drive",
    "path",
    "rw",
    "read_percent",
    "direction",
    "bs",
    "qd",
    "iops",
    "mean_us",
    "p50_us",
    "p99_us",
    "requests",
];

/// Reads a file's text.
pub fn parse(path: &str, text: &str, points: &mut Points) -> Result<(), TwinError> {
    let wrong = |e: csv::Error| TwinError::Format { path: path.into(), what: e.to_string() };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(wrong)?.clone();
    if let Some(missing) =
        ["rw", "bs", "qd"].iter().find(|name| !header.iter().any(|h| h == **name))
    {
        let what = format!("it has no column `{missing}` in its first line");
        return Err(TwinError::Format { path: path.into(), what });
    }
    if let Some(twice) =
        COLUMNS.iter().find(|name| header.iter().filter(|h| h == *name).count() > 1)
    {
        let what = format!("it has two columns `{twice}`");
        return Err(TwinError::Format { path: path.into(), what });
    }
    let unknown = header.iter().filter(|name| !COLUMNS.contains(name));
    points.ignored.extend(unknown.map(|name| format!("{path}: column `{name}`")));
    let (mut line, mut counted) = (1, 0);
    for record in reader.records() {
        let record = record.map_err(wrong)?;
        // The reader's own count is that of the empty lines before.
        let start = record.position().map_or(0, |at| at.byte() as usize).min(text.len());
        let empty = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        let start = start + text.as_bytes()[start..].iter().take_while(empty).count();
        line += text.as_bytes()[counted..start].iter().filter(|&&byte| byte == b'\n').count();
        counted = start;
        let at = format!("{path}:{line}");
        let field = |name: &str| {
            let column = header.iter().position(|h| h == name)?;
            record.get(column).filter(|text| !text.is_empty())
        };
        points.all.push(point(path, at, field)?);
    }
    Ok(())
}

/// The point of a line.
fn point<'a>(
    path: &str,
    at: String,
    field: impl Fn(&str) -> Option<&'a str>,
) -> Result<Point, TwinError> {
    let needed = |name: &str| {
        field(name).ok_or_else(|| TwinError::point(&at, format!("{name} is empty"), "fill it in"))
    };
    let read_percent = number(&at, "read_percent", field("read_percent"))?;
    let asked = Asked {
        rw: needed("rw")?,
        read_percent,
        bs: size(&at, needed("bs")?, "write bytes, or as in 4k")?,
        qd: number(&at, "qd", Some(needed("qd")?))?.unwrap_or(0),
    };
    let mut run = Run::new(&at, &asked)?;
    run.path = field("path").unwrap_or("kernel").into();
    let direction = match field("direction") {
        None => None,
        Some("read") => Some(Direction::Read),
        Some("write") => Some(Direction::Write),
        Some(other) => {
            let what = format!("direction={other} is not known");
            return Err(TwinError::point(&at, what, "write read or write"));
        }
    };
    let figure = |name| number(&at, name, field(name));
    let measured = Figures {
        iops: figure("iops")?,
        mean_us: figure("mean_us")?,
        p50_us: figure("p50_us")?,
        p99_us: figure("p99_us")?,
    };
    Point::new(at.clone(), field("drive").unwrap_or(stem(path)), run, direction, measured)
}

/// A number, where there is one.
fn number<T: FromStr>(at: &str, name: &str, text: Option<&str>) -> Result<Option<T>, TwinError> {
    let wrong = |text: &str| {
        TwinError::point(
            at,
            format!("{name} is no number: {text:?}"),
            "correct it, or leave it empty",
        )
    };
    text.map(|text| text.parse().map_err(|_| wrong(text))).transpose()
}
