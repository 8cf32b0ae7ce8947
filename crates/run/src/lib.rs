//! `ssdkit run`: an unmodified program with some of its folders on a drive of ours, in real time:
//! a sync takes what the drive takes, what is read for the first time comes from the drive, faults
//! of the drive reach the program as a disk's do, and a power cut leaves what was durable.
//!
//! The program's view of its files is an ordinary folder, which [`interpose`] watches; behind it
//! [`files`] keeps them on the drive, as ext4 would. May fail: the drive cannot be opened, has
//! something else on it, or this machine cannot supervise programs.

pub mod args;
mod bell;
mod cached;
mod command;
mod counts;
mod engine;
mod folder;
mod room;
mod speculation;
mod summary;
mod unreadable;
mod waits;
mod watcher;

pub use args::RunArgs;
pub use command::run;
