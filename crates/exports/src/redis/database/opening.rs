//! What keeps the keys is taken up, and its keys are counted.

use std::collections::VecDeque;

use btree::{Error as TreeError, Outcome, Records, Sink};
use port::{OutOfMemory, lazy};
use thiserror::Error;
use waiting::speculate::Tokens;

use super::{Database, FIRST};
use crate::grow;
use crate::redis::client::Client;
use crate::redis::job::{Common, Cursors, Job};
use crate::redis::locks::Locks;
use crate::redis::mail::{Inbox, Mail};
use crate::redis::rope::Trash;
use crate::redis::server::Failure;
use crate::redis::value::{FORMAT, FORMAT_KEY};

/// Memory that a server takes beside the places of clients before it has any,
/// about and at most, in bytes, and what there must be for the first of them.
const SPARE: u64 = (8 << 20) + grow::SPARE as u64;

/// A database cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The tree could not.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// It holds something else.
    #[error("the store holds keys of something else than this server: take another drive")]
    Foreign,
    /// There is no memory for so many clients.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

impl Database {
    /// The database in `records`, for so many seats. Waits for them, and reads a tree
    /// whole to count the keys. Where a page cannot be read, what comes
    /// behind it is not counted ([`Database::uncounted`]).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(mut records: Records<'static>, seats: usize) -> Result<Database, OpenError> {
        let mut look = Look::default();
        let wait = |records: &mut Records<'static>, look: &mut Look| {
            while look.ended.is_none() {
                if !records.wait(look) {
                    return Err(TreeError::Store(btree::StoreError::Gone));
                }
            }
            look.ended.take().unwrap_or(Ok(()))
        };
        records.get(0, FORMAT_KEY, None, &mut look)?;
        wait(&mut records, &mut look)?;
        let is_ours = look.is_ours;
        look = Look::default();
        let mut uncounted = None;
        if let Records::Drive(drive) = &records {
            look.records = drive.keys();
        } else {
            records.scan(0, b"", u64::MAX, &mut look)?;
            uncounted = wait(&mut records, &mut look).err();
        }
        if let Some(error) = uncounted.filter(|_| !is_ours) {
            return Err(error.into());
        }
        if look.records > 0 && !is_ours {
            return Err(OpenError::Foreign);
        }
        if look.records == 0 && !is_ours {
            look.ended = None;
            records.put(0, FORMAT_KEY, FORMAT, &mut look)?;
            wait(&mut records, &mut look)?;
            if !records.is_ordered() {
                // A tree has nothing without what came before it. Of a drive a crash may
                // take this record and leave keys, which would be somebody else's then.
                records.flush(0)?;
                wait(&mut records, &mut look)?;
            }
        }
        let each = size_of::<(Mail, Job, Option<Client>, u32)>();
        lazy::ask_for((seats * each) as u64 + SPARE, "the places of clients")?;
        let is_ordered = records.is_ordered();
        let mut tokens = Tokens::default();
        // What was made to open it.
        tokens.issue();
        Ok(Database {
            records,
            inbox: Inbox {
                mails: (0..seats).map(|_| Mail::default()).collect(),
                ..Inbox::default()
            },
            jobs: (0..seats).map(|_| Some(Box::default())).collect(),
            locks: Locks::new(),
            stalled: VecDeque::new(),
            yielded: VecDeque::new(),
            common: Common { keys: look.keys, cursors: Cursors::default(), is_ordered },
            uncounted,
            failure: Failure::default(),
            tokens,
            slice: FIRST,
            trash: Trash::default(),
        })
    }
}

/// What is in a tree when it is opened.
#[derive(Default)]
struct Look {
    records: u64,
    keys: i64,
    is_ours: bool,
    ended: Option<Result<(), TreeError>>,
}

impl Sink for Look {
    fn record(&mut self, _tag: u64, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.keys += i64::from(key.first() == Some(&b'k'));
        self.is_ours |= (key, value) == (FORMAT_KEY, FORMAT);
    }

    fn done(&mut self, _tag: u64, outcome: Result<Outcome, TreeError>) {
        self.ended = Some(outcome.map(drop));
    }
}
