//! The media manager: one open-channel drive, handed out to several targets.
//!
//! ```text
//!  requests      0 ... a        a ... b        b ... c         one address space
//!             ┌────────────┬──────────────┬──────────────┐
//!  Shared     │  target 0  │   target 1   │   target 2   │
//!             ├────────────┼──────────────┼──────────────┤
//!  Partition  │ its units  │ its units    │ its units    │    a geometry of its own
//!             └─────┬──────┴───────┬──────┴───────┬──────┘
//!  Media            └──── who owns which chunk ───┘            one device
//! ```
//!
//! [`Media`] has the device and knows whose each chunk is. A [`Partition`] is what a
//! target sees of it: an open-channel drive of the units and chunks of its [`Place`],
//! numbered from zero. [`Shared`] has the targets, and is the block drive that they
//! are together: each has a part of the addresses. `docs/media.md` has the picture of the
//! ways to place them and what these cost.
//!
//! After the thesis, chapter 6 ("core services": address space, LUN management), and
//! Open-Channel SSD's targets with ranges of parallel units.

mod claim;
mod direct;
mod error;
mod leaving;
mod manager;
pub mod mutation;
mod partition;
mod place;
mod shared;

pub use claim::{Claim, Pace};
pub use error::MediaError;
pub use manager::{MAX_TARGETS, Media, depth_for_targets};
pub use partition::Partition;
pub use place::{Place, Placement};
pub use shared::{CreateError, Found, Shared};
