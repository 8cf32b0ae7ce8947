//! A start on a drive that was written: the tags of all blocks are read, and of each entry the
//! newest block is taken.

use device::{Content, OpenChannel};
use flash::{Ppa, TAG_BYTES, Tag};
use ftl::{Job, Runner, pieces};
use port::Time;
use rules::Address;

use crate::rows::NOBODY;
use crate::{COPY, Ruled, RuledConfig, RuledError, TOMB, WRITER};

/// A block that was found: the id and the number of its tag, and where it is.
type Found = (u64, u64, Ppa);

/// Of what was found, in order, the copies of the newest block of each entry.
fn newest(found: &[Found]) -> impl Iterator<Item = &[Found]> {
    found.chunk_by(|a, b| a.0 & !TOMB == b.0 & !TOMB).map(|all| {
        let newest = all[all.len() - 1].1;
        &all[all.partition_point(|of| of.1 < newest)..]
    })
}

impl<D: OpenChannel> Ruled<D> {
    /// The target that a drive has.
    pub(crate) fn found(
        device: D,
        config: &RuledConfig,
        now: Time,
    ) -> Result<(Ruled<D>, Time), RuledError> {
        let mut target = Ruled::empty(device, config)?;
        let geometry = target.geometry;
        let open = target.space.units.iter().flat_map(|unit| unit.open.iter().flatten());
        let closed = target.space.units.iter().flat_map(|unit| &unit.closed);
        let closed = closed.copied().chain(open.map(|open| open.0));
        let programmed = |chunk: usize| target.device.chunk(chunk).programmed;
        let written: Vec<(usize, u32)> = closed.map(|chunk| (chunk, programmed(chunk))).collect();
        let rows = written.iter().flat_map(|&(chunk, n)| pieces(&geometry, chunk, 0..n));
        // Nothing is in a row whose program failed.
        let rows = rows.filter(|&(ppa, count)| target.device.failed_of(ppa, count) == 0);
        let jobs: Vec<Job> = rows.map(|piece| Job::read(Content::Tags, piece)).collect();
        let mut found: Vec<Found> = Vec::new();
        let entries = target.blocks.tombs.len() as u64;
        let (writer, mut is_of_another) = (target.blocks.writer, false);
        let mut runner: Runner<'_, D, RuledError> = Runner::new(&mut target.device, now);
        runner.run(jobs.into_iter(), |job, ended| {
            if !ftl::is_read(ended.status) {
                return Err(RuledError::Unread(ended.status));
            }
            for (n, tag) in ended.tags.chunks_exact(TAG_BYTES).enumerate() {
                let Tag { id, seq } = Tag::load(tag);
                // What parity padded has no number.
                if id == NOBODY || seq == 0 {
                    continue;
                }
                let id = id ^ writer;
                is_of_another |= id >> WRITER != 0;
                // Copies are none's: which blocks they are of is not known any more.
                if id & COPY == 0 && id & !TOMB < entries {
                    found.push((id, seq, Ppa(job.ppa.0 + n as u64)));
                }
            }
            Ok(())
        })?;
        let at = runner.now;
        if is_of_another {
            return Err(RuledError::Written);
        }
        found.sort_unstable_by_key(|&(id, seq, ppa)| (id & !TOMB, seq, ppa.0));
        // Of copies those in the same chunks are taken, so that of what collection was emptying,
        // and where it moved that, one has nothing valid: it may be all the room that is left.
        let mut counts = vec![(0, 0); target.blocks.valid.len()];
        for copies in newest(&found) {
            for &(.., ppa) in copies {
                let (alone, all) = &mut counts[geometry.chunk_index(ppa)];
                (*alone, *all) = (*alone + u32::from(copies.len() == 1), *all + 1);
            }
        }
        for copies in newest(&found) {
            let best = copies.iter().max_by_key(|f| (counts[geometry.chunk_index(f.2)], f.2.0));
            if let Some(&(id, seq, ppa)) = best {
                target.space.seq = target.space.seq.max(seq);
                target.adopt(id & !TOMB, id & TOMB != 0, ppa)?;
            }
        }
        target.space.units.iter_mut().for_each(|unit| unit.suit_collection(&target.blocks.valid));
        Ok((target, at))
    }

    /// A block is the newest of its entry. Fails where the entry's map is of other units: the
    /// set is not the one that wrote it.
    fn adopt(&mut self, owner: u64, is_tomb: bool, ppa: Ppa) -> Result<(), RuledError> {
        let unit = self.unit_of(ppa);
        if is_tomb {
            self.blocks.tombs[owner as usize] = ppa.0 + 1;
            self.blocks.buried += 1;
        } else if let Some(entry) = self.entry(owner) {
            let stored = self.rules.store(entry, Address::new(unit as u16, ppa.0));
            stored.map_err(|_| RuledError::Written)?;
        } else {
            self.blocks.own[owner as usize] = ppa.0 + 1;
        }
        self.validate(ppa);
        Ok(())
    }
}
