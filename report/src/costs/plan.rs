//! The costs file: prices and energy of links, parsed into a plan whose values are in range.

use serde::Deserialize;

use crate::error::Error;

/// Bytes of a GB, the unit of prices.
pub(crate) const GB: f64 = 1e9;

/// What bytes cost.
#[derive(Debug, Clone, PartialEq)]
pub struct CostsPlan {
    /// The currency of prices, 1 to 16 characters.
    pub currency: String,
    /// Grams of carbon dioxide per kWh.
    pub carbon_g_per_kwh: f64,
    /// The link of clients that no entry of `[[links]]` names.
    pub default: Link,
    /// Links of some clients. The first link that names a client applies.
    links: Vec<(Vec<Pattern>, Link)>,
}

/// Price and energy of a link: finite, not negative, per GB of 10⁹ bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Link {
    /// Price of a GB from the client to the server.
    pub price_per_gb_up: f64,
    /// Price of a GB from the server to the client.
    pub price_per_gb_down: f64,
    /// Energy of a GB in either direction, in kWh.
    pub kwh_per_gb: f64,
}

/// A client's name, or a prefix of names.
#[derive(Debug, Clone, PartialEq)]
enum Pattern {
    Name(String),
    Prefix(String),
}

impl Pattern {
    fn matches(&self, client: &str) -> bool {
        match self {
            Self::Name(name) => name == client,
            Self::Prefix(prefix) => client.starts_with(prefix),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    currency: String,
    carbon_g_per_kwh: f64,
    link: RawLink,
    links: Vec<RawLinks>,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            currency: "EUR".to_owned(),
            carbon_g_per_kwh: 0.0,
            link: RawLink::default(),
            links: Vec::new(),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawLink {
    price_per_gb_up: Option<f64>,
    price_per_gb_down: Option<f64>,
    kwh_per_gb: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLinks {
    clients: Vec<String>,
    price_per_gb_up: Option<f64>,
    price_per_gb_down: Option<f64>,
    kwh_per_gb: Option<f64>,
}

const NOT_NEGATIVE: &str = "it must be a finite number, not negative";
const PATTERN: &str = "it must be a client's name, or a prefix of names that ends in `*`";
const CURRENCY: &str = "it must have 1 to 16 characters, none of them a control character";

impl CostsPlan {
    /// Parses a costs file. A missing value of `[[links]]` is that of `[link]`, any other missing value is zero.
    ///
    /// # Errors
    /// `Syntax` and `Value`, naming the key, its value and the rule.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let raw: Raw = toml::from_str(text).map_err(|e| Error::Syntax(e.to_string().trim_end().to_owned()))?;
        let chars = raw.currency.chars().count();
        if !(1..=16).contains(&chars) || raw.currency.chars().any(char::is_control) {
            return Err(wrong("currency", format!("{:?}", raw.currency), CURRENCY));
        }
        let default = link("link", &raw.link, &Link::default())?;
        let mut links = Vec::with_capacity(raw.links.len());
        for (place, raw) in raw.links.into_iter().enumerate() {
            let table = format!("links[{place}]");
            if raw.clients.is_empty() {
                return Err(wrong(
                    &format!("{table}.clients"),
                    "[]".to_owned(),
                    "it must name a client",
                ));
            }
            let own = RawLink {
                price_per_gb_up: raw.price_per_gb_up,
                price_per_gb_down: raw.price_per_gb_down,
                kwh_per_gb: raw.kwh_per_gb,
            };
            let patterns = raw.clients.iter().map(|text| pattern(&table, text));
            links.push((patterns.collect::<Result<_, _>>()?, link(&table, &own, &default)?));
        }
        Ok(Self {
            carbon_g_per_kwh: number("carbon_g_per_kwh", raw.carbon_g_per_kwh)?,
            currency: raw.currency,
            default,
            links,
        })
    }

    /// Parses a table of another file, such as `[costs]` of server.toml.
    ///
    /// # Errors
    /// As [`CostsPlan::from_toml`].
    pub fn from_table(table: &toml::Table) -> Result<Self, Error> {
        Self::from_toml(&table.to_string())
    }

    /// Whether every price and energy is zero.
    pub fn is_free(&self) -> bool {
        let links = self.links.iter().map(|(_, link)| link);
        links.chain([&self.default]).all(|link| *link == Link::default())
    }

    /// Finds the link of a client.
    pub fn link(&self, client: &str) -> &Link {
        let own = self
            .links
            .iter()
            .find(|(patterns, _)| patterns.iter().any(|pattern| pattern.matches(client)));
        own.map_or(&self.default, |(_, link)| link)
    }
}

fn link(table: &str, raw: &RawLink, default: &Link) -> Result<Link, Error> {
    let own = |key: &str, value: Option<f64>, default: f64| match value {
        None => Ok(default),
        Some(value) => number(&format!("{table}.{key}"), value),
    };
    Ok(Link {
        price_per_gb_up: own("price_per_gb_up", raw.price_per_gb_up, default.price_per_gb_up)?,
        price_per_gb_down: own("price_per_gb_down", raw.price_per_gb_down, default.price_per_gb_down)?,
        kwh_per_gb: own("kwh_per_gb", raw.kwh_per_gb, default.kwh_per_gb)?,
    })
}

fn number(key: &str, value: f64) -> Result<f64, Error> {
    if value.is_finite() && value >= 0.0 {
        // Minus zero is zero.
        Ok(value.abs())
    } else {
        Err(wrong(key, value.to_string(), NOT_NEGATIVE))
    }
}

fn pattern(table: &str, text: &str) -> Result<Pattern, Error> {
    let prefix = text.strip_suffix('*');
    let name = prefix.unwrap_or(text);
    if text.is_empty() || name.contains('*') {
        return Err(wrong(&format!("{table}.clients"), format!("{text:?}"), PATTERN));
    }
    Ok(match prefix {
        Some(prefix) => Pattern::Prefix(prefix.to_owned()),
        None => Pattern::Name(name.to_owned()),
    })
}

fn wrong(key: &str, value: String, rule: &'static str) -> Error {
    Error::Value {
        key: key.to_owned(),
        value,
        rule,
    }
}
