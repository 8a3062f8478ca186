//! Numbers and words of trace events, parsed from their JSON text: a field may be a number in one PyTorch
//! release and a string in the next, and floating point would round times.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// Maximum number of digits of a time; 10^30 us exceeds any clock.
const MAX_DIGITS: u32 = 30;

/// A JSON value without the quotes of a string; escapes are not decoded.
pub(super) fn bare(value: &RawValue) -> &str {
    let text = value.get();
    text.strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .unwrap_or(text)
        .trim()
}

/// The text of a JSON string; of any other value its JSON text.
pub(super) fn text(value: &RawValue) -> Cow<'_, str> {
    let json = value.get();
    if json.starts_with('"') && json.contains('\\') {
        // Only a lone surrogate is valid JSON but not valid text.
        return serde_json::from_str(json)
            .map_or_else(|_| Cow::Owned(bare(value).to_owned()), Cow::Owned);
    }
    Cow::Borrowed(bare(value))
}

/// An integer, written as a number or a string.
pub(super) fn whole(value: &RawValue) -> Option<i64> {
    whole_in(bare(value))
}

/// An integer in decimal notation.
pub(super) fn whole_in(text: &str) -> Option<i64> {
    text.parse()
        .ok()
        // Some versions print ids as unsigned numbers.
        .or_else(|| text.parse().ok().map(u64::cast_signed))
        .or_else(|| scaled(text, 0))
}

/// A non-negative integer.
pub(super) fn count(value: &RawValue) -> Option<u64> {
    whole(value).and_then(|n| u64::try_from(n).ok())
}

/// The same in 32 bits; `None` if it takes more.
pub(super) fn count32(value: &RawValue) -> Option<u32> {
    count(value).and_then(|n| u32::try_from(n).ok())
}

/// The number at the start or the end of a text: `25738 (python)`, `stream 7`.
pub(super) fn number_in(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = |t: &str| t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
    let signed = usize::from(text.starts_with('-'));
    let end = signed + digits(text.get(signed..)?);
    if end > signed {
        return text.get(..end)?.parse().ok();
    }
    let from = text.rfind(|c: char| !c.is_ascii_digit())?;
    text.get(from..)?.get(1..)?.parse().ok()
}

/// Microseconds in decimal notation, converted to ns and rounded to the nearest.
pub(super) fn nanoseconds(value: &RawValue) -> Option<i64> {
    scaled(bare(value), 3)
}

/// A decimal number times 10^`scale`, rounded half away from zero; exact for all its digits.
fn scaled(text: &str, scale: i32) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa = 0_u128;
    let mut digits = 0_u32;
    let mut power = exponent.checked_add(scale)?;
    for (byte, after_point) in whole
        .bytes()
        .map(|b| (b, false))
        .chain(fraction.bytes().map(|b| (b, true)))
    {
        if !byte.is_ascii_digit() {
            return None;
        }
        if digits < MAX_DIGITS {
            mantissa = mantissa * 10 + u128::from(byte - b'0');
            digits += u32::from(mantissa > 0);
            power = power.checked_sub(i32::from(after_point))?;
        } else {
            power = power.checked_add(i32::from(!after_point))?;
        }
    }
    let value = if mantissa == 0 {
        0
    } else if power >= 0 {
        let factor = 10_u128.checked_pow(power.unsigned_abs())?;
        mantissa.checked_mul(factor)?
    } else {
        match 10_u128.checked_pow(power.unsigned_abs()) {
            Some(divisor) => mantissa / divisor + u128::from(mantissa % divisor >= divisor / 2),
            None => 0,
        }
    };
    let value = i64::try_from(value).ok()?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn times_keep_every_digit() {
        for (json, ns) in [
            ("1695835542514261", Some(1_695_835_542_514_261_000)),
            ("1712195495519689.001", Some(1_712_195_495_519_689_001)),
            ("4203669604595.407", Some(4_203_669_604_595_407)),
            ("\"68.25\"", Some(68_250)),
            ("0.0004", Some(0)),
            ("0.0005", Some(1)),
            ("10.399999999999999", Some(10_400)),
            ("-3.5", Some(-3_500)),
            ("1.5e3", Some(1_500_000)),
            ("1e-3", Some(1)),
            ("1e-300", Some(0)),
            ("1e300", None),
            ("1e99999999999", None),
            ("0e2147483647", None),
            ("99999999999999999999999999999999999999999", None),
            ("\"\"", None),
            ("\"soon\"", None),
            ("null", None),
            ("[1]", None),
        ] {
            assert_eq!(nanoseconds(raw(json)), ns, "{json}");
        }
    }

    #[test]
    fn whole_numbers_are_read_in_every_notation() {
        assert_eq!(whole(raw("7")), Some(7));
        assert_eq!(whole(raw("\"7\"")), Some(7));
        assert_eq!(whole(raw("7.0")), Some(7));
        assert_eq!(whole(raw("18446744073709551615")), Some(-1));
        assert_eq!(whole(raw("\"0x0\"")), None);
        assert_eq!(count(raw("-1")), None);
        assert_eq!(number_in("stream 7"), Some(7));
        assert_eq!(number_in("25738 (python)"), Some(25738));
        assert_eq!(number_in("-247463936"), Some(-247_463_936));
        assert_eq!(number_in("PyTorch Profiler"), None);
        assert_eq!(number_in("\u{e9}"), None);
        assert_eq!(number_in(""), None);
    }

    #[test]
    fn quotes_and_escapes_of_texts_are_removed() {
        assert_eq!(text(raw(r#""a\"b\u0041""#)), "a\"bA");
        assert_eq!(text(raw(r#""plain""#)), "plain");
        assert_eq!(text(raw(r#""\ud800x""#)), r"\ud800x");
        assert_eq!(text(raw("12")), "12");
    }

    proptest! {
        #[test]
        fn printed_nanoseconds_are_read_back(ns in -(1_i64 << 61)..(1_i64 << 61)) {
            let sign = if ns < 0 { "-" } else { "" };
            let size = ns.unsigned_abs();
            let json = format!("{sign}{}.{:03}", size / 1000, size % 1000);
            prop_assert_eq!(nanoseconds(raw(&json)), Some(ns));
        }
    }
}
