//! Budgets written as a table: by a link and a deadline, for a whole run, or chosen by an agent.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Value;

use crate::duration::millis;
use crate::error::Error;
use crate::forms::rule;
use crate::rules::agent;
use crate::size::{SIZES, bits_a_second};
use crate::spec::budget::Budget;
use crate::spec::budget_bandit::{BudgetBandit, MOST_BITS, NUMBERS};

// Share of a link that frames take, in percent: messages, TLS and latency take the rest.
const SHARE: u128 = 95;
// A frame of any codec has at least so many bytes.
const SMALLEST: u128 = 48;
// Longest deadline: 30 days.
const LONGEST: u64 = 30 * 24 * 3_600_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    link: Option<Value>,
    deadline: Option<Value>,
    train: Option<Value>,
    run: Option<Value>,
    by: Option<Value>,
    least: Option<Value>,
    most: Option<Value>,
    worth: Option<Value>,
    explore: Option<Value>,
    seed: Option<Value>,
}

const FORMS: &str = r#"{ link = "1Mbit/s", deadline = "20s" }, { run = "2MiB" } or { by = "bandit", least = "0.1 bits", most = "1 bits" }"#;

impl TryFrom<Table> for Budget {
    type Error = Error;

    fn try_from(table: Table) -> Result<Self, Error> {
        let missing = |key: &str, other: &str| {
            Err(Error::Usage(format!(
                "`budget`: `{key}` is missing beside `{other}`; give {FORMS}"
            )))
        };
        if let Some(by) = &table.by {
            return of_agent(by, &table);
        }
        if let Some(key) = table
            .of_agent()
            .into_iter()
            .find_map(|(key, value)| value.and(Some(key)))
        {
            return Err(Error::Usage(format!(
                "`budget`: `{key}` is a parameter of `by`; give {FORMS}"
            )));
        }
        match table {
            Table {
                run: Some(run),
                link: None,
                deadline: None,
                train: None,
                ..
            } => of_run(&run),
            Table {
                run: None,
                link: Some(link),
                deadline: Some(deadline),
                train,
                ..
            } => of_link(&link, &deadline, train.as_ref()).map(Self::Bytes),
            Table { run: Some(_), .. } => Err(Error::Usage(format!(
                "`budget`: `run` stands alone, without `link`, `deadline`, `train` and `by`; give {FORMS}"
            ))),
            Table { link: Some(_), .. } => missing("deadline", "link"),
            Table { deadline: Some(_), .. } => missing("link", "deadline"),
            Table { train: Some(_), .. } => missing("link", "train"),
            Table { .. } => Err(Error::Usage(format!("`budget` is an empty table; give {FORMS}"))),
        }
    }
}

impl Table {
    /// The parameters of an agent.
    fn of_agent(&self) -> [(&'static str, Option<&Value>); 5] {
        [
            ("least", self.least.as_ref()),
            ("most", self.most.as_ref()),
            (NUMBERS[0], self.worth.as_ref()),
            (NUMBERS[1], self.explore.as_ref()),
            (NUMBERS[2], self.seed.as_ref()),
        ]
    }
}

fn of_agent(by: &Value, table: &Table) -> Result<Budget, Error> {
    if by.as_str() != Some(agent::NAME) {
        return Err(Error::Usage(format!(
            "`budget`: `by` must be \"{}\", not {by}",
            agent::NAME
        )));
    }
    if table.run.is_some() {
        return Err(Error::Usage(format!(
            "`budget`: `run` stands alone, without `link`, `deadline`, `train` and `by`; give {FORMS}"
        )));
    }
    let others = [
        ("link", &table.link),
        ("deadline", &table.deadline),
        ("train", &table.train),
    ];
    if let Some((key, _)) = others.into_iter().find(|(_, value)| value.is_some()) {
        return Err(Error::Usage(format!(
            "`budget`: `{key}` is not a parameter of {{ by = \"{}\" }}",
            agent::NAME
        )));
    }
    let [(_, least), (_, most), numbers @ ..] = table.of_agent();
    let bits = |key: &str, value: Option<&Value>| {
        let value = value.ok_or_else(|| Error::Usage(format!("`budget`: `{key}` is missing; give {FORMS}")))?;
        match value.as_str().map(str::parse) {
            Some(Ok(Budget::Bits(bits))) => Ok(bits),
            _ => Err(Error::Usage(format!(
                "`budget`: `{key}` must be bits per value above 0 and at most {MOST_BITS}, such as \"0.1 bits\", not {value}"
            ))),
        }
    };
    let mut given = rule::Table::default();
    for (key, value) in numbers {
        let Some(value) = value else { continue };
        let number = value.as_float().or(value.as_integer().map(|number| number as f64));
        let number = number.ok_or_else(|| Error::Usage(format!("`budget`: `{key}` must be a number, not {value}")))?;
        given = given.with(key, number, f64::NAN);
    }
    BudgetBandit::new(bits("least", least)?, bits("most", most)?, given).map(Budget::Bandit)
}

fn of_run(run: &Value) -> Result<Budget, Error> {
    match run.as_str().map(str::parse) {
        Some(Ok(Budget::Bytes(total))) => Ok(Budget::Run(total)),
        _ => Err(Error::Usage(format!(
            "`run` must be bytes {SIZES}, such as \"2MiB\", not {run}"
        ))),
    }
}

/// Bytes of a frame: 95 % of what the link carries in the deadline less the time of training, which is half the deadline if
/// it is not given.
fn of_link(link: &Value, deadline: &Value, train: Option<&Value>) -> Result<u64, Error> {
    let rate = link.as_str().and_then(bits_a_second).ok_or_else(|| {
        Error::Usage(format!(
            "`link` must be from 1bit/s to 1000000Gbit/s, in bit/s, kbit/s, Mbit/s or Gbit/s, such as \"1Mbit/s\", not {link}"
        ))
    })?;
    let time = |key: &str, value: &Value| {
        let time = value.as_str().and_then(millis).filter(|time| *time <= LONGEST);
        time.ok_or_else(|| {
            Error::Usage(format!(
                "`{key}` must be a whole number with ms, s, min or h, such as \"20s\", at most 720h, not {value}"
            ))
        })
    };
    let all = time("deadline", deadline)?;
    let given = train.map(|train| time("train", train)).transpose()?;
    let train = given.unwrap_or(all / 2);
    let bytes = |millis: u64| u128::from(rate) * u128::from(millis) * SHARE / (8 * 1_000 * 100);
    let left = bytes(all.saturating_sub(train));
    if left >= SMALLEST {
        return u64::try_from(left)
            .map_err(|_| Error::Usage(format!("`deadline` = {deadline} is too long for this link")));
    }
    let needed = (SMALLEST * 8 * 1_000 * 100).div_ceil(u128::from(rate) * SHARE);
    // Without `train`, half of a longer deadline is for training, too.
    let longer = given.map_or(2 * needed, |train| needed + u128::from(train));
    let what = if longer <= u128::from(LONGEST) {
        format!("give at least \"{longer}ms\"")
    } else {
        "give a faster `link` or a shorter `train`".to_owned()
    };
    Err(Error::Usage(format!(
        "`deadline` = {deadline} leaves {left} bytes on a link of {link} beside {train} ms of training, and no frame is shorter than {SMALLEST} \
         bytes, which take {needed} ms: {what}"
    )))
}

// A text or a table.
impl<'de> Deserialize<'de> for Budget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = Budget;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(r#"a budget such as "0.25 bits" or { run = "2MiB" }"#)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Budget, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Budget, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                table.try_into().map_err(A::Error::custom)
            }
        }

        deserializer.deserialize_any(TextOrTable)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::Spec;

    fn budget(text: &str) -> Result<Budget, String> {
        let spec: Result<Spec, _> = toml::from_str(&format!("budget = {text}"));
        spec.map_err(|e| e.to_string()).map(|spec| spec.budget.unwrap())
    }

    #[test]
    fn a_link_and_a_deadline_are_bytes() {
        for (text, bytes) in [
            // 95 % of 1 Mbit/s for 10 s.
            (r#"{ link = "1Mbit/s", deadline = "20s" }"#, 1_187_500),
            (r#"{ link = "1Mbit/s", deadline = "20s", train = "0s" }"#, 2_375_000),
            (r#"{ link = "0.5 kbit/s", deadline = "1min", train = "59 s" }"#, 59),
            (r#"{ link = "64kbit/s", deadline = "2h" }"#, 27_360_000),
        ] {
            assert_eq!(budget(text), Ok(Budget::Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn impossible_links_and_deadlines_are_named() {
        for (text, named) in [
            (
                r#"{ link = "0Mbit/s", deadline = "20s" }"#,
                "`link` must be from 1bit/s to 1000000Gbit/s",
            ),
            (
                r#"{ link = 1000000, deadline = "20s" }"#,
                "such as \"1Mbit/s\", not 1000000",
            ),
            (
                r#"{ link = "1Mbit/s", deadline = 20 }"#,
                "such as \"20s\", at most 720h, not 20",
            ),
            (r#"{ link = "nanMbit/s", deadline = "20s" }"#, "`link`"),
            (r#"{ link = "-1Mbit/s", deadline = "20s" }"#, "`link`"),
            (r#"{ link = "1 mile", deadline = "20s" }"#, "`link`"),
            (
                r#"{ link = "1Mbit/s", deadline = "20" }"#,
                "`deadline` must be a whole number",
            ),
            (r#"{ link = "1Mbit/s", deadline = "800h" }"#, "`deadline`"),
            (r#"{ link = "1Mbit/s", deadline = "20s", train = "never" }"#, "`train`"),
            // 48 bytes take 4,043 ms at 100 bit/s.
            (
                r#"{ link = "100bit/s", deadline = "1s", train = "0s" }"#,
                "which take 4043 ms",
            ),
            (
                r#"{ link = "1Mbit/s", deadline = "20s", train = "20s" }"#,
                "leaves 0 bytes",
            ),
            (
                r#"{ link = "1Mbit/s", deadline = "20s", train = "21s" }"#,
                "leaves 0 bytes",
            ),
            (r#"{ link = "1Mbit/s" }"#, "`deadline` is missing beside `link`"),
            (r#"{ deadline = "1s" }"#, "`link` is missing beside `deadline`"),
            (
                r#"{ link = "1Mbit/s", deadline = "20s", run = "2MiB" }"#,
                "`run` stands alone",
            ),
            (r#"{ deadlin = "20s" }"#, "unknown field `deadlin`"),
            (r#"{ run = "0.25 bits" }"#, "`run` must be bytes from 1B to 9000000GB"),
            (r#"{ run = "0" }"#, "`run` must be bytes from 1B to 9000000GB"),
            (
                r#"{ run = "-1MiB" }"#,
                "in B, kB, MB, GB, KiB, MiB or GiB, such as \"2MiB\", not \"-1MiB\"",
            ),
            (r#"{ run = "1PiB" }"#, "`run` must be bytes from 1B to 9000000GB"),
            ("{ run = 2000000 }", "such as \"2MiB\", not 2000000"),
            ("\"100 bits\"", "bits per value above 0 and at most 64"),
            ("{}", "`budget` is an empty table"),
            ("3", "a budget such as"),
        ] {
            let error = budget(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn a_budget_for_a_run_survives_its_text_and_is_refused_by_an_encoder() {
        let run = budget(r#"{ run = "2MiB" }"#).unwrap();
        assert_eq!(run, Budget::Run(2 << 20));
        assert_eq!(
            (run.to_string().as_str(), run.to_string().parse()),
            ("2MiB a run", Ok(run))
        );
        let layout = crate::layout::Layout::new([("w", vec![10, 10])]).unwrap();
        let spec = Spec {
            budget: Some(run),
            ..Spec::default()
        };
        let error = crate::Encoder::new(std::sync::Arc::new(layout), &spec)
            .unwrap_err()
            .to_string();
        assert!(error.contains("for a whole run") && error.contains("200KiB"), "{error}");
    }

    #[test]
    fn a_deadline_that_a_refusal_names_is_accepted() {
        for link in ["1bit/s", "100bit/s", "0.9 kbit/s", "64kbit/s"] {
            for train in ["", ", train = \"0s\"", ", train = \"7s\"", ", train = \"719h\""] {
                let table =
                    |deadline: &str| budget(&format!("{{ link = \"{link}\", deadline = \"{deadline}\"{train} }}"));
                let error = table("1ms").unwrap_err();
                let (_, named) = error.split_once("at least \"").unwrap();
                let named = named.split_once('"').unwrap().0;
                assert_eq!(
                    table(named).map_err(|error| error + train).map(|b| b.bytes(0) >= 48),
                    Ok(true)
                );
                let less = named.trim_end_matches("ms").parse::<u64>().unwrap() - 2;
                assert!(table(&format!("{less}ms")).is_err());
            }
        }
        let never = budget(r#"{ link = "1bit/s", deadline = "1s", train = "720h" }"#).unwrap_err();
        assert!(never.contains("give a faster `link`"), "{never}");
    }

    proptest! {
        #[test]
        fn any_table_is_a_budget_or_an_error(link in ".{0,12}", deadline in "[0-9]{0,22} ?(ms|s|min|h)?", train in ".{0,6}") {
            let [link, deadline, train] = [link, deadline, train].map(Value::from);
            let _ = of_link(&link, &deadline, None);
            let _ = of_link(&"1e15bit/s".into(), &deadline, Some(&train));
        }

        #[test]
        fn a_longer_deadline_or_a_faster_link_never_gives_fewer_bytes(rate in 1u64..1_000_000, time in 1u64..100_000, more in 0u64..1000) {
            let bytes = |rate: u64, time: u64| of_link(&format!("{rate}kbit/s").into(), &format!("{time}ms").into(), None).unwrap_or(0);
            prop_assert!(bytes(rate, time) <= bytes(rate + more, time));
            prop_assert!(bytes(rate, time) <= bytes(rate, time + more));
        }
    }
}
