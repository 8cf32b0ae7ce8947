//! RocksDB on the files of a block drive.
//!
//! [`Db`] owns the files and is shared by threads, each with a [`Reader`].
//! Guarantees: those of RocksDB, as far as [`crate::files`] keeps its own.
//! Fails with what RocksDB says, in its words; the first thing that went wrong
//! with the files is in [`Db::file_error`].

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

use crate::files::{File, FileError, Files};

/// What RocksDB says of a failure.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("RocksDB: {0}")]
pub struct DbError(pub String);

/// How RocksDB is set up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of blocks, indexes, filters, and memtables together.
    pub cache: u64,
    /// Of these, at most so many for memtables, in two of half the size.
    pub memtables: u64,
    /// 1: each write is durable when it returns. 0: its log is written as it
    /// fills.
    pub sync: c_int,
    /// Threads for flushes and compactions.
    pub background_jobs: c_int,
}

/// What RocksDB has done.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data blocks found in the cache.
    pub block_hits: u64,
    /// And those that were not.
    pub block_misses: u64,
    /// Microseconds for which writes were held up.
    pub stalls_us: u64,
    /// Bytes of the log.
    pub wal_bytes: u64,
    /// Bytes of flushed memtables.
    pub flush_bytes: u64,
    /// Bytes that compactions read.
    pub compaction_read: u64,
    /// Bytes that compactions wrote.
    pub compaction_written: u64,
}

/// The callbacks; the shim's header has their meaning.
#[repr(C)]
struct RbFiles {
    files: *const c_void,
    make: extern "C" fn(*const c_void, *const c_char, usize) -> *const c_void,
    open: extern "C" fn(*const c_void, *const c_char, usize) -> *const c_void,
    close: extern "C" fn(*const c_void, *const c_void),
    append: extern "C" fn(*const c_void, *const c_void, *const c_char, usize) -> c_int,
    sync: extern "C" fn(*const c_void, *const c_void) -> c_int,
    write_out: extern "C" fn(*const c_void, *const c_void) -> c_int,
    finish: extern "C" fn(*const c_void, *const c_void) -> c_int,
    size: extern "C" fn(*const c_void, *const c_void) -> u64,
    length: extern "C" fn(*const c_void, *const c_void) -> u64,
    read: extern "C" fn(*const c_void, *const c_void, u64, *mut c_char, usize) -> i64,
    remove: extern "C" fn(*const c_void, *const c_char, usize) -> c_int,
    rename: extern "C" fn(*const c_void, *const c_char, usize, *const c_char, usize) -> c_int,
    commit: extern "C" fn(*const c_void) -> c_int,
    list: extern "C" fn(
        *const c_void,
        *const c_char,
        usize,
        *mut c_void,
        extern "C" fn(*mut c_void, *const c_char, usize),
    ),
}

enum Rb {}
enum RbReader {}

type EachRecord = extern "C" fn(*mut c_void, *const c_char, usize, *const c_char, usize);

unsafe extern "C" {
    fn rb_open(files: *const RbFiles, options: *const Options, e: *mut c_char, n: usize)
    -> *mut Rb;
    fn rb_close(db: *mut Rb, e: *mut c_char, n: usize) -> c_int;
    fn rb_put(
        db: *mut Rb,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        len: usize,
        e: *mut c_char,
        n: usize,
    ) -> c_int;
    fn rb_delete(
        db: *mut Rb,
        key: *const c_char,
        key_len: usize,
        e: *mut c_char,
        n: usize,
    ) -> c_int;
    fn rb_reader() -> *mut RbReader;
    fn rb_reader_drop(reader: *mut RbReader);
    fn rb_get(
        db: *mut Rb,
        reader: *mut RbReader,
        key: *const c_char,
        key_len: usize,
        value: *mut *const c_char,
        len: *mut usize,
        e: *mut c_char,
        n: usize,
    ) -> c_int;
    fn rb_scan(
        db: *mut Rb,
        key: *const c_char,
        key_len: usize,
        count: u64,
        to: *mut c_void,
        each: EachRecord,
        e: *mut c_char,
        n: usize,
    ) -> i64;
    fn rb_settle(db: *mut Rb, e: *mut c_char, n: usize) -> c_int;
    fn rb_counters(db: *mut Rb, to: *mut Counters);
}

/// What callbacks work on.
struct Shared {
    files: Files,
    first_error: Mutex<Option<FileError>>,
}

/// The codes of the shim.
fn code(error: &FileError) -> c_int {
    match error {
        FileError::Missing(_) => -1,
        FileError::Full | FileError::Directory(_) => -2,
        _ => -3,
    }
}

impl Shared {
    fn code<T>(&self, outcome: Result<T, FileError>) -> c_int {
        let Err(e) = outcome else { return 0 };
        let code = code(&e);
        if !matches!(e, FileError::Missing(_)) {
            let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(e);
        }
        code
    }
}

/// # Safety
/// `files` is what [`Db::open`] gave to the shim, and the database is open.
unsafe fn shared<'a>(files: *const c_void) -> &'a Shared {
    // SAFETY: the caller's.
    unsafe { &*files.cast::<Shared>() }
}

/// # Safety
/// `file` came from `handle` and was not closed.
unsafe fn file<'a>(file: *const c_void) -> &'a File {
    // SAFETY: the caller's.
    unsafe { &*file.cast::<File>() }
}

/// # Safety
/// There are `len` bytes, which stay for `'a`.
unsafe fn bytes<'a>(at: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(at.cast(), len) }
}

/// A name of RocksDB, which are ASCII.
///
/// # Safety
/// As of [`bytes`].
unsafe fn name<'a>(at: *const c_char, len: usize) -> &'a str {
    // SAFETY: the caller's.
    str::from_utf8(unsafe { bytes(at, len) }).unwrap_or("?")
}

/// A handle for the shim; `close` ends it.
fn handle(shared: &Shared, file: Result<Arc<File>, FileError>) -> *const c_void {
    match file {
        Ok(file) => Arc::into_raw(file).cast(),
        e => {
            shared.code(e);
            ptr::null()
        }
    }
}

// SAFETY of all callbacks: the shim passes what it was given, strings and
// buffers with their lengths that stay for the call, and no handle after its
// `close`; `Shared` is `Sync` and outlives the database.

extern "C" fn make(f: *const c_void, at: *const c_char, len: usize) -> *const c_void {
    // SAFETY: as said above.
    let (shared, name) = unsafe { (shared(f), name(at, len)) };
    handle(shared, shared.files.make(name))
}

extern "C" fn open(f: *const c_void, at: *const c_char, len: usize) -> *const c_void {
    // SAFETY: as said above.
    let (shared, name) = unsafe { (shared(f), name(at, len)) };
    handle(shared, shared.files.find(name))
}

extern "C" fn close(_: *const c_void, handle: *const c_void) {
    // SAFETY: `handle` made it of an `Arc`, and the shim closes once.
    drop(unsafe { Arc::from_raw(handle.cast::<File>()) });
}

extern "C" fn append(f: *const c_void, h: *const c_void, at: *const c_char, len: usize) -> c_int {
    // SAFETY: as said above.
    let (shared, file, data) = unsafe { (shared(f), file(h), bytes(at, len)) };
    shared.code(shared.files.append(file, data))
}

extern "C" fn sync(f: *const c_void, h: *const c_void) -> c_int {
    // SAFETY: as said above.
    let (shared, file) = unsafe { (shared(f), file(h)) };
    shared.code(shared.files.sync(file))
}

extern "C" fn write_out(f: *const c_void, h: *const c_void) -> c_int {
    // SAFETY: as said above.
    let (shared, file) = unsafe { (shared(f), file(h)) };
    shared.code(shared.files.write_out(file))
}

extern "C" fn finish(f: *const c_void, h: *const c_void) -> c_int {
    // SAFETY: as said above.
    let (shared, file) = unsafe { (shared(f), file(h)) };
    shared.code(shared.files.finish(file))
}

extern "C" fn size(_: *const c_void, h: *const c_void) -> u64 {
    // SAFETY: as said above.
    unsafe { file(h) }.size()
}

extern "C" fn length(_: *const c_void, h: *const c_void) -> u64 {
    // SAFETY: as said above.
    unsafe { file(h) }.length()
}

extern "C" fn read(
    f: *const c_void,
    h: *const c_void,
    offset: u64,
    to: *mut c_char,
    len: usize,
) -> i64 {
    if len == 0 {
        return 0;
    }
    // SAFETY: as said above; the shim's buffer has `len` bytes for it alone.
    // RocksDB may not have initialised them: they are only written, as plain
    // bytes.
    let (shared, file, to) =
        unsafe { (shared(f), file(h), slice::from_raw_parts_mut(to.cast::<u8>(), len)) };
    match shared.files.read(file, offset, to) {
        Ok(n) => n as i64,
        e => i64::from(shared.code(e)),
    }
}

extern "C" fn remove(f: *const c_void, at: *const c_char, len: usize) -> c_int {
    // SAFETY: as said above.
    let (shared, name) = unsafe { (shared(f), name(at, len)) };
    shared.code(shared.files.remove(name))
}

extern "C" fn rename(
    f: *const c_void,
    from: *const c_char,
    from_len: usize,
    to: *const c_char,
    to_len: usize,
) -> c_int {
    // SAFETY: as said above.
    let (shared, from, to) = unsafe { (shared(f), name(from, from_len), name(to, to_len)) };
    shared.code(shared.files.rename(from, to))
}

extern "C" fn commit(f: *const c_void) -> c_int {
    // SAFETY: as said above.
    let shared = unsafe { shared(f) };
    shared.code(shared.files.commit())
}

extern "C" fn list(
    f: *const c_void,
    at: *const c_char,
    len: usize,
    to: *mut c_void,
    each: extern "C" fn(*mut c_void, *const c_char, usize),
) {
    // SAFETY: as said above.
    let (shared, prefix) = unsafe { (shared(f), name(at, len)) };
    shared.files.list(prefix, |name| each(to, name.as_ptr().cast(), name.len()));
}

/// What went wrong, as the shim writes it.
struct Said([c_char; 512]);

impl Said {
    fn new() -> Said {
        Said([0; 512])
    }

    #[cold]
    fn error(&self) -> DbError {
        let text = self.0.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect::<Vec<_>>();
        DbError(String::from_utf8_lossy(&text).into_owned())
    }

    fn check(&self, code: i64) -> Result<i64, DbError> {
        if code < 0 { Err(self.error()) } else { Ok(code) }
    }
}

/// A database.
pub struct Db {
    db: NonNull<Rb>,
    shared: Box<Shared>,
}

// SAFETY: RocksDB may be used by many threads at once, and so may the files.
unsafe impl Send for Db {}
// SAFETY: the same.
unsafe impl Sync for Db {}

/// What a thread reads with.
pub struct Reader(NonNull<RbReader>);

impl Reader {
    /// A reader with no value.
    pub fn new() -> Reader {
        // SAFETY: it has no conditions, and gives what it allocated.
        Reader(NonNull::new(unsafe { rb_reader() }).expect("an object was made"))
    }
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: it is ours, and dropped once.
        unsafe { rb_reader_drop(self.0.as_ptr()) }
    }
}

impl Db {
    /// Opens the database that is on `files`, or makes one.
    pub fn open(files: Files, options: &Options) -> Result<Db, DbError> {
        let shared = Box::new(Shared { files, first_error: Mutex::new(None) });
        let callbacks = RbFiles {
            files: ptr::from_ref::<Shared>(&shared).cast(),
            make,
            open,
            close,
            append,
            sync,
            write_out,
            finish,
            size,
            length,
            read,
            remove,
            rename,
            commit,
            list,
        };
        let mut said = Said::new();
        // SAFETY: the shim copies the callbacks; what they work on is boxed,
        // and dropped after the database.
        let db = unsafe { rb_open(&callbacks, options, said.0.as_mut_ptr(), said.0.len()) };
        let db = NonNull::new(db).ok_or_else(|| said.error())?;
        Ok(Db { db, shared })
    }

    /// The first thing that went wrong with the files.
    pub fn file_error(&self) -> Option<FileError> {
        self.shared.first_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The files below.
    pub fn files(&self) -> &Files {
        &self.shared.files
    }

    /// Closes it. Gives the files back.
    pub fn close(self) -> Result<Files, DbError> {
        let this = std::mem::ManuallyDrop::new(self);
        let mut said = Said::new();
        // SAFETY: the database is open, and nobody uses it any more, as `self`
        // is owned. `shared` is read out once, and `this` is not dropped.
        let (closed, shared) = unsafe {
            let closed = rb_close(this.db.as_ptr(), said.0.as_mut_ptr(), said.0.len());
            (closed, ptr::read(&this.shared))
        };
        said.check(i64::from(closed))?;
        Ok(shared.files)
    }

    /// Writes a record.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), DbError> {
        let mut said = Said::new();
        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
        let (e, n) = (said.0.as_mut_ptr(), said.0.len());
        // SAFETY: the database is open; slices have their lengths.
        let code = unsafe { rb_put(self.db.as_ptr(), k, key.len(), v, value.len(), e, n) };
        said.check(i64::from(code)).map(drop)
    }

    /// Deletes a record.
    pub fn delete(&self, key: &[u8]) -> Result<(), DbError> {
        let mut said = Said::new();
        let (e, n) = (said.0.as_mut_ptr(), said.0.len());
        // SAFETY: the database is open; slices have their lengths.
        let code = unsafe { rb_delete(self.db.as_ptr(), key.as_ptr().cast(), key.len(), e, n) };
        said.check(i64::from(code)).map(drop)
    }

    /// Reads a record; its value is where RocksDB has it.
    #[inline]
    pub fn get<'r>(&self, reader: &'r mut Reader, key: &[u8]) -> Result<Option<&'r [u8]>, DbError> {
        let mut said = Said::new();
        let (mut value, mut len) = (ptr::null(), 0);
        let (e, n) = (said.0.as_mut_ptr(), said.0.len());
        let (db, r) = (self.db.as_ptr(), reader.0.as_ptr());
        // SAFETY: the database is open, the reader is this thread's alone, and
        // slices have their lengths.
        let code =
            unsafe { rb_get(db, r, key.as_ptr().cast(), key.len(), &mut value, &mut len, e, n) };
        let there = said.check(i64::from(code))? > 0;
        // SAFETY: the value stays until the reader is used again, which it
        // cannot be for as long as it is borrowed.
        Ok(there.then(|| unsafe { bytes(value, len) }))
    }

    /// Calls `each` with at most `count` records from `key` on, in order.
    pub fn scan(
        &self,
        key: &[u8],
        count: u64,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, DbError> {
        let mut said = Said::new();
        let mut each: &mut dyn FnMut(&[u8], &[u8]) = &mut each;
        let (e, n) = (said.0.as_mut_ptr(), said.0.len());
        let to = ptr::from_mut(&mut each).cast();
        // SAFETY: the database is open; slices have their lengths; `record`
        // gets the closure that it takes.
        let got = unsafe {
            rb_scan(self.db.as_ptr(), key.as_ptr().cast(), key.len(), count, to, record, e, n)
        };
        Ok(said.check(got)? as u64)
    }

    /// Writes what is in memory to files, and waits until no compaction is
    /// wanted.
    pub fn settle(&self) -> Result<(), DbError> {
        let mut said = Said::new();
        // SAFETY: the database is open.
        let code = unsafe { rb_settle(self.db.as_ptr(), said.0.as_mut_ptr(), said.0.len()) };
        said.check(i64::from(code)).map(drop)
    }

    /// What it has done since it was opened.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the database is open.
        unsafe { rb_counters(self.db.as_ptr(), &mut counters) };
        counters
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let mut said = Said::new();
        // SAFETY: the database is open, and nobody uses it any more.
        // What goes wrong now is lost: `close` tells it.
        unsafe { rb_close(self.db.as_ptr(), said.0.as_mut_ptr(), said.0.len()) };
    }
}

extern "C" fn record(
    to: *mut c_void,
    key: *const c_char,
    key_len: usize,
    value: *const c_char,
    len: usize,
) {
    // SAFETY: `Db::scan` passes its closure, and the shim bytes that stay for
    // the call.
    unsafe {
        let each = &mut *to.cast::<&mut dyn FnMut(&[u8], &[u8])>();
        each(bytes(key, key_len), bytes(value, len));
    }
}
