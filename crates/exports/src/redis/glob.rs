//! Patterns of SCAN: `*`, `?`, `[a-z]`, `[^a]`, and `\` before what is meant as
//! it is.
//!
//! A pattern is compiled once, in time linear in its length: each set becomes
//! a table of all bytes. One that needs more bytes than any text has matches
//! nothing and is compiled no further, so memory and steps are bounded by the
//! longest text, not by the pattern. A match takes at most the square of the
//! text's length in steps, which are counted for the caller: a star that
//! matched too little is tried again only when no later one has matched.

/// A part of a pattern.
enum Part {
    /// Any bytes, or none.
    Star,
    /// Any byte.
    Any,
    /// This byte.
    Byte(u8),
    /// One of these bytes, a bit each.
    Set(Box<[u64; 4]>),
}

/// A compiled pattern.
#[derive(Default)]
pub struct Pattern {
    parts: Vec<Part>,
    /// It is longer than any text.
    is_hopeless: bool,
}

impl Pattern {
    /// Compiles `pattern` for texts of at most `longest` bytes.
    pub fn new(pattern: &[u8], longest: usize) -> Pattern {
        let (mut rest, mut parts, mut bytes) = (pattern, Vec::new(), 0);
        while let Some(part) = next(&mut rest) {
            match part {
                Part::Star if matches!(parts.last(), Some(Part::Star)) => continue,
                Part::Star => {}
                _ if bytes == longest => return Pattern { parts: Vec::new(), is_hopeless: true },
                _ => bytes += 1,
            }
            parts.push(part);
        }
        Pattern { parts, is_hopeless: false }
    }

    /// Memory that it has, in bytes.
    pub fn memory(&self) -> usize {
        self.parts.capacity() * (size_of::<Part>() + size_of::<[u64; 4]>())
    }

    /// Whether `text` is as the pattern says. Adds to `steps` how many it
    /// took.
    pub fn matches(&self, text: &[u8], steps: &mut u64) -> bool {
        *steps += 1;
        if self.is_hopeless {
            return false;
        }
        let (mut p, mut t) = (0, 0);
        // Behind the last star, and what it is tried to end before.
        let mut star: Option<(usize, usize)> = None;
        while t < text.len() {
            *steps += 1;
            let is_one = match self.parts.get(p) {
                Some(Part::Star) => {
                    p += 1;
                    star = Some((p, t));
                    continue;
                }
                Some(Part::Any) => true,
                Some(Part::Byte(byte)) => *byte == text[t],
                Some(Part::Set(set)) => has(set, text[t]),
                None => false,
            };
            if is_one {
                (p, t) = (p + 1, t + 1);
            } else if let Some((behind, from)) = star {
                star = Some((behind, from + 1));
                (p, t) = (behind, from + 1);
            } else {
                return false;
            }
        }
        self.parts[p..].iter().all(|part| matches!(part, Part::Star))
    }
}

/// Takes the next part off a pattern.
fn next(rest: &mut &[u8]) -> Option<Part> {
    let (&first, behind) = rest.split_first()?;
    let (part, behind) = match (first, behind) {
        (b'*', _) => (Part::Star, behind),
        (b'?', _) => (Part::Any, behind),
        (b'[', _) => set(behind),
        (b'\\', [byte, behind @ ..]) => (Part::Byte(*byte), behind),
        (byte, _) => (Part::Byte(byte), behind),
    };
    *rest = behind;
    Some(part)
}

/// The set at the beginning of `rest`, which ends with the pattern if nothing
/// else ends it, and what is behind it.
fn set(mut rest: &[u8]) -> (Part, &[u8]) {
    let inverted = rest.first() == Some(&b'^');
    rest = &rest[usize::from(inverted)..];
    let mut set = Box::new([0; 4]);
    loop {
        rest = match rest {
            [] => break,
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', byte, behind @ ..] => {
                add(&mut set, *byte);
                behind
            }
            [first, b'-', last, behind @ ..] if *last != b']' => {
                (*first.min(last)..=*first.max(last)).for_each(|byte| add(&mut set, byte));
                behind
            }
            [byte, behind @ ..] => {
                add(&mut set, *byte);
                behind
            }
        };
    }
    if inverted {
        set.iter_mut().for_each(|word| *word = !*word);
    }
    (Part::Set(set), rest)
}

fn add(set: &mut [u64; 4], byte: u8) {
    set[usize::from(byte >> 6)] |= 1 << (byte & 63);
}

fn has(set: &[u64; 4], byte: u8) -> bool {
    set[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Pattern::new(pattern, 10_000).matches(text, &mut 0)
    }

    #[test]
    fn patterns() {
        for (pattern, yes, no) in [
            ("", "", "a"),
            ("*", "", "never"),
            ("user*", "user1", "use"),
            ("*a*b", "xaxbab", "xaxba"),
            ("h?llo", "hallo", "hllo"),
            ("h[ae]llo", "hello", "hillo"),
            ("h[^e]llo", "hallo", "hello"),
            ("h[a-c]", "hb", "hd"),
            ("h[c-a]", "hb", "hd"),
            ("\\*", "*", "a"),
            ("a[", "a", "ab"),
            ("[\\]]", "]", "\\"),
        ] {
            assert!(matches(pattern.as_bytes(), yes.as_bytes()) || pattern == "a[", "{pattern}");
            assert!(!matches(pattern.as_bytes(), no.as_bytes()) || no == "never", "{pattern}");
        }
    }

    /// Whatever the pattern, a key of 511 bytes takes no more steps than the
    /// square of its length.
    #[test]
    fn steps_are_bounded_by_the_text() {
        let long = |unit: &str| unit.repeat(400_000 / unit.len());
        let key = [b"a".repeat(510), b"b".to_vec()].concat();
        for pattern in [
            format!("*[{}", long("a")),
            format!("*[{}]", long("a")),
            format!("*[{}]c", long("a-b")),
            "*a".repeat(5000),
            format!("*{}c", "a".repeat(255)),
            format!("{}c", "*a".repeat(510)),
            long("*"),
            long("[^]"),
        ] {
            let mut steps = 0;
            Pattern::new(pattern.as_bytes(), key.len()).matches(&key, &mut steps);
            assert!(steps <= (key.len() * key.len()) as u64, "{steps} for {:?}", &pattern[..9]);
        }
    }

    /// What is said above, word by word.
    fn plainly(pattern: &[u8], text: &[u8]) -> bool {
        let mut rest = pattern;
        match (next(&mut rest), text) {
            (None, _) => text.is_empty(),
            (Some(Part::Star), _) => (0..=text.len()).any(|n| plainly(rest, &text[n..])),
            (Some(_), []) => false,
            (Some(part), [byte, text @ ..]) => {
                (match part {
                    Part::Byte(one) => one == *byte,
                    Part::Set(set) => has(&set, *byte),
                    _ => true,
                }) && plainly(rest, text)
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_is_no_panic(pattern: Vec<u8>, text: Vec<u8>) {
            matches(&pattern, &text);
        }

        #[test]
        fn what_is_escaped_matches_itself(text: Vec<u8>) {
            let pattern: Vec<u8> = text.iter().flat_map(|&b| [b'\\', b]).collect();
            prop_assert!(matches(&pattern, &text));
        }

        #[test]
        fn it_is_as_said(pattern in "[ab*?\\[\\]^\\\\-]{0,9}", text in "[abc]{0,7}") {
            prop_assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                plainly(pattern.as_bytes(), text.as_bytes())
            );
            let short = Pattern::new(pattern.as_bytes(), text.len());
            prop_assert_eq!(
                short.matches(text.as_bytes(), &mut 0),
                plainly(pattern.as_bytes(), text.as_bytes())
            );
        }
    }
}
