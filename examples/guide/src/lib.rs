//! Pages whose code is compiled and run: `cargo test -p ssdkit-guide`.

#[doc = include_str!("../../../docs/extending.md")]
pub mod extending {}
