//! Cookies: what a completion of the drive belongs to, in the word that goes
//! through the drive with the command.

/// Bits of a cookie below its kind.
pub const NUMBER_BITS: u32 = 60;

/// Makes an enum with `pack` to a cookie, and `unpack` from one that was packed.
/// Each kind has numbers, named, with type and bits; at most [`NUMBER_BITS`] in all.
///
/// ```
/// ftl::cookies! {
///     /// What a completion belongs to.
///     #[derive(Debug, PartialEq)]
///     enum Cookie {
///         /// A read: request, chunk.
///         Read(request: u32 = 16, chunk: usize = 44),
///         /// The drive's flush.
///         Flush,
///     }
/// }
/// assert_eq!(Cookie::unpack(Cookie::Read(7, 9).pack()), Cookie::Read(7, 9));
/// assert_eq!(Cookie::unpack(Cookie::Flush.pack()), Cookie::Flush);
/// ```
#[macro_export]
macro_rules! cookies {
    (
        $(#[$of_all:meta])*
        $vis:vis enum $name:ident {
            $($(#[$of_kind:meta])* $kind:ident $(($($number:ident: $ty:ty = $bits:literal),+))?),+ $(,)?
        }
    ) => {
        $(#[$of_all])*
        $vis enum $name { $($(#[$of_kind])* $kind $(($($ty),+))?),+ }

        impl $name {
            /// The word for it.
            #[inline]
            $vis fn pack(self) -> u64 {
                enum Kind { $($kind),+ }
                match self {
                    $($name::$kind $(($($number),+))? => {
                        const { assert!(0 $($(+ $bits)+)? <= $crate::cookie::NUMBER_BITS) };
                        let (word, _at) = ((Kind::$kind as u64) << $crate::cookie::NUMBER_BITS, 0);
                        $($(
                            debug_assert!(($number as u64) >> $bits == 0, "it has its bits");
                            let (word, _at) = (word | ($number as u64) << _at, _at + $bits);
                        )+)?
                        word
                    })+
                }
            }

            /// What a word is for that was packed.
            #[inline]
            $vis fn unpack(word: u64) -> $name {
                enum Kind { $($kind),+ }
                match word >> $crate::cookie::NUMBER_BITS {
                    $(kind if kind == Kind::$kind as u64 => {
                        let _at = 0;
                        $($(
                            let $number = (word >> _at & ((1 << $bits) - 1)) as $ty;
                            let _at = _at + $bits;
                        )+)?
                        $name::$kind $(($($number),+))?
                    })+
                    kind => unreachable!("a cookie has no kind {kind}"),
                }
            }
        }
    };
}
