//! `hours`: windows of local time.

use super::super::reading::Reading;
use super::source::{Context, Source};

pub(super) const SOURCE: Source = Source::new("hours", |when| when.hours.is_some(), read);

fn read(context: &mut Context<'_>) -> Result<Reading, String> {
    let now = context.now;
    let clock = now.time_of_day(now.unix);
    Ok(match &context.when.hours {
        Some(hours) if !hours.contain(now) => {
            let next = hours.next(now);
            Reading::FailsUntil(next, format!("not before {}, it is {clock}", now.time_of_day(next)))
        }
        _ => Reading::Holds(format!("it is {clock}")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::hours::Hours;
    use super::super::fake;
    use super::*;

    #[test]
    fn outside_of_the_hours_the_next_window_is_named() {
        let root = tempfile::tempdir().unwrap();
        let reading = |window: &str| {
            let mut when = fake::when(root.path());
            when.hours = Some(Hours::parse(&[window.to_owned()]).unwrap());
            fake::read(&SOURCE, &when)
        };
        assert_eq!(reading("11:00-13:00"), Reading::Holds("it is 12:00".into()));
        assert_eq!(
            reading("22:00-06:00"),
            Reading::FailsUntil(fake::noon().unix + 10 * 3600, "not before 22:00, it is 12:00".into())
        );
    }
}
