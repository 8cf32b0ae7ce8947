//! The control plane of drives made of rules (AppNVM, thesis chapter 7, section 2): it writes
//! rules, and the drive follows them. It looks at no clock and does no I/O.
//!
//! A file of its own each: [`template`], sets that trade speed, predictability and media life
//! off; [`grants`], what each application may have; [`policy`], what is added to the sets of
//! all, and how several become one; [`learning`], rules that come with the first request.
#![forbid(unsafe_code)]

pub mod grants;
pub mod learning;
pub mod policy;
pub mod template;

pub use grants::Grants;
pub use learning::Learning;
pub use policy::{Policy, merge};
pub use template::{Room, Template, TemplateError};
