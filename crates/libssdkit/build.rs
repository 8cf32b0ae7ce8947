//! Gives the shared library the name by which programs find it: it changes when programs
//! that were linked with one before could not use it.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libssdkit.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
