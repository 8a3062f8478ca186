//! Calendar days: TOML's date type, with the conversions that suppressions need.

pub use toml::value::Date;

/// The day of a Unix time in seconds, in UTC; the last day of year 9999 for all later times.
pub fn of_unix(seconds: u64) -> Date {
    const LAST: u64 = 253_402_300_799;
    // Howard Hinnant, `civil_from_days`: https://howardhinnant.github.io/date_algorithms.html
    let days = seconds.min(LAST) / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months are counted from March, so that the leap day is the last of the year.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let january_or_february = month >= 10;
    Date {
        year: (year_of_era + era * 400 + u64::from(january_or_february)) as u16,
        month: (if january_or_february {
            month - 9
        } else {
            month + 3
        }) as u8,
        day: day as u8,
    }
}

/// The day of a text such as `2026-12-31`; `None` for any other form, and for days that do not exist.
pub fn parse(text: &str) -> Option<Date> {
    let when: toml::value::Datetime = text.parse().ok()?;
    when.date.filter(|day| day.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_times_are_converted_to_days() {
        // The output of `date -u -d @SECONDS +%F`.
        for (seconds, day) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (86_400, "1970-01-02"),
            (951_782_400, "2000-02-29"),
            (1_798_675_200, "2026-12-31"),
            (4_107_542_400, "2100-03-01"),
            (u64::MAX, "9999-12-31"),
        ] {
            assert_eq!(of_unix(seconds).to_string(), day, "{seconds}");
        }
    }

    #[test]
    fn only_existing_days_in_iso_format_are_parsed() {
        assert_eq!(parse("2028-02-29").unwrap().to_string(), "2028-02-29");
        for wrong in [
            "",
            "2026-2-03",
            "2026-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-01-01-01",
            "+026-01-01",
            "31.12.2026",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(parse("2026-12-31") < parse("2027-01-01"));
    }
}
