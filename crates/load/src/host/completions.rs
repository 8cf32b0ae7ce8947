//! Completions as columns, to be given away whole.
//!
//! Fails without memory for what was read.

use port::{OutOfMemory, Part, Status, Story, Time};

/// What became of requests, in the order in which they completed.
#[derive(Debug, Default)]
pub struct Completions {
    /// The numbers of the requests.
    pub ids: Vec<u64>,
    /// How each ended ([`Status`]).
    pub statuses: Vec<u16>,
    /// When each started, in ns of drive time: its own time, or where it had none, when
    /// there was room for it.
    pub submitted: Vec<u64>,
    /// When each completed.
    pub completed: Vec<u64>,
    /// What was read, one after the other, of requests whose data is kept; of those that
    /// failed nothing.
    pub data: Vec<u8>,
    /// Where in `data` that of each ends.
    pub ends: Vec<u64>,
    /// Where the time of each went, if that is told.
    pub stories: Option<Vec<Story>>,
}

impl Completions {
    /// None yet.
    pub fn new(stories: bool) -> Completions {
        Completions { stories: stories.then(Vec::new), ..Completions::default() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn reserve(&mut self, count: usize) {
        self.ids.reserve(count);
        self.statuses.reserve(count);
        self.submitted.reserve(count);
        self.completed.reserve(count);
    }

    /// One more, with what it read.
    #[inline]
    pub(super) fn push(
        &mut self,
        id: u64,
        status: Status,
        (start, end): (Time, Time),
        bytes: &[u8],
    ) -> Result<(), OutOfMemory> {
        self.ids.push(id);
        self.statuses.push(status.0);
        self.submitted.push(start.0);
        self.completed.push(end.0);
        if !bytes.is_empty() {
            self.add_data(bytes)?;
        }
        Ok(())
    }

    /// Most have none: where `ends` is short, theirs is where the one before ended.
    fn add_data(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        let end = self.data.len() as u64;
        self.ends.resize(self.ids.len() - 1, end);
        if self.data.capacity() - self.data.len() < bytes.len() {
            // So much is asked for that it may well not be there.
            let wanted = (self.data.len() + bytes.len()) as u64;
            let source = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
            let failed = |_| OutOfMemory { what: "what was read", bytes: wanted, source: source() };
            self.data.try_reserve(bytes.len()).map_err(failed)?;
        }
        self.data.extend_from_slice(bytes);
        self.ends.push(end + bytes.len() as u64);
        Ok(())
    }

    /// What the drive tells of the last one, if it does.
    pub(super) fn tell(&mut self, told: impl FnOnce(&mut Story) -> bool, start: Time, now: Time) {
        let Some(stories) = &mut self.stories else { return };
        let mut story = Story::default();
        let is_told = told(&mut story);
        story.around(is_told, start, Part::Queue, now);
        stories.push(story);
    }

    /// One that was lost.
    pub(super) fn lost(&mut self, id: u64, start: Time, now: Time) {
        let (start, end) = (start.min(now), now);
        self.ids.push(id);
        self.statuses.push(Status::ABORTED.0);
        self.submitted.push(start.0);
        self.completed.push(end.0);
        self.tell(|_| false, start, now);
    }

    /// These and others after them.
    pub fn and(mut self, mut after: Completions) -> Completions {
        if !after.data.is_empty() {
            let begin = self.data.len() as u64;
            self.ends.resize(self.len(), begin);
            self.ends.extend(after.ends.iter().map(|end| begin + end));
            self.data.append(&mut after.data);
        }
        self.ids.append(&mut after.ids);
        self.statuses.append(&mut after.statuses);
        self.submitted.append(&mut after.submitted);
        self.completed.append(&mut after.completed);
        if let (Some(mine), Some(mut others)) = (&mut self.stories, after.stories) {
            mine.append(&mut others);
        }
        self
    }

    /// Where the data of each begins, and the last ends: one more than there are.
    pub fn bounds(&self) -> Vec<u64> {
        let mut bounds = Vec::with_capacity(self.len() + 1);
        bounds.push(0);
        bounds.extend_from_slice(&self.ends);
        bounds.resize(self.len() + 1, self.data.len() as u64);
        bounds
    }
}
