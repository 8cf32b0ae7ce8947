//! Which token a read depends on.

use super::tokens::Token;

/// The newest token of each place, by the hash of what is written there. Different things may
/// share a place: then one waits for the other's write, and never for less than its own. What
/// was not written since its place's token became durable waits for nothing.
#[derive(Debug)]
pub struct Written {
    places: Box<[Token]>,
    /// The newest that is of all places.
    of_all: Token,
}

impl Written {
    /// So many places, a power of two; 8 bytes each.
    ///
    /// # Panics
    /// When it is no power of two.
    pub fn new(places: usize) -> Written {
        assert!(places.is_power_of_two(), "places are found by a mask");
        Written { places: vec![Token::NONE; places].into(), of_all: Token::NONE }
    }

    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    /// What has this hash was written.
    #[inline]
    pub fn wrote(&mut self, hash: u64, token: Token) {
        let place = self.place(hash);
        self.places[place] = self.places[place].max(token);
    }

    /// Everything was written.
    pub fn wrote_all(&mut self, token: Token) {
        self.of_all = self.of_all.max(token);
    }

    /// What it depends on who has read what has this hash.
    #[inline]
    pub fn of(&self, hash: u64) -> Token {
        self.places[self.place(hash)].max(self.of_all)
    }
}
