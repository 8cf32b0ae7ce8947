//! The open-channel drive and the drivers of its time.

pub mod realtime;
