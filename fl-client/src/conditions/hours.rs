//! Windows of the day.

use super::moment::{DAY, Moment};

const MOST: usize = 24;

/// Windows of the day in local time, such as `22:00-06:00`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hours(Vec<Window>);

/// Minutes since midnight; `to` is outside. A window with `from >= to` passes midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    from: u32,
    to: u32,
}

impl Hours {
    /// Reads windows such as `22:00-06:00`.
    ///
    /// # Errors
    /// The first text that is not a window, and one that never comes.
    pub fn parse(windows: &[String]) -> Result<Self, String> {
        match windows.len() {
            0 => Err("`hours` has no window and never comes; write \"22:00-06:00\", or delete the key".to_owned()),
            count if count > MOST => Err(format!("`hours` has {count} windows; a day has room for {MOST}")),
            _ => windows
                .iter()
                .map(|text| window(text))
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }

    pub(super) fn contain(&self, now: Moment) -> bool {
        let minute = now.minute();
        self.0.iter().any(|&Window { from, to }| {
            if from < to {
                (from..to).contains(&minute)
            } else {
                minute >= from || minute < to
            }
        })
    }

    /// When the next window begins, in seconds since 1970. A change of local time until then is not taken into account.
    pub(super) fn next(&self, now: Moment) -> u64 {
        let minute = now.minute();
        let waits = self.0.iter().map(|window| match (window.from + DAY - minute) % DAY {
            0 => DAY,
            minutes => minutes,
        });
        now.after(waits.min().unwrap_or(DAY))
    }
}

fn window(text: &str) -> Result<Window, String> {
    let wrong = || format!("`hours`: {text:?} is not a window of local time, such as \"22:00-06:00\"");
    let (from, to) = text.split_once('-').ok_or_else(wrong)?;
    let from = minute(from).ok_or_else(wrong)?;
    let to = minute(to).ok_or_else(wrong)?;
    if from == to || from == DAY {
        return Err(format!(
            "`hours`: {text:?} never comes; a window ends after its begin, and \"00:00-24:00\" is the whole day"
        ));
    }
    Ok(Window { from, to })
}

/// Minutes since midnight; at most `24:00`.
fn minute(text: &str) -> Option<u32> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let hours = two_digits(hours)?;
    let minutes = two_digits(minutes)?;
    let minute = hours * 60 + minutes;
    (minutes < 60 && minute <= DAY).then_some(minute)
}

fn two_digits(text: &str) -> Option<u32> {
    let are_two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| are_two)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hours(windows: &[&str]) -> Result<Hours, String> {
        Hours::parse(&windows.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    fn at(minute: u32) -> Moment {
        let unix = 86_400 * 20_000 + 60 * u64::from(minute) + 7;
        Moment { unix, offset: 0 }
    }

    #[test]
    fn a_window_may_pass_midnight_and_several_may_be_given() {
        let night = hours(&["22:00-06:00", "12:00-13:30"]).unwrap();
        for (minute, inside, next) in [
            (0, true, 720),
            (359, true, 720),
            (360, false, 720),
            (720, true, 1320),
            (810, false, 1320),
            (1320, true, 1440 + 720),
        ] {
            assert_eq!(night.contain(at(minute)), inside, "{minute}");
            assert_eq!(night.next(at(minute)), 86_400 * 20_000 + 60 * next, "{minute}");
        }
        assert!((0..DAY).all(|minute| hours(&["00:00-24:00"]).unwrap().contain(at(minute))));
    }

    #[test]
    fn windows_that_never_come_and_other_texts_are_named() {
        for (windows, named) in [
            (&["22:00-22:00"][..], "never comes"),
            (&["24:00-06:00"], "never comes"),
            (&[], "never comes"),
            (&["22:00"], "\"22:00\""),
            (&["22:00-06:00", "25:00-26:00"], "\"25:00-26:00\""),
            (&["22:60-06:00"], "22:60"),
            (&["1:00-2:00"], "not a window"),
            (&["+1:00-02:00"], "not a window"),
            (&[""], "not a window"),
            (&["01:00-02:00"; 25], "25 windows"),
        ] {
            let error = hours(windows).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    proptest! {
            #[test]
            fn the_next_window_is_the_first_minute_inside_after_one_outside(
                from in 0..DAY, to in 0..DAY, minute in 0..DAY, offset in -43_200..50_400i32,
            ) {
                prop_assume!(from != to);
                let hours = Hours(vec![Window { from, to }]);
                let now = Moment { offset, ..at(minute) };
                prop_assume!(!hours.contain(now));
                let then = Moment { unix: hours.next(now), offset };
                prop_assert!(then.unix > now.unix && hours.contain(then));
    let before = Moment { unix: then.unix - 1, offset };
                prop_assert!(!hours.contain(before));
            }
        }
}
