//! The examples, in C and in Rust, against a served drive: built and run.

#[path = "../../examples/channel.rs"]
mod channel;

use std::collections::VecDeque;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::scope;
use std::time::Duration;

use exports::SharedDrive;
use exports::channels::{Served, Server};
use exports::listen::StopHandle;
use port::{BlockDone, BlockOp, BlockReq, Port, Ring, Shape, Time};

const SHAPE: Shape = Shape { bytes: 1 << 20, kept: 4096, max_bytes: 1 << 16, depth: 64 };

/// A drive of bytes, without time.
struct Ram(Vec<u8>, VecDeque<BlockDone>);

impl Port for Ram {
    type Cmd = BlockReq;
    type Done = BlockDone;

    fn submit(&mut self, at: Time, cmds: &mut Ring<BlockReq>) {
        for req in cmds.drain() {
            let status = SHAPE.check(&req);
            let BlockReq { id, op, offset, len, mut buffer, .. } = req;
            if status.is_ok() && op != BlockOp::Flush {
                let range = &mut self.0[offset as usize..(offset + len) as usize];
                match op {
                    BlockOp::Read => buffer.bytes_mut().copy_from_slice(range),
                    BlockOp::Write => range.copy_from_slice(buffer.bytes()),
                    _ => range.fill(0),
                }
            }
            self.1.push_back(BlockDone { id, op, status, at, buffer });
        }
    }

    fn next_event(&self) -> Option<Time> {
        self.1.front().map(|done| done.at)
    }

    fn advance(&mut self, _to: Time, done: &mut Ring<BlockDone>) {
        while done.room() > 0
            && let Some(one) = self.1.pop_front()
        {
            done.put(|| one);
        }
    }
}

/// A served drive, for `test`.
fn served(test: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("channel");
    let drive = SharedDrive::new(Ram(vec![0; 1 << 20], VecDeque::new()));
    let (stop, server) = (StopHandle::new().unwrap(), Server::bind(&path).unwrap());
    let linger = Duration::from_micros(50);
    let told = Served { shape: SHAPE, is_read_only: false, linger };
    scope(|scope| {
        let serving = scope.spawn(|| server.run(told, &drive, &stop).unwrap());
        struct Stops<'a>(&'a StopHandle);
        impl Drop for Stops<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let stops = Stops(&stop);
        test(&path);
        drop(stops);
        assert_eq!(serving.join().unwrap().faults, 0);
    });
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Builds the example in C.
fn built(dir: &Path, is_static: bool) -> PathBuf {
    build(&here("../../examples/channel-c/channel.c"), dir, is_static)
}

/// Builds a program in C with the library, which lies beside this program.
fn build(source: &Path, dir: &Path, is_static: bool) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let (libs, program) = (this.parent().unwrap(), dir.join("channel"));
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program);
    cc.arg(source).arg("-I").arg(here("include"));
    if is_static {
        cc.arg(libs.join("libssdkit_c.a")).args(["-lgcc_s", "-lpthread", "-ldl", "-lm"]);
    } else {
        for name in ["libssdkit.so", "libssdkit.so.0"] {
            symlink(libs.join("libssdkit_c.so"), dir.join(name)).unwrap();
        }
        cc.arg("-L").arg(dir).arg("-lssdkit").arg(format!("-Wl,-rpath,{}", dir.display()));
    }
    let out = cc.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    program
}

fn text(out: &Output) -> (String, String) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}

#[test]
fn the_example_in_c_writes_and_reads_back() {
    for is_static in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let program = built(dir.path(), is_static);
        let nowhere = Command::new(&program).arg(dir.path().join("none")).arg("1").output();
        let (_, errors) = text(&nowhere.unwrap());
        assert!(errors.contains("cannot connect to") && errors.contains("serve --channel"));
        served(|path| {
            for _ in 0..2 {
                let out = Command::new(&program).arg(path).arg("5000").output().unwrap();
                let (said, errors) = text(&out);
                assert_eq!(
                    (said.as_str(), errors.as_str()),
                    ("256 blocks written, flushed and read back\n", "")
                );
                assert!(out.status.success());
            }
        });
    }
}

/// What belongs to the thread may be gone then.
#[test]
fn a_call_that_fails_while_the_process_ends_says_why() {
    let code = "#include <ssdkit.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
        static void again(void) { struct ssdkit_channel *c; \
        printf(\"%d %s\\n\", ssdkit_open(\"/none\", NULL, &c), ssdkit_error()); }\n\
        int main(void) { atexit(again); again(); return 0; }\n";
    for is_static in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("ends.c");
        std::fs::write(&source, code).unwrap();
        let out = Command::new(build(&source, dir.path(), is_static)).output().unwrap();
        let (said, errors) = text(&out);
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 2 && lines[0] == lines[1], "{said:?} {errors:?}");
        assert!(lines[0].starts_with("-1 ") && lines[0].contains("cannot connect to"), "{said}");
    }
}

#[test]
fn the_example_in_rust_reads_what_it_wrote() {
    served(|path| assert_eq!(channel::run(path).unwrap(), "hello, drive"));
}

/// What the header says of sizes is what the library has.
#[test]
fn the_header_and_the_library_agree() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("sizes.c"), dir.path().join("sizes"));
    let code = "#include <ssdkit.h>\n#include <stdio.h>\nint main(void) { printf(\"%zu %zu %zu %zu\", \
        sizeof(struct ssdkit_options), sizeof(struct ssdkit_info), \
        sizeof(struct ssdkit_request), sizeof(struct ssdkit_completion)); return 0; }\n";
    std::fs::write(&source, code).unwrap();
    let mut cc = Command::new("cc");
    let built = cc.arg(&source).arg("-o").arg(&program).arg("-I").arg(here("include")).output();
    assert!(built.unwrap().status.success());
    let (said, _) = text(&Command::new(&program).output().unwrap());
    let sizes = [
        size_of::<ssdkit_c::SsdkitOptions>(),
        size_of::<ssdkit_c::SsdkitInfo>(),
        size_of::<ssdkit_c::SsdkitRequest>(),
        size_of::<ssdkit_c::SsdkitCompletion>(),
    ];
    assert_eq!(said, sizes.map(|size| size.to_string()).join(" "));
}
