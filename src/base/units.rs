//! Formats numbers for reports: three significant digits, SI units, ASCII.
//!
//! Callers compare the raw numbers, never the rounded text.

/// A duration in nanoseconds: `850 ns`, `12.3 us`, `4.56 ms`, `1.23 s`.
pub fn ns(value: f64) -> String {
    scaled(value, &["ns", "us", "ms", "s"])
}

/// Two durations in the unit of the longer one, with two significant digits, as estimates have:
/// `1.2 to 2.4 ms`; `up to 2.4 ms` if the shorter one rounds to zero, `2.4 ms` if both round to the
/// same text.
pub fn ns_range(low: f64, high: f64) -> String {
    let whole = ns(high);
    let Some((_, unit)) = whole.split_once(' ') else {
        return whole;
    };
    let per_unit = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        _ => 1e9,
    };
    range(low / per_unit, high / per_unit, unit)
}

/// Two shares as percentages: `8.9 to 18 %`; `up to 18 %` if the smaller one rounds to zero.
pub fn percent_range(low: f64, high: f64) -> String {
    let high = high * 100.0;
    if !high.is_finite() {
        return "-".into();
    }
    if high < 0.1 {
        return percent(high / 100.0);
    }
    range(low * 100.0, high, "%")
}

fn range(low: f64, high: f64, unit: &str) -> String {
    let (lower, upper) = (two_digits(low), two_digits(high));
    if lower == upper {
        format!("{upper} {unit}")
    } else if lower.parse::<f64>().is_ok_and(|l| l > 0.0) {
        format!("{lower} to {upper} {unit}")
    } else {
        format!("up to {upper} {unit}")
    }
}

/// Two significant digits, and all digits before the point.
fn two_digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 9.95 || value == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 0.095 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A number with its noun: `1 step`, `1,200 kernels`.
pub fn counted(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{} {}", count(n), plural(noun)),
    }
}

/// The plural of a noun: `steps`, `copies`, `launches`. A verb with the same ending is its form for one
/// thing: `takes`.
pub fn plural(noun: &str) -> String {
    match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

/// Bytes in powers of ten: `512 B`, `1.44 MB`, `25.5 GB`.
pub fn bytes(value: f64) -> String {
    scaled(value, &["B", "kB", "MB", "GB", "TB"])
}

/// Bytes per second: `27.7 GB/s`.
pub fn rate(value: f64) -> String {
    format!("{}/s", bytes(value))
}

/// Floating point operations: `9.33 GFLOP`.
pub fn flops(value: f64) -> String {
    const UNITS: [&str; 6] = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"];
    scaled(value, &UNITS)
}

/// Floating point operations per second: `12.4 TFLOP/s`.
pub fn flop_rate(value: f64) -> String {
    format!("{}/s", flops(value))
}

/// A share between 0 and 1 as a percentage: `12.3 %`, `0.4 %`, `97 %`.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "-".into();
    }
    let p = share * 100.0;
    if p == 0.0 {
        "0 %".into()
    } else if p.abs() < 0.1 {
        "under 0.1 %".into()
    } else if p.abs() < 9.95 {
        format!("{p:.1} %")
    } else {
        format!("{p:.0} %")
    }
}

/// A whole number with thousands separators: `1,002,500`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// An average of counts: `3`, `2.5`, `1,200`.
pub fn average(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        _ if value >= 1000.0 => count(value.round() as u64),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// A count per step: whole where it is one but for the edges of the window, as in 3.98 for 4.
pub fn per_step_count(value: f64) -> String {
    const EDGES: f64 = 0.03;
    let whole = value.round();
    if whole >= 1.0 && (value - whole).abs() <= EDGES * whole {
        count(whole as u64)
    } else {
        average(value)
    }
}

/// A plain ratio: `1.8x`, `12x`, `under 0.01x`.
pub fn times(value: f64) -> String {
    if !value.is_finite() {
        "-".into()
    } else if value > 0.0 && value < 0.005 {
        "under 0.01x".into()
    } else {
        format!("{}x", significant(value))
    }
}

/// A change, from the ratio of after to before: `-12 %`, `+3.1 %`, `2.10x`.
pub fn change(ratio: f64) -> String {
    if !ratio.is_finite() {
        "-".into()
    } else if ratio >= 2.0 || ratio <= 0.5 {
        times(ratio)
    } else if (ratio - 1.0).abs() < 0.001 {
        "0 %".into()
    } else {
        let sign = if ratio > 1.0 { '+' } else { '-' };
        format!("{sign}{}", percent((ratio - 1.0).abs()))
    }
}

/// A difference of durations with its sign: `+1.20 ms`, `-850 ns`.
pub fn signed_ns(value: f64) -> String {
    if value > 0.0 {
        format!("+{}", ns(value))
    } else {
        ns(value)
    }
}

/// Three significant digits, without an exponent for common magnitudes.
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 99.95 || value == 0.0 {
        format!("{value:.0}")
    } else if magnitude >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A value in the unit that leaves it below 1,000.
fn scaled(value: f64, units: &[&str]) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let mut scaled = value;
    let mut unit = 0;
    // 999.5 would print as 1000, so the next unit is used.
    while scaled.abs() >= 999.5 && unit + 1 < units.len() {
        scaled /= 1e3;
        unit += 1;
    }
    let number = if unit == 0 {
        format!("{scaled:.0}")
    } else {
        significant(scaled)
    };
    format!("{number} {}", units.get(unit).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!(ns(850.0), "850 ns");
        assert_eq!(ns(12_345.0), "12.3 us");
        assert_eq!(ns(999_700.0), "1.00 ms");
        assert_eq!(ns(1.2345e9), "1.23 s");
        assert_eq!(ns(7.2e12), "7200 s");
        assert_eq!(bytes(25.5e9), "25.5 GB");
        assert_eq!(rate(27.7e9), "27.7 GB/s");
        assert_eq!(flops(9.33e9), "9.33 GFLOP");
        assert_eq!(percent(0.123), "12 %");
        assert_eq!(percent(0.0412), "4.1 %");
        assert_eq!(percent(0.0004), "under 0.1 %");
        assert_eq!(count(1_002_500), "1,002,500");
        assert_eq!(count(999), "999");
        assert_eq!(times(1.8), "1.80x");
        assert_eq!(times(0.0011), "under 0.01x");
        assert_eq!(ns(f64::NAN), "-");
    }

    #[test]
    fn range_ends_share_a_unit() {
        assert_eq!(ns_range(1.23e6, 2.44e6), "1.2 to 2.4 ms");
        assert_eq!(ns_range(5.79e6, 11.6e6), "5.8 to 12 ms");
        assert_eq!(ns_range(117e6, 349e6), "117 to 349 ms");
        assert_eq!(ns_range(2e5, 2.4e6), "0.2 to 2.4 ms");
        assert_eq!(ns_range(5e4, 2.4e6), "0.05 to 2.4 ms");
        assert_eq!(ns_range(2.4e6, 2.4e6), "2.4 ms");
        assert_eq!(ns_range(10.0, 2.4e6), "up to 2.4 ms");
        assert_eq!(ns_range(0.0, 0.0), "0 ns");
        assert_eq!(ns_range(f64::NAN, 5e3), "up to 5.0 us");
        assert_eq!(percent_range(0.0886, 0.177), "8.9 to 18 %");
        assert_eq!(percent_range(0.0, 0.031), "up to 3.1 %");
        assert_eq!(percent_range(0.0001, 0.0004), "under 0.1 %");
        assert_eq!(percent_range(0.2, 0.2), "20 %");
        assert_eq!(percent_range(0.2, f64::NAN), "-");
        assert_eq!(ns_range(1.0, f64::NAN), "-");
        assert_eq!(counted(1, "step"), "1 step");
        assert_eq!(counted(1200, "kernel"), "1,200 kernels");
        assert_eq!(counted(1, "copy"), "1 copy");
        assert_eq!(counted(3, "copy"), "3 copies");
    }
}
