//! Enums whose values have words in rules, files and reports.

/// Declares an enum with a word for each value: `ALL` has every value with its word, in the order of the
/// declaration, and the named function returns the word of a value. With `serde`, the words are also those in JSON.
/// Values under `unlisted` are not in `ALL`.
macro_rules! words {
    ($(#[$attribute:meta])* $vis:vis enum $name:ident with fn $word_of:ident, serde {
        $($(#[$doc:meta])* $value:ident = $word:literal,)*
    }) => {
        $(#[$attribute])*
        $vis enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)*
        }
        $crate::base::words::words! { @ $vis $name $word_of $($value = $word,)*; }
    };
    ($(#[$attribute:meta])* $vis:vis enum $name:ident with fn $word_of:ident {
        $($(#[$doc:meta])* $value:ident = $word:literal,)*
    } $(unlisted {
        $($(#[$other_doc:meta])* $other:ident = $other_word:literal,)*
    })?) => {
        $(#[$attribute])*
        $vis enum $name {
            $($(#[$doc])* $value,)*
            $($($(#[$other_doc])* $other,)*)?
        }
        $crate::base::words::words! {
            @ $vis $name $word_of $($value = $word,)*; $($($other = $other_word,)*)?
        }
    };
    (@ $vis:vis $name:ident $word_of:ident $($value:ident = $word:literal,)*;
     $($other:ident = $other_word:literal,)*) => {
        impl $name {
            /// The values with their words.
            $vis const ALL: [($name, &'static str); [$($word),*].len()] = [$(($name::$value, $word)),*];

            /// The word of this value in rules, files and reports.
            $vis fn $word_of(self) -> &'static str {
                match self {
                    $($name::$value => $word,)*
                    $($name::$other => $other_word,)*
                }
            }
        }
    };
}
pub(crate) use words;
