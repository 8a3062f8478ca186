//! Days of the calendar, for what holds until one.

use std::fmt;
use std::str::FromStr;

/// A day of the Gregorian calendar, years 1970 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

const SECONDS_PER_DAY: u64 = 86_400;
const FIRST_YEAR: u16 = 1970;
const LAST_YEAR: u16 = 9_999;

impl Date {
    /// `None` where the calendar has no such day.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Date> {
        let there = (FIRST_YEAR..=LAST_YEAR).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_of(year, month)).contains(&u64::from(day));
        there.then_some(Date { year, month, day })
    }

    /// The day of so many seconds after the beginning of 1970, in UTC; the last day there is for all
    /// that come later.
    pub fn of_unix(seconds: u64) -> Date {
        let mut left = seconds / SECONDS_PER_DAY;
        for year in FIRST_YEAR..=LAST_YEAR {
            for month in 1..=12 {
                let days = days_of(year, month);
                if left < days {
                    let day = u8::try_from(left + 1).unwrap_or(1);
                    return Date { year, month, day };
                }
                left -= days;
            }
        }
        Date {
            year: LAST_YEAR,
            month: 12,
            day: 31,
        }
    }
}

fn days_of(year: u16, month: u8) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// `2026-12-31`, and nothing else.
impl FromStr for Date {
    type Err = ();

    fn from_str(text: &str) -> Result<Date, ()> {
        let mut parts = text.split('-');
        let mut number = |digits: usize| {
            let part = parts.next().filter(|p| p.len() == digits)?;
            let all = part.bytes().all(|b| b.is_ascii_digit());
            all.then(|| part.parse::<u16>().ok()).flatten()
        };
        let (year, month, day) = (number(4), number(2), number(2));
        let small = |n: Option<u16>| n.and_then(|n| u8::try_from(n).ok()).ok_or(());
        if parts.next().is_some() {
            return Err(());
        }
        Date::new(year.ok_or(())?, small(month)?, small(day)?).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_since_1970() {
        // `date -u -d @SECONDS +%F` says the same.
        for (seconds, day) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (86_400, "1970-01-02"),
            (951_782_400, "2000-02-29"),
            (1_798_675_200, "2026-12-31"),
            (4_107_542_400, "2100-03-01"),
            (u64::MAX, "9999-12-31"),
        ] {
            assert_eq!(Date::of_unix(seconds).to_string(), day, "{seconds}");
        }
    }

    #[test]
    fn days_are_written_one_way() {
        assert_eq!("2028-02-29".parse(), Ok(Date::new(2028, 2, 29).unwrap()));
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
            assert_eq!(wrong.parse::<Date>(), Err(()), "{wrong}");
        }
        let (a, b): (Date, Date) = ("2026-12-31".parse().unwrap(), "2027-01-01".parse().unwrap());
        assert!(a < b);
    }
}
