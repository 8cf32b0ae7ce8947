//! Sums of what parts of a drive tell, field by field.

/// Implements [`std::iter::Sum`] for counters with these fields, all of them.
#[macro_export]
macro_rules! sums {
    ($kind:ident: $($field:ident),*) => {
        impl std::iter::Sum for $kind {
            fn sum<I: Iterator<Item = $kind>>(all: I) -> $kind {
                let add = |a: $kind, b: $kind| $kind { $($field: a.$field.saturating_add(b.$field)),* };
                all.reduce(add).unwrap_or_default()
            }
        }
    };
}
