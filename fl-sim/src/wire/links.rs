//! The virtual clock: how long a client's part of a round takes over its link.
//!
//! A part is the way of the model to the client, training, and the way of the update back. Bytes that are lost are sent again: a
//! link that loses a share of its packets takes 1 / (1 - loss) times as long for the same bytes.

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use toml::{Table, Value};

use crate::score::LinkTime;
use crate::settings;

/// A link, and how long the clients on it train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Link {
    /// Bits a second from and to the client; infinite without a limit.
    up: f64,
    down: f64,
    /// Seconds of one way.
    latency: f64,
    loss: f64,
    /// Seconds of training in a round.
    train: f64,
}

/// What a client moved and did in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load {
    pub(super) up: u64,
    pub(super) down: u64,
    /// Ways between server and client, one after another.
    pub(super) ways: u32,
    /// Examples that it trained on.
    pub(super) examples: u64,
}

/// The clock of a federation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Clock {
    /// The link of each client.
    links: Vec<Link>,
    seconds_per_example: f64,
}

/// The links of the table "time against link", as in the evaluation of the hybrid method.
const RATES: [f64; 3] = [10.0, 100.0, 1_000.0];
const LATENCIES: [f64; 3] = [1.0, 10.0, 50.0];

/// The table before the first round.
pub(super) fn table() -> Vec<LinkTime> {
    let times = RATES.map(|mbit| {
        LATENCIES.map(|latency_ms| LinkTime {
            mbit,
            latency_ms,
            seconds: 0.0,
        })
    });
    times.concat()
}

/// A link of `engine.links` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    up: Option<String>,
    down: Option<String>,
    #[serde(default = "no_latency")]
    latency: String,
    #[serde(default)]
    loss: f64,
    clients: Option<usize>,
    train_seconds: Option<f64>,
}

fn no_latency() -> String {
    "0ms".to_owned()
}

impl Clock {
    /// The clock of `clients` clients. `links`: a table, or a list of one for each class; `None` for links without limits.
    ///
    /// # Errors
    /// If a value is out of range, or the classes do not have all clients; the error names the key.
    pub(super) fn new(
        links: Option<&Value>,
        clients: usize,
        train_seconds: f64,
        seconds_per_example: f64,
    ) -> anyhow::Result<Self> {
        seconds("engine.train_seconds", train_seconds)?;
        seconds("engine.seconds_per_example", seconds_per_example)?;
        let free = Link {
            up: f64::INFINITY,
            down: f64::INFINITY,
            latency: 0.0,
            loss: 0.0,
            train: train_seconds,
        };
        let classes = settings::tables(links, "engine.links")?;
        ensure!(
            links.is_none() || !classes.is_empty(),
            "`engine.links`: must be a table, or a list of tables"
        );
        let mut all = Vec::new();
        for (at, class) in classes.iter().enumerate() {
            let key = match classes.len() {
                1 => "engine.links".to_owned(),
                _ => format!("engine.links[{at}]"),
            };
            let (link, own) = Link::read(class, &key, train_seconds)?;
            let is_last = at + 1 == classes.len();
            let rest = clients.saturating_sub(all.len());
            let count = match own {
                Some(count) => count,
                None if is_last => rest,
                None => bail!("`{key}.clients` is missing: only the last class has the rest of the clients"),
            };
            ensure!(
                count <= rest && (!is_last || count == rest),
                "`{key}.clients` is {count}, but {rest} of the {clients} clients are left"
            );
            all.extend(std::iter::repeat_n(link, count));
        }
        if classes.is_empty() {
            all = vec![free; clients];
        }
        Ok(Self {
            links: all,
            seconds_per_example,
        })
    }

    /// Seconds of the part of client `at` in a round.
    pub(super) fn seconds(&self, at: usize, load: &Load) -> f64 {
        self.links
            .get(at)
            .map_or(0.0, |link| link.seconds(load, self.seconds_per_example))
    }

    /// Seconds in which client `at` sends so many bytes; 0 without a limit.
    pub(super) fn seconds_up(&self, at: usize, bytes: u64) -> f64 {
        self.links.get(at).map_or(0.0, |link| link.seconds_up(bytes))
    }

    /// Seconds of the same part if the client had the link of `time`.
    pub(super) fn seconds_over(&self, at: usize, load: &Load, time: &LinkTime) -> f64 {
        let rate = 1e6 * time.mbit;
        let link = Link {
            up: rate,
            down: rate,
            latency: time.latency_ms / 1_000.0,
            loss: 0.0,
            train: self.links.get(at).map_or(0.0, |link| link.train),
        };
        link.seconds(load, self.seconds_per_example)
    }
}

impl Link {
    /// The link of a class, and how many clients have it.
    fn read(table: &Table, key: &str, train: f64) -> anyhow::Result<(Self, Option<usize>)> {
        let raw: Raw = Value::Table(table.clone())
            .try_into()
            .with_context(|| format!("`{key}`"))?;
        let latency = fl_compress::duration::millis(&raw.latency).with_context(|| {
            let text = &raw.latency;
            format!("`{key}.latency` is \"{text}\", but must be a whole number with ms or s, such as \"10ms\"")
        })?;
        ensure!(
            (0.0..1.0).contains(&raw.loss),
            "`{key}.loss` is {}, but must be at least 0 and below 1",
            raw.loss
        );
        let train = raw.train_seconds.unwrap_or(train);
        seconds(&format!("{key}.train_seconds"), train)?;
        let link = Self {
            up: rate(key, "up", raw.up.as_deref())?,
            down: rate(key, "down", raw.down.as_deref())?,
            latency: latency as f64 / 1_000.0,
            loss: raw.loss,
            train,
        };
        Ok((link, raw.clients))
    }

    fn seconds_up(&self, bytes: u64) -> f64 {
        bytes as f64 * (8.0 / (1.0 - self.loss)) / self.up
    }

    fn seconds(&self, load: &Load, per_example: f64) -> f64 {
        let bits = 8.0 / (1.0 - self.loss);
        let moved = self.seconds_up(load.up) + load.down as f64 * bits / self.down;
        moved + f64::from(load.ways) * self.latency + self.train + load.examples as f64 * per_example
    }
}

fn rate(key: &str, name: &str, text: Option<&str>) -> anyhow::Result<f64> {
    let Some(text) = text else { return Ok(f64::INFINITY) };
    bits(text).with_context(|| {
        format!("`{key}.{name}` is \"{text}\", but must be above 0 with bit/s, kbit/s, Mbit/s or Gbit/s, such as \"10Mbit/s\"")
    })
}

/// Longest training or wait, in seconds.
const LONGEST: f64 = 1e6;

fn seconds(key: &str, value: f64) -> anyhow::Result<()> {
    ensure!(
        (0.0..=LONGEST).contains(&value),
        "`{key}` is {value}, but must be from 0 to {LONGEST}"
    );
    Ok(())
}

/// Reads `10Mbit/s` as bits a second; `None` for any other text and for 0.
fn bits(text: &str) -> Option<f64> {
    let units = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let number: f64 = number.trim().parse().ok()?;
    Some(number * unit).filter(|bits| *bits >= 1.0 && *bits <= 1e15)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clock(links: &str, clients: usize) -> anyhow::Result<Clock> {
        let table: Table = format!("links = {links}").parse().unwrap();
        Clock::new(table.get("links"), clients, 2.0, 0.0)
    }

    const LOAD: Load = Load {
        up: 125_000,
        down: 250_000,
        ways: 2,
        examples: 10,
    };

    #[test]
    fn a_part_is_the_way_there_training_and_the_way_back() {
        let clock = clock(r#"{ up = "1Mbit/s", down = "2 Mbit/s", latency = "50ms" }"#, 1).unwrap();
        assert!((clock.seconds(0, &LOAD) - (1.0 + 1.0 + 0.1 + 2.0)).abs() < 1e-9);
        let lossy = self::clock(r#"{ up = "1Mbit/s", loss = 0.5, train_seconds = 0.0 }"#, 1).unwrap();
        assert!((lossy.seconds(0, &LOAD) - 2.0).abs() < 1e-9);
        let free = Clock::new(None, 1, 0.0, 0.25).unwrap();
        assert_eq!(free.seconds(0, &LOAD), 2.5);
        let over = |at: usize| free.seconds_over(0, &LOAD, &table()[at]);
        assert!((over(0) - (0.3 + 0.002 + 2.5)).abs() < 1e-9);
    }

    #[test]
    fn classes_have_their_clients_in_order() {
        let links = r#"[{ up = "1Mbit/s", clients = 2 }, { up = "4Mbit/s" }]"#;
        let clock = clock(links, 5).unwrap();
        let up = |at: usize| clock.links[at].up;
        assert_eq!([up(0), up(1), up(2), up(4)], [1e6, 1e6, 4e6, 4e6]);
    }

    #[test]
    fn an_impossible_link_is_refused_and_the_key_named() {
        for (links, want) in [
            (r#"{ up = "0Mbit/s" }"#, "`engine.links.up` is \"0Mbit/s\""),
            (r#"{ down = "-1Mbit/s" }"#, "`engine.links.down`"),
            (r#"{ down = "nanMbit/s" }"#, "`engine.links.down`"),
            (r#"{ up = "10 miles" }"#, "`engine.links.up`"),
            (r#"{ latency = "-1ms" }"#, "`engine.links.latency`"),
            ("{ loss = 1.0 }", "`engine.links.loss` is 1"),
            ("{ loss = -0.1 }", "`engine.links.loss`"),
            ("{ loss = nan }", "`engine.links.loss`"),
            ("{ train_seconds = -1.0 }", "`engine.links.train_seconds` is -1"),
            ("{ speed = 3 }", "unknown field `speed`"),
            ("[]", "a list of tables"),
            ("3", "must be a table"),
            ("{ clients = 2 }", "`engine.links.clients` is 2, but 3 of the 3"),
            ("[{ clients = 4 }, {}]", "`engine.links[0].clients` is 4"),
            ("[{}, {}]", "`engine.links[0].clients` is missing"),
        ] {
            let error = format!("{:#}", clock(links, 3).unwrap_err());
            assert!(error.contains(want), "{links}: {error}");
        }
        let error = Clock::new(None, 1, f64::NAN, 0.0).unwrap_err().to_string();
        assert!(error.contains("`engine.train_seconds`"), "{error}");
    }

    proptest! {
        #[test]
        fn more_bytes_or_a_slower_link_never_take_less_time(
            up in 0u64..1 << 40, more in 0u64..1 << 20, rate in 1u32..10_000, loss in 0.0..0.9f64
        ) {
            let at = |rate: u32, loss: f64, up: u64| {
                let links = format!("{{ up = \"{rate}kbit/s\", loss = {loss:?} }}");
                clock(&links, 1).unwrap().seconds(0, &Load { up, ..LOAD })
            };
            let first = at(rate, loss, up);
            prop_assert!(first.is_finite() && first <= at(rate, loss, up + more));
            prop_assert!(first >= at(rate + 1, loss, up) && first <= at(rate, loss + 0.05, up));
        }
    }
}
