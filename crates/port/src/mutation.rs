//! Ways to break promises on purpose, to see that tests find them.

/// Makes an enum of such ways, with `ALL` of them, and beside it `is`, which asks for one, and
/// `set`, which has this thread break one from then on, or none. Only in tests of the crate where
/// it stands and with its feature `mutations`, which nothing but tests has; else every question
/// is answered no, at compile time.
#[macro_export]
macro_rules! mutations {
    (
        $(#[$of_all:meta])*
        pub enum $name:ident { $($(#[$of_one:meta])* $one:ident),+ $(,)? }
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$of_one])* $one),+ }

        impl $name {
            /// All of them.
            pub const ALL: [$name; [$($name::$one),+].len()] = [$($name::$one),+];
        }

        #[cfg(any(test, feature = "mutations"))]
        mod current {
            use std::cell::Cell;

            use super::$name;

            thread_local! {
                static CURRENT: Cell<Option<$name>> = const { Cell::new(None) };
            }

            /// From now on this thread breaks this promise, or none.
            pub fn set(mutation: Option<$name>) {
                CURRENT.set(mutation);
            }

            pub(crate) fn is(mutation: $name) -> bool {
                CURRENT.get() == Some(mutation)
            }
        }

        #[cfg(not(any(test, feature = "mutations")))]
        mod current {
            #[inline(always)]
            pub(crate) fn is(_: super::$name) -> bool {
                false
            }
        }

        pub(crate) use current::is;
        #[cfg(any(test, feature = "mutations"))]
        pub use current::set;
    };
}
