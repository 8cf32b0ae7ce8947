//! Programs that others wrote.

use files::Operation;

use crate::run::{Place, has, is_able};

#[test]
fn shells_and_their_tools() {
    if !is_able() {
        return;
    }
    Place::new().sh(
        "echo one > a; echo two >> a; cat a a > b; mkdir -p d/e; cp b d/c; mv d/c d/e/f
         ln a hard; ln -s a soft; echo three > soft; echo four >> hard; chmod 600 b; chmod 1755 d
         : > a; printf x | dd of=a bs=1 seek=5000 conv=notrunc 2>/dev/null; truncate -s 3000 b
         mv hard d/e/f; rm soft; rmdir d/e 2>/dev/null || true; umask 077; echo x > private
         mkdir hidden; (cd hidden; echo y > ../up; echo z > ./here); ln -s nowhere dangling
         echo made > dangling; touch empty; echo err > /dev/stderr; echo x > /dev/null
         exec 5>fd; echo via >&5; echo more > /proc/self/fd/5; echo again >/dev/fd/5; rm -r d",
    );
}

#[test]
fn dd_writes_as_it_is_told() {
    if !is_able() {
        return;
    }
    let recorder =
        Place::new().sh("dd if=/dev/urandom of=a bs=4096 count=16 oflag=sync 2>/dev/null
         dd if=/dev/urandom of=a bs=1000 count=3 seek=7 conv=notrunc,fdatasync 2>/dev/null
         dd if=/dev/urandom of=b bs=512k count=3 conv=fsync 2>/dev/null
         dd if=/dev/urandom of=a bs=100 count=3 oflag=append conv=notrunc 2>/dev/null
         dd if=/dev/zero of=c bs=4096 count=8 oflag=dsync,direct 2>/dev/null || : > c");
    let syncs = |data| {
        let is = move |it: &&Operation| matches!(it, Operation::Sync { data: d, .. } if *d == data);
        recorder.operations().filter(is).count()
    };
    assert_eq!(syncs(false), 17, "16 synchronous writes, one fsync");
    assert!(syncs(true) == 1 || syncs(true) == 9, "fdatasync, and 8 where direct writes can be");
}

#[test]
fn tar_and_copies() {
    if !is_able() {
        return;
    }
    Place::new().sh(
        "mkdir -p tree/a/b; for n in 1 2 3 4 5 6 7 8 9; do seq $n 3000 > tree/a/$n; done
         ln -s ../1 tree/a/b/link; ln tree/a/2 tree/a/b/hard; chmod 640 tree/a/3
         tar cf t.tar tree; mkdir out; tar xf t.tar -C out; cp -a tree copy; cp -r tree second
         cp --sparse=always t.tar sparse.tar; cmp t.tar sparse.tar; diff -r tree out/tree
         mv copy/a second/moved; rm -rf tree; sed -i s/1/x/ out/tree/a/4; sort -o s out/tree/a/5",
    );
}

#[test]
fn git_init_to_clone() {
    if !is_able() || !has("git") {
        return;
    }
    Place::new().sh(
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
         git init -q one; cd one; for n in 1 2 3 4 5 6; do seq $n 500 > f$n; git add .
         git commit -qm $n; done; git checkout -qb other; git rm -q f1; git commit -qm rm
         git gc -q; git fsck --strict 2>/dev/null; cd ..; git clone -q one two; cd two
         git fsck 2>/dev/null; git log --oneline | wc -l",
    );
}

#[test]
fn sqlite_with_either_journal() {
    if !is_able() || !has("sqlite3") {
        return;
    }
    let recorder = Place::new().sh("sqlite3 d.db 'create table t(a,b); create index i on t(b);'
         for n in 1 2 3; do sqlite3 d.db \"insert into t values($n, randomblob(9000));\"; done
         sqlite3 w.db 'pragma journal_mode=wal; create table t(a,b);' >/dev/null
         sqlite3 w.db 'insert into t values(1,randomblob(20000)); insert into t values(2,3);
            select count(*) from t;'
         sqlite3 w.db 'pragma wal_checkpoint; delete from t; vacuum; pragma integrity_check;'
         sqlite3 m.db 'pragma mmap_size=1000000; create table t(a); insert into t values(1);'
         test \"$(sqlite3 d.db 'select count(*) from t')\" = 3");
    let syncs = recorder.operations().filter(|it| matches!(it, Operation::Sync { .. })).count();
    assert!(syncs > 10, "{syncs}");
}

#[test]
fn python_with_files_and_memory() {
    if !is_able() || !has("python3") {
        return;
    }
    Place::new().check(&[
        "python3",
        "-c",
        r#"
import os, mmap, tempfile, threading, subprocess, shutil
with open("a", "wb") as f:
    f.write(b"x" * 100000)
    f.flush(); os.fsync(f.fileno())
with open("a", "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
    m[5000:5003] = b"abc"
    m.flush()
    f.seek(50000); f.write(b"between")
    f.flush()
    m[50003] = 65
    m[99999] = 66
    m.close()
t = tempfile.TemporaryFile(dir=".")
t.write(b"nameless"); t.flush()
n = tempfile.NamedTemporaryFile(dir=".", delete=False); n.write(b"n"); n.close()
os.replace(n.name, "replaced")
def work(k):
    with open(f"thread{k}", "w") as f:
        for i in range(200):
            f.write(f"{k} {i}\n"); f.flush()
ts = [threading.Thread(target=work, args=(k,)) for k in range(4)]
[t.start() for t in ts]; [t.join() for t in ts]
if os.fork() == 0:
    open("child", "w").write("child")
    os._exit(0)
os.wait()
subprocess.run(["sh", "-c", "echo sub > sub; (sleep 0.05; echo late > late) &"], check=True)
os.truncate("thread1", 77)
os.posix_fallocate(os.open("room", os.O_CREAT | os.O_RDWR), 0, 12345)
shutil.copyfile("a", "copy")
d = os.open(".", os.O_RDONLY)
os.rename("copy", "renamed", src_dir_fd=d, dst_dir_fd=d)
os.mkdir("dir", dir_fd=d); os.symlink("x", "dir/s"); os.link("a", "dir/a")
fd = os.open("unlinked", os.O_CREAT | os.O_RDWR); os.unlink("unlinked"); os.write(fd, b"still")
try: n = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
except OSError: n = os.open("named", os.O_CREAT | os.O_RDWR)
else:
    os.write(n, b"nameless at first"); os.fsync(n)
    os.link(f"/proc/self/fd/{n}", "named", src_dir_fd=d, follow_symlinks=True)
os.write(n, b", then named")
os.pwritev(fd, [b"one", b"two"], 100); os.fsync(fd)
os.sync()
"#,
    ]);
}

#[test]
fn fio_with_verification() {
    if !is_able() || !has("fio") {
        return;
    }
    for (engine, more) in [("psync", "--fsync=8"), ("mmap", "--fdatasync=16"), ("pvsync2", "")] {
        let engine = format!("--ioengine={engine}");
        let mut command = vec!["fio", "--name=j", "--size=512k", "--rw=randwrite", "--bs=4k"];
        command.extend(["--verify=crc32c", "--numjobs=2", &engine, "--group_reporting"]);
        command.extend(Some(more).filter(|it| !it.is_empty()));
        Place::new().check(&command);
    }
}
