//! The multi-queue block layer: from many cores to a device's queues.
//!
//! After *Linux Block IO: Introducing Multi-queue SSD Access on Multi-core
//! Systems* (Bjørling, Axboe, Nellans and Bonnet, SYSTOR 2013), as a library
//! that any driver in user space can sit under.
//!
//! ```text
//!  core 0        core 1        core 2     one Context each: a port of block requests
//!    │             │             │
//!  staging      staging       staging     one, per socket or per core:
//!    │             └──────┬──────┘        order, plug, merge, fairness
//!    ▼                    ▼
//!  dispatch            dispatch           as many as the driver has; its mapping function
//!    │ tags               │ tags          says which core goes where: bounded by tags
//!    ▼                    ▼
//!  HardwareQueue       HardwareQueue      the driver: a port whose ids are tags
//! ```
//!
//! - [`build`] puts a layer over a [`Driver`]; each core gets a [`Context`].
//! - [`driver`]: what a device's driver does, and the null drivers. The crate
//!   `hosting` has drives in this process, `storage` real devices; `waiting` is
//!   how a submitter waits.
//! - [`scheduler`], [`staging`], [`config`]: what happens to requests on their
//!   way, each switched apart from the others.
//! - [`Monitor`] reads live accounts, a [`Watch`] is told each request's life, as
//!   the crate `trace` does.
//! - [`ConfigError`] is what cannot be; [`Fault`] what a driver did wrong.
//!
//! Time is given by the caller, so a whole layer also runs in virtual time. On
//! the way of a request there is no allocation, no system call and no clock
//! read; where its queues are its core's alone, also no lock, no locked
//! operation, and no write to a cache line that another core uses.
//!
//! ```
//! use blkmq::driver::null::{Null, NullOptions};
//! use blkmq::{Config, Topology, build};
//! use port::{BlockOp, BlockReq, Buffer, Port, Ring, Time};
//!
//! let two_cores = Config::new(Topology::new(2, 1)?);
//! let driver = Null::new(NullOptions { submit_queues: 2, ..NullOptions::default() })?;
//! let (mut contexts, monitor) = build(&two_cores, driver)?;
//!
//! let (mut reqs, mut done) = (Ring::new(32), Ring::new(32));
//! let (op, buffer) = (BlockOp::Read, Buffer::empty());
//! reqs.push(BlockReq::new(7, op, 4096, 4096, buffer)).unwrap();
//! contexts[1].submit(Time(100), &mut reqs);
//! contexts[1].advance(Time(400), &mut done);
//!
//! assert_eq!(done.pop().unwrap().id, 7);
//! assert_eq!(monitor.dispatch()[1].latency.max(), Some(300));
//! # Ok::<(), blkmq::ConfigError>(())
//! ```

pub mod account;
pub mod config;
mod context;
mod dispatch;
pub mod driver;
mod entrance;
pub mod error;
pub mod freeze;
mod held;
mod layer;
mod merge;
mod peers;
mod queue_tags;
pub mod scheduler;
pub mod staging;
pub mod topology;
mod watch;

pub use account::{DispatchStats, Monitor, StagingStats};
pub use config::{Config, Merge, Plug};
pub use context::Context;
pub use driver::{Abort, Driver, HardwareQueue, QueueKind};
pub use error::{ConfigError, Fault};
pub use freeze::{Freezer, Frozen};
pub use layer::{Layer, build, tables};
pub use scheduler::SchedulerKind;
pub use topology::{Spread, Topology};
pub use watch::{Life, NO_TAG, Watch};
