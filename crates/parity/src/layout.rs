//! Where a superblock's blocks are.
//!
//! Units are grouped in the order of writes, channels first, so that
//! neighbours of a group are on different channels as far as there are any.
//! Superblock `n` of a group is chunk `n` of each of its units, its *members*.
//! Member `n mod width` has the parity, those after it, in turn, the data. Rows
//! go round the data members: one row of each, and the parity row, are a
//! *stripe*.
//!
//! Guarantees: every block of the upper geometry has a home of its own; the
//! blocks of a row stay together.

use flash::{Dimensions, Geometry, Ppa};

use crate::error::ParityError;

/// The fewest units to a superblock: two of data, one of parity.
pub const MIN_WIDTH: u32 = 3;

/// The most: a command then names a block of each other.
pub const MAX_WIDTH: u32 = 64;

/// The geometry that is seen above parity of a width, over that of a drive.
///
/// # Errors
/// As [`crate::Parity::new`].
pub fn geometry(lower: &Geometry, width: u32) -> Result<Geometry, ParityError> {
    Ok(Layout::new(lower, width)?.upper)
}

/// The two geometries, and how they belong together.
pub(crate) struct Layout {
    /// The drive below.
    pub lower: Geometry,
    /// What is seen from above.
    pub upper: Geometry,
    /// Members of a superblock.
    pub width: u32,
    /// Blocks in a row; the same above and below.
    pub row: u32,
    /// By group of units and member: the unit below.
    units: Vec<usize>,
    /// By unit below: its group, and which member it is.
    members: Vec<(u32, u32)>,
}

impl Layout {
    pub fn new(lower: &Geometry, width: u32) -> Result<Layout, ParityError> {
        let total = lower.total_pus();
        if !(MIN_WIDTH..=MAX_WIDTH).contains(&width) {
            return Err(ParityError::Width(width));
        }
        if !total.is_multiple_of(width) {
            return Err(ParityError::Units { width, units: total });
        }
        let (dim, count) = (lower.dimensions(), total / width);
        let fits = |pus: &u32| count.is_multiple_of(*pus) && count / pus <= 256;
        let pus = (1..=256).find(fits).ok_or(ParityError::TooMany { width, units: total })?;
        let upper = Geometry::new(Dimensions {
            groups: count / pus,
            pus,
            pages: dim.pages * (width - 1),
            ..dim
        });
        let upper = upper.map_err(|source| ParityError::Superblock { width, source })?;
        let units: Vec<usize> = lower.pus_channels_first().collect();
        let mut members = vec![(u32::MAX, 0); lower.pu_slots()];
        for (i, &unit) in units.iter().enumerate() {
            members[unit] = (i as u32 / width, i as u32 % width);
        }
        Ok(Layout { lower: *lower, upper, width, row: lower.row_blocks(), units, members })
    }

    /// Members that hold data.
    #[inline]
    pub fn data_members(&self) -> u32 {
        self.width - 1
    }

    /// Data blocks in a stripe.
    #[inline]
    pub fn stripe_blocks(&self) -> u32 {
        self.row * self.data_members()
    }

    /// Blocks in a chunk below.
    #[inline]
    pub fn chunk_blocks_below(&self) -> u32 {
        self.lower.chunk_blocks()
    }

    /// Blocks in a superblock, without parity.
    #[inline]
    pub fn size(&self) -> u32 {
        self.upper.chunk_blocks()
    }

    /// The group of units that a unit above stands for.
    #[inline]
    fn group(&self, upper_pu: usize) -> usize {
        let groups = self.upper.dimensions().groups as usize;
        self.upper.pu_in_group(upper_pu) as usize * groups + self.upper.group_of_pu(upper_pu)
    }

    /// A superblock's number in its group, and the group.
    #[inline]
    fn number(&self, sb: usize) -> (u32, usize) {
        let number = sb & ((1 << self.upper.chunk_bits()) - 1);
        (number as u32, self.group(sb >> self.upper.chunk_bits()))
    }

    /// The chunk below of data member `data`; the parity's is that of
    /// [`Layout::data_members`].
    #[inline]
    pub fn chunk(&self, sb: usize, data: u32) -> usize {
        let (number, group) = self.number(sb);
        let mut member = number % self.width + 1 + data;
        if member >= self.width {
            member -= self.width;
        }
        let unit = self.units[group * self.width as usize + member as usize];
        self.lower.chunk_of(unit, number)
    }

    /// The chunk below that has the parity.
    #[inline]
    pub fn parity_chunk(&self, sb: usize) -> usize {
        self.chunk(sb, self.data_members())
    }

    /// The chunks below of all members, the parity's last.
    pub fn chunks(&self, sb: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.width).map(move |data| self.chunk(sb, data))
    }

    /// Which stripe a block is in, which data member has it, and which block
    /// of that chunk it is.
    #[inline]
    pub fn place(&self, block: u32) -> (u32, u32, u32) {
        let (row, in_row) = (block / self.row, block % self.row);
        let (stripe, data) = (row / self.data_members(), row % self.data_members());
        (stripe, data, stripe * self.row + in_row)
    }

    /// The block that `place` gives for this one of data member `data`.
    #[inline]
    pub fn block_of(&self, data: u32, below: u32) -> u32 {
        let (stripe, in_row) = (below / self.row, below % self.row);
        (stripe * self.data_members() + data) * self.row + in_row
    }

    /// Where a block is below.
    #[inline]
    pub fn home(&self, ppa: Ppa) -> Ppa {
        let (_, data, block) = self.place(self.upper.block(ppa));
        self.at(self.chunk(self.upper.chunk_index(ppa), data), block)
    }

    /// The address of a block of a chunk below.
    #[inline]
    pub fn at(&self, chunk: usize, block: u32) -> Ppa {
        Ppa(self.lower.chunk_start(chunk).0 + u64::from(block))
    }

    /// The superblock of an address below, and the block above, if the address
    /// has data and not parity.
    pub fn above(&self, below: Ppa) -> (usize, Option<u32>) {
        let chunk = self.lower.chunk_index(below);
        let (group, member) = self.members[self.lower.pu_index(below)];
        let number = (chunk & ((1 << self.lower.chunk_bits()) - 1)) as u32;
        let groups = self.upper.dimensions().groups;
        let start = self.upper.ppa(group % groups, group / groups, number, 0);
        let data = (member + self.width - number % self.width - 1) % self.width;
        let is_data = data < self.data_members();
        let block = is_data.then(|| self.block_of(data, self.lower.block(below)));
        (self.upper.chunk_index(start), block)
    }

    /// All superblocks.
    pub fn superblocks(&self) -> impl Iterator<Item = usize> + use<> {
        let upper = self.upper;
        let of_unit = move |pu| (0..upper.chunks()).map(move |n| upper.chunk_of(pu, n));
        upper.pus_channels_first().flat_map(of_unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn geometry(groups: u32, pus: u32, chunks: u32, pages: u32) -> Geometry {
        let dim = Dimensions { groups, pus, chunks, pages, planes: 2, ..Dimensions::LEAST };
        Geometry::new(dim).unwrap()
    }

    proptest! {
        #[test]
        fn every_block_has_its_own_home(
            groups in 1u32..5, of_width in 1u32..4, chunks in 1u32..9, pages in 1u32..5, width in 3u32..13,
        ) {
            // Units of a channel, so that the width divides all.
            let lower = geometry(groups, width * of_width, chunks, pages);
            let layout = Layout::new(&lower, width).unwrap();
            let mut homes = HashSet::new();
            for sb in layout.superblocks() {
                let channels: HashSet<usize> = layout
                    .chunks(sb)
                    .map(|chunk| lower.group_of_pu(lower.pu_index(lower.chunk_start(chunk))))
                    .collect();
                prop_assert_eq!(channels.len() as u32, width.min(groups));
                for block in 0..layout.size() {
                    let ppa = Ppa(layout.upper.chunk_start(sb).0 + u64::from(block));
                    let home = layout.home(ppa);
                    prop_assert!(lower.contains(home) && homes.insert(home));
                    prop_assert_eq!(layout.above(home), (sb, Some(block)));
                    let (_, data, below) = layout.place(block);
                    prop_assert_eq!(layout.block_of(data, below), block);
                    if block % layout.row > 0 {
                        prop_assert_eq!(home.0, layout.home(Ppa(ppa.0 - 1)).0 + 1);
                    }
                }
                let parity = layout.at(layout.parity_chunk(sb), 1);
                prop_assert_eq!(layout.above(parity), (sb, None));
                prop_assert!(homes.insert(parity));
            }
            let blocks = lower.blocks() / u64::from(width) * u64::from(width - 1);
            prop_assert_eq!(layout.upper.blocks(), blocks);
        }
    }

    #[test]
    fn the_parity_turns() {
        let lower = geometry(4, 1, 8, 3);
        let layout = Layout::new(&lower, 4).unwrap();
        let units = layout.superblocks().map(|sb| layout.parity_chunk(sb));
        let units: Vec<usize> = units.map(|c| lower.pu_index(lower.chunk_start(c))).collect();
        assert_eq!(units, [0, 1, 2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn widths_that_cannot_be_say_so() {
        let lower = geometry(4, 2, 8, 3);
        let error = |width| Layout::new(&lower, width).err().unwrap().to_string();
        assert!(error(2).contains("3 to 64"), "{}", error(2));
        assert!(error(3).contains("divides 8"), "{}", error(3));
        let long = geometry(8, 8, 2, 2000);
        let error = Layout::new(&long, 64).err().unwrap().to_string();
        assert!(error.contains("smaller width"), "{error}");
    }
}
