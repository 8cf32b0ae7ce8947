//! The last things that were told, by number.

/// Those that were told last, each by how many were told before it. What is told at once
/// lies together at the beginning, so that little memory is touched.
pub struct Latest<T> {
    /// A power of two of them, written round and round.
    told: Box<[T]>,
    /// How many were told.
    count: u64,
    /// The first that is still there.
    first: u64,
}

impl<T: Clone + Default> Latest<T> {
    /// With room for so many at least, as many of which were told: nothing is known of these.
    pub fn new(room: usize, told: usize) -> Latest<T> {
        let all = vec![T::default(); (room + told).next_power_of_two()];
        Latest { told: all.into(), count: told as u64, first: 0 }
    }
}

impl<T> Latest<T> {
    /// How many were told.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Nobody asks for those any more that were told so far.
    #[inline]
    pub fn forget(&mut self) {
        self.first = self.count;
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        (number - self.first) as usize & (self.told.len() - 1)
    }

    /// The place of the next one, which is told now.
    #[inline]
    pub fn tell(&mut self) -> &mut T {
        let place = self.place(self.count);
        self.count += 1;
        &mut self.told[place]
    }

    /// Nothing is told of the next one.
    #[inline]
    pub fn pass_over(&mut self) {
        self.count += 1;
    }

    /// That of this number, if it is still there.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.is_there(number).then(|| &self.told[self.place(number)])
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.is_there(number).then(|| self.place(number))?;
        Some(&mut self.told[place])
    }

    #[inline]
    fn is_there(&self, number: u64) -> bool {
        let after = self.count.saturating_sub(self.told.len() as u64);
        number < self.count && number >= after.max(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_there_as_have_room_until_they_are_forgotten() {
        let mut latest: Latest<u64> = Latest::new(3, 1);
        assert_eq!((latest.get(0), latest.get(1)), (Some(&0), None));
        (1..4).for_each(|n| *latest.tell() = n);
        assert_eq!(latest.get(3), Some(&3));
        *latest.tell() = 4;
        assert_eq!((latest.get(0), latest.get(1), latest.get(4)), (None, Some(&1), Some(&4)));
        latest.forget();
        assert_eq!((latest.get(4), latest.get(5), latest.count()), (None, None, 5));
        latest.pass_over();
        *latest.tell() = 6;
        *latest.get_mut(6).unwrap() += 1;
        assert_eq!((latest.get(6), latest.get(4), latest.get(7)), (Some(&7), None, None));
    }
}
