//! The bytes of values: each word says of which value it is, and where in it.
//!
//! So a value that was put together of the wrong pieces, or of the right ones in another
//! order, is none. What has the value 0 is zeros.

/// What is between two words of a value; odd, so that all of them differ.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Word `at` of a value: the first is the value itself.
fn word(value: u64, at: usize) -> u64 {
    if value == 0 { 0 } else { value ^ STEP.wrapping_mul(at as u64) }
}

/// Makes these bytes those of a value; the last word may be a part of one.
pub(crate) fn fill(bytes: &mut [u8], value: u64) {
    for (at, to) in bytes.chunks_mut(8).enumerate() {
        to.copy_from_slice(&word(value, at).to_le_bytes()[..to.len()]);
    }
}

/// The value that bytes are of, if there are any and all are of one and in their places.
pub(crate) fn value(bytes: &[u8]) -> Option<u64> {
    let mut first = [0; 8];
    let len = bytes.len().min(8);
    first[..len].copy_from_slice(&bytes[..len]);
    let value = u64::from_le_bytes(first);
    let is_of = |(at, is): (usize, &[u8])| is == &word(value, at).to_le_bytes()[..is.len()];
    (len > 0 && bytes.chunks(8).enumerate().all(is_of)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_and_in_order_is_a_value() {
        let mut bytes = vec![0; 8 * 600 + 3];
        assert_eq!((value(&bytes), value(&[])), (Some(0), None));
        fill(&mut bytes, 77);
        assert_eq!((value(&bytes), value(&bytes[..8])), (Some(77), Some(77)));
        assert_eq!(value(&bytes[8..]), None, "from its second word on it is another's");
        let mut swapped = bytes.clone();
        swapped.copy_within(4096..4608, 512);
        assert_eq!(value(&swapped), None);
        swapped.copy_from_slice(&bytes);
        swapped[4096..4104].fill(0);
        assert_eq!(value(&swapped), None);
        swapped.copy_from_slice(&bytes);
        swapped[8 * 600 + 2] ^= 1;
        assert_eq!(value(&swapped), None);
    }
}
