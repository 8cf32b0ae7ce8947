//! `libssdkit`: [`channels::Client`] for programs in C, as `include/ssdkit.h` has it,
//! which says what each function promises.
//!
//! Guarantees: no function panics into C but for a fault of this library, which ends the
//! process. What a caller promises is in the header: pointers are valid, and a channel is
//! one thread's at a time. All of it is a system boundary, so all of it is `unsafe`.

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use channels::{Client, Options, Request};
use port::BlockOp;

/// `struct ssdkit_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SsdkitOptions {
    depth: u32,
    most: u32,
    memory: u64,
    linger_ns: u64,
}

/// `struct ssdkit_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SsdkitInfo {
    bytes: u64,
    memory: u64,
    kept: u32,
    most: u32,
    most_trim: u32,
    depth: u32,
    read_only: u32,
    reserved: u32,
}

/// `struct ssdkit_request`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SsdkitRequest {
    id: u64,
    offset: u64,
    len: u32,
    buffer: u32,
    op: u8,
    flags: u8,
    placement: u8,
    reserved: [u8; 5],
}

/// `struct ssdkit_completion`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SsdkitCompletion {
    id: u64,
    status: u16,
    reserved: [u16; 3],
}

/// `SSDKIT_FUA`.
const FUA: u8 = 1;

/// Bytes of why a call failed, with the zero behind them. What is longer is cut.
const TEXT: usize = 1024;

// Nothing of it is to be dropped, so it is there as long as the thread, also for functions that
// are called when the process ends.
thread_local!(static ERROR: RefCell<[u8; TEXT]> = const { RefCell::new([0; TEXT]) });

/// Notes why a call failed.
#[cold]
fn fail(why: &str) -> c_int {
    let len = why.floor_char_boundary(TEXT - 1);
    ERROR.with_borrow_mut(|text| {
        let bytes = why.as_bytes()[..len].iter().map(|&byte| if byte == 0 { b' ' } else { byte });
        text.iter_mut().zip(bytes.chain([0])).for_each(|(to, byte)| *to = byte);
    });
    -1
}

/// Opens a channel.
///
/// # Safety
/// `path` is a string; `options` is null or valid; `channel` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_open(
    path: *const c_char,
    options: *const SsdkitOptions,
    channel: *mut *mut Client,
) -> c_int {
    if path.is_null() || channel.is_null() {
        return fail("no path was given, or no place for the channel");
    }
    // SAFETY: the caller's promise.
    let (path, asked) = unsafe { (CStr::from_ptr(path), options.as_ref()) };
    let plain = Options { most: 0, ..Options::default() };
    let options = asked.map_or(plain, |asked| Options {
        depth: if asked.depth == 0 { plain.depth } else { asked.depth },
        most: asked.most,
        memory: asked.memory,
        linger: match asked.linger_ns {
            0 => plain.linger,
            ns => Duration::from_nanos(ns),
        },
    });
    match Client::open(Path::new(OsStr::from_bytes(path.to_bytes())), &options) {
        Ok(client) => {
            // SAFETY: the caller's promise.
            unsafe { channel.write(Box::into_raw(Box::new(client))) };
            0
        }
        Err(e) => fail(&e.to_string()),
    }
}

/// Closes a channel.
///
/// # Safety
/// `channel` is null or of `ssdkit_open`, and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_close(channel: *mut Client) {
    if !channel.is_null() {
        // SAFETY: the caller's promise; `ssdkit_open` made it of a box.
        drop(unsafe { Box::from_raw(channel) });
    }
}

/// Tells of the drive and the channel.
///
/// # Safety
/// `channel` is of `ssdkit_open`; `info` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_info(channel: *const Client, info: *mut SsdkitInfo) {
    // SAFETY: the caller's promise.
    let welcome = unsafe { (*channel).welcome() };
    let told = SsdkitInfo {
        bytes: welcome.bytes,
        memory: welcome.memory,
        kept: welcome.kept,
        most: welcome.most,
        most_trim: welcome.most_trim,
        depth: welcome.depth,
        read_only: welcome.is_read_only.into(),
        reserved: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { info.write(told) };
}

/// Where the buffers begin.
///
/// # Safety
/// `channel` is of `ssdkit_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_buffers(channel: *const Client) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { (*channel).buffers().as_ptr().cast() }
}

/// What a request of C asks for, if that is something.
#[inline]
fn request(of: &SsdkitRequest) -> Option<Request> {
    let op = match of.op {
        0x00 => BlockOp::Flush,
        0x01 => BlockOp::Write,
        0x02 => BlockOp::Read,
        0x08 => BlockOp::WriteZeroes,
        0x09 => BlockOp::Trim,
        _ => return None,
    };
    let SsdkitRequest { id, offset, len, buffer, flags, placement, reserved, .. } = *of;
    let is_known = flags & !FUA == 0 && reserved == [0; 5];
    is_known.then_some(Request { id, op, fua: flags & FUA != 0, placement, offset, len, buffer })
}

/// Submits a prefix of the requests.
///
/// # Safety
/// `channel` is of `ssdkit_open` and of this thread; there are `count` requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_submit(
    channel: *mut Client,
    requests: *const SsdkitRequest,
    count: u32,
) -> c_int {
    if count == 0 {
        return 0;
    }
    // SAFETY: the caller's promise.
    let (client, requests) =
        unsafe { (&mut *channel, std::slice::from_raw_parts(requests, count as usize)) };
    let (mut taken, mut wrong) = (0, false);
    for one in requests {
        let Some(request) = request(one) else {
            wrong = true;
            break;
        };
        if !client.submit(&request) {
            break;
        }
        taken += 1;
    }
    client.kick();
    if wrong {
        fail("a request has an operation, flag or reserved byte that is none")
    } else {
        taken
    }
}

/// Takes completions that are there.
///
/// # Safety
/// `channel` is of `ssdkit_open` and of this thread; `done` has room for `most`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_poll(
    channel: *mut Client,
    done: *mut SsdkitCompletion,
    most: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let client = unsafe { &mut *channel };
    let most = most.min(client.welcome().depth);
    for found in 0..most {
        match client.take() {
            Ok(Some(one)) => {
                let (id, status) = (one.id, one.status.0);
                // SAFETY: the caller's promise; `found` is less than `most`.
                unsafe {
                    done.add(found as usize).write(SsdkitCompletion {
                        id,
                        status,
                        reserved: [0; 3],
                    });
                }
            }
            Ok(None) => return found as c_int,
            // What was taken is told; the error comes again.
            Err(_) if found > 0 => return found as c_int,
            Err(e) => return fail(&e.to_string()),
        }
    }
    most as c_int
}

/// Waits until there is a completion.
///
/// # Safety
/// `channel` is of `ssdkit_open` and of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_wait(channel: *mut Client, timeout_ns: i64) -> c_int {
    let timeout = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
    // SAFETY: the caller's promise.
    match unsafe { (*channel).wait(timeout) } {
        Ok(is_there) => is_there.into(),
        Err(e) => fail(&e.to_string()),
    }
}

/// What becomes readable.
///
/// # Safety
/// `channel` is of `ssdkit_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_fd(channel: *const Client) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { (*channel).as_fd().as_raw_fd() }
}

/// From now on the descriptor becomes readable.
///
/// # Safety
/// `channel` is of `ssdkit_open` and of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_arm(channel: *const Client) {
    // SAFETY: the caller's promise.
    unsafe { (*channel).arm() };
}

/// It is awake again.
///
/// # Safety
/// `channel` is of `ssdkit_open` and of this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssdkit_disarm(channel: *const Client) -> c_int {
    // SAFETY: the caller's promise.
    let client = unsafe { &*channel };
    client.disarm();
    client.look_after_server().map_or_else(|e| fail(&e.to_string()), |()| 0)
}

/// Why the last call of this thread failed.
#[unsafe(no_mangle)]
pub extern "C" fn ssdkit_error() -> *const c_char {
    ERROR.with(|error| error.as_ptr().cast())
}
