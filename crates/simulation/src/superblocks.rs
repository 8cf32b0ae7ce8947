//! Where parity puts what it stores, after `docs/parity.md`: not asked of what is tested.

use flash::{Geometry, Ppa};

use crate::setup::Setup;

/// Units in groups of `width`; one above is a group.
pub struct Superblocks {
    lower: Geometry,
    upper: Geometry,
    width: u32,
    /// The units of the drive, and those above, in the order of writes.
    units: Vec<usize>,
    above: Vec<usize>,
}

impl Superblocks {
    /// Those of a setup with parity.
    pub fn of(setup: &Setup) -> Option<Superblocks> {
        let (lower, upper) = (setup.geometry, setup.seen());
        let units = lower.pus_channels_first().collect();
        let above = upper.pus_channels_first().collect();
        (setup.parity > 0).then_some(Superblocks {
            lower,
            upper,
            width: setup.parity,
            units,
            above,
        })
    }

    /// The chunks of a superblock: of each unit of the group the one of that number.
    pub fn members(&self, pu_above: usize, number: u32) -> impl Iterator<Item = usize> {
        let width = self.width as usize;
        let group = self.above.iter().position(|&pu| pu == pu_above).expect("a unit above");
        let units = &self.units[group * width..(group + 1) * width];
        units.iter().map(move |&unit| self.lower.chunk_of(unit, number))
    }

    /// The same of an address above.
    pub fn members_of(&self, above: Ppa) -> impl Iterator<Item = usize> {
        self.members(self.upper.pu_index(above), self.number(&self.upper, above))
    }

    /// The same of a member: it, and the others.
    pub fn members_with(&self, chunk: usize) -> impl Iterator<Item = usize> {
        let at = self.lower.chunk_start(chunk);
        let unit = self.units.iter().position(|&pu| pu == self.lower.pu_index(at));
        let group = unit.expect("a unit") / self.width as usize;
        self.members(self.above[group], self.number(&self.lower, at))
    }

    /// Where a block is. Rows go round the members, from the one behind that with the parity.
    pub fn home(&self, above: Ppa) -> Ppa {
        let (data, row) = (self.width - 1, self.upper.row(above));
        let member = (self.number(&self.upper, above) % self.width + 1 + row % data) % self.width;
        let chunk = self.members_of(above).nth(member as usize).expect("a member");
        let block = row / data * self.lower.row_blocks() + self.upper.in_row(above);
        Ppa(self.lower.chunk_start(chunk).0 + u64::from(block))
    }

    /// Whether a block below is parity.
    pub fn is_parity(&self, below: Ppa) -> bool {
        let own = self.lower.pu_index(below);
        let at = self.units.iter().position(|&pu| pu == own).expect("a unit");
        at as u32 % self.width == self.number(&self.lower, below) % self.width
    }

    /// The same block of all other members, of an address below.
    pub fn others(&self, below: Ppa) -> impl Iterator<Item = Ppa> {
        let own = self.lower.pu_index(below);
        let at = self.units.iter().position(|&pu| pu == own).expect("a unit");
        let width = self.width as usize;
        let group = &self.units[at / width * width..(at / width + 1) * width];
        let (number, block) = (self.number(&self.lower, below), self.lower.block(below));
        let others = group.iter().filter(move |&&pu| pu != own);
        others.map(move |&pu| {
            let start = self.lower.chunk_start(self.lower.chunk_of(pu, number));
            Ppa(start.0 + u64::from(block))
        })
    }

    fn number(&self, geometry: &Geometry, at: Ppa) -> u32 {
        (geometry.chunk_index(at) & ((1 << geometry.chunk_bits()) - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use flash::Dimensions;

    use super::*;

    /// Width 4, chunk 1: the second unit has the parity, the third the first row.
    #[test]
    fn rows_are_where_the_picture_has_them() {
        let dim = Dimensions { groups: 4, chunks: 4, pages: 8, planes: 2, ..Dimensions::LEAST };
        let geometry = Geometry::new(dim).unwrap();
        let setup = Setup { geometry, parity: 4, ..Setup::sound(0) };
        let all = Superblocks::of(&setup).unwrap();
        let above = setup.seen();
        let row = geometry.row_blocks();
        let home = |number: u32| all.home(above.ppa(0, 0, 1, number * row));
        assert_eq!(
            [0, 1, 2, 3].map(home),
            [(2, 0), (3, 0), (0, 0), (2, row)]
                .map(|(unit, block)| { geometry.ppa(unit, 0, 1, block) })
        );
        let others: Vec<Ppa> = all.others(home(0)).collect();
        assert!(all.is_parity(geometry.ppa(1, 0, 1, 5)) && !all.is_parity(home(0)));
        assert_eq!(others, [0, 1, 3].map(|unit| geometry.ppa(unit, 0, 1, 0)));
        assert_eq!(all.members_of(above.ppa(0, 0, 1, 5)).count(), 4);
    }
}
