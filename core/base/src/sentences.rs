//! Enums that are lists of sentences.

/// An enum of which each value is a sentence, which the function of this name gives.
#[macro_export]
macro_rules! sentences {
    ($(#[$doc:meta])* $name:ident, $text_of:ident: $($value:ident: $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $(#[doc = $text] $value,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$value),*];

            /// It as a sentence.
            pub fn $text_of(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    };
}
