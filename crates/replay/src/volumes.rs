//! The volumes of a trace, by name: numbered in the order in which they come.
//!
//! Guarantees: at most 65536 of them, with names of at most 256 bytes; the one that came
//! last is found by one comparison.

use std::collections::HashMap;

use crate::error::Flaw;

/// The most volumes.
pub const MOST_VOLUMES: usize = 1 << 16;
/// The longest name, in bytes.
const MOST_NAME: usize = 256;

/// Their names.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    numbers: HashMap<Box<[u8]>, u32>,
    names: Vec<Box<[u8]>>,
    last: u32,
}

impl Volumes {
    /// The number of the volume of that name, which may be a new one.
    #[inline]
    pub fn number(&mut self, name: &[u8]) -> Result<u32, Flaw> {
        if self.names.get(self.last as usize).is_some_and(|last| **last == *name) {
            return Ok(self.last);
        }
        self.find(name)
    }

    fn find(&mut self, name: &[u8]) -> Result<u32, Flaw> {
        if let Some(&number) = self.numbers.get(name) {
            self.last = number;
            return Ok(number);
        }
        if name.len() > MOST_NAME || self.names.len() == MOST_VOLUMES {
            return Err(Flaw::Volume);
        }
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        self.last = number;
        Ok(number)
    }

    /// The beginning of the name of a volume, harmless to a terminal.
    pub fn name(&self, number: u32) -> String {
        self.names.get(number as usize).map(|name| crate::error::shown(name)).unwrap_or_default()
    }

    /// The same, however long it is, as it stands in the trace.
    pub fn whole_name(&self, number: u32) -> String {
        let name = self.names.get(number as usize);
        name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_numbered_as_they_come() {
        let mut volumes = Volumes::default();
        let got: Vec<_> = [b"b", b"a", b"b", b"b", b"a"].map(|v| volumes.number(v).unwrap()).into();
        assert_eq!(got, [0, 1, 0, 0, 1]);
        assert_eq!(
            (volumes.name(0), volumes.name(1), volumes.count()),
            ("b".into(), "a".into(), 2)
        );
        assert_eq!(volumes.number(&[b'x'; 257]), Err(Flaw::Volume));
        let long = volumes.number(&[b'y'; 256]).unwrap();
        assert_eq!((volumes.name(long).len(), volumes.whole_name(long).len()), (83, 256));
        for i in 3..MOST_VOLUMES {
            volumes.number(i.to_string().as_bytes()).unwrap();
        }
        assert_eq!(volumes.number(b"one more"), Err(Flaw::Volume));
        assert_eq!(volumes.number(b"7"), Ok(7));
    }
}
