//! Sums and differences of what parts of a drive tell, field by field.

/// Implements [`std::iter::Sum`] for counters with these fields, all of them, and
/// `since`: what was counted since an earlier look.
#[macro_export]
macro_rules! sums {
    ($kind:ident: $($field:ident),*) => {
        impl std::iter::Sum for $kind {
            fn sum<I: Iterator<Item = $kind>>(all: I) -> $kind {
                let add = |a: $kind, b: $kind| $kind { $($field: a.$field.saturating_add(b.$field)),* };
                all.reduce(add).unwrap_or_default()
            }
        }

        impl $kind {
            /// What was counted since it was `earlier`.
            #[must_use]
            pub fn since(&self, earlier: &$kind) -> $kind {
                $kind { $($field: self.$field.saturating_sub(earlier.$field)),* }
            }
        }
    };
}
