//! Compiles the shim and links the system's RocksDB.

fn main() {
    println!("cargo::rerun-if-changed=shim/shim.cc");
    println!("cargo::rerun-if-changed=shim/shim.h");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(true)
        .opt_level(2)
        .file("shim/shim.cc")
        .compile("shim");
    println!("cargo::rustc-link-lib=dylib=rocksdb");
}
