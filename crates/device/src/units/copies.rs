//! Rows that are copied inside their die: sensed into its register, and programmed
//! from there. Such a copy is a program of which only the two commands go over the
//! channel, and which has the array for the tR of each of its pages and a tPROG.
//! Nothing here fails.

use flash::Ppa;

use super::Units;

impl Units {
    /// Makes room for so many commands that copy rows.
    pub fn set_copies(&mut self, commands: usize) {
        self.sources = vec![Ppa(0); commands];
    }

    /// A command copies the row that begins at `from`.
    pub fn note_source(&mut self, cmd: u32, from: Ppa) {
        self.sources[cmd as usize] = from;
    }

    /// What a program takes of the channel beside its command: its data, or the second
    /// command of a copy.
    #[inline]
    pub(super) fn load_time(&self, count: u8, inside: bool) -> u64 {
        if inside { self.timing.command } else { self.transfer[count as usize] }
    }

    /// What a copy to `ppa` has the array for.
    #[cold]
    pub(super) fn copy_time(&mut self, pu: u32, cmd: u32, ppa: Ppa, count: u8) -> u64 {
        let (page, from) = (self.geometry.wide_page_blocks(), self.sources[cmd as usize]);
        let pages = (0..u32::from(count)).step_by(page as usize);
        let read = pages.map(|at| self.sensing_time(Ppa(from.0 + u64::from(at)), page as u8)).sum();
        self.takes(pu, read) + self.program_time(pu, ppa, count)
    }
}
