//! A job file as text: sections, and what stands in them.
//!
//! As fio reads it: a section begins with `[NAME]`; `KEY=VALUE` or `KEY` alone follow;
//! what is behind a `;` or `#` is a remark; `${NAME}` is a variable of the environment.
//! `[global]` is for all sections after it, of the files after it, too; `include FILE`
//! stands for the keys in that file. Guarantees: opens nothing by itself, never panics, and
//! takes at most [`MOST_KEYS`] keys and 16 MiB of other files. Fails with the line.

use std::rc::Rc;

use crate::error::{At, JobError};

/// Keys in a file, at most.
pub const MOST_KEYS: usize = 1 << 16;
/// How deep files include others.
const MOST_DEEP: usize = 8;
/// Bytes of all files together that a file includes, at most.
const MOST_INCLUDED: usize = 16 << 20;
/// Bytes of a name, and of a value with its variables, at most.
const MOST_VALUE: usize = 1 << 12;

/// A key, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name as written.
    pub name: String,
    /// Its value, where it has one.
    pub value: Option<String>,
    /// Where it is.
    pub at: At,
}

/// A section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its keys, in order.
    pub keys: Vec<Key>,
    /// Where it begins.
    pub at: At,
}

impl Section {
    /// Whether it is for those after it: its name begins with `global`, as fio looks at it.
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// The path and the text of a file that another includes, or why there is none.
pub type Included = Result<(String, String), String>;

/// What a file's text takes from outside of it.
pub struct Outside<'a> {
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The file of this name that another includes: its path and its text.
    pub include: &'a dyn Fn(&str, &str) -> Included,
}

/// No variable, and no other file.
#[cfg(test)]
pub(crate) const NOTHING: Outside<'static> =
    Outside { variable: &|_| None, include: &|_, _| Err("there is none".into()) };

/// Reads a file's text.
pub fn parse(file: &str, text: &str, outside: &Outside) -> Result<Vec<Section>, JobError> {
    let mut read = Read { outside, sections: Vec::new(), keys: 0, included: 0 };
    read.file(file, text, 0)?;
    Ok(read.sections)
}

/// What was read so far.
struct Read<'a> {
    outside: &'a Outside<'a>,
    sections: Vec<Section>,
    keys: usize,
    /// Bytes of files that were included.
    included: usize,
}

impl Read<'_> {
    /// Reads a file which so many include.
    fn file(&mut self, file: &str, text: &str, depth: usize) -> Result<(), JobError> {
        let file: Rc<str> = file.into();
        for (n, line) in text.lines().enumerate() {
            let at = At { file: file.clone(), line: n as u32 + 1 };
            if line.chars().any(|c| c.is_control() && c != '\t') {
                let what = "a control character is in it: take it out".to_string();
                return Err(JobError::Line { at, what });
            }
            let line = line.split([';', '#']).next().unwrap_or("").trim();
            if !line.is_empty() {
                self.line(line, at, depth)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str, at: At, depth: usize) -> Result<(), JobError> {
        let wrong = |what: &str| JobError::Line { at: at.clone(), what: what.into() };
        self.keys += 1;
        if self.keys > MOST_KEYS {
            return Err(wrong("there are too many lines: split the file"));
        }
        if let Some(rest) = line.strip_prefix('[') {
            if depth > 0 {
                return Err(wrong("no section begins in a file that is included: as in fio"));
            }
            let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.filter(|name| name.len() <= MOST_VALUE);
            let name = name.ok_or_else(|| wrong("a section is [NAME]: correct it"))?;
            self.sections.push(Section { name: name.into(), keys: Vec::new(), at });
            return Ok(());
        }
        let Some(section) = self.sections.last_mut() else {
            return Err(wrong("it is in no section: write [global] or [NAME] before it"));
        };
        let Some(name) = included(line) else {
            section.keys.push(key(line, at, self.outside.variable)?);
            return Ok(());
        };
        if depth == MOST_DEEP {
            return Err(wrong("files include each other: at most 8 deep"));
        }
        let found = (self.outside.include)(&at.file, name);
        let (file, text) = found.map_err(|why| wrong(&format!("include {name}: {why}")))?;
        self.included += text.len();
        if self.included > MOST_INCLUDED {
            return Err(wrong("the files that are included have more than 16 MiB together"));
        }
        self.file(&file, &text, depth + 1)
    }
}

/// The name of the file that a line includes.
fn included(line: &str) -> Option<&str> {
    let name = line.strip_prefix("include")?;
    name.starts_with([' ', '\t', '=']).then(|| name[1..].trim())
}

fn key(line: &str, at: At, variable: &dyn Fn(&str) -> Option<String>) -> Result<Key, JobError> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
        None => (line, None),
    };
    let value = value.map(|value| expanded(value, variable)).transpose();
    let value = value.map_err(|what| JobError::Line { at: at.clone(), what })?;
    Ok(Key { name: name.into(), value, at })
}

/// A value with what its variables stand for, once: what these say stays as it is.
fn expanded(value: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else {
            return Err("a variable is ${NAME}: close it".into());
        };
        let is = variable(name).ok_or_else(|| {
            format!("there is no variable {name} in the environment: set it, as in {name}=... ssdkit fio FILE")
        })?;
        text += before;
        text += &is;
        rest = behind;
        if text.len() > MOST_VALUE {
            break;
        }
    }
    text += rest;
    if text.len() > MOST_VALUE {
        return Err(format!("a value has at most {MOST_VALUE} bytes"));
    }
    for word in ["$pagesize", "$mb_memory", "$ncpus"] {
        if text.contains(word) {
            return Err(format!(
                "{word} is of fio's machine and stands for nothing here: write a number"
            ));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Vec<Section>, JobError> {
        let variable = |name: &str| (name == "SIZE").then(|| "64".into());
        let include = |file: &str, name: &str| match name {
            "b.inc" if file == "a.fio" => {
                Ok(("x/b.inc".into(), "bs=8k\n\ninclude c.inc\nsize=1m".into()))
            }
            "c.inc" if file == "x/b.inc" => Ok(("x/c.inc".into(), "bs=16k # more\n".into())),
            "round" => Ok(("round".into(), "include round".into())),
            // Remarks are no keys.
            "large" => Ok(("large".into(), format!("; {}\n", "x".repeat(6 << 20)))),
            "sections" => Ok(("sections".into(), "rw=read\n[c]".into())),
            _ => Err("there is none".into()),
        };
        parse("a.fio", text, &Outside { variable: &variable, include: &include })
    }

    #[test]
    fn sections_keys_and_remarks() {
        let text = "; a remark\n\n[global]\nrw = randread # random\ntime_based\n\n\
                    [a job]\r\nsize=${SIZE}m\nbs=4k;8k\n  [b]\nfilename=a=b\n";
        let sections = read(text).unwrap();
        let keys = |n: usize| -> Vec<(&str, Option<&str>, u32)> {
            let keys = sections[n].keys.iter();
            keys.map(|key| (&*key.name, key.value.as_deref(), key.at.line)).collect()
        };
        let names: Vec<_> = sections.iter().map(|section| &*section.name).collect();
        assert_eq!(names, ["global", "a job", "b"]);
        assert!(sections[0].is_global() && !sections[1].is_global());
        // As fio 3.33 takes them.
        let sections = read("[globals]\n[global of b]\n[GLOBAL]\n[my global]\n").unwrap();
        let globals: Vec<_> = sections.iter().map(Section::is_global).collect();
        assert_eq!(globals, [true, true, false, false]);
        let sections = read(text).unwrap();
        assert_eq!(keys(0), [("rw", Some("randread"), 4), ("time_based", None, 5)]);
        assert_eq!(keys(1), [("size", Some("64m"), 8), ("bs", Some("4k"), 9)]);
        assert_eq!(keys(2), [("filename", Some("a=b"), 11)]);
        assert_eq!(sections[2].at.to_string(), "a.fio:10");
    }

    /// As fio 3.33 takes them: keys alone, where the line is that includes them.
    #[test]
    fn files_include_others() {
        let sections = read("[a]\nrw=read\ninclude b.inc\nrw=write\n[b]\ninclude=b.inc\n").unwrap();
        let keys = |n: usize| -> Vec<(&str, String)> {
            let keys = sections[n].keys.iter();
            keys.map(|key| (key.value.as_deref().unwrap(), key.at.to_string())).collect()
        };
        let inner = [("8k", "x/b.inc:1"), ("16k", "x/c.inc:1"), ("1m", "x/b.inc:4")];
        let outer = [[("read", "a.fio:2")], [("write", "a.fio:4")]];
        let all = outer[0].into_iter().chain(inner).chain(outer[1]);
        assert_eq!(keys(0), all.map(|(value, at)| (value, at.into())).collect::<Vec<_>>());
        assert_eq!(keys(1), inner.map(|(value, at)| (value, at.into())));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, told) in [
            ("rw=read", "a.fio:1: it is in no section"),
            ("[a\n", "a.fio:1: a section is [NAME]"),
            ("[\u{1b}[31ma]\n", "a.fio:1: a control character"),
            ("include b.inc", "a.fio:1: it is in no section"),
            ("[a]\ninclude no.inc", "a.fio:2: include no.inc: there is none"),
            ("[a]\ninclude sections", "sections:2: no section begins"),
            ("[a]\ninclude round", "round:1: files include each other"),
            ("[a]\ninclude large\ninclude large\ninclude large", "a.fio:4: the files that are"),
            ("[a]\nsize=${NO}", "a.fio:2: there is no variable NO"),
            ("[a]\nsize=${SIZE", "a.fio:2: a variable is ${NAME}"),
            ("[a]\nnumjobs=$ncpus", "a.fio:2: $ncpus"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]a-z=;#$\\{\\}\n 0-9]{0,80}|(?s).{0,60}") {
            let _ = read(&text);
        }
    }
}
